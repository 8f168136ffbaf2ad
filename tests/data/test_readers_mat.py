"""The field's .mat files in the shapes that its own scripts and MATLAB give them."""

import sys
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
from kenthash.data.readers import read_dataset
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
