"""Compressed arrays from elsewhere: read as numpy does, or refused before they take memory."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kenthash import files
from kenthash.files import load_npz


def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "rows": np.arange(5), "image": np.eye(3, 2, dtype=np.float16), "reasons": np.array(["a", "bcd"]),
        "none": np.empty((0, 4)), "seed": np.int64(7), "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    }  # fmt: skip
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        loaded = load_npz(tmp_path / "x.npz")
        assert list(loaded) == list(arrays)
        for name, array in arrays.items():
            assert loaded[name].dtype == array.dtype
            np.testing.assert_array_equal(loaded[name], array)


def header(shape: tuple[int, ...], kind: str) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (header((1 << 40,), "<i8") + bytes(80), "not as long as it claims"),
        (header((10,), "|O") + b"pickle", "not an array of numbers"),
        (header((2,), "<i8") + bytes(15), "not as long as it claims"),
        (b"\x93NUMPY\x09\x00", "format"),
        (b"hello", "magic"),
    ],
)
def test_what_is_no_array_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(ValueError, match=reason):
        load_npz(tmp_path / "x.npz")


def test_a_bomb_is_refused_by_its_declared_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(1 << 24, np.uint8))
    assert len(load_npz(tmp_path / "x.npz")["x"]) == 1 << 24
    monkeypatch.setattr(files, "MAX_INFLATED", 1 << 24)  # which the header of the array exceeds
    with pytest.raises(ValueError, match="far more than the file has"):
        load_npz(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", x=np.zeros(1 << 24, np.uint8))  # what is as large as it says is no bomb
    assert len(load_npz(tmp_path / "x.npz")["x"]) == 1 << 24


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    for damaged in (b"", b"PK", b"no archive" * 9):
        (tmp_path / "x.npz").write_bytes(damaged)
        with pytest.raises(ValueError):
            load_npz(tmp_path / "x.npz")
    with pytest.raises(ValueError, match="No such file"):
        load_npz(tmp_path / "none.npz")
