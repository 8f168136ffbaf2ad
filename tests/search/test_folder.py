"""A folder of pictures in an index, through the function and through the command line."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from painted import AverageHash, counts, paint
from typer.testing import CliRunner

from kenthash.api import model_to_index_with
from kenthash.cli import app
from kenthash.codes import hamming
from kenthash.data.pictures import PIPELINE
from kenthash.encoders.shard_work import sample_batches
from kenthash.errors import DataError, UsageError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.hash_shards import shards_of
from kenthash.model.hasher import EncodedFiles, Hasher
from kenthash.model.network import HashNetwork
from kenthash.search import Index
from kenthash.search.folders.folder import COMMITTED, sync_folder
from kenthash.search.folders.roots import Roots
from kenthash.search.folders.walk import walk_folder
from kenthash.search.models import PICTURES, UNFINISHED, assign_model, model_for, pictures_warning


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for i in range(5):
        paint(folder / "2024" / f"{i}.png", i)
    rows = [
        {"file_name": "2024/0.png", "text": "a dog", "labels": ["dog"], "year": 2020, "exif": {"nested": 1}},
        {"file_name": "2024/1.png", "texts": ["a cat", "one cat"], "labels": ["cat"], "year": 2021},
    ]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_only_what_changed_is_encoded(photos: Path, tmp_path: Path) -> None:
    encode = AverageHash()
    with Index.create(tmp_path / "x.kh", 64) as index:
        (photos / "bad.jpg").write_text("no picture")
        report = sync_folder(index, walk_folder(photos), encode)
        assert counts(report) == (5, 0, 0, 0)
        assert report.skipped == {"photos/bad.jpg": "not a picture that can be decoded"}
        item = index.get(["photos/2024/0.png"])[0]
        assert item is not None
        assert item.metadata.keys() == {
            "text", "labels", "year", "folder", "width", "height", "orientation",
            "size", "mtime", "digest", "fingerprint",
        }  # fmt: skip
        assert (item.metadata["text"], item.metadata["folder"], item.metadata["width"]) == ("a dog", "2024", 8)
        assert Roots(index).path_of(item.id, item.metadata) == photos / "2024" / "0.png"

        assert counts(sync_folder(index, walk_folder(photos), encode)) == (0, 0, 5, 0)
        os.utime(photos / "2024" / "1.png", (1, 1))  # touched, not changed
        paint(photos / "2024" / "2.png", 99)
        paint(photos / "new.png", 100)
        (photos / "2024" / "3.png").unlink()
        encode.seen = 0
        assert counts(sync_folder(index, walk_folder(photos), encode)) == (1, 1, 3, 1)
        assert encode.seen == 2
        expected, _, _ = encode.batch([photos / "2024" / "2.png"])
        changed = index.get(["photos/2024/2.png"])[0]
        assert changed is not None and hamming(changed.code[None], expected)[0, 0] == 0

        rows = (photos / "metadata.jsonl").read_text().replace("a dog", "two dogs")
        (photos / "metadata.jsonl").write_text(rows)
        encode.seen = 0
        assert counts(sync_folder(index, walk_folder(photos), encode)) == (0, 1, 4, 0)
        assert encode.seen == 0
        hits = index.search(expected, 5, filter="text = 'two dogs' or year > 2020")[0]
        assert set(hits.ids) == {"photos/2024/0.png", "photos/2024/1.png"}


def test_a_picture_that_cannot_be_an_item_is_skipped(photos: Path, tmp_path: Path) -> None:
    """A name of another encoding, one with a line end, one that is too long, and metadata beyond what is kept."""
    deep = "/".join(["d" * 210] * 5)
    for name in ("caf\udce9.png", "two\nlines.png", f"{deep}/deep.png", "wordy.png"):
        paint(photos / name, 50)
    with (photos / "metadata.jsonl").open("a") as stream:
        stream.write(json.dumps({"file_name": "wordy.png", "text": "a" * 40_000, "texts": ["b" * 40_000]}) + "\n")
    with Index.create(tmp_path / "x.kh", 64) as index:
        report = sync_folder(index, walk_folder(photos), AverageHash())
        assert counts(report) == (5, 0, 0, 0)
        assert counts(sync_folder(index, walk_folder(photos), AverageHash())) == (0, 0, 5, 0)
    assert report.skipped.keys() == {
        "photos/caf\\udce9.png", "photos/two\\nlines.png", f"photos/{deep}/deep.png", "photos/wordy.png",
    }  # fmt: skip
    assert all(reason.isprintable() and reason.isascii() for reason in report.skipped.values())
    assert report.skipped["photos/two\\nlines.png"] == "its name has a control character: rename it"


def test_names_that_are_not_utf8_are_skipped_each_with_a_line(photos: Path, tmp_path: Path) -> None:
    for name in (b"a\xff.png", b"a\xfe.png"):
        paint(photos / os.fsdecode(name), 7)
    with Index.create(tmp_path / "x.kh", 64) as index:
        report = sync_folder(index, walk_folder(photos), AverageHash())
        assert counts(report) == (5, 0, 0, 0)
        reason = "its name is not UTF-8: rename it"
        assert report.skipped == {r"photos/a\udcff.png": reason, r"photos/a\udcfe.png": reason}
    skipped: dict[str, str] = {}
    (photos / "metadata.jsonl").unlink()
    for shard in shards_of(str(photos)):
        for batch in sample_batches(shard, skipped):
            assert [sample.id for sample in batch] == [f"2024/{i}.png" for i in range(5)]
    assert skipped.keys() == {r"a\udcff.png", r"a\udcfe.png"} and len(set(skipped.values())) == 1


def test_a_folder_that_cannot_be_read_drops_nothing(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paint(photos / "here.png", 60)
    real = os.scandir

    def denied(path: str) -> object:  # what a folder without permission does to those who are not root
        if str(path).endswith("2024"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    with Index.create(tmp_path / "x.kh", 64) as index:
        sync_folder(index, walk_folder(photos), AverageHash())
        monkeypatch.setattr(os, "scandir", denied)
        report = sync_folder(index, walk_folder(photos), AverageHash())
        assert counts(report) == (0, 0, 1, 0) and report.skipped == {"photos/2024": "Permission denied"}
        assert index.stats().items == 6


def test_folders_do_not_disturb_each_other(photos: Path, tmp_path: Path) -> None:
    paint(tmp_path / "other" / "a.png", 7)
    paint(tmp_path / "elsewhere" / "photos" / "2024" / "0.png", 8)
    with Index.create(tmp_path / "x.kh", 64) as index:
        sync_folder(index, walk_folder(photos), AverageHash())
        assert counts(sync_folder(index, walk_folder(tmp_path / "other"), AverageHash())) == (1, 0, 0, 0)
        assert counts(sync_folder(index, walk_folder(tmp_path / "elsewhere" / "photos"), AverageHash())) == (1, 0, 0, 0)
        assert "photos 2/2024/0.png" in index.list_ids()
        (tmp_path / "other" / "a.png").unlink()
        with pytest.raises(DataError, match="no pictures here"):  # an unmounted disk drops nothing
            sync_folder(index, walk_folder(tmp_path / "other"), AverageHash())
        assert index.stats().items == 7


def test_an_interrupted_run_goes_on(photos: Path, tmp_path: Path) -> None:
    for i in range(COMMITTED):
        paint(photos / f"{i}.png", 1000 + i)

    class Interrupted(AverageHash):
        def batch(self, files: Sequence[Path]) -> EncodedFiles:
            if self.seen:
                raise KeyboardInterrupt
            return super().batch(files)

    encode = AverageHash()
    with Index.create(tmp_path / "x.kh", 64) as index:
        with pytest.raises(KeyboardInterrupt):
            sync_folder(index, walk_folder(photos), Interrupted())
        assert counts(sync_folder(index, walk_folder(photos), encode)) == (5, 0, COMMITTED, 0)
    assert encode.seen == 5


def as_of_old(index: Index) -> None:
    """As an index of before there were versions of the picture pipeline: no note, plain digests, codes a little off."""
    names = index.list_ids()
    items = [item for item in index.get(names) if item is not None]
    entries = [{**item.metadata, "digest": str(item.metadata["digest"]).partition("-")[2]} for item in items]
    index.upsert(names, np.stack([item.code ^ 1 for item in items]), entries)
    index.note(PICTURES, "")


def codes_of(index: Index) -> dict[str, bytes]:
    return {item.id: item.code.tobytes() for item in index.get(index.list_ids()) if item is not None}


def test_an_index_of_another_version_is_encoded_again(photos: Path, tmp_path: Path) -> None:
    """All of it, however often that is interrupted; until it is complete, searches warn."""
    for i in range(COMMITTED):
        paint(photos / f"{i}.png", 1000 + i)
    paint(tmp_path / "other" / "a.png", 7)
    paint(tmp_path / "other" / "b.png", 8)

    class Killed(AverageHash):
        def batch(self, files: Sequence[Path]) -> EncodedFiles:
            if self.seen:
                raise KeyboardInterrupt
            return super().batch(files)

    with Index.create(tmp_path / "x.kh", 64) as index:
        index.note("model", "any")
        sync_folder(index, walk_folder(photos), AverageHash())
        sync_folder(index, walk_folder(tmp_path / "other"), AverageHash())
        assert index.notes()[PICTURES] == PIPELINE and pictures_warning(index) is None
        right = codes_of(index)
        as_of_old(index)
        assert "by another version" in str(pictures_warning(index))
        with pytest.raises(KeyboardInterrupt):
            sync_folder(index, walk_folder(photos), Killed())
        assert index.notes()[PICTURES] == UNFINISHED and "only a part" in str(pictures_warning(index))
        assert 0 < sum(code == right[name] for name, code in codes_of(index).items()) < len(right)

        (tmp_path / "other" / "b.png").rename(tmp_path / "b.png")  # its disk is not there today
        encode = AverageHash()
        report = sync_folder(index, walk_folder(photos), encode)
        assert (report.changed, report.unchanged, report.removed) == (5 + 1, COMMITTED, 0) and encode.seen == 5 + 1
        assert report.skipped == {"other/b.png": "No such file or directory"}
        assert index.notes()[PICTURES] == UNFINISHED and len(codes_of(index)) == len(right)
        (tmp_path / "b.png").rename(tmp_path / "other" / "b.png")
        assert counts(sync_folder(index, walk_folder(photos), encode)) == (0, 1, COMMITTED + 5, 0)
        assert codes_of(index) == right
        assert index.notes()[PICTURES] == PIPELINE and pictures_warning(index) is None


def test_another_model_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "model").mkdir(parents=True)
        (tmp_path / name / "model" / "config.json").write_text("{}")
        (tmp_path / name / "model" / "model.safetensors").write_text(name)
    with Index.create(tmp_path / "x.kh", 64) as index:
        assign_model(index, tmp_path / "a")
        assert model_for(index, None) == tmp_path / "a" / "model"
        for refused in (assign_model, model_for):
            with pytest.raises(UsageError, match="not the model"):
                refused(index, tmp_path / "b")
        with pytest.raises(UsageError, match="not the model"):  # before its encoder is fetched or asked for
            model_to_index_with(str(tmp_path / "x.kh"), tmp_path / "b")
        (tmp_path / "a").rename(tmp_path / "moved")
        with pytest.raises(DataError, match="say where it is with --model"):
            model_for(index, None)
        with pytest.raises(DataError, match="typo: no model here"):  # the one that was given, not the index's
            model_for(index, tmp_path / "typo")
        assert model_for(index, tmp_path / "moved") == tmp_path / "moved" / "model"


def test_a_folder_without_pictures_leaves_no_index(tmp_path: Path) -> None:
    head = HeadConfig()
    HashNetwork(HasherConfig(16, 1280, 384, head, head, "light")).save(tmp_path / "run" / "model")
    (tmp_path / "photos").mkdir()
    target = tmp_path / "x.kh"
    command = ["index", "add", str(tmp_path / "photos"), "--model", str(tmp_path / "run"), "--index", str(target)]
    with pytest.raises(DataError, match="no pictures here"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert not target.exists()
    paint(tmp_path / "photos" / "a.png", 1)
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0 and target.exists()


def test_texts_are_encoded_when_asked_for_and_from_then_on(photos: Path, tmp_path: Path) -> None:
    head = HeadConfig()
    HashNetwork(HasherConfig(64, 1280, 384, head, head, "light")).save(tmp_path / "run" / "model")
    target = tmp_path / "x.kh"

    def add(folder: Path, *options: str) -> tuple[dict[str, object], str]:
        command = ["index", "add", str(folder), "--model", str(tmp_path / "run"), "--index", str(target), "--json"]
        result = CliRunner().invoke(app, [*command, *options], catch_exceptions=False)
        return json.loads(result.stdout), result.stderr

    assert "texts" not in add(photos)[0]
    with Index.open(target) as index:
        assert not index.keeps_texts()
    report, _ = add(photos, "--texts")
    assert (report["unchanged"], report["texts"]) == (5, 3)
    row = {"file_name": "2024/2.png", "text": "a horse"}
    (photos / "metadata.jsonl").write_text(json.dumps(row) + "\n")
    report, _ = add(photos)
    assert (report["changed"], report["texts"]) == (3, 1)  # of the other two the texts have gone
    with Index.open(target) as index:
        (hits,) = index.search_texts(Hasher.load(tmp_path / "run" / "model").encode_texts(["a horse"]))
        assert (hits.ids, hits.distances.tolist(), hits.texts) == (["photos/2024/2.png"], [0], ["a horse"])
    target = tmp_path / "none.kh"
    paint(tmp_path / "plain" / "a.png", 1)
    report, messages = add(tmp_path / "plain", "--texts")
    assert report["texts"] == 0 and "no item has a text: name them as `text` or `texts` in metadata.jsonl" in messages


def test_commands(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # paths are printed as they are typed from here
    target = str(tmp_path / "x.kh")
    with Index.create(target, 64) as index:
        sync_folder(index, walk_folder(photos), AverageHash())

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--index", target], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    everything = [f"photos/2024/{i}.png" for i in range(5)]
    assert run("index", "list").splitlines() == everything
    assert json.loads(run("index", "list", "--json", "--limit", "2")) == everything[:2]
    assert json.loads(run("index", "stats", "--json"))["items"] == 5
    hits = json.loads(run("search", "--like", everything[0], "-k", "3", "--json"))
    assert len(hits) == 3 and everything[0] not in [hit["id"] for hit in hits]
    assert [hit["distance"] for hit in hits] == sorted(hit["distance"] for hit in hits)
    only = json.loads(run("search", "--like", everything[0], "--filter", "labels has 'cat'", "--json"))
    assert [hit["id"] for hit in only] == everything[1:2]
    table = run("search", "--like", everything[0], "--filter", "year = 2021")
    assert f"of 64 bits differ  {everything[1]}  a cat\n" in table and "\x1b" not in table  # the first of its texts
    assert run("index", "export", "--out", str(tmp_path / "codes")) == f"{tmp_path / 'codes'}: 5 items\n"
    copied = ["index", "add", "--codes", str(tmp_path / "codes"), "--index", str(tmp_path / "y.kh"), "--json"]
    assert json.loads(CliRunner().invoke(app, copied, catch_exceptions=False).stdout)["added"] == 5
    assert run("index", "remove", everything[4], "unknown") == "1 removed\n"
    assert json.loads(run("index", "remove", everything[3], "unknown", "--json")) == {"removed": 1}
    exported = run("index", "export", "--out", str(tmp_path / "rest"), "--json")
    assert json.loads(exported) == {"exported": 3}
    shown = dict(line.split(None, 1) for line in run("index", "stats").splitlines())
    assert shown["items"] == "3" and shown["form"] == "fast" and "details" not in shown
    assert shown["folder"] == str(tmp_path / "photos") and "roots" not in shown and "filling" not in shown
    for arguments, reason in (
        (["search"], "give one of"),
        (["search", "words", "--like", "x"], "give one of"),
        (["search", "--like", "x", "--filter", "a ="], "position 4"),
        (["search", "--like", "nobody"], "no such id"),
        (["search", "words"], "give it with --model"),
        (["index", "add", "--codes", "x", "--texts"], "give either a folder"),
    ):
        with pytest.raises((UsageError, DataError), match=reason):
            CliRunner().invoke(app, [*arguments, "--index", target], catch_exceptions=False)
