"""Fuzzers of what strangers write, by atheris: `python fuzz.py TARGET [options of libFuzzer] [folder of inputs]`.

Inputs that reach new lines of kenthash are mutated further. A target fails by any exception but a KenthashError of one
line, and where two ways to the same answer differ. libFuzzer writes the failing input to a file, whose name as the
only argument after TARGET repeats it.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["kenthash"]):
    from kenthash.data.headers import expected_work, format_of
    from kenthash.data.pack import FeaturePack, bad_rows
    from kenthash.data.pictures import Square, to_square
    from kenthash.data.readers.folder import read_folder
    from kenthash.data.readers.mat import read_mat
    from kenthash.errors import KenthashError
    from kenthash.files import load_npz
    from kenthash.search import Index, filters
    from kenthash.search.folders.walk import metadata_rows
    from kenthash.search.metadata import JsonMetadata

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ENTRIES: list[dict[str, object]] = [
    {},
    {"year": 2020, "place": "beach", "labels": ["dog", "it's"]},
    {"year": 2020.5, "place": "Beach", "labels": []},
    {"year": -3, "indoor": True, "place": "é"},
    {"year": 2**53 + 1, "indoor": False, "labels": "dog"},
    {"latitude": 48.2, "longitude": 16.4, "year": "2020"},
    {"shot on": "x", "year": None},
]
FILTERS = [
    "year = 2020", "year >= 1e3 and not place = 'beach'", "labels has 'it''s' or year in (-3, 0.1, 'x')",
    "near(48.2, 16.4, 10)", '"shot on" is not null', "indoor = true", "(((year < 3)))", "place != \"Beach\"",
]  # fmt: skip
ROWS = [
    b'{"file_name": "a.png", "text": "a dog", "labels": ["dog"]}\n{"file_name": "b.png", "texts": ["x", "y"]}\n',
    b"file_name,text\na.png,a dog\nb.png,\xc3\xa9\n",
    b'{"file_name": "../a.png", "labels": "dog", "year": 2020, "x": {"y": [1, 2.5, null, true]}}\n',
]

folder = Path(tempfile.mkdtemp(prefix="kenthash-fuzz-"))


def one_line(error: KenthashError) -> None:
    if "\n" in str(error):
        raise AssertionError(f"more than one line: {error!r}")


def filter_language() -> Callable[[bytes], None]:
    """What parses has the same meaning for SQLite as for `matches`."""
    index = Index.create(folder / "x.kh", 8)
    index.add([str(n) for n in range(len(ENTRIES))], np.zeros((len(ENTRIES), 1), np.uint8), ENTRIES)  # type: ignore[arg-type]

    def attempt(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        condition = filters.parse(text)
        expected = [str(n) for n, entry in enumerate(ENTRIES) if filters.matches(condition, entry)]
        (hits,) = index.search(np.zeros((1, 1), np.uint8), 20, filter=condition)
        if hits.ids != expected:
            raise AssertionError(f"{text!r}: {hits.ids}, not {expected}")

    return attempt


def uploads() -> Callable[[bytes], None]:
    def attempt(data: bytes) -> None:
        format_of(data[:64])
        expected_work(data)
        pixels = to_square(data, Square(32), max_pixels=1 << 20)
        if pixels.shape != (32, 32, 3):
            raise AssertionError(f"pixels of shape {pixels.shape}")

    return attempt


def metadata() -> Callable[[bytes], None]:
    """A metadata file of a folder of pictures: as a data set, and as metadata of an index."""
    pictures = folder / "pictures"
    pictures.mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (4, 4)).save(pictures / name)

    def attempt(data: bytes) -> None:
        for name in ("metadata.jsonl", "metadata.csv"):
            (pictures / name).unlink(missing_ok=True)
        (pictures / ("metadata.csv" if data[:1] == b"f" else "metadata.jsonl")).write_bytes(data)
        rows = list(metadata_rows(pictures).values())
        parsed = JsonMetadata([str(n) for n in range(len(rows))], [json.dumps(row) for row in rows])
        if list(parsed) != rows:
            raise AssertionError(f"{list(parsed)!r} is not {rows!r}")
        dataset = read_folder(pictures)
        if not set(dataset.ids) <= {"a.png", "b.png"}:
            raise AssertionError(f"a picture outside: {dataset.ids}")

    return attempt


def packs() -> Callable[[bytes], None]:
    """A feature pack one part of which is the input, by its first byte; or an .npz or a .mat file."""
    pack, mat = folder / "pack", folder / "mat"
    for path in (pack, mat):
        path.mkdir()
    whole = pack_parts()
    names = sorted(whole)
    for name, content in whole.items():
        (pack / name).write_bytes(content)
    (mat / "caption.txt").write_text("a\nb\n")

    def attempt(data: bytes) -> None:
        choice = (data[0] if data else 0) % (len(names) + 2)
        if choice == len(names):
            (folder / "x.npz").write_bytes(data[1:])
            try:
                load_npz(folder / "x.npz")
            except ValueError as error:
                raise KenthashError(str(error).split("\n")[0]) from error
        elif choice == len(names) + 1:
            for name in ("label.mat", "index.mat"):
                (mat / name).write_bytes(data[1:])
            read_mat(mat)
        else:
            try:
                (pack / names[choice]).write_bytes(data[1:])
                bad_rows(FeaturePack.open(pack))
            finally:
                (pack / names[choice]).write_bytes(whole[names[choice]])

    return attempt


def pack_parts() -> dict[str, bytes]:
    arrays: dict[str, NDArray[Any]] = {
        "image.npy": np.ones((2, 3), np.float16),
        "text.npy": np.ones((3, 2), np.float32),
        "text_offsets.npy": np.array([0, 1, 3]),
        "labels.npy": np.array([[0, 1], [1, 0]], np.uint8),
    }
    parts = {"ids.txt": b"a\nb\n", "texts.jsonl": b'"x"\n"y"\n"z"\n'}
    parts["meta.json"] = b'{"name": "n", "classes": ["a", "b"], "encoders": {"image": "e"}, "licence": ""}'
    for name, array in arrays.items():
        stream = BytesIO()
        np.save(stream, array)
        parts[name] = stream.getvalue()
    return parts


def seeds(target: str) -> list[bytes]:
    """Valid inputs to begin with."""
    if target == "filters":
        return [text.encode() for text in FILTERS]
    if target == "metadata":
        return ROWS
    if target == "packs":
        from scipy.io import savemat
        from scipy.sparse import coo_array

        whole, npz = pack_parts(), BytesIO()
        np.savez_compressed(npz, a=np.zeros(9), b=np.array(["x", "y"]))
        inputs = [bytes([place]) + whole[name] for place, name in enumerate(sorted(whole))]
        inputs.append(bytes([len(whole)]) + npz.getvalue())
        strings = np.array(["a.jpg", "b.jpg"])
        values = [strings, strings.astype(object), np.eye(2), coo_array(np.eye(2)), {"a": 1j, "b": strings}]
        for value, compressed in product(values, (False, True)):
            mat = BytesIO()
            savemat(mat, {"category": value}, do_compression=compressed)
            inputs.append(bytes([len(whole) + 1]) + mat.getvalue())
        return inputs
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8))
    contents = []
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM"):
        stream = BytesIO()
        picture.save(stream, kind)
        contents.append(stream.getvalue())
    return contents


TARGETS = {"filters": filter_language, "uploads": uploads, "metadata": metadata, "packs": packs}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"usage: python fuzz.py {'|'.join(TARGETS)} [options of libFuzzer] [folder of inputs]")
    name = sys.argv.pop(1)
    attempt = TARGETS[name]()

    def test_one(data: bytes) -> None:
        try:
            attempt(data)
        except KenthashError as error:
            one_line(error)

    if all(argument.startswith("-") for argument in sys.argv[1:]):
        inputs = folder / "inputs"
        inputs.mkdir()
        for number, content in enumerate(seeds(name)):
            (inputs / str(number)).write_bytes(content)
        sys.argv.append(str(inputs))
    atheris.Setup([*sys.argv, "-max_len=4096", "-timeout=120", "-print_final_stats=1"], test_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
