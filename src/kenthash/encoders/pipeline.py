"""A data set through an encoder to a feature pack: resumable, and whole or not there.

`encode_dataset` writes a pack; `features_for` keeps packs in the user's cache, so that data is encoded once. Two
encodings are the same where their keys are, the digests of items and encoder.
"""

import hashlib
import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kenthash.data.changes import FileRecord
from kenthash.data.dataset import Dataset
from kenthash.data.decoding import DecoderPool
from kenthash.data.pack import FeaturePack, is_pack, write_pack
from kenthash.data.pictures import PIPELINE
from kenthash.data.readers import read_dataset, reads_shards
from kenthash.data.readers.shards import find_shards
from kenthash.encoders import encoder_name, vector_encoder
from kenthash.encoders.batches import FinishedBatch, discard, finished, gaps, load_batch, save_batch
from kenthash.encoders.stream import BATCH, EncodeBatch, Encoded, VectorEncoder, encode_stream
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.files import alone, cache_folder, expand, read_json
from kenthash.progress import bar

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodeReport:
    pack: Path
    items: int  # in the pack
    texts: int
    reused: bool  # the pack was there already
    resumed: int  # items whose batches an earlier, interrupted run had finished
    encoded: int  # items of this run, the skipped among them
    seconds: float  # of this run's encoding
    skipped: dict[str, str]  # id -> reason

    @property
    def rate(self) -> float:
        return self.encoded / self.seconds if self.encoded else 0.0


def encode_dataset(dataset: Dataset, encoder: VectorEncoder, out: Path, batch: int = BATCH) -> EncodeReport:
    """Encode pictures and all texts of `dataset` into the feature pack `out`.

    Finished batches are kept in `OUT.partial/` until the pack is whole. A pack of the same items and encoder that is
    there already is used as it is; anything else at `out` is refused.
    """
    if batch < 1:
        raise UsageError(f"a batch of {batch}: use 1 or more")
    out = expand(out).absolute()
    key = _earlier_key(dataset, encoder, out) or pack_key(dataset, encoder.name)
    partial = out.with_name(f"{out.name}.partial")
    try:
        if (existing := existing_pack(out, key)) is not None:
            discard(partial)  # of a process that was killed between finishing and clearing up
            return existing
        with alone(partial):
            if (existing := existing_pack(out, key)) is not None:  # of a process that we waited for
                discard(partial)
                return existing
            for problem in dataset.problems:
                log.warning("%s: %s: %s", dataset.name, problem.what, problem.remedy)
            began = time.perf_counter()
            folder = partial / key
            resumed = _encode_gaps(dataset, encoder, folder, batch)
            seconds = time.perf_counter() - began
            skipped = _join_batches(dataset, encoder, key, folder, out)
            discard(partial)
    except OSError as error:
        raise KenthashError(f"{error.filename or out}: cannot be written: {error.strerror or error}") from error
    _, texts = _picture_items(dataset)
    return EncodeReport(
        pack=out,
        items=len(dataset) - len(skipped),
        texts=sum(len(own) for row, own in enumerate(texts) if row not in skipped),
        reused=False,
        resumed=resumed,
        encoded=len(dataset) - resumed,
        seconds=seconds,
        skipped={dataset.ids[row]: reason for row, reason in skipped.items()},
    )


def features_for(
    data: Path | Dataset, encoder: str = "light", cache: Path | None = None, device: str = "auto"
) -> FeaturePack:
    """The vectors of `data`: the pack itself where it is one, else encoded by `encoder` or found in the cache."""
    if isinstance(data, Path):
        data = expand(data)
        if is_pack(data):
            return FeaturePack.open(data)
    cached = (cache or cache_folder()) / "features"
    if isinstance(data, Path) and reads_shards(str(data)):
        from kenthash.encoders.shard_pack import encode_shards, shards_key

        key = shards_key(find_shards(str(data)), encoder_name(encoder))
        pack = cached / _readable(data.name, key)
        if existing_pack(pack, key) is None:
            encode_shards(str(data), vector_encoder(encoder, device), pack)
        return FeaturePack.open(pack)
    dataset = read_dataset(data) if isinstance(data, Path) else data
    key = pack_key(dataset, encoder_name(encoder))
    pack = cached / _readable(dataset.name, key)
    if existing_pack(pack, key) is None:
        encode_dataset(dataset, vector_encoder(encoder, device), pack)
    return FeaturePack.open(pack)


