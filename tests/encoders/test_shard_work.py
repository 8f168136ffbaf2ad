"""Shards to codes and vectors: bit for bit those of single pictures, resumed by shard, whatever is bad or killed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_clip import link_encoders, write_clip
from typer.testing import CliRunner, Result

from components import need
from kenthash.cli import app
from kenthash.data.manifest import read_manifest
from kenthash.data.pack import FeaturePack
from kenthash.encoders import load_encoder
from kenthash.encoders.pipeline import features_for
from kenthash.encoders.shard_work import PAUSE
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.hasher import Hasher
from kenthash.model.network import HashNetwork
from kenthash.search import Index
from processes import PATIENCE, run_until
from shards import jpeg, write_tar

SHARDS, ITEMS = 12, 7


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """`shards`, with a picture that is none and a row without a picture in the second one, and a `model`."""
    folder = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(link_encoders(folder / "cache")))
        _make(folder)
        yield folder


def _make(folder: Path) -> None:
    for shard in range(SHARDS):
        files: dict[str, bytes] = {}
        for item in range(ITEMS):
            files[f"{shard:02}{item}.jpg"] = b"no picture" if (shard, item) == (1, 2) else jpeg(10 * shard + item)
            files[f"{shard:02}{item}.txt"] = f"number {item} of {shard}".encode()
            files[f"{shard:02}{item}.json"] = json.dumps({"labels": ["even"] * (item % 2 == 0), "width": 48}).encode()
        write_tar(folder / "shards" / f"{shard:02}.tar", files | ({"lost.json": b"{}"} if shard == 1 else {}))
    write_clip(folder / "clip")
    torch.manual_seed(0)
    spec, head = f"openclip:{folder / 'clip'}", HeadConfig()
    weights = load_encoder(spec).weights
    HashNetwork(HasherConfig(64, 24, 24, head, head, spec, encoder_weights=weights)).save(folder / "model")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.rglob("*.parquet"))}


def rows(folder: Path) -> list[tuple[str, bytes, dict[str, object]]]:
    parquet = need("pyarrow.parquet")
    tables = [parquet.read_table(file).to_pylist() for file in sorted(folder.rglob("*.parquet"))]
    return [(row["id"], row["code"], json.loads(row["metadata"])) for table in tables for row in table]


def hash_shards(place: Path, out: Path, *options: str) -> dict[str, object]:
    result = run("hash", place / "shards", "--model", place / "model", "--out", out, "--json", *options)
    assert result.exit_code == 0, result.stderr
    report: dict[str, object] = json.loads(result.stdout)
    return report


def test_codes_of_shards_are_those_of_single_pictures(place: Path, tmp_path: Path) -> None:
    need("pyarrow")
    report = hash_shards(place, tmp_path / "codes")
    assert (report["shards"], report["done"], report["items"]) == (SHARDS, SHARDS, SHARDS * ITEMS - 1)
    assert report["skipped"] == {"01/012": "not a picture that can be decoded"} and report["failed"] == {}
    hasher = Hasher.load(place / "model")
    expected = [
        (
            f"{shard:02}/{shard:02}{item}",
            hasher.encode_pictures([jpeg(10 * shard + item)])[0].tobytes(),
            {"text": f"number {item} of {shard}", "width": 48} | ({"labels": ["even"]} if item % 2 == 0 else {}),
        )
        for shard in range(SHARDS)
        for item in range(ITEMS)
        if (shard, item) != (1, 2)
    ]
    assert rows(tmp_path / "codes") == expected
    about, finished, complete = read_manifest(tmp_path / "codes")
    assert complete and about["bits"] == 64 and list(finished) == [f"{shard:02}" for shard in range(SHARDS)]
    assert finished["01"].items == ITEMS - 1 and finished["01"].skipped == {"not a picture that can be decoded": 1}


def test_finished_shards_are_not_done_again(place: Path, tmp_path: Path) -> None:
    need("pyarrow")
    shards = tmp_path / "shards"
    shards.mkdir()
    for file in (place / "shards").iterdir():
        (shards / file.name).write_bytes(file.read_bytes())
    codes = tmp_path / "codes"
    arguments = ["-v", "hash", str(shards), "--model", str(place / "model"), "--out", str(codes), "--json"]
    run_until("shard 01 is finished", *arguments)
    _, finished, complete = read_manifest(codes)
    assert not complete and list(finished) == ["00", "01"]
    with (codes / "manifest.jsonl").open("a") as stream:
        stream.write('{"shard": "02", "sta')  # a line that was cut
    before = {name: (codes / f"{name}.parquet").stat().st_mtime_ns for name in finished}
    report = json.loads(run(*arguments).stdout)
    assert (report["done"], report["shards"]) == (SHARDS - 2, SHARDS)
    assert {name: (codes / f"{name}.parquet").stat().st_mtime_ns for name in finished} == before
    hash_shards(place, tmp_path / "whole")
    assert contents(codes) == contents(tmp_path / "whole") and read_manifest(codes)[2]
    assert json.loads(run(*arguments).stdout)["done"] == 0
    write_tar(shards / "03.tar", {"new.jpg": jpeg(99)})  # changed, and one more, and one less
    write_tar(shards / "99.tar", {"a.jpg": jpeg(98)})
    (shards / "00.tar").unlink()
    assert json.loads(run(*arguments).stdout)["done"] == 2
    _, finished, complete = read_manifest(codes)
    names = [f"{shard:02}" for shard in [*range(1, SHARDS), 99]]
    assert complete and list(finished) == names and finished["03"].items == 1


def test_a_shard_that_cannot_be_read_costs_only_itself(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("pyarrow")
    monkeypatch.setattr("kenthash.encoders.shard_work.PAUSE", 0.0)
    assert PAUSE > 0
    good = (place / "shards" / "00.tar").read_bytes()
    for name, content in (("a", good), ("b", good[:-3000]), ("c", good)):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.tar").write_bytes(content)
    command = ("hash", tmp_path / "in", "--model", place / "model", "--out", tmp_path / "codes")
    monkeypatch.setattr(sys, "argv", ["kenthash", *map(str, command)])
    result = CliRunner().invoke(app, list(map(str, command)))
    assert "1 of 3 shards could not be finished, such as b" in str(result.exception) and "fetch it again" in str(
        result.exception
    )
    _, finished, complete = read_manifest(tmp_path / "codes")
    assert list(finished) == ["a", "c"] and not complete
    (tmp_path / "in" / "b.tar").write_bytes(good)
    assert run(*command).exit_code == 0 and read_manifest(tmp_path / "codes")[2]


def test_another_model_and_a_folder_of_pictures(place: Path, tmp_path: Path) -> None:
    need("pyarrow")
    photos = tmp_path / "photos"
    photos.mkdir()
    lines = []
    for number in range(3):
        (photos / f"{number}.jpg").write_bytes(jpeg(number))
        lines.append(json.dumps({"file_name": f"{number}.jpg", "text": f"number {number}", "labels": ["x"]}))
    (photos / "metadata.jsonl").write_text("\n".join(lines))
    command = ("hash", photos, "--model", place / "model", "--out", tmp_path / "codes")
    assert run(*command).exit_code == 0
    expected = Hasher.load(place / "model").encode_pictures([jpeg(number) for number in range(3)])
    assert [(id, metadata) for id, _, metadata in rows(tmp_path / "codes")] == [
        (f"{number}.jpg", {"text": f"number {number}", "labels": ["x"]}) for number in range(3)
    ]
    (photos / "metadata.jsonl").unlink()  # pictures alone are enough
    assert run("hash", photos, "--model", place / "model", "--out", tmp_path / "plain").exit_code == 0
    assert [row[:2] for row in rows(tmp_path / "plain")] == [row[:2] for row in rows(tmp_path / "codes")]
    assert np.array_equal(
        np.frombuffer(b"".join(code for _, code, _ in rows(tmp_path / "codes")), np.uint8), expected.ravel()
    )
    torch.manual_seed(1)
    HashNetwork(Hasher.load(place / "model").config).save(tmp_path / "other")
    result = CliRunner().invoke(app, [*map(str, command[:3]), str(tmp_path / "other"), *map(str, command[4:])])
    assert "holds the results of another job (model was" in str(result.exception)


def test_shards_are_added_to_an_index_and_encoded_once(place: Path, tmp_path: Path) -> None:
    need("pyarrow")
    shards, index = tmp_path / "shards", tmp_path / "a.kh"
    for number in range(2):
        write_tar(shards / f"0{number}.tar", {"a.jpg": jpeg(number), "a.txt": b"a kite", "b.jpg": b"no picture"})
    hasher = Hasher.load(place / "model")
    _ = hasher.encoder  # whose graphs are in the cache
    command = ("index", "add", shards, "--model", place / "model", "--index", index, "--texts", "--json")
    report = json.loads(run(*command).stdout)
    assert report["added"] == 2 and report["texts"] == 2 and set(report["skipped"]) == {"00/b", "01/b"}
    before = (shards / "00.tar").stat()
    (shards / "00.tar").write_bytes(bytes(before.st_size))  # no tar file, but to all appearances as it was
    os.utime(shards / "00.tar", ns=(before.st_atime_ns, before.st_mtime_ns))
    write_tar(shards / "02.tar", {"c.jpg": jpeg(2)})
    report = json.loads(run(*command).stdout)
    assert (report["added"], report["changed"], report["unchanged"]) == (1, 0, 2)
    with Index.open(index) as opened:
        items = [item for item in opened.get(["00/a", "01/a"]) if item is not None]
        assert [item.metadata for item in items] == [{"text": "a kite"}] * 2
        assert np.array_equal([item.code for item in items], hasher.encode_pictures([jpeg(0), jpeg(1)]))
    [hit] = json.loads(run("search", "a", "kite", "--index", index, "-k", "1", "--json").stdout)
    assert hit["metadata"] == {"text": "a kite"} and hit["by_words"]


def encode(place: Path, data: Path, out: Path, *options: str) -> dict[str, Any]:
    result = run("encode", data, "--encoder", f"openclip:{place / 'clip'}", "--out", out, "--json", *options)
    assert result.exit_code == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def test_a_pack_of_shards_is_that_of_the_same_pictures_in_a_folder(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = tmp_path / "data"
    for number in range(3):
        write_tar(
            shards / f"{number}.tar", {f"{number}.jpg": jpeg(number), f"{number}.txt": b"number", "x.jpg": b"bad"}
        )
    write_tar(shards / "3.tar", {"3.jpg": jpeg(3), "3.json": b'{"captions": ["one", "two"], "labels": ["b", "a"]}'})
    write_tar(shards / "4.tar", {"4.jpg": jpeg(4)})  # without a text or a label
    report = encode(place, shards, tmp_path / "pack")
    assert (report["items"], report["texts"]) == (5, 5) and list(report["skipped"]) == ["0/x", "1/x", "2/x"]
    photos, lines = tmp_path / "photos", []
    photos.mkdir()
    more = {3: {"texts": ["one", "two"], "labels": ["a", "b"]}, 4: {}}
    for number in range(5):
        (photos / f"{number}.jpg").write_bytes(jpeg(number))
        lines.append(json.dumps({"file_name": f"{number}.jpg", **more.get(number, {"text": "number"})}))
    (photos / "metadata.jsonl").write_text("\n".join(lines))
    encode(place, photos, tmp_path / "of photos")
    packs = [FeaturePack.open(tmp_path / name) for name in ("pack", "of photos")]
    assert packs[0].dataset.ids == [f"{number}/{number}" for number in range(5)]
    assert packs[0].dataset.classes == packs[1].dataset.classes == ["a", "b"]
    assert packs[0].dataset.texts == packs[1].dataset.texts
    for part in ("image.npy", "text.npy", "text_offsets.npy", "labels.npy"):
        assert (tmp_path / "pack" / part).read_bytes() == (tmp_path / "of photos" / part).read_bytes(), part
    assert encode(place, shards, tmp_path / "pack")["reused"]
    monkeypatch.setattr("kenthash.encoders.shard_work.PAUSE", 0.0)
    whole = (shards / "4.tar").read_bytes()
    (shards / "4.tar").write_bytes(whole[:1000])
    result = CliRunner().invoke(
        app, ["encode", str(shards), "--encoder", f"openclip:{place / 'clip'}", "--out", str(tmp_path / "other")]
    )
    assert "1 of 5 shards could not be finished, such as 4" in str(result.exception)
    (shards / "4.tar").write_bytes(whole)
    features = features_for(shards, f"openclip:{place / 'clip'}")  # as `train` reads data
    assert np.array_equal(features.image, packs[0].image)


def on_ray(*arguments: object) -> tuple[dict[str, Any], list[str]]:
    """Run commands on a Ray cluster of two nodes: how they end, and what they print."""
    need("ray")
    script = str(Path(__file__).parents[2] / "scripts" / "ray_cluster.py")
    command = [sys.executable, script, *map(str, arguments)]
    completed = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=PATIENCE)
    lines = completed.stdout.splitlines()
    assert lines, completed.stderr
    return json.loads(lines[-1]), lines[:-1]


def test_a_cluster_gives_the_same_results_though_a_node_is_killed(place: Path, tmp_path: Path) -> None:
    """And though its nodes have no models: they are sent them."""
    hash_shards(place, tmp_path / "here")
    encode(place, place / "shards", tmp_path / "pack here")
    spec = f"openclip:{place / 'clip'}"
    encoding = ("kenthash", "encode", place / "shards", "--encoder", spec, "--out", tmp_path / "pack there", "--json")
    hashing = ("kenthash", "hash", place / "shards", "--model", place / "model", "--out", tmp_path / "there", "--json")
    options = ("--cache", tmp_path / "cache", "--kill", tmp_path / "there")
    ended, output = on_ray(*options, *encoding, "+", *hashing)
    assert ended["exit"] == [0, 0] and 3 <= ended["at_death"] < SHARDS
    assert [json.loads(line)[key] for line, key in zip(output, ("items", "done"), strict=True)] == [
        SHARDS * ITEMS - 1, SHARDS,
    ]  # fmt: skip
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    _, finished, complete = read_manifest(tmp_path / "there")
    assert complete and finished == read_manifest(tmp_path / "here")[1]
    for file in (tmp_path / "pack here").iterdir():
        assert file.read_bytes() == (tmp_path / "pack there" / file.name).read_bytes(), file.name
