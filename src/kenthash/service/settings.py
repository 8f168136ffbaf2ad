"""What a service may do and use. Limits are per request unless said otherwise."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServiceSettings:
    index: str  # a file, milvus://... or postgresql://...
    model: Path | None = None  # default: the one noted in the index
    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = None
    writable: bool = False
    log_queries: bool = False
    pictures: tuple[Path, ...] = ()  # only pictures below these folders are shown; default: below those indexed
    seconds: float = 30.0
    max_body: int = 20 << 20  # bytes
    max_pixels: int = 50_000_000  # of an uploaded picture
    upload_seconds: float = 2.5  # of processor time to decode it
    thumbnail_seconds: float = 3.5  # of processor time to decode a picture of the index, which may have more pixels
    max_in_flight: int = 64  # requests processed at once; more are refused
    max_queue: int = 128  # texts and pictures that wait for the encoder
    thumbnail_bytes: int = 64 << 20  # of thumbnails kept in memory
    device: str = "auto"  # of the model: a GPU where there is one
    threads: int = 2  # that search, and as many that decode pictures
    workers: int = 1  # processes, which share the threads; limits are for each of them
    metrics: Path | None = None  # where several workers count, each in its own files
