"""Damaged files of a local index: what searches answer after each of many random mutations.

    python tests/search/damage.py codes 0 2000     # of the code file
    python tests/search/damage.py store 0 500      # of the SQLite file

Each mutation is made to a copy, and opened and searched by a process of its own, so that a crash is counted like any
other outcome. Prints the number of mutations by outcome, and the numbers of those that should not be, as JSON.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, unpack
from kenthash.errors import KenthashError
from kenthash.search import Hits, Index, add_texts
from kenthash.search.local import mih, scan, snapshot
from kenthash.search.local.maintenance import verify_index

ITEMS = 3000
# The form, and the bits of codes, of which an index with two stages keeps the first 64 in memory.
CASES = (("fast", 64), ("compact", 64), ("scan", 64), ("fast", 128), ("fast", 24), ("fast", 192))
TWO_STAGES = 192
WORDS = ("number", "number 15", "é0990", "nothing")
FOUND_BY_VERIFY = "found by verify"  # a wrong answer of what SQLite looks through by itself: a filter, or the words
SIZES = (1, 8, 64, 512, 4096, 16384, 20000)


def make(folder: Path, form: str, bits: int) -> None:
    """An index with tables, with items removed from the code file and items outside it; and an older code file."""
    rng = np.random.default_rng(bits)
    centres = rng.integers(0, 256, (30, bits // 8), np.uint8)
    flips = np.packbits(rng.random((ITEMS, bits)) < 0.06, axis=1)
    codes, ids = centres[rng.integers(0, 30, ITEMS)] ^ flips, [f"é{i:04}" for i in range(ITEMS)]
    entries: list[Any] = [{"n": i, "text": f"number {i}"} for i in range(ITEMS)]
    np.save(
        folder / "queries.npy", np.concatenate([codes[:: ITEMS // 4], rng.integers(0, 256, (2, bits // 8), np.uint8)])
    )
    rerank_bits = bits if bits == TWO_STAGES else None
    with Index.create(folder / "x.kh", 64 if rerank_bits else bits, rerank_bits, form=form) as index:
        index.add(ids[:2000], codes[:2000], entries[:2000])
        add_texts(index, partial(encode, bits=bits))
        index.update_words()
        index.compact()
        (folder / "older").mkdir()
        for kind in ("items", "texts"):
            shutil.copy(code_file(folder, kind), folder / "older" / kind)
        index.remove(ids[100:120])
        index.add(ids[2000:2900], codes[2000:2900], entries[2000:2900])
        add_texts(index, partial(encode, bits=bits))
        index.compact()
        index.remove(ids[:10])
        index.upsert(ids[10:15] + ids[2900:], codes[-105:], entries[-105:])
        add_texts(index, partial(encode, bits=bits))
        index.update_words()
        index.note("model", "m")


def encode(texts: Sequence[str], bits: int) -> Codes:
    """Codes of texts, such as "number 7"."""
    return np.stack(
        [np.random.default_rng(list(text.encode())).integers(0, 256, bits // 8, np.uint8) for text in texts]
    )


def code_file(folder: Path, kind: str) -> Path:
    """That of the items or of the texts."""
    (path,) = (file for file in folder.glob("*.codes") if file.name.endswith(".texts.codes") == (kind == "texts"))
    return path


def calls(index: Index, queries: Codes) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Everything that reads: codes, rows, tables, words, ids, notes. "looked through" where SQLite decides which items
    belong to the answer."""
    for words in WORDS:
        yield "looked through", partial(index.match_words, words, ITEMS)
    cases: list[tuple[NDArray[Any], dict[str, Any]]] = [
        (queries[:1], {"k": 10}), (queries[1:2], {"k": 1, "radius": 3}), (queries, {"k": 10}),
        (queries, {"k": 5, "filter": "n < 400"}), (queries[-1:], {"k": 300, "filter": "n > 1500"}),
        (queries[2:3], {"k": ITEMS}),
        (unpack(queries[:2]) * np.arange(1.0, 1.0 + index.code_bits), {"k": 10}),
    ]  # fmt: skip
    for codes, options in cases:
        kind = "looked through" if "filter" in options else "search"
        yield kind, partial(_hits, index.search, codes, options)
        if index.has_texts():
            yield kind, partial(_hits, index.search_texts, codes, options)
    yield "ids", partial(index.list_ids, limit=ITEMS)
    yield "stats", lambda: index.stats().items
    yield "notes", index.notes
    for id in ("é0012", "é2950", "none"):
        yield "get", partial(_item, index, id)