def _readable(name: str, key: str) -> str:
    plain = re.sub(r"[^\w.-]+", "-", name)[:40]
    return f"{plain}-{key[:16]}"


def existing_pack(out: Path, key: str) -> EncodeReport | None:
    """The pack that is there, if it is this one; None where there is nothing yet."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not is_pack(out):
        raise UsageError(f"{out}: is there already and is no feature pack: choose another name")
    meta = read_json(out / "meta.json")
    if not isinstance(meta, dict) or meta.get("fingerprint") != key:
        raise UsageError(f"{out}: is a pack of other items or another encoder: choose another name, or remove it first")
    pack = FeaturePack.open(out)
    skipped = {entry["id"]: entry["reason"] for entry in meta.get("skipped", [])}
    return EncodeReport(out, len(pack), len(pack.text), True, 0, 0, 0.0, skipped)


def _earlier_key(dataset: Dataset, encoder: VectorEncoder, out: Path) -> str | None:
    """The key of a pack of these items that an earlier version made, if no picture is newer: such a pack is
    still used, though the last digits of its vectors would come out otherwise today."""
    meta = read_json(out / "meta.json") if is_pack(out) else None
    if not isinstance(meta, dict) or "pictures" in meta or meta.get("fingerprint") is None:
        return None
    written_at = (out / "meta.json").stat().st_mtime
    if any(file.is_file() and file.stat().st_mtime > written_at for file in _picture_items(dataset)[0]):
        return None
    key = earlier_pack_key(dataset, encoder.name)
    if key != meta["fingerprint"]:
        return None
    log.warning("%s: made by an earlier version: remove it to encode the pictures as this one does", out)
    return key


def _encode_gaps(dataset: Dataset, encoder: VectorEncoder, folder: Path, batch: int) -> int:
    """Encode the rows that are not there yet, one file per batch. Returns how many were there."""
    pictures, texts = _picture_items(dataset)
    folder.mkdir(parents=True, exist_ok=True)
    stretches = list(gaps(finished(folder), len(dataset)))
    resumed = len(dataset) - sum(stop - start for start, stop in stretches)
    spans = [(at, min(at + batch, stop)) for start, stop in stretches for at in range(start, stop, batch)]

    def batches() -> Iterator[EncodeBatch]:
        for start, stop in spans:
            yield EncodeBatch(pictures[start:stop], [text for own in texts[start:stop] for text in own])

    decoders = DecoderPool(one_large=True)
    with (
        bar(len(dataset), "encoding", unit="pictures", initial=resumed) as progress,
        closing(encode_stream(encoder, batches(), decoders.square_with_facts)) as stream,
        decoders,  # ended before the stream, whose threads may wait for them
    ):
        for number, ((start, stop), encoded) in enumerate(zip(spans, stream, strict=True)):
            finished_part = finished_batch(start, stop, texts, encoded)
            for row, reason in finished_part.skipped.items():
                progress.write(f"skipped {dataset.ids[row]}: {reason}", file=sys.stderr)
            save_batch(folder, finished_part)
            progress.update(stop - start)
            log.info("batch %d of %d is finished", number + 1, len(spans))
    return resumed


def finished_batch(start: int, stop: int, texts: list[list[str]], encoded: Encoded) -> FinishedBatch:
    """Keep the items whose picture and texts all came out well."""
    rows = range(start, stop)
    skipped = {rows[place]: reason for place, reason in encoded.bad.items()}
    with np.errstate(over="ignore"):  # what float16 cannot hold becomes infinite, and is refused below
        text = encoded.text.astype(np.float16)
    owners = np.repeat(np.arange(len(rows)), [len(texts[row]) for row in rows])
    wild = {int(owners[line]) for line in np.flatnonzero(~np.isfinite(text).all(axis=1))}
    skipped |= {rows[place]: "the encoder gives a vector with NaN or infinity" for place in wild}
    good = np.array([row not in skipped for row in rows], bool)
    good_rows = np.array(rows, np.int64)[good]
    return FinishedBatch(start, stop, good_rows, encoded.image[good], text[good[owners]], dict(sorted(skipped.items())))


def _join_batches(dataset: Dataset, encoder: VectorEncoder, key: str, folder: Path, out: Path) -> dict[int, str]:
    """Write the pack from its batches, of which one at a time is in memory. Returns the skipped rows."""
    files = finished(folder)
    if missing := sum(stop - start for start, stop in gaps(files, len(dataset))):
        raise DataError(
            f"{folder}: {missing} encoded items cannot be read again: run the command again, which keeps the others"
        )
    good_rows: list[int] = []
    skipped: dict[int, str] = {}
    for batch in map(load_batch, files):
        good_rows += batch.rows.tolist()
        skipped |= batch.skipped
    if not good_rows:
        for file in files:  # to be tried again with mended pictures, or with the decoder installed
            file.unlink()
        example = next(iter(skipped.values()))
        raise DataError(f"{dataset.name}: none of its {len(dataset)} items could be encoded; the first: {example}")
    _, texts = _picture_items(dataset)
    encoded = Dataset(
        dataset.name,
        [dataset.ids[row] for row in good_rows],
        dataset.labels[good_rows],
        dataset.classes,
        texts=[texts[row] for row in good_rows],
        licence=dataset.licence,
    )
    meta = {
        "encoders": encoder.towers,
        "encoder": encoder.spec,
        "encoder_weights": encoder.weights,
        "pictures": PIPELINE,
        "fingerprint": key,
        "skipped": [{"id": dataset.ids[row], "reason": reason} for row, reason in skipped.items()],
    }
    image, text = (batch.image for batch in map(load_batch, files)), (batch.text for batch in map(load_batch, files))
    write_pack(out, folder / "pack", encoded, image, text, meta)
    return skipped


def pack_key(dataset: Dataset, encoder: str) -> str:
    """Of ids, labels, texts, the pictures' content, and the encoder's name.

    Content and not times, since a copy of the data is the same data. Pictures whose size and time are as they were when
    they were last read are not read again (see `data.changes`).
    """
    pictures, texts = _picture_items(dataset)
    version = PIPELINE if all(texts) else f"{PIPELINE}, with items that have no text"  # which once were left out
    return _digest(dataset, encoder, version, FileRecord(cache_folder() / "files.sqlite").digests(pictures))


def earlier_pack_key(dataset: Dataset, encoder: str) -> str:
    """As packs of version 0.1.0 have it, which knew pictures by their sizes."""
    pictures, _ = _picture_items(dataset)
    return _digest(dataset, encoder, 1, [file.stat().st_size if file.is_file() else -1 for file in pictures])


def _digest(dataset: Dataset, encoder: str, version: int | str, pictures: Sequence[int | str]) -> str:
    _, texts = _picture_items(dataset)
    digest = hashlib.sha256()
    for part in (version, encoder, dataset.classes, dataset.ids, texts, pictures):
        digest.update(json.dumps(part).encode() + b"\n")
    digest.update(dataset.labels.tobytes())
    return digest.hexdigest()[:32]


def _picture_items(dataset: Dataset) -> tuple[list[Path], list[list[str]]]:
    """The pictures, and of each item the texts that say anything. Refuses a set that has no pictures."""
    if dataset.pictures is None:
        raise DataError(f"{dataset.name}: has no pictures: only a set with pictures can be encoded")
    return dataset.pictures, dataset.captions()
