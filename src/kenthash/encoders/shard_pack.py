"""A data set in shards to a feature pack: the vectors of each shard on this machine or on a Ray cluster, then joined.

The ids, texts and labels of a shard are known when it has been read, so its part has them, too. Parts are kept in
`OUT.partial/` until the pack is whole.
"""

import hashlib
import io
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.data.changes import FileRecord
from kenthash.data.dataset import Dataset
from kenthash.data.decoding import DecoderPool
from kenthash.data.manifest import Manifest
from kenthash.data.pack import write_pack
from kenthash.data.pictures import PIPELINE
from kenthash.data.readers.samples import Sample, Shard
from kenthash.data.readers.shards import find_shards, labelled_table, listed_shards
from kenthash.encoders.batches import discard
from kenthash.encoders.graph import check_runtime_device
from kenthash.encoders.onnx_encoder import ABOUT, OnnxEncoder
from kenthash.encoders.pipeline import EncodeReport, existing_pack, finished_batch, pack_key
from kenthash.encoders.shard_work import Advance, ShardJob, ShardResult, ShardWorker, sample_batches, work_on_shards
from kenthash.encoders.shipping import ShippedFolder
from kenthash.encoders.stream import EncodeBatch, VectorEncoder, encode_stream
from kenthash.errors import DataError, UsageError
from kenthash.files import alone, cache_folder, expand, load_npz
from kenthash.storage import absolute, display_address


@dataclass(frozen=True)
class _Plan:
    """Shards to be encoded, and what is known of the data set beforehand."""

    name: str
    shards: list[Shard]
    key: str
    classes: list[str] | None = None  # None: those that occur
    licence: str = ""


def encode_shards(data: str, encoder: VectorEncoder, out: Path, ray: str | None = None) -> EncodeReport:
    """Encode the shards of a data set into the feature pack `out`; `ray` is the address of a cluster."""
    shards = find_shards(data)
    name = PurePosixPath(display_address(absolute(data))).name
    return _encode(_Plan(name, shards, shards_key(shards, encoder.name)), encoder, out, ray)


def encode_on_ray(dataset: Dataset, encoder: VectorEncoder, out: Path, ray: str) -> EncodeReport:
    """As `encode_dataset`, on a Ray cluster whose machines can read the picture files."""
    if dataset.pictures is None:
        raise DataError(f"{dataset.name}: has no pictures: only a set with pictures can be encoded")
    digests = FileRecord(cache_folder() / "files.sqlite").digests(dataset.pictures)
    shards, key = listed_shards(dataset, digests), pack_key(dataset, encoder.name)
    return _encode(_Plan(dataset.name, shards, key, dataset.classes, dataset.licence), encoder, out, ray)


