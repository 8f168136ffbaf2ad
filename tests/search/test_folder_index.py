"""A folder and its own index: found again from below, after a move, and where nothing can be written."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Never

import pytest
from painted import AverageHash, counts, paint
from typer.testing import CliRunner, Result

from kenthash.cli import app
from kenthash.errors import DataError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.hasher import EncodedFiles
from kenthash.model.network import HashNetwork
from kenthash.search import Index
from kenthash.search.folders.folder import BATCH, COMMITTED, IndexingReport, sync_folder
from kenthash.search.folders.own_index import find_index, index_for
from kenthash.search.folders.roots import Roots
from kenthash.search.folders.walk import walk_folder
from processes import PATIENCE


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for i in range(4):
        paint(tmp_path / "photos" / "2024" / f"{i}.png", i)
    paint(tmp_path / "photos" / "2023" / "a.png", 9)
    return tmp_path / "photos"


def add(folder: Path, target: Path, *exclude: str) -> tuple[IndexingReport, int]:
    """Index a folder; also the number of pictures that were encoded."""
    encode = AverageHash()
    with Index.open_or_create(target, 64) as index:
        return sync_folder(index, walk_folder(folder), encode, exclude or None), encode.seen


def ids(target: Path) -> list[str]:
    with Index.open(target) as index:
        return index.list_ids()


def paths(target: Path) -> list[Path | None]:
    with Index.open(target) as index:
        roots = Roots(index)
        return [roots.path_of(item.id, item.metadata) for item in index.get(index.list_ids()) if item is not None]


def test_a_moved_folder_is_not_encoded_again(photos: Path) -> None:
    """With its own index in it, and with one elsewhere that has seen it under another name."""
    elsewhere = photos.parent / "x.kh"
    for target in (index_for(photos), elsewhere):
        assert add(photos, target)[1] == 5
    assert ids(index_for(photos))[0] == "2023/a.png" and ids(elsewhere)[0] == "photos/2023/a.png"
    (photos.parent / "disk").mkdir()
    moved = photos.rename(photos.parent / "disk" / "pictures")
    for target in (index_for(moved), elsewhere):
        report, encoded = add(moved, target)
        assert (counts(report), encoded) == ((0, 0, 5, 0), 0)
        assert all(path is not None and path.is_file() and path.is_relative_to(moved) for path in paths(target))
    assert ids(elsewhere)[0] == "photos/2023/a.png"


def test_folders_that_are_added_at_once_are_all_known(photos: Path) -> None:
    """A second one, of the same name, from its beginning to its end while the first is being encoded."""
    target, second = photos.parent / "x.kh", photos.parent / "other" / "photos"
    paint(second / "b.png", 50)

    def encode(batches: Iterable[Sequence[Path]]) -> Iterator[EncodedFiles]:
        assert counts(add(second, target)[0]) == (1, 0, 0, 0)
        yield from AverageHash()(batches)

    with Index.create(target, 64) as index:
        assert counts(sync_folder(index, walk_folder(photos), encode)) == (5, 0, 0, 0)
    assert all(path is not None and path.is_file() for path in paths(target))
    assert counts(add(second, target)[0]) == (0, 0, 1, 0)
    assert counts(add(photos, target)[0]) == (0, 0, 5, 0)


def test_a_moved_folder_with_other_pictures_is_another_folder(photos: Path) -> None:
    target = photos.parent / "x.kh"
    add(photos, target)
    photos.rename(photos.parent / "gone")
    for i in range(5):
        paint(photos.parent / "others" / f"{i}.png", 50 + i)
    assert counts(add(photos.parent / "others", target)[0]) == (5, 0, 0, 0)
    assert len(ids(target)) == 10  # those that are gone stay: their disk may be back tomorrow


def test_moved_files_keep_their_codes(photos: Path) -> None:
    target = index_for(photos)
    add(photos, target)
    (photos / "2024").rename(photos / "summer")
    (photos / "2023" / "a.png").rename(photos / "b.png")
    paint(photos / "new.png", 77)
    report, encoded = add(photos, target)
    assert (report.moved, counts(report), encoded) == (5, (1, 0, 0, 0), 1)
    assert ids(target) == ["b.png", "new.png", *(f"summer/{i}.png" for i in range(4))]
    (photos / "copy.png").write_bytes((photos / "b.png").read_bytes())
    (photos / "b.png").rename(photos / "c.png")
    report, encoded = add(photos, target)
    assert (report.moved, counts(report), encoded) == (1, (1, 0, 5, 0), 0)


def test_a_part_of_a_folder(photos: Path) -> None:
    """What was indexed with the whole folder stays part of it, with what metadata.jsonl says there."""
    (photos / "metadata.jsonl").write_text(json.dumps({"file_name": "2024/0.png", "text": "a dog"}) + "\n")
    target = index_for(photos)
    add(photos, target)
    assert index_for(photos / "2024") == find_index(photos / "2024") == target
    (photos / "2024" / "3.png").unlink()
    (photos / "2023" / "a.png").unlink()
    assert counts(add(photos / "2024", target)[0]) == (0, 0, 3, 1)
    assert "2023/a.png" in ids(target)


def test_patterns_are_left_out_until_others_are_given(photos: Path) -> None:
    target = index_for(photos)
    assert counts(add(photos, target, "2023", "2024/3.*")[0]) == (3, 0, 0, 0)
    assert counts(add(photos, target)[0]) == (0, 0, 3, 0)
    assert counts(add(photos, target, "0.png")[0]) == (2, 0, 2, 1)


def test_a_folder_that_cannot_be_written_to_is_indexed_in_the_cache(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **options: "photos" not in str(path) and real(path, mode))
    target = index_for(photos)
    assert target.parent == photos.parent / "cache" / "kenthash" / "indexes"
    add(photos, target)
    assert ids(target)[0] == "2023/a.png" and not list(photos.glob(".*"))
    assert find_index(photos / "2024") == index_for(photos) == target
    moved = photos.rename(photos.parent / "photos on another disk")
    assert index_for(moved) == target
    assert counts(add(moved, target)[0]) == (0, 0, 5, 0)
    assert find_index(moved / "2023") == target
    (target.parent / "broken.kh").write_bytes(b"no index" * 100)
    assert find_index(moved) == target
    with pytest.raises(DataError, match="no index here or in a folder above: make one with `kenthash index add"):
        find_index(photos.parent)


def save_model(folder: Path) -> Path:
    head = HeadConfig()
    HashNetwork(HasherConfig(64, 1280, 384, head, head, "light")).save(folder / "run" / "model")
    return folder / "run"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], catch_exceptions=False)


def test_the_commands_need_a_folder_alone(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = save_model(photos.parent)
    monkeypatch.delenv("XDG_CACHE_HOME")  # where the encoder is
    (photos / "2023" / "bad.jpg").write_text("no picture")
    monkeypatch.chdir(photos)
    added = run("index", "add", ".", "--model", str(model), "--exclude", "3.png")
    assert "5 pictures" not in added.stdout and "4 added" in added.stdout and "1 skipped" in added.stdout
    assert "  skipped 2023/bad.jpg: not a picture that can be decoded\n" in added.stderr
    assert f"{photos}: 6 pictures, by the model run, into {photos / '.kenthash.kh'}" in added.stderr
    monkeypatch.chdir(photos / "2024")
    assert "4 unchanged" in run("index", "add", "..").stdout  # by the model of the index
    assert run("index", "list").stdout.splitlines() == ["2023/a.png", *(f"2024/{i}.png" for i in range(3))]
    first = run("search", "--like", "0.png", "--filter", "folder = '2023'").stdout  # a file of this folder
    assert first.rstrip().endswith("  ../2023/a.png")
    (hit,) = json.loads(run("search", "--like", "2024/0.png", "--filter", "folder = '2023'", "--json").stdout)
    assert (hit["id"], hit["path"]) == ("2023/a.png", str(photos / "2023" / "a.png"))
    monkeypatch.chdir(photos.parent)
    with pytest.raises(DataError, match="no index here"):
        run("search", "a dog")


# `index add`, which kills itself before it commits pictures for the third time, and says how many it has begun.
KILLED = """
import os, signal, sys
from kenthash.cli import main
from kenthash.search.folders import folder

