"""What strangers send: every answer is a typed 4xx, and the server stays as it was."""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from PIL import Image
from small_service import ITEMS, Place, Running, jpeg, name, problem, resident, wait_until

from kenthash import Index
from processes import PATIENCE


@pytest.fixture(autouse=True)
def unharmed(client: httpx.Client, server: Running) -> Iterator[None]:
    """After each of these the server answers as before, and has logged no failure of its own."""
    yield
    hits = client.post("/search", json={"id": name(0), "k": 100}).json()
    assert len(hits["hits"]) == ITEMS - 1
    levels = {json.loads(line)["level"] for line in server.log.read_text().splitlines()}
    assert "error" not in levels


def upload(client: httpx.Client, content: bytes, **fields: str) -> httpx.Response:
    return client.post("/search", files={"image": ("picture.jpg", content, "image/jpeg")}, data=fields)


def png(width: int, height: int, data: bytes) -> bytes:
    """A PNG of one grey channel that claims any size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_uploads_that_are_no_pictures(client: httpx.Client, server: Running) -> None:
    whole = jpeg(1, (400, 300))
    stream = BytesIO()
    Image.new("RGB", (64, 64)).save(stream, "PNG")
    for content in (
        b"x",
        b"GIF89a",
        b"\xff\xd8\xff\xe0" + bytes(100),
        whole[: len(whole) // 2],
        stream.getvalue()[:-30],
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",  # a format whose decoder starts a program
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"PK\x03\x04" + whole,
        png(100, 100, b"not zlib"),
    ):
        problem(upload(client, content), 422, "bad-picture")
    problem(upload(client, b""), 422, "invalid")
    problem(client.post("/search", files={"other": ("x", whole)}), 422, "invalid")
    polyglot = upload(client, whole + b"<script>alert(1)</script>PK\x05\x06" + bytes(18))  # a picture first of all
    assert polyglot.status_code == 200 and polyglot.headers["x-content-type-options"] == "nosniff"


def test_bombs_cost_little(client: httpx.Client, server: Running) -> None:
    before = resident(server.process.pid)
    problem(upload(client, png(60_000, 60_000, zlib.compress(bytes(1 << 20)))), 413, "too-large")
    problem(upload(client, png(2**31 - 1, 2**31 - 1, b"")), 413, "too-large")
    rows = zlib.compress(bytes(8_001 * 8_000), 9)  # 64 megapixels, all there, in 62 kB
    problem(upload(client, png(8_000, 8_000, rows)), 413, "too-large")
    bomb = zlib.compress(bytes(200 << 20), 9)  # 200 MiB of rows for a picture that says it is small
    answer = upload(client, png(16, 16, bomb))
    assert answer.status_code in (200, 422)
    assert resident(server.process.pid) - before < 100 << 20


def test_bodies_too_large(client: httpx.Client, server: Running) -> None:
    problem(upload(client, bytes(3 << 20)), 413, "too-large")

    def without_length() -> Iterator[bytes]:
        yield b'{"text": "'
        for _ in range(5 << 4):
            yield b"x" * (1 << 16)

    headers = {"Content-Type": "application/json"}
    problem(client.post("/search", content=without_length(), headers=headers), 413, "too-large")
    many = b'{"code": "00", "metadata": {' + b",".join(b'"%d": 1' % i for i in range(120_000)) + b"}}"
    problem(client.put("/items/x", content=many, headers=headers), 413, "too-large")  # less than an upload may have
    before = resident(server.process.pid)
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as raw:  # an endless one is cut off
        raw.sendall(b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        raw.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(1000):
                raw.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
    assert resident(server.process.pid) - before < 30 << 20


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"text": ' * 50_000, 400),
        (b'{"text": "\\ud800"}', 400),
        (b'{"text": "\xff"}', 400),
        (b'{"text": NaN}', 422),
        (b"null", 422),
        (b"{}", 422),
        (b'{"text": ""}', 422),
        (b'{"text": " \\t "}', 422),
        (b'{"text": "a", "id": "b"}', 422),
        (b'{"text": "a", "k": 0}', 422),
        (b'{"text": "a", "k": 101}', 422),
        (b'{"text": "a", "k": 1e999}', 422),
        (b'{"text": "a", "k": "5"}', 422),
        (b'{"text": "a", "k": true}', 422),
        (b'{"text": "a", "offset": 9901}', 422),
        (b'{"text": "a", "offset": 99999999999999999999999999}', 422),
        (b'{"text": "a", "radius": 65}', 422),
        (b'{"text": "a", "radius": -1}', 422),
        (b'{"text": "a", "find": "passwords"}', 422),
        (b'{"text": "a", "__proto__": 1}', 422),
        (b'{"text": "' + b"a" * 2001 + b'"}', 422),
        (b'{"id": "a\\u0000b"}', 404),
        (b'{"id": "../../etc/passwd"}', 404),
    ],
)
def test_json_that_is_wrong(client: httpx.Client, body: bytes, status: int) -> None:
    answer = client.post("/search", content=body, headers={"Content-Type": "application/json"})
    problem(answer, status, {400: "malformed", 404: "not-found", 422: "invalid"}[status])


def test_requests_that_are_wrong(client: httpx.Client) -> None:
    problem(client.post("/search", content=b"text=a"), 415, "media-type")
    problem(client.post("/search", data={"text": "a"}), 415, "media-type")
    form = {"Content-Type": "multipart/form-data"}
    problem(client.post("/search", content=b"xx", headers=form), 400, "malformed")
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    problem(
        client.post("/search", content=b'--x\r\nContent-Disposition: form-data; name="k"', headers=form), 422, "invalid"
    )
    many = [("image", ("x", jpeg(1))), ("image", ("y", jpeg(2)))]
    problem(client.post("/search", files=many), 400, "malformed")
    problem(upload(client, jpeg(1), k="many"), 422, "invalid")
    problem(upload(client, jpeg(1), text="both"), 422, "invalid")
    problem(client.get("/nowhere"), 404, "not-found")
    problem(client.request("PATCH", "/items/x"), 405, "method-not-allowed")
    problem(client.get("/search"), 405, "method-not-allowed")
    problem(client.get("/labels?limit=0"), 422, "invalid")
    problem(client.put("/items/x", json={"code": "00"}), 422, "invalid")
    problem(client.put("/items/x", json={"code": "zz" * 8}), 422, "invalid")
    problem(client.put("/items/x", json={"code": "00" * 8, "metadata": {"a": {"b": 1}}}), 422, "invalid")
    problem(client.put("/items/x", json={"code": "00" * 8, "metadata": {"a": "x" * 70_000}}), 422, "invalid")
    problem(client.put("/items/%00", json={"code": "00" * 8}), 422, "invalid")
    problem(client.put(f"/items/{'x' * 1025}", json={"code": "00" * 8}), 422, "invalid")


@pytest.mark.parametrize(
    "filter",
    [
        "'; DROP TABLE items; --",
        "year = 1; DELETE FROM items",
        "year = 1) OR (1=1",
        "year = 1 UNION SELECT code FROM items",
        "\"year') IS NULL OR ('1\" = 1",
        '"$.path" = 1 or json_extract(metadata, 1)',
        "year = 1 /* x",
        "labels has 'x' --",
        "(" * 2000,
        "not " * 900 + "a = 1",
        "a = 1 or " * 300 + "a = 1",
        "a = 9" + "9" * 400,
        "a\x00 = 1",
    ],
)
def test_filters_inject_nothing(client: httpx.Client, filter: str) -> None:
    """Either it is not understood, or it is a comparison with what stands there, which is true of no item."""
    answer = client.post("/search", json={"id": name(0), "filter": filter})
    if answer.status_code == 200:
        assert answer.json()["hits"] == []
    else:
        assert "filter" in problem(answer, 422, "invalid")


def raw(server: Running, request: bytes, end: bool = False) -> bytes:
    """What comes back until the server hangs up; `end` hangs up first, for requests that are none."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        if end:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        # A server that hangs up with bytes still unread resets the connection: an end like any other.
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1 << 16):
                received += part
        return received