def _hits(search: Callable[..., list[Hits]], codes: NDArray[Any], options: dict[str, Any]) -> list[Any]:
    answers = search(codes, **options)
    return [[hits.ids, hits.distances.tolist(), hits.metadata, hits.texts] for hits in answers]


def _item(index: Index, id: str) -> Any:
    (item,) = index.get([id])
    return item and (item.id, item.code.tolist(), item.metadata)


def answers(path: Path) -> list[Any]:
    with Index.open(path) as index:
        return [ask() for _, ask in calls(index, np.load(path.with_name("queries.npy")))]


def wrong_answers(path: Path, true: list[Any]) -> tuple[set[str], KenthashError | None]:
    """The kinds of calls that answer wrongly, each asked for itself; and an error of another one."""
    wrong: set[str] = set()
    refused: KenthashError | None = None
    try:
        with Index.open(path) as index:
            asked = calls(index, np.load(path.with_name("queries.npy")))
            for call, expected in zip_longest(asked, true):
                if call is None:  # the index no longer has texts
                    return wrong | {"search"}, refused
                kind, ask = call
                try:
                    if ask() != expected:
                        wrong.add(kind)
                except KenthashError as error:
                    refused = error
                    _check_line(path, error)
    except KenthashError as error:
        refused = error
        _check_line(path, error)
    return wrong, refused


def _check_line(path: Path, error: KenthashError) -> None:
    if str(path) not in str(error) or "\n" in str(error):
        raise AssertionError(f"unclear: {error}")


def change(path: Path) -> None:
    """Everything that writes."""
    codes = np.load(path.with_name("queries.npy"))
    with Index.open(path) as index:
        index.upsert(["é0500", "new"], codes[:2], [{"n": 1}, {}])
        index.add(["newer"], codes[:1])
        index.remove([f"é{i:04}" for i in range(0, ITEMS, 7)])
        index.note("model", "n")
        index.update_words()
        index.compact()
        index.search(codes, 20, filter="n < 100")