commit, commits, row, begun = folder._Update._commit, [], folder._Update._row, []

def killed(*arguments):
    commits.append(arguments)
    if len(commits) == 3:
        print(len(begun), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(*arguments)

def counted(update, task):
    begun.append(task)
    return row(update, task)

folder._Update._commit, folder._Update._row = killed, counted
sys.argv[0] = "kenthash"
main()
"""


def test_an_index_that_was_killed_says_so_and_knows_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos, model = tmp_path / "my photos", save_model(tmp_path)
    pictures = 2 * COMMITTED + BATCH + 5
    for i in range(pictures):
        paint(photos / f"name{i:03}.png", i)
    command = [sys.executable, "-c", KILLED, "index", "add", str(photos), "--model", str(model)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert completed.returncode == -signal.SIGKILL, completed.stderr
    assert int(completed.stdout) - 2 * COMMITTED <= BATCH  # what was begun and is lost
    monkeypatch.chdir(photos)
    searched = run("search", "a name001", "-k", "2", "--json")
    assert [hit["by_words"] for hit in json.loads(searched.stdout)] == [True, False]
    note = f"note: this index is unfinished: run `kenthash index add '{photos}'` to go on, unless it is running\n"
    assert searched.stderr == note
    assert len(ids(photos / ".kenthash.kh")) == 2 * COMMITTED
    assert f"{BATCH + 5} added, 0 changed, 0 moved, {2 * COMMITTED} unchanged" in run("index", "add", ".").stdout
    searched = run("search", f"name{pictures - 1:03}", "-k", "1", "--json")
    assert [hit["by_words"] for hit in json.loads(searched.stdout)] == [True] and searched.stderr == ""


def test_an_unfinished_folder_is_finished_by_itself_or_one_above(photos: Path) -> None:
    target = photos.parent / "x.kh"

    def killed(batches: object) -> Never:
        raise KeyboardInterrupt

    def unfinished(*parts: str) -> bool:
        with Index.open(target) as index:
            warning = Roots(index).unfinished_warning(str(target))
        folder = photos.joinpath(*parts)
        return warning is not None and f"`kenthash index add {folder} --index {target}` to go on" in warning

    add(photos, target)
    paint(photos / "2024" / "new.png", 70)
    with Index.open(target) as index, pytest.raises(KeyboardInterrupt):
        sync_folder(index, walk_folder(photos / "2024"), killed)
    assert unfinished("2024")
    add(photos / "2023", target)
    assert unfinished("2024")
    paint(photos / "2023" / "new.png", 71)
    with Index.open(target) as index, pytest.raises(KeyboardInterrupt):
        sync_folder(index, walk_folder(photos / "2023"), killed)
    assert unfinished()
    add(photos, target)
    with Index.open(target) as index:
        assert Roots(index).unfinished_warning() is None


def test_a_folder_of_other_files_says_what_it_saw(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no pictures here: give a folder that has some"):
        walk_folder(tmp_path)
    for name in ("a.txt", "b.txt", "notes.md"):
        (tmp_path / name).write_text("words")
    with pytest.raises(DataError, match=r"no pictures here, but other files \(2 \.txt, 1 \.md\): give a folder"):
        walk_folder(tmp_path)
    with pytest.raises(DataError, match=r"notes\.md: a file: give the folder that it is in"):
        walk_folder(tmp_path / "notes.md")


def test_a_folder_of_which_nothing_is_indexed_fails(tmp_path: Path) -> None:
    model, photos = save_model(tmp_path), tmp_path / "photos"
    photos.mkdir()
    (photos / "a.jpg").write_text("words")
    command = ["index", "add", str(photos), "--model", str(model)]
    with pytest.raises(DataError, match=r"photos: none of its pictures can be used: the lines above say why"):
        run(*command)
    paint(photos / "a.jpg", 1)
    with pytest.raises(DataError, match=r"photos: all of its pictures are excluded: give other patterns"):
        run(*command, "--exclude", "*.jpg", "--json")
    assert "nothing found: the index is empty" in run("search", "a dog", "--index", str(photos / ".kenthash.kh")).stderr
    assert "1 added" in run(*command, "--exclude", "").stdout
