"""WebDataset and Parquet shards as data sets: streamed from any place, whole or refused."""

import io
import json
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from components import need
from kenthash.cli import app
from kenthash.data.readers import read_dataset
from kenthash.data.readers.samples import Sample
from kenthash.data.readers.shards import find_shards, is_sharded
from kenthash.errors import DataError, UsageError
from kenthash.search.metadata import check_id
from kenthash.storage import expand_braces, list_stored
from shards import jpeg, write_tar

PICTURES = [jpeg(seed) for seed in range(6)]
RECORD = {
    "caption": "not this one",
    "labels": ["dog", "kite"],
    "width": 48,
    "exif": None,
    "path": "/etc/passwd",
    "n": {},
}
FILES = {
    "000000001.jpg": PICTURES[0],
    "000000001.txt": b" two dogs \n",
    "000000001.json": json.dumps(RECORD).encode(),
    "folder/b.webp": PICTURES[1],  # whatever its name says
    "folder/b.cls": b"3",
    "000000003.json": b'{"caption": "a row without a picture"}',
    "000000004.seg.png": PICTURES[2],
    "000000004.json": b'{"captions": ["one", "", "two"], "label": "dog", "score": NaN, "tags": ["a", "b"]}',
    "000000005.json": b"[not an object",
    "000000005.JPG": PICTURES[3],
}
SAMPLES = [
    Sample("00000/000000001", PICTURES[0], ["two dogs"], ["dog", "kite"], {"width": 48}),
    Sample("00000/folder/b", PICTURES[1], [], ["3"], {}),
    Sample("00000/000000004", PICTURES[2], ["one", "two"], ["dog"], {"tags": ["a", "b"]}),
    Sample("00000/000000005", PICTURES[3], [], [], {}),
]


def samples(data: Path | str) -> list[Sample]:
    return [sample for shard in find_shards(str(data)) for sample in shard.samples()]


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    parquet, pyarrow = need("pyarrow.parquet"), need("pyarrow")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize(("name", "mode"), [("00000.tar", "w"), ("00000.tar.gz", "w:gz"), ("00000.tgz", "w:gz")])
def test_a_tar_file_is_read_as_items(tmp_path: Path, name: str, mode: str) -> None:
    write_tar(tmp_path / name, FILES, mode)
    assert samples(tmp_path / name) == samples(tmp_path) == SAMPLES
    dataset = read_dataset(tmp_path / name)
    assert dataset.ids == [sample.id for sample in SAMPLES]
    assert dataset.classes == ["3", "dog", "kite"] and dataset.labels.tolist() == [
        [0, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0],
    ]  # fmt: skip
    assert dataset.texts == [["two dogs"], [], ["one", "two"], []]


def test_different_names_are_different_items(tmp_path: Path) -> None:
    """Also names that are no UTF-8 or have control characters, and those that spell out such a name."""
    names = ["a\udcff", "a\udcfe", "a\\xff", "a\ufffd", "a\x01", "a\x02"]
    path = tmp_path / "00000.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for name in names:
            info = tarfile.TarInfo(f"{name}.jpg")
            info.size = len(PICTURES[0])
            archive.addfile(info, io.BytesIO(PICTURES[0]))
    ids = [sample.id for sample in samples(path)]
    assert len(set(ids)) == len(names) and ids[2:4] == ["00000/a\\xff", "00000/a\ufffd"]
    for id in ids:
        check_id(id)


def test_a_tar_file_that_is_not_whole_is_refused_wherever_it_was_cut(tmp_path: Path) -> None:
    """The standard library takes most of these for shorter archives."""
    content = write_tar(tmp_path / "00000.tar", FILES).read_bytes()
    end = content.rstrip(b"\0")
    for size in [*range(0, len(end), 512), 100, 700, len(end) - 1]:
        (tmp_path / "00000.tar").write_bytes(content[:size])
        with pytest.raises(DataError, match=r"00000\.tar: damaged, or not a whole tar file .*: fetch it again"):
            samples(tmp_path)
    spoilt = bytearray(content)
    spoilt[content.index(b"folder/b.webp")] ^= 1  # its header's sum is wrong now
    (tmp_path / "00000.tar").write_bytes(spoilt)
    with pytest.raises(DataError, match="damaged"):
        samples(tmp_path)


def test_what_img2dataset_wrote_is_one_data_set(tmp_path: Path) -> None:
    for shard in ("00000", "00001"):
        write_tar(tmp_path / f"{shard}.tar", {f"{shard}0000.jpg": PICTURES[0], f"{shard}0000.txt": b"a kite"})
        write_parquet(tmp_path / f"{shard}.parquet", {"key": [f"{shard}0000"], "url": ["http://127.0.0.1/a.jpg"]})
        (tmp_path / f"{shard}_stats.json").write_text("{}")
    assert read_dataset(tmp_path).ids == ["00000/000000000", "00001/000010000"]
    write_tar(tmp_path / "sub" / "00001.tar", {"a.jpg": PICTURES[0]})
    assert read_dataset(tmp_path).ids[2:] == ["sub/00001/a"]