def damage(rng: random.Random, data: bytearray, older: bytes) -> bytes:
    """One mutation of a file's content."""
    place, size = rng.randrange(len(data)), min(rng.choice(SIZES), len(data))
    if rng.random() < 0.15:
        place = rng.randrange(min(512, len(data)))  # the header is small and decides much
    kinds: list[Callable[[], bytes]] = [
        lambda: _flipped(rng, data, [place]),
        lambda: _flipped(rng, data, [rng.randrange(len(data)) for _ in range(rng.randint(2, 40))]),
        lambda: _put(data, place, bytes(size)),
        lambda: _put(data, place, b"\xff" * size),
        lambda: _put(data, place, rng.randbytes(size)),
        lambda: _put(data, place, bytes(data[(other := rng.randrange(len(data))) : other + size])),
        lambda: _swapped(rng, data, rng.choice([512, 4096, 16384])),
        lambda: bytes(data[:place]),
        lambda: bytes(data[: place // 4096 * 4096]),
        lambda: bytes(data[:place]) + rng.randbytes(1) + bytes(data[place:]),
        lambda: bytes(data[:place] + data[place + size :]),
        lambda: bytes(data) + rng.randbytes(size),
        lambda: _edited(rng, data),
        lambda: _edited(rng, data),
        lambda: older,
    ]
    return rng.choice(kinds)()


def _flipped(rng: random.Random, data: bytearray, places: list[int]) -> bytes:
    for place in places:
        data[place] ^= 1 << rng.randrange(8)
    return bytes(data)


def _put(data: bytearray, place: int, part: bytes) -> bytes:
    data[place : place + len(part)] = part[: len(data) - place]
    return bytes(data)


def _swapped(rng: random.Random, data: bytearray, size: int) -> bytes:
    a, b = (rng.randrange(max(len(data) // size, 1)) * size for _ in range(2))
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]
    return bytes(data)


def _edited(rng: random.Random, data: bytearray) -> bytes:
    """A header with another value in it and the right checksum, as far as the header has one."""
    title, _, content = bytes(data[:4096]).partition(b"\n")
    try:
        header, _ = json.JSONDecoder().raw_decode(content.rstrip(b"\0").decode())
    except ValueError:
        return _flipped(rng, data, [rng.randrange(100)])
    key = rng.choice(list(header))
    values = [0, 1, -1, 7, 2**31, 2**40, None, "x", [], [[0, 0, 16]], True, False]
    if isinstance(header[key], int):
        values += [header[key] + 1, header[key] - 1, header[key] * 2, header[key] // 2] * 3
    header[key] = rng.choice(values)
    text = json.dumps(header).encode()
    words = title.split(b" ")
    words[-2:] = [str(len(text)).encode(), str(zlib.crc32(text)).encode()]
    head = b" ".join(words) + b"\n" + text
    return (head + bytes(data[len(head) : 4096]) if len(head) < 4096 else head) + bytes(data[4096:])


def outcome(folder: Path, target: str, seed: int, true: list[Any]) -> str:
    """The outcome of one mutation. "right": all answers are, and so is all that the index holds, or it is a code file,
    which is made again. "refused": some call was, and no answer is wrong."""
    rng = random.Random(seed)
    scan._words_left = -1 if seed // len(CASES) % 2 else 1 << 40  # compiled kernels and numpy by turns
    path, kind = folder / "x.kh", rng.choice(["items", "items", "texts"])
    file = code_file(folder, kind) if target == "codes" else path
    file.write_bytes(damage(rng, bytearray(file.read_bytes()), (folder / "older" / kind).read_bytes()))
    try:
        unnoticed, refused = False, None
        for _ in range(2):  # the second time with what the first one has left
            wrong, error = wrong_answers(path, true)
            refused = refused or error
            if wrong - {"looked through"}:
                return f"wrong answer: {sorted(wrong)}"
            unnoticed |= bool(wrong)
        if unnoticed:
            return FOUND_BY_VERIFY if _is_refused_by_verify(path) else "wrong answer, not found by verify"
        if refused is not None:
            return "refused" if target == "store" else f"refused: {refused}"
        if target == "store":
            change(path)
    except KenthashError as error:
        return "refused" if str(path) in str(error) and "\n" not in str(error) else f"unclear: {error}"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(place.filename).name} {place.name}: {str(error)[:80]}"
    return "right"


def _is_refused_by_verify(path: Path) -> bool:
    try:
        return not verify_index(path).healthy
    except KenthashError:
        return True


def run(target: str, first: int, count: int) -> dict[str, list[int]]:
    """Seeds by outcome."""
    scan.use_compiled()  # here, so that no child has to load the kernels
    mih.MIN_ITEMS, mih.SAMPLE = 1000, 500  # so that a small index has tables
    snapshot.CANDIDATES = ITEMS  # so that answers do not depend on what is in the code file and what is not
    seeds: defaultdict[str, list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folders, right = [], []
        for form, bits in CASES:
            folder = Path(name) / f"{form} {bits}"
            folder.mkdir()
            make(folder, form, bits)
            folders.append(folder)
            right.append(answers(folder / "x.kh"))
        for seed in range(first, first + count):
            case = seed % len(CASES)
            copy = Path(name) / "copy"
            shutil.copytree(folders[case], copy)
            receive, send = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.write(send, outcome(copy, target, seed, right[case]).encode())
                finally:
                    os._exit(0)
            os.close(send)
            with os.fdopen(receive, "rb") as stream:
                result = stream.read().decode()
            _, status = os.waitpid(child, 0)
            seeds[result or f"killed by signal {os.WTERMSIG(status)}"].append(seed)
            shutil.rmtree(copy)
    return seeds


if __name__ == "__main__":
    outcomes = run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    bad = {name: seeds[:20] for name, seeds in outcomes.items() if name not in ("right", "refused", FOUND_BY_VERIFY)}
    print(json.dumps({"counts": Counter({name: len(seeds) for name, seeds in outcomes.items()}), "bad": bad}))