@pytest.mark.parametrize(
    "address",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/auth.py",
        "/static//etc/passwd",
        "/static/..\\app.py",
        "/static/%00",
        "/items/../../etc/passwd/image",
        "/items/%2e%2e%2f%2e%2e%2fetc%2fpasswd/image",
        "/items//etc/passwd/image",
        "/items/photos/2024/../../secret.jpg/image",
        "/items/%ff%fe/image",
        "/items//image",
        "/items/" + "a/" * 3000,
        "//evil.example/items",
    ],
)
def test_addresses_lead_nowhere(server: Running, address: str) -> None:
    answer = raw(server, f"GET {address} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 405")), answer[:300]
    assert b"root:" not in answer and b"kenthash.service" not in answer


def test_headers(server: Running, client: httpx.Client) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "evil.example:80"):
        problem(client.get("/stats", headers={"Host": host}), 421, "wrong-host")
    for host in (f"localhost:{server.port}", "127.0.0.1", "[::1]:80", "LOCALHOST"):
        assert client.get("/stats", headers={"Host": host}).status_code == 200
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answers = [client.options("/search", headers=preflight), client.get("/stats", headers=preflight)]
    assert not any(header.startswith("access-control") for response in answers for header in response.headers)
    page = client.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    split = raw(server, b"GET /items/x%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert split.startswith(b"HTTP/1.1 404") and b"set-cookie" not in split.lower()
    for request in (b"\x00\xff\n\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
                    b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"A" * 100_000):  # fmt: skip
        assert b" 500 " not in raw(server, request, end=True)[:30]


FOREIGN: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "http://localhost:1"},  # another program of this machine
    {"Origin": "null"},  # a sandboxed frame, a local file
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_foreign_page_has_no_work_done(client: httpx.Client, headers: dict[str, str]) -> None:
    """A form needs no preflight: without a check it would be processed, and only its answer withheld."""
    form = {"image": ("x", jpeg(1))}
    problem(client.post("/search", files=form, headers=headers), 403, "foreign-page")
    problem(client.post("/search", json={"text": "x"}, headers=headers), 403, "foreign-page")
    problem(client.put("/items/foreign", files=form, headers=headers), 403, "foreign-page")
    problem(client.delete(f"/items/{name(0)}", headers=headers), 403, "foreign-page")
    problem(client.get(f"/items/{name(0)}/thumbnail", headers=headers), 403, "foreign-page")
    problem(client.get("/labels", headers=headers), 403, "foreign-page")
    problem(client.options("/search", headers=headers), 403, "foreign-page")
    for address in ("/", "/static/app.js", "/docs", "/healthz"):
        assert client.get(address, headers=headers).status_code == 200
    assert client.get("/items/foreign").status_code == 404 and client.get(f"/items/{name(0)}").status_code == 200


