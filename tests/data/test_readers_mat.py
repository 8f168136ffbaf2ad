"""The field's .mat files in the shapes that its own scripts and MATLAB give them."""

import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from layouts import write_picture, write_text
from numpy.typing import NDArray

from components import need
from kenthash.data.readers import mat_sizes, read_dataset
from kenthash.errors import DataError

LABELS = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
NAMES = [f"/home/someone/data/photos/part{i % 2}/{10**i}.jpg" for i in range(4)]  # of different lengths: padded


def cell(rows: Sequence[object]) -> NDArray[np.object_]:
    array = np.empty((1, len(rows)), dtype=object)
    for place, row in enumerate(rows):
        array[0, place] = row
    return array


CAPTIONS = [["a dog", "one more  dog "], ["x"], ["", "tree"], ["a", "b", "c"]]
READ = [["a dog", "one more  dog"], ["x"], ["tree"], ["a", "b", "c"]]
SINGLE = [["a"], ["two words"], [""], ["d"]]
PAIRS = [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]]
SHAPES = {
    "cell of string arrays": (cell([np.array(texts) for texts in CAPTIONS]), READ),
    "cell of cells": (cell([cell(texts) for texts in CAPTIONS]), READ),
    "cell of strings": (cell([text for [text] in SINGLE]), SINGLE),
    "padded strings": (np.array([text for [text] in SINGLE]), SINGLE),
    "column of strings": (np.array(SINGLE), SINGLE),
    "table of strings": (np.array(PAIRS), PAIRS),
}


def write_mat(root: Path, caption: np.ndarray | None, labels: object = LABELS, index: object = None) -> None:
    root.mkdir(exist_ok=True)
    scipy.io.savemat(root / "index.mat", {"index": NAMES if index is None else index})
    scipy.io.savemat(root / "label.mat", {"category": labels})
    if caption is not None:
        scipy.io.savemat(root / "caption.mat", {"caption": caption})
    for name in NAMES:
        write_picture(root / "photos" / Path(name).parent.name / Path(name).name)


@pytest.mark.parametrize("shape", SHAPES)
def test_captions_of_every_shape(tmp_path: Path, shape: str) -> None:
    caption, expected = SHAPES[shape]
    write_mat(tmp_path, caption)
    data = read_dataset(tmp_path)
    assert data.texts == expected
    assert data.labels.tolist() == LABELS.tolist()
    assert data.classes == ["class_0", "class_1", "class_2"]
    assert data.ids == [name.removeprefix("/home/someone/data/") for name in NAMES]
    assert data.pictures is not None and all(picture.is_file() for picture in data.pictures)


def test_caption_txt_class_names_sparse_labels_and_missing_pictures(tmp_path: Path) -> None:
    import scipy.sparse

    write_mat(
        tmp_path, None, scipy.sparse.csc_matrix(LABELS.astype(float)), cell([n.replace("/", "\\") for n in NAMES])
    )
    write_text(tmp_path / "caption.txt", "one\ntwo\n\nfour\n")
    write_text(tmp_path / "classes.txt", "cat\ndog\nkite\n")
    (tmp_path / "photos" / "part1" / "10.jpg").unlink()
    data = read_dataset(tmp_path)
    assert data.classes == ["cat", "dog", "kite"]
    assert data.texts == [["one"], [""], ["four"]]
    assert data.labels.tolist() == LABELS[[0, 2, 3]].tolist()
    assert [problem.what for problem in data.problems] == ["items left out, no picture file: 1 of 4"]
    assert data.notes[0].startswith("items without a text: 1 (")


def test_nothing_outside_the_folder_is_opened(tmp_path: Path) -> None:
    secret = write_picture(tmp_path / "secret.jpg")
    no_name = f"{'x' * 300}/secret.jpg"  # longer than any file's
    index = [str(secret), "../secret.jpg", "photos/../../secret.jpg", no_name, *NAMES]
    write_mat(tmp_path / "data", None, labels=np.ones((8, 3)), index=index)
    write_text(tmp_path / "data" / "caption.txt", "a\nb\nc\nd\ne\nf\ng\nh\n")
    data = read_dataset(tmp_path / "data")
    assert data.ids[0] == "photos/part0/1.jpg" and data.texts == [["e"], ["f"], ["g"], ["h"]]


