"""From pictures to a feature pack: the same vectors as one at a time, whatever is killed, bad or in the way."""

import json
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from small_clip import link_encoders, make_dataset, make_pictures, write_clip

from kenthash.bench.encode import bench_encode
from kenthash.cli import main
from kenthash.data.dataset import DataProblem
from kenthash.data.pack import FeaturePack
from kenthash.data.pictures import Pixels, to_square
from kenthash.data.readers import read_dataset
from kenthash.encoders import load_encoder, vector_encoder
from kenthash.encoders.base import Encoder
from kenthash.encoders.batches import gaps
from kenthash.encoders.pipeline import earlier_pack_key, encode_dataset, features_for
from kenthash.encoders.stream import EncodeBatch, Vectors, encode_stream
from kenthash.errors import DataError, UsageError
from processes import run_until

PARTS = ("ids.txt", "image.npy", "text.npy", "text_offsets.npy", "labels.npy", "texts.jsonl", "meta.json")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "clip"
    write_clip(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(clip: Path) -> Encoder:
    return load_encoder(f"openclip:{clip}")


def bytes_of(pack: Path) -> dict[str, bytes]:
    return {part: (pack / part).read_bytes() for part in PARTS}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(link_encoders(tmp_path / "cache")))


def spoil(file: Path) -> None:
    """As many bytes and the time as before, but no picture: the key stays, a second reading would not."""
    before = file.stat()
    file.write_bytes(b"x" * before.st_size)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_pack_holds_what_one_item_at_a_time_gives(
    encoder: Encoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = make_dataset(tmp_path / "pictures", 23)
    assert dataset.pictures and dataset.texts
    spoil(dataset.pictures[3])
    dataset.pictures[9].unlink()
    dataset.texts[14] = [" ", ""]
    dataset.texts[15] = ["", "the only one that says anything"]
    report = encode_dataset(dataset, encoder, tmp_path / "deep" / "pack", batch=5)
    assert list(report.skipped) == ["item-3", "item-9"] and (report.items, report.encoded) == (21, 23)
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["skipped item-3", "skipped item-9"]

    pack = FeaturePack.open(tmp_path / "deep" / "pack")
    good_rows = [row for row in range(23) if row not in (3, 9)]
    assert pack.dataset.ids == [dataset.ids[row] for row in good_rows]
    assert pack.dataset.texts == [[text for text in dataset.texts[row] if text.strip()] for row in good_rows]
    assert np.array_equal(pack.dataset.labels, dataset.labels[good_rows])
    assert pack.image.dtype == pack.text.dtype == np.float16
    for place, row in enumerate(good_rows):
        with torch.inference_mode():
            image = encoder.encode_pictures(encoder.transform([to_square(dataset.pictures[row], encoder.square())]))[0]
            texts = [encoder.encode_texts(encoder.tokenize([t])) for t in dataset.texts[row] if t.strip()]
        np.testing.assert_allclose(pack.image[place], image, rtol=2e-3, atol=1e-3)
        start, stop = pack.text_offsets[place : place + 2]
        assert stop - start == len(texts)  # one item has none
        if texts:
            np.testing.assert_allclose(pack.text[start:stop], torch.cat(texts), rtol=2e-3, atol=1e-3)
    meta = json.loads((pack.path / "meta.json").read_text())
    assert (meta["licence"], meta["classes"], pack.encoder) == ("CC0", ["a", "b", "c"], encoder.spec)
    assert {entry["id"] for entry in meta["skipped"]} == set(report.skipped)
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["pack"]  # nothing is left behind


def test_killed_and_started_again_it_is_the_same_pack(
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pictures = make_pictures(tmp_path / "data", 160)
    lines = [json.dumps({"file_name": p.name, "text": f"number {p.stem}", "labels": ["x"]}) for p in pictures]
    (tmp_path / "data" / "metadata.jsonl").write_text("\n".join(lines))
    dataset = read_dataset(tmp_path / "data")
    encode_dataset(dataset, vector_encoder(f"openclip:{clip}"), tmp_path / "whole", batch=2)

    arguments = ["-v", "encode", str(tmp_path / "data"), "--encoder", f"openclip:{clip}"]
    arguments += ["--out", str(tmp_path / "pack"), "--batch", "2", "--json"]
    run_until("batch 5 of 80 is finished", *arguments)
    assert not (tmp_path / "pack").exists()
    finished = [file.stem.split("-") for file in (tmp_path / "pack.partial").glob("*/*.npz")]
    encoded = [row for start, stop in finished for row in range(int(start), int(stop))]
    assert len(encoded) == 10
    assert dataset.pictures
    for row in encoded:
        spoil(dataset.pictures[row])  # were a finished batch done again, its items would be skipped

    monkeypatch.setattr(sys, "argv", ["kenthash", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    report = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert (report["resumed"], report["encoded"], report["skipped"]) == (len(encoded), 160 - len(encoded), {})
    assert bytes_of(tmp_path / "pack") == bytes_of(tmp_path / "whole")
    assert not (tmp_path / "pack.partial").exists()


def test_what_the_reader_found_wrong_is_said_before_encoding(
    encoder: Encoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = make_dataset(tmp_path / "pictures", 2)
    dataset.problems.append(DataProblem("warning", "rows left out, no picture file: 1 of 3", "copy it here"))
    encode_dataset(dataset, encoder, tmp_path / "pack")
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"{dataset.name}: rows left out, no picture file: 1 of 3: copy it here"
    ]


def test_what_is_at_the_place_already_is_used_or_refused(encoder: Encoder, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "pictures", 6)
    out = tmp_path / "pack"
    encode_dataset(dataset, encoder, out)
    before = bytes_of(out)
    assert encode_dataset(dataset, encoder, out).reused
    assert dataset.texts
    other = replace(dataset, texts=[["other words"], *dataset.texts[1:]])
    with pytest.raises(UsageError, match="other items or another encoder"):
        encode_dataset(other, encoder, out)
    assert bytes_of(out) == before
    with pytest.raises(UsageError, match="no feature pack"):
        encode_dataset(dataset, encoder, tmp_path / "pictures")


class Interrupted:
    """An encoder that is interrupted at one picture, as by Ctrl-C."""

    def __init__(self, encoder: Encoder, picture: Path) -> None:
        self.encoder, self.pixels = encoder, to_square(picture, encoder.square())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)

    def picture_vectors(self, squares: Sequence[Pixels]) -> Vectors:
        if any(np.array_equal(pixels, self.pixels) for pixels in squares):
            raise KeyboardInterrupt
        return self.encoder.picture_vectors(squares)


def test_batches_of_another_job_or_damaged_ones_are_not_used(encoder: Encoder, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "pictures", 12)
    assert dataset.pictures is not None
    encode_dataset(dataset, encoder, tmp_path / "whole", batch=4)
    interrupted: Any = Interrupted(encoder, dataset.pictures[8])  # in the third batch
    for job in (dataset, replace(dataset, texts=[["other words"]] * 12)):
        with pytest.raises(KeyboardInterrupt):
            encode_dataset(job, interrupted, tmp_path / "pack", batch=4)
    jobs = list((tmp_path / "pack.partial").glob("*/"))
    assert [len(list(job.glob("*.npz"))) for job in jobs] == [2, 2] and not (tmp_path / "pack").exists()
    for folder in jobs:
        (folder / "000000004-000000008.npz").write_bytes(b"cut short")
    report = encode_dataset(dataset, encoder, tmp_path / "pack", batch=4)
    assert (report.resumed, report.encoded) == (4, 8)
    assert bytes_of(tmp_path / "pack") == bytes_of(tmp_path / "whole")


class DamagesFirstBatch(logging.Handler):
    """Cuts the first batch short once the last one is finished, as a disk that fails to read it."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "batch 3 of 3 is finished":
            next(self.place.glob("*/000000000-*.npz")).write_bytes(b"cut short")


def test_a_batch_that_cannot_be_read_again_is_not_left_out(encoder: Encoder, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "pictures", 12)
    encode_dataset(dataset, encoder, tmp_path / "whole", batch=4)
    logger, handler = logging.getLogger("kenthash.encoders.pipeline"), DamagesFirstBatch(tmp_path / "pack.partial")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        with pytest.raises(DataError, match="run the command again"):
            encode_dataset(dataset, encoder, tmp_path / "pack", batch=4)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert not (tmp_path / "pack").exists()
    report = encode_dataset(dataset, encoder, tmp_path / "pack", batch=4)
    assert (report.resumed, report.encoded) == (8, 4)
    assert bytes_of(tmp_path / "pack") == bytes_of(tmp_path / "whole")


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=12))
def test_gaps_are_the_rows_that_no_shard_has(stretches: list[tuple[bool, int]]) -> None:
    files: list[Path] = []
    missing: list[int] = []
    at = 0
    for there, length in stretches:
        if there:
            files.append(Path(f"{at:09d}-{at + length:09d}.npz"))
        else:
            missing += range(at, at + length)
        at += length
    missing_rows = [row for start, stop in gaps(files, at) for row in range(start, stop)]
    assert missing_rows == missing


def test_vectors_that_float16_cannot_hold_leave_their_item_out(clip: Path, tmp_path: Path) -> None:
    encoder = load_encoder(f"openclip:{clip}")
    dataset = make_dataset(tmp_path / "pictures", 4)
    model: Any = encoder.model
    model.visual.proj.data *= 1e9
    with pytest.raises(DataError, match=r"none of its 4 items could be encoded.*NaN or infinity"):
        encode_dataset(dataset, encoder, tmp_path / "pack")
    assert not (tmp_path / "pack").exists()
    model.visual.proj.data /= 1e9
    assert encode_dataset(dataset, encoder, tmp_path / "pack").items == 4  # what failed as a whole is tried again


def test_a_batch_without_pictures_is_no_trouble_on_any_device(clip: Path) -> None:
    for device in ("cpu", "meta"):  # meta stands for a GPU: it takes the same way and nothing is computed
        [encoded] = encode_stream(load_encoder(f"openclip:{clip}").to(device), [EncodeBatch([], [])])
        assert encoded.image.shape == (0, 24) and encoded.text.shape == (0, 24)


def test_the_cache_encodes_once(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = make_dataset(tmp_path / "pictures", 5)
    first = features_for(dataset, f"openclip:{clip}")
    assert first.path.is_relative_to(tmp_path / "cache" / "kenthash") and len(first) == 5
    assert dataset.pictures
    for picture in dataset.pictures:
        spoil(picture)
    assert np.array_equal(features_for(dataset, f"openclip:{clip}").image, first.image)
    assert features_for(first.path, "not even looked at").path == first.path
    monkeypatch.setenv("HOME", str(first.path.parent))
    assert features_for(Path("~", first.path.name)).path == first.path  # as a recipe may spell it
    write_clip(tmp_path / "other" / "clip", seed=1)
    with pytest.raises(DataError, match="none of its 5 items"):  # another encoder must read the spoilt pictures
        features_for(dataset, f"openclip:{tmp_path / 'other' / 'clip'}")
    with pytest.raises(DataError, match="has no pictures"):
        features_for(first.dataset, f"openclip:{clip}")


def test_a_picture_that_was_painted_over_is_encoded_again(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of as many bytes as before; a copy of the same pictures is the same data, whatever its times."""
    dataset = make_dataset(tmp_path / "pictures", 3)
    assert dataset.pictures
    for number, picture in enumerate(dataset.pictures):
        Image.new("RGB", (30, 30), (number, 0, 0)).save(picture, "BMP")
    first = features_for(dataset, f"openclip:{clip}")
    size = dataset.pictures[1].stat().st_size
    Image.new("RGB", (30, 30), (250, 250, 0)).save(dataset.pictures[1], "BMP")
    os.utime(dataset.pictures[1], (1, 1))
    assert dataset.pictures[1].stat().st_size == size
    second = features_for(dataset, f"openclip:{clip}")
    assert np.array_equal(first.image[[0, 2]], second.image[[0, 2]])
    assert not np.array_equal(first.image[1], second.image[1])
    shutil.copytree(tmp_path / "pictures", tmp_path / "copy", copy_function=shutil.copyfile)
    copy = replace(dataset, pictures=[tmp_path / "copy" / picture.name for picture in dataset.pictures])
    assert features_for(copy, f"openclip:{clip}").path == second.path
    assert features_for(dataset, f"openclip:{clip}").path == second.path
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert encode_dataset(dataset, load_encoder(f"openclip:{clip}"), second.path).reused  # digests cannot be kept there


def test_a_pack_of_an_earlier_version_is_used_until_a_picture_changes(encoder: Encoder, tmp_path: Path) -> None:
    """It knew pictures by their sizes."""
    dataset = make_dataset(tmp_path / "pictures", 3)
    encode_dataset(dataset, encoder, tmp_path / "pack")
    meta = json.loads((tmp_path / "pack" / "meta.json").read_text())
    meta["fingerprint"] = earlier_pack_key(dataset, encoder.name)
    del meta["pictures"]
    (tmp_path / "pack" / "meta.json").write_text(json.dumps(meta))
    assert encode_dataset(dataset, encoder, tmp_path / "pack").reused
    assert dataset.pictures
    os.utime(dataset.pictures[0], (2**32, 2**32))  # after the pack was made
    with pytest.raises(UsageError, match="other items or another encoder"):
        encode_dataset(dataset, encoder, tmp_path / "pack")


def test_the_command_fails_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_pictures(tmp_path / "data", 1)
    (tmp_path / "data" / "metadata.jsonl").write_text(json.dumps({"file_name": "0.png", "text": "a"}))
    out = ["--out", str(tmp_path / "pack")]
    cases = {
        1: ["encode", str(tmp_path / "none"), *out],
        2: ["encode", str(tmp_path / "data"), "--encoder", "heavy", *out],
        3: ["encode", str(tmp_path / "data"), "--device", "abacus", *out],
    }
    for code, arguments in cases.items():
        monkeypatch.setattr(sys, "argv", ["kenthash", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == min(code, 2)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("error: ")


def test_the_benchmark_measures_both_ways(clip: Path, tmp_path: Path) -> None:
    make_pictures(tmp_path, 8)
    figures = bench_encode(tmp_path, f"openclip:{clip}", items=6, runs=1)
    bare, text, both = list(figures.values())[:3]
    assert both == pytest.approx(1 / (1 / bare + 1 / text)) and min(figures.values()) > 0
    assert figures["items: files to a pack / bare (bar: 0.9)"] == pytest.approx(list(figures.values())[4] / both)
    assert figures["bits equal to PyTorch's, pictures (bar: 0.999)"] >= 0.999
    assert figures["bits equal to PyTorch's, texts (bar: 0.999)"] >= 0.999


def test_pictures_without_texts_and_labels_are_encoded(encoder: Encoder, tmp_path: Path) -> None:
    dataset = replace(make_dataset(tmp_path / "pictures", 3), texts=None, labels=np.zeros((3, 0), np.uint8), classes=[])
    report = encode_dataset(dataset, encoder, tmp_path / "pack")
    pack = FeaturePack.open(tmp_path / "pack")
    assert (report.items, report.texts, report.skipped) == (3, 0, {})
    assert pack.image.shape == (3, encoder.image_dim) and pack.text.shape == (0, encoder.text_dim)
    assert pack.dataset.labels.shape == (3, 0) and pack.dataset.texts == [[], [], []]