def shards_key(shards: Sequence[Shard], encoder: str) -> str:
    content = [PIPELINE, encoder, [[shard.name, shard.state] for shard in shards]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _encode(plan: _Plan, encoder: VectorEncoder, out: Path, ray: str | None) -> EncodeReport:
    out = expand(out).absolute()
    partial = out.with_name(f"{out.name}.partial")
    if (existing := existing_pack(out, plan.key)) is not None:
        discard(partial)
        return existing
    with alone(partial):
        if (existing := existing_pack(out, plan.key)) is not None:  # of a process that we waited for
            discard(partial)
            return existing
        began, folder = time.perf_counter(), partial / plan.key
        manifest = Manifest(folder, {"kind": "kenthash vectors 1", "encoder": encoder.name})
        resumed = sum(manifest.finished[s.name].items for s in plan.shards if manifest.has(s.name, s.state))
        job = LocalEncoder(encoder) if ray is None else ShippedEncoder.of(encoder)
        report = work_on_shards(plan.shards, job, manifest, ".npz", "encoding", ray)
        seconds = time.perf_counter() - began
        if report.failed:
            raise DataError(report.failed_line())
        parts = [folder / manifest.finished[shard.name].file for shard in plan.shards]
        dataset, skipped = _join_parts(plan, encoder, parts, folder, out)
        discard(partial)
    assert dataset.texts is not None
    return EncodeReport(
        pack=out,
        items=len(dataset),
        texts=sum(map(len, dataset.texts)),
        reused=False,
        resumed=resumed,
        encoded=report.items + len(report.skipped),
        seconds=seconds,
        skipped=skipped,
    )


@dataclass(frozen=True)
class LocalEncoder:
    encoder: VectorEncoder

    def worker(self, threads: int | None) -> ShardWorker:
        return EncodeWorker(self.encoder, threads)


@dataclass(frozen=True)
class ShippedEncoder:
    """Makes workers on other machines, to which the encoder's graphs are sent."""

    graphs: ShippedFolder

    @classmethod
    def of(cls, encoder: VectorEncoder) -> ShardJob:
        if not isinstance(encoder, OnnxEncoder):
            raise UsageError(f"{encoder.name}: on a cluster its ONNX graphs are used: leave out --device")
        return cls(ShippedFolder.read(encoder.folder, [ABOUT, *encoder.about.files], "encoders", encoder.folder.name))

    def worker(self, threads: int | None) -> ShardWorker:
        return EncodeWorker(OnnxEncoder(self.graphs.unpack(), check_runtime_device("auto")), threads)


class EncodeWorker:
    """Turns a shard into the vectors of its pictures and texts, with ids, texts and labels."""

    def __init__(self, encoder: VectorEncoder, threads: int | None) -> None:
        self.encoder, self.threads = encoder, threads
        self.decoders = DecoderPool()

    def close(self) -> None:
        self.decoders.close()

    def __call__(self, shard: Shard, advance: Advance) -> ShardResult:
        samples: list[Sample] = []
        image = [np.empty((0, self.encoder.image_dim), np.float16)]
        text = [np.empty((0, self.encoder.text_dim), np.float16)]
        skipped: dict[str, str] = {}
        waiting: deque[list[Sample]] = deque()

        def batches() -> Iterator[EncodeBatch]:
            for batch in sample_batches(shard, skipped):
                waiting.append(batch)
                texts = [text for sample in batch for text in sample.texts]
                yield EncodeBatch([sample.picture for sample in batch], texts)

        with closing(encode_stream(self.encoder, batches(), self.decoders.square_with_facts, self.threads)) as stream:
            for encoded in stream:
                batch = waiting.popleft()
                part = finished_batch(0, len(batch), [sample.texts for sample in batch], encoded)
                samples += [batch[row] for row in part.rows.tolist()]
                image.append(part.image)
                text.append(part.text)
                skipped |= {batch[row].id: reason for row, reason in part.skipped.items()}
                advance(len(batch))
        content = _npz(samples, np.concatenate(image), np.concatenate(text), skipped)
        return ShardResult(content, len(samples), skipped)


def _npz(
    samples: Sequence[Sample], image: NDArray[np.float16], text: NDArray[np.float16], skipped: dict[str, str]
) -> bytes:
    about = {"items": [[sample.id, sample.texts, sample.labels] for sample in samples], "skipped": skipped}
    stream = io.BytesIO()
    np.savez(stream, image=image, text=text, about=np.frombuffer(json.dumps(about).encode(), np.uint8))
    return stream.getvalue()


def _join_parts(
    plan: _Plan, encoder: VectorEncoder, parts: Sequence[Path], folder: Path, out: Path
) -> tuple[Dataset, dict[str, str]]:
    """Write the pack from its parts, of which one at a time is in memory."""
    ids: list[str] = []
    texts: list[list[str]] = []
    labels: list[list[str]] = []
    skipped: dict[str, str] = {}
    for about in map(_about, parts):
        for id, own_texts, own_labels in about["items"]:
            ids.append(id)
            texts.append(own_texts)
            labels.append(own_labels)
        skipped |= about["skipped"]
    if not ids:
        first = next((f"{item}: {reason}" for item, reason in skipped.items()), "there are none")
        raise DataError(f"{plan.name}: none of its items could be encoded; the first: {first}")
    dataset = labelled_table(plan.name, ids, texts, labels, plan.classes, plan.licence)
    meta = {
        "encoders": encoder.towers,
        "encoder": encoder.spec,
        "encoder_weights": encoder.weights,
        "pictures": PIPELINE,
        "fingerprint": plan.key,
        "skipped": [{"id": item, "reason": reason} for item, reason in skipped.items()],
    }
    image, text = (load_npz(part)["image"] for part in parts), (load_npz(part)["text"] for part in parts)
    write_pack(out, folder / "pack", dataset, image, text, meta)
    return dataset, skipped


def _about(part: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(load_npz(part)["about"].tobytes())
    return about