def test_a_set_without_most_of_its_pictures_is_refused(tmp_path: Path) -> None:
    write_mat(tmp_path, SHAPES["cell of strings"][0])
    for name in NAMES[1:]:
        (tmp_path / name.removeprefix("/home/someone/data/")).unlink()
    with pytest.raises(DataError, match=r"3 of 4 pictures are not here, such as .*/10\.jpg: link their folder here"):
        read_dataset(tmp_path)


def test_parts_that_disagree_or_are_damaged_are_named(tmp_path: Path) -> None:
    write_mat(tmp_path, np.array(["a", "b", "c"]))
    with pytest.raises(DataError, match=r"caption\.mat: 3 strings cannot be divided among 4 items"):
        read_dataset(tmp_path)
    (tmp_path / "caption.mat").unlink()
    with pytest.raises(DataError, match=r"caption\.txt: cannot be read"):
        read_dataset(tmp_path)
    write_text(tmp_path / "caption.txt", "a\n")
    with pytest.raises(DataError, match=r"caption\.txt: 1 lines, but label\.mat has 4"):
        read_dataset(tmp_path)
    scipy.io.savemat(tmp_path / "label.mat", {"category": 2 * LABELS})
    with pytest.raises(DataError, match=r"label\.mat: must be a table \[items, classes\] of 0 and 1"):
        read_dataset(tmp_path)
    scipy.io.savemat(tmp_path / "label.mat", {"x": 1, "y": 2})
    with pytest.raises(DataError, match=r"label\.mat: no variable category or label or labels, only x, y"):
        read_dataset(tmp_path)
    (tmp_path / "label.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(range(200)) * 3)
    with pytest.raises(DataError, match=r"label\.mat: not a MATLAB file that can be read") as refused:
        read_dataset(tmp_path)
    assert "\n" not in str(refused.value)


def test_names_in_messages_keep_to_their_line(tmp_path: Path) -> None:
    write_mat(tmp_path, SHAPES["cell of strings"][0], index=[f"a\nb\x1b[2J{row}.jpg" for row in range(4)])
    with pytest.raises(DataError, match=r"4 of 4 pictures are not here, such as a\\nb\\x1b\[2J0\.jpg: link"):
        read_dataset(tmp_path)
    variables = [struct.pack("<5i", 0, 1, 1, 0, len(name)) + name + bytes(8) for name in (b"x\ny", b"z" * 10**6)]
    (tmp_path / "label.mat").write_bytes(b"".join(variables))  # of version 4, whose names are of any length
    with pytest.raises(DataError, match=r"no variable category or label or labels, only x\\ny, z{100,400}\.\.\.$"):
        read_dataset(tmp_path)
    h5py = need("h5py")
    with h5py.File(tmp_path / "label.mat", "w", userblock_size=512) as file:
        file["a\nb"] = h5py.SoftLink("elsewhere")
    with (tmp_path / "label.mat").open("r+b") as stream:
        stream.write(MATLAB_73)
    with pytest.raises(DataError, match=r"label\.mat: a\\nb: a link, which MATLAB does not write$"):
        read_dataset(tmp_path)


MATLAB_73 = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"


def test_matlab_73_without_h5py_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)  # as if it were not installed
    (tmp_path / "label.mat").write_bytes(MATLAB_73.ljust(512, b"\0") + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(DataError, match=r"label\.mat: MATLAB 7\.3 format needs h5py: pip install 'kenthash\[mat73\]'"):
        read_dataset(tmp_path)


def test_matlab_73(tmp_path: Path) -> None:
    h5py = need("h5py")

    def create(path: Path, name: str, value: object) -> None:
        with h5py.File(path, "w", userblock_size=512) as file:
            store(file, name, value)
        with path.open("r+b") as stream:
            stream.write(MATLAB_73)

    def store(file: Any, name: str, value: object) -> Any:
        """As MATLAB does: axes reversed, characters as uint16, cells as references."""
        if isinstance(value, list):
            node = file.create_dataset(name, (len(value), 1), dtype=h5py.ref_dtype)
            for place, inner in enumerate(value):
                node[place, 0] = store(file, f"#refs#/{name.replace('/', '_')}{place}", inner).ref
            node.attrs["MATLAB_class"] = np.bytes_("cell")
        elif isinstance(value, str):
            units = np.frombuffer(value.encode("utf-16-le"), dtype="<u2")
            node = file.create_dataset(name, data=units[:, None])
            node.attrs["MATLAB_class"] = np.bytes_("char")
        else:
            node = file.create_dataset(name, data=np.asarray(value, dtype=float).T)
            node.attrs["MATLAB_class"] = np.bytes_("double")
        return node

    write_mat(tmp_path, None)
    for part, name, value in (
        ("index.mat", "index", NAMES),
        ("label.mat", "category", LABELS),
        ("caption.mat", "caption", [["a dog", "b"], "x", ["tree \U0001f333"], ["a", "b", "c"]]),
    ):
        create(tmp_path / part, name, value)
    data = read_dataset(tmp_path)
    assert data.texts == [["a dog", "b"], ["x"], ["tree \U0001f333"], ["a", "b", "c"]]
    assert data.labels.tolist() == LABELS.tolist()
    assert [Path(item).name for item in data.ids] == [Path(name).name for name in NAMES]


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def integers(*values: int) -> bytes:
    return element(5, struct.pack(f"<{len(values)}i", *values))


def array(
    kind: int, rows: int, content: bytes = b"", name: bytes = b"", flags: int = 0, shape: tuple[int, ...] | None = None
) -> bytes:
    """An array of version 5: its class, its shape, by default [rows, 1], its name, and then its values, which may be
    missing."""
    header = element(6, struct.pack("<II", kind | flags << 8, 0)) + integers(*((rows, 1) if shape is None else shape))
    return element(14, header + element(1, name) + content)


CELL, STRUCT, CHARACTERS, SPARSE, DOUBLES, BYTES = 1, 2, 4, 5, 6, 9  # classes of arrays, as MATLAB numbers them
VERSION_5 = b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM"
EMPTY = element(14, b"")
NO_FIELDS = struct.pack("<HHi", 5, 4, 8) + element(1, b"")
FIELDS = struct.pack("<HHi", 5, 4, 8) + element(1, b"a".ljust(8, b"\0") + b"b".ljust(8, b"\0"))
INNER = {  # what the only cell of the variable holds
    "cells": array(CELL, 10**8),
    "cells that are there": array(CELL, 1 << 20, EMPTY * (1 << 20)),
    "structures": array(STRUCT, 10**8, FIELDS),
    "structures without fields": array(STRUCT, 10**9, NO_FIELDS),
    "blanks": array(CHARACTERS, 10**9, element(16, b"")),
    "complex numbers": array(BYTES, 1 << 20, element(2, bytes(1 << 20)) * 2, flags=8),
}


def bomb(kind: str, path: Path) -> None:
    """A file of some kilobytes that declares, or inflates to, much more."""
    if kind in INNER:
        packed = zlib.compress(array(CELL, 1, INNER[kind], b"category"), 9)
        # 5 is the minor version, about which nobody asks.
        path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\5\1IM" + struct.pack("<II", 15, len(packed)) + packed)
    elif kind == "inflated":  # an array of zeros, and around it a size that is too small by far
        head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM"
        shrunk = zlib.compressobj(9)
        header = (
            struct.pack("<II", 14, 4096) + array(BYTES, 1 << 25, name=b"category")[8:] + struct.pack("<II", 2, 1 << 25)
        )
        packed = shrunk.compress(header)
        packed += b"".join(shrunk.compress(bytes(1 << 24)) for _ in range(2)) + shrunk.flush()
        path.write_bytes(head + struct.pack("<II", 15, len(packed)) + packed)
    elif kind == "declared":  # version 4: type, rows, columns, not complex, the length of the name
        path.write_bytes(struct.pack("<5i", 0, 1 << 20, 1 << 20, 0, 9) + b"category\0")
    elif kind == "sparse":
        scipy.io.savemat(path, {"category": scipy.sparse.coo_array(([1], ([0], [0])), (1 << 30, 16))})
    else:
        h5py = need("h5py")
        with h5py.File(path, "w", userblock_size=512) as file:
            if kind == "empty HDF5":
                file.create_dataset("category", (1 << 20, 1 << 20), "u1", chunks=(64, 64))
            elif kind == "chunk HDF5":  # which is read as a whole for the sake of one value
                file.create_dataset("category", (1, 1), "u8", chunks=(1 << 14, 3 << 13), maxshape=(None, None))
            elif kind == "cells HDF5":  # each of which becomes an object of Python when the references are read
                node = file.create_dataset("category", (10**8,), h5py.ref_dtype, chunks=(64,))
                node.attrs["MATLAB_class"] = np.bytes_("cell")
            else:  # cells that name cells that name cells
                cells = [file.create_dataset("#end", (1,), "u1").ref] * 200
                for level in range(5):
                    node = file.create_dataset(
                        f"#{level}" if level < 4 else "category", data=cells, dtype=h5py.ref_dtype
                    )
                    node.attrs["MATLAB_class"] = np.bytes_("cell")
                    cells = [node.ref] * 200
        with path.open("r+b") as stream:
            stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM")


HDF5_BOMBS = ["empty HDF5", "chunk HDF5", "cells HDF5", "nested HDF5"]


@pytest.mark.parametrize("kind", [*INNER, "inflated", "declared", "sparse", *HDF5_BOMBS])
def test_bombs_are_refused_before_they_take_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    write_mat(tmp_path, None)
    bomb(kind, tmp_path / "label.mat")
    assert (tmp_path / "label.mat").stat().st_size < 1 << 17
    if kind in ("inflated", "cells that are there", "complex numbers", "nested HDF5"):
        monkeypatch.setattr(mat_sizes, "MAX_BYTES", 1 << 20)  # which they reach sooner
    with pytest.raises(DataError, match=r"label\.mat: would take [\d.,]+ GiB of memory"):
        read_dataset(tmp_path)


def test_cells_within_cells_end_neither_the_stack_nor_in_a_trace(tmp_path: Path) -> None:
    """scipy's reader calls itself for each level, and ends the process after some thousands."""
    write_mat(tmp_path, None)
    header = array(CELL, 1)[8:]
    path = tmp_path / "label.mat"
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM" + (struct.pack("<II", 14, 4096) + header) * 100_000)
    with pytest.raises(DataError, match=r"label\.mat: cells within cells, more than \d+ levels"):
        read_dataset(tmp_path)
    h5py = need("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        node = file.create_dataset("category", (1,), h5py.ref_dtype)
        node[0] = node.ref
        node.attrs["MATLAB_class"] = np.bytes_("cell")
    with path.open("r+b") as stream:
        stream.write(MATLAB_73)
    with pytest.raises(DataError, match=r"label\.mat: cells within cells, more than \d+ levels"):
        read_dataset(tmp_path)


@pytest.mark.parametrize("kind", ["external", "link", "variable length"])
def test_matlab_73_reads_nothing_from_other_files(tmp_path: Path, kind: str) -> None:
    """HDF5 can name a file anywhere as the place of its values, or of a whole data set."""
    h5py = need("h5py")
    write_mat(tmp_path / "data", None)
    secret = tmp_path / "secret"
    with h5py.File(secret, "w") as file:
        file["numbers"] = LABELS
    path = tmp_path / "data" / "label.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        if kind == "external":
            file.create_dataset("category", (4, 3), "u1", external=[(str(secret), 0, 12)])
        elif kind == "link":
            file["category"] = h5py.ExternalLink(str(secret), "numbers")
        else:  # all may be the same megabytes
            file.create_dataset("category", data=["ab"] * 12, dtype=h5py.string_dtype())
    with path.open("r+b") as stream:
        stream.write(MATLAB_73)
    with pytest.raises(DataError, match=r"label\.mat: category: .* which MATLAB does not write"):
        read_dataset(tmp_path / "data")


def compressed(content: bytes) -> bytes:
    packed = zlib.compress(content)
    return struct.pack("<II", 15, len(packed)) + packed


def sparse(rows: tuple[int, ...], starts: tuple[int, ...], shape: tuple[int, ...] = (4, 2)) -> bytes:
    values = element(9, struct.pack(f"<{len(rows)}d", *([1.0] * len(rows))))
    return array(SPARSE, 0, integers(*rows) + integers(*starts) + values, b"category", shape=shape)


def deflated_with_a_gap() -> bytes:
    """A string of one byte, then nothing for so many compressed bytes that scipy reads a block of nothing else, where
    it is to step over the seven bytes that fill up the string. It steps over none, and takes them for what follows."""
    content = array(CELL, 2, array(CHARACTERS, 1, element(16, b"a")) + EMPTY, b"category")
    end = len(content) - len(EMPTY) - 7
    block, nothing = 131072, b"\0\0\0\xff\xff"  # what scipy reads at a time; a block of deflate without content
    shrunk = zlib.compressobj()
    packed = shrunk.compress(content[:end]) + shrunk.flush(zlib.Z_SYNC_FLUSH) + nothing * (2 * block // len(nothing))
    packed += shrunk.compress(content[end:]) + shrunk.flush()
    return struct.pack("<II", 15, len(packed)) + packed


NO_TYPE = element(8, bytes(16))  # MATLAB has no type 8
ENDING = {  # variables that end the process inside of scipy, or make it write where it must not
    "numbers of no type": array(DOUBLES, 2, NO_TYPE, b"category"),
    "numbers of a type far beyond": array(DOUBLES, 2, element(1033, bytes(16)), b"category"),
    "no numbers of no type": array(DOUBLES, 0, element(0, b""), b"category"),
    "one number of no type": array(BYTES, 1, struct.pack("<HHI", 8, 1, 0), b"category"),
    "imaginary parts of no type": array(DOUBLES, 2, element(9, bytes(16)) + NO_TYPE, b"category", flags=8),
    "characters of no type": array(CHARACTERS, 2, NO_TYPE, b"category"),
    "characters without a shape": array(CHARACTERS, 0, element(16, b"a"), b"category", shape=()),
    "in a cell": array(CELL, 1, array(DOUBLES, 2, NO_TYPE), b"category"),
    "in a structure": array(STRUCT, 1, FIELDS + EMPTY + array(DOUBLES, 2, NO_TYPE), b"category"),
    "compressed, of size 0": compressed(
        struct.pack("<II", 14, 0) + array(DOUBLES, 2, NO_TYPE, b"category")[8:]  # a size that scipy does not look at
    ),
    "compressed with a gap": deflated_with_a_gap(),
    "sparse, below": sparse((0, 10**6), (0, 1, 2)),
    "sparse, above": sparse((0, -1), (0, 1, 2)),
    "sparse, columns that go back": sparse((0, 1), (0, 10**6, 2)),
    "sparse, without columns": sparse((0, 1), ()),
    "sparse, of one dimension": sparse((0, 1), (0, 1, 2), shape=(4,)),
    "sparse, places that are fractions": array(
        SPARSE, 0, element(9, struct.pack("<d", 0.5)) + integers(0, 1, 1) + element(9, bytes(8)), b"x", shape=(4, 2)
    ),
}


@pytest.mark.parametrize("kind", ENDING)
def test_what_scipy_trusts_is_checked_before_scipy_reads_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "label.mat"
    path.write_bytes(VERSION_5 + ENDING[kind])
    with pytest.raises(DataError, match=r"label\.mat: not a MATLAB file that can be read: it is damaged or cut off$"):
        mat_sizes.check_sizes(path)  # without scipy, which would end this process


def test_values_of_every_type_shape_and_class_that_is_legal_are_read(tmp_path: Path) -> None:
    write_mat(tmp_path, SHAPES["cell of strings"][0])
    places = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
    for kind, code in places.items():
        values = element(kind, struct.pack(f"<4{code}", 1, 0, 0, 1))
        (tmp_path / "label.mat").write_bytes(VERSION_5 + array(DOUBLES, 4, values, b"category"))
        assert read_dataset(tmp_path).labels.tolist() == [[1], [0], [0], [1]]
    unused = sparse((1, 3, 9, 9), (0, 1, 2))  # what stands behind the last value does not count
    empty = array(CHARACTERS, 0, element(0, b""), b"empty", shape=(0, 0))  # which has no type
    for content in (unused, compressed(unused), unused + empty):
        (tmp_path / "label.mat").write_bytes(VERSION_5 + content)
        assert read_dataset(tmp_path).labels.tolist() == [[0, 0], [1, 0], [0, 0], [0, 1]]


def test_structures_of_very_many_fields_are_refused(tmp_path: Path) -> None:
    """scipy compares each name with each, for hours; also those of a structure that is empty."""
    names = b"".join(b"%07d\0" % number for number in range(10**5))
    path = tmp_path / "label.mat"
    path.write_bytes(VERSION_5 + array(STRUCT, 0, struct.pack("<HHi", 5, 4, 8) + element(1, names), b"category"))
    with pytest.raises(DataError, match=r"label\.mat: a structure of 100,000 fields, the limit is [\d,]+$"):
        mat_sizes.check_sizes(path)
