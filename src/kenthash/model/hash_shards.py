"""A data set in shards to codes: one Parquet file per shard, on this machine or on a Ray cluster, with a manifest.

    codes/manifest.jsonl    see `data.manifest`; the first line has the model, the version of the pictures, the bits and
                            `nested`: shorter lengths, whose codes are the first bits of the long ones
    codes/00000.parquet     id (text), code (bytes), metadata (a JSON object): what `kenthash index add --codes` reads

The codes are those that `index add` and `Hasher.encode_pictures` give, bit for bit.
"""

import hashlib
import io
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kenthash.codes import Codes
from kenthash.data.changes import FileRecord
from kenthash.data.decoding import DecoderPool
from kenthash.data.manifest import CODES, Manifest
from kenthash.data.pack import is_pack
from kenthash.data.pictures import PIPELINE, PictureInput
from kenthash.data.readers import read_dataset, reads_shards
from kenthash.data.readers.samples import Sample, Shard
from kenthash.data.readers.shards import find_shards, listed_shards
from kenthash.encoders.shard_work import Advance, ShardResult, ShardWorker, WorkReport, sample_batches, work_on_shards
from kenthash.encoders.shipping import ShippedFolder
from kenthash.errors import DataError, UsageError
from kenthash.files import alone, cache_folder, content_digest, expand
from kenthash.model.hasher import Hasher
from kenthash.model.pretrained import find_model
from kenthash.storage import absolute, display_address, is_address


def hash_dataset(
    data: str | Path, model: Path, out: Path, ray: str | None = None, device: str = "auto"
) -> tuple[Path, WorkReport]:
    """Hash the pictures of a data set into the folder `out`. `ray` is the address of a cluster (host:port, or `auto`).

    After an interruption the same call goes on with the shards that are missing; shards that have changed are done
    again. Those that could not be read are in the report.
    """
    shards, out = shards_of(str(data)), expand(out).absolute()
    folder = find_model(expand(model)).resolve()
    hasher = Hasher.load(folder, device)
    _ = hasher.encoder  # before anything is written
    about = {
        "kind": CODES,
        "bits": hasher.bits,
        "model": _model_digest(folder),
        "pictures": PIPELINE,
    }
    with alone(out):
        remarks = {
            "nested": hasher.config.nested,
            "model_path": str(folder),
            "data": display_address(absolute(str(data))),
        }
        manifest = Manifest(out, about, remarks)
        job = ShippedHasher(*hasher.shipped()) if ray else LocalHasher(hasher)
        report = work_on_shards(shards, job, manifest, ".parquet", "hashing", ray)
    return out, report


def cached_codes(data: str, model: Path, device: str = "auto") -> tuple[Path, dict[str, str]]:
    """The codes of a data set in the user's cache, where shards that have not changed are not hashed again; and the
    items that this call had to skip, with reasons."""
    folder = find_model(expand(model)).resolve()
    name = hashlib.sha256(f"{absolute(data)}\n{_model_digest(folder)}".encode()).hexdigest()[:32]
    out, report = hash_dataset(data, model, cache_folder() / "codes" / name, device=device)
    if report.failed:
        raise DataError(report.failed_line())
    return out, report.skipped


def _model_digest(folder: Path) -> str:
    """As an index notes it (`search.models.digest`)."""
    return content_digest(folder / "config.json", folder / "model.safetensors")[:32]


def shards_of(data: str) -> list[Shard]:
    """The shards of any data set with pictures; one of picture files is cut into stretches."""
    if not is_address(data) and is_pack(expand(Path(data))):
        raise UsageError(f"{data}: a feature pack, which has no pictures: give its vectors to `kenthash index add`")
    if reads_shards(data):
        return find_shards(data)
    dataset = read_dataset(data, needs_metadata=False)
    if dataset.pictures is None:
        raise DataError(f"{data}: has no pictures")
    return listed_shards(dataset, FileRecord(cache_folder() / "files.sqlite").digests(dataset.pictures))


@dataclass(frozen=True)
class LocalHasher:
    """Makes workers of a model that is loaded already."""

    hasher: Hasher

    def worker(self, threads: int | None) -> ShardWorker:
        return HashWorker(self.hasher, threads)


@dataclass(frozen=True)
class ShippedHasher:
    """Makes workers on other machines, to which the model is sent."""

    model: ShippedFolder
    encoder: ShippedFolder | None  # None where it is part of the model

    def worker(self, threads: int | None) -> ShardWorker:
        if self.encoder is not None:
            self.encoder.unpack()
        return HashWorker(Hasher.load(self.model.unpack()), threads)


class HashWorker:
    """Turns a shard into a Parquet file of its codes."""

    def __init__(self, hasher: Hasher, threads: int | None) -> None:
        self.hasher, self.threads = hasher, threads
        self.decoders = DecoderPool()

    def close(self) -> None:
        self.decoders.close()

    def __call__(self, shard: Shard, advance: Advance) -> ShardResult:
        samples: list[Sample] = []
        codes = [np.empty((0, self.hasher.bits // 8), np.uint8)]
        skipped: dict[str, str] = {}
        waiting: deque[list[Sample]] = deque()

        def batches() -> Iterator[Sequence[PictureInput]]:
            for batch in sample_batches(shard, skipped):
                waiting.append(batch)
                yield [sample.picture for sample in batch]

        for part, _, faults in self.hasher.encode_files(batches(), self.threads, self.decoders):
            batch = waiting.popleft()
            good = [place for place in range(len(batch)) if place not in faults]
            samples += [batch[place] for place in good]
            codes.append(part[good])
            skipped |= {batch[place].id: reason for place, reason in faults.items()}
            advance(len(batch))
        return ShardResult(_parquet(samples, np.concatenate(codes)), len(samples), skipped)


def _parquet(samples: Sequence[Sample], codes: Codes) -> bytes:
    import pyarrow
    from pyarrow import parquet

    kinds: list[tuple[str, Any]] = [("id", pyarrow.string()), ("code", pyarrow.binary(codes.shape[1]))]
    fields = [pyarrow.field(name, kind, nullable=False) for name, kind in [*kinds, ("metadata", pyarrow.string())]]
    columns = [
        [sample.id for sample in samples],
        [code.tobytes() for code in codes],
        [json.dumps(sample.index_metadata(), ensure_ascii=False) for sample in samples],
    ]
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=pyarrow.schema(fields)), stream, compression="zstd")
    return stream.getvalue()
