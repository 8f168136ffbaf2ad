# The service, without PyTorch:
#   docker build -t kenthash .
#   docker run --rm -p 127.0.0.1:8000:8000 -v "$PWD/photos:/photos" -v kenthash-cache:/cache kenthash
# It indexes /photos and serves the page. The cache keeps the encoder, which is fetched once.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY LICENSES LICENSES
COPY src src
RUN python -m venv /opt/kenthash \
    && /opt/kenthash/bin/pip install --no-cache-dir -c constraints.txt ".[serve,milvus,postgres]"

FROM python:3.12-slim
RUN useradd --create-home --uid 1000 kenthash \
    && mkdir /photos /cache \
    && chown kenthash /photos /cache
COPY --from=build /opt/kenthash /opt/kenthash
ENV PATH=/opt/kenthash/bin:$PATH XDG_CACHE_HOME=/cache PYTHONUNBUFFERED=1
USER 1000
WORKDIR /photos
VOLUME ["/cache"]
EXPOSE 8000
HEALTHCHECK --interval=30s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=5)"]
COPY scripts/container.sh /usr/local/bin/serve-folder
ENTRYPOINT ["sh", "/usr/local/bin/serve-folder"]