def test_parquet_with_bytes_or_paths_is_read_as_items(tmp_path: Path) -> None:
    img2dataset = {
        "key": ["1", "2"],
        "status": ["success", "failed_to_download"],
        "caption": ["a kite", "lost"],
        "width": [48, None],
        "jpg": [PICTURES[0], None],
    }
    write_parquet(tmp_path / "a" / "00000.parquet", img2dataset)
    expected = Sample("00000/1", PICTURES[0], ["a kite"], [], {"status": "success", "width": 48})
    assert samples(tmp_path / "a") == [expected]
    hugging_face = {"image": [{"bytes": PICTURES[1], "path": "x.jpg"}], "label": [7], "texts": [["one", "two"]]}
    write_parquet(tmp_path / "b" / "train-0.parquet", hugging_face)
    assert samples(tmp_path / "b") == [Sample("train-0/0", PICTURES[1], ["one", "two"], ["7"], {})]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "p.jpg").write_bytes(PICTURES[2])
    write_parquet(tmp_path / "c" / "list.parquet", {"id": ["mine"], "file_name": ["p.jpg"], "text": ["a dog"]})
    assert samples(tmp_path / "c") == [Sample("mine", tmp_path / "c" / "p.jpg", ["a dog"], [], {})]


def test_parquet_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.jpg").write_bytes(PICTURES[0])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    for name in ("../secret.jpg", str(tmp_path / "secret.jpg"), "link.jpg", "file:///etc/passwd"):
        write_parquet(tmp_path / "in" / "list.parquet", {"file_name": [name]})
        with pytest.raises(DataError, match="folder of this file"):
            samples(tmp_path / "in")
    write_parquet(tmp_path / "in" / "list.parquet", {"id": ["a"], "code": ["?"]})
    with pytest.raises(DataError, match="no column of pictures among id, code: name the one"):
        samples(tmp_path / "in")
    (tmp_path / "in" / "list.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        samples(tmp_path / "in")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_shards_are_read_from_a_web_server_and_from_object_storage(tmp_path: Path, web: str) -> None:
    need("aiohttp")
    fsspec = need("fsspec")
    for number in range(3):
        write_tar(tmp_path / f"0{number}.tar", {f"{number}.jpg": PICTURES[number], f"{number}.txt": b"a kite"})
    there = read_dataset(f"{web}/{{00..02}}.tar")
    assert there.ids == ["00/0", "01/1", "02/2"] and there.texts == [["a kite"]] * 3
    with pytest.raises(DataError, match=rf"^{web}/nothing.tar: there is no such file or folder$"):
        samples(f"{web}/nothing.tar?signature=secret")
    memory = fsspec.filesystem("memory")
    for number in range(3):
        memory.pipe(f"/bucket/train/0{number}.tar", (tmp_path / f"0{number}.tar").read_bytes())
    write_parquet(tmp_path / "list.parquet", {"file_name": ["p/a.jpg"]})
    memory.pipe("/bucket/list.parquet", (tmp_path / "list.parquet").read_bytes())
    memory.pipe("/bucket/p/a.jpg", PICTURES[4])
    for data in ("memory://bucket/train", "memory://bucket/train/*.tar", "memory://bucket/train/{00..02}.tar"):
        assert samples(data) == samples(f"{tmp_path}/*.tar"), data
    assert samples("memory://bucket/list.parquet") == [Sample("list/0", PICTURES[4])]
    before = [file.state for file in list_stored("memory://bucket/train", (".tar",))]
    memory.pipe("/bucket/train/01.tar", memory.cat("/bucket/train/01.tar"))
    after = [file.state for file in list_stored("memory://bucket/train", (".tar",))]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]


def test_addresses_that_cannot_be_used_are_told_in_one_line(tmp_path: Path) -> None:
    need("fsspec")
    for data, kind, reason in (
        ("nosuch://user:secret@host/a.tar", UsageError, r"^nosuch://host/a.tar: .*nosuch"),
        ("memory://bucket-without-shards", DataError, "no shards here|no such file"),
        (str(tmp_path), DataError, r"no shards here: looked for \*\.tar, \*\.tar\.gz, \*\.tgz, \*\.parquet"),
        (str(tmp_path / "none.tar"), DataError, "there is no such file or folder"),
        ("{0..99999999}.tar", UsageError, "more than 1,000,000 names"),
    ):
        with pytest.raises(kind, match=reason):
            find_shards(data)
    assert list(expand_braces("a{b}{1..2}")) == ["a{b}1", "a{b}2"]
    (tmp_path / "photo.jpg").write_bytes(PICTURES[0])
    write_tar(tmp_path / "backup.tar", FILES)
    assert not is_sharded(str(tmp_path))  # pictures, with an archive among them


def test_data_check_opens_the_pictures_of_shards(tmp_path: Path) -> None:
    write_tar(tmp_path / "00000.tar", {**FILES, "6.jpg": b"no picture", "7.jpg": PICTURES[0], "7.txt": b"again"})
    result = CliRunner().invoke(app, ["data", "check", str(tmp_path), "--json"], catch_exceptions=False)
    report = json.loads(result.stdout)
    assert result.exit_code == 0 and (report["items"], report["pictures"]) == (6, 6)
    problems = " ".join(problem["what"] for problem in report["problems"])
    assert "cannot be read: 1 of 6" in problems and "occur more than once, byte for byte: 1" in problems