def test_our_own_page_links_and_programs_are_served(client: httpx.Client, server: Running) -> None:
    ours = f"http://localhost:{server.port}"
    for headers in (
        {"Host": f"localhost:{server.port}", "Origin": ours},
        {"Host": "localhost", "Origin": "http://localhost:80"},
        {"Host": "localhost:443", "Origin": "https://localhost"},  # a proxy that does TLS
        {"Host": "127.0.0.1:8000", "Origin": "https://photos.example", "Sec-Fetch-Site": "same-origin"},  # another
        {"Sec-Fetch-Site": "none"},  # the address bar
    ):
        answer = client.post("/search", files={"image": ("x", jpeg(1))}, headers=headers)
        assert answer.status_code == 200, (headers, answer.text)
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.get(f"/items/{name(0)}/image", headers=link).status_code == 200
    problem(client.post("/search", files={"image": ("x", jpeg(1))}, headers=link), 403, "foreign-page")


@pytest.mark.parametrize("part", ["nonsense", "bytes=5-2", "bytes=99999999-", "bytes=" + ",".join(["0-1"] * 1000)])
def test_parts_of_files_are_not_given(client: httpx.Client, part: str) -> None:
    for address in ("/", "/static/style.css", f"/items/{name(0)}/image"):
        whole = client.get(address)
        response = client.get(address, headers={"Range": part})
        assert response.status_code == whole.status_code == 200 and response.content == whole.content


def test_schemathesis_finds_no_failure(server: Running, client: httpx.Client, place: Place, tmp_path: Path) -> None:
    """Requests made from the OpenAPI description, good and bad: none may end in a 500, or in what is not described."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/openapi.json", "--seed", "1",
        "--phases", "examples,coverage,fuzzing", "--max-examples", "8", "--max-time", "25",
        "--suppress-health-check", "all", "--request-timeout", str(PATIENCE),
        "--checks", "not_a_server_error,content_type_conformance,response_schema_conformance,status_code_conformance",
        "--no-color",
    ]  # fmt: skip
    completed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    with Index.open(place.index) as index:  # what it has put there
        index.remove([id for id in index.list_ids(limit=100_000) if not id.startswith("photos/")])
    wait_until(lambda: client.get("/stats").json()["items"] == ITEMS)  # the server notices by itself
    assert completed.returncode == 0, completed.stdout[-6000:]


def test_private_keys_are_no_filters(client: httpx.Client) -> None:
    """By comparisons the path of a picture could be read out, character by character."""
    for filter in ("path > '/home'", 'not (year = 1 or "path" is null)', "digest in ('a')", "size = 1", "mtime < 9e9"):
        answer = client.post("/search", json={"id": name(0), "filter": filter})
        assert "describes a file where the index is" in problem(answer, 422, "invalid")
    assert client.post("/search", json={"id": name(0), "filter": "paths = 'a' or year = 1"}).status_code == 200


def test_ids_that_are_not_utf8_stay_apart(server: Running, client: httpx.Client) -> None:
    """The framework decodes both to the same character."""
    for raw in ("/items/%FF", "/items/%FE", "/items/a%C3/image"):
        answer = client.put(raw, json={"code": "00" * 8})
        assert "not UTF-8" in problem(answer, 400, "malformed")
        problem(client.get(raw), 400, "malformed")
    problem(client.get("/items/%EF%BF%BD"), 404, "not-found")  # the character itself
