"""Changes of an index by seed, and the same on a dict."""

import random
from dataclasses import dataclass, field, replace

import numpy as np

from kenthash.codes import Codes, hamming
from kenthash.search import Index

BITS, CODE_BITS = 16, 32  # two stages: all arrays that a code file can have
KINDS = ("add", "upsert", "upsert", "remove", "compact", "note", "reopen")
Items = dict[str, tuple[bytes, int]]  # code and number by id


@dataclass(frozen=True)
class State:
    items: Items = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Change:
    kind: str
    ids: list[str]
    codes: Codes
    number: int


def change(seed: int) -> Change:
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    numbers = sorted(rng.sample(range(60), rng.randint(1, 20)))
    ids = [f"new {seed} {n}" if kind == "add" else f"item {n}" for n in numbers]
    codes = np.random.default_rng(seed).integers(0, 256, (len(ids), CODE_BITS // 8), np.uint8)
    return Change(kind, ids, codes, seed)


def after(state: State, change: Change) -> State:
    if change.kind in ("add", "upsert"):
        new = {name: (code.tobytes(), change.number) for name, code in zip(change.ids, change.codes, strict=True)}
        return replace(state, items=state.items | new)
    if change.kind == "remove":
        return replace(state, items={name: item for name, item in state.items.items() if name not in change.ids})
    if change.kind == "note":
        return replace(state, note=str(change.number))
    return state


def carry_out(index: Index, change: Change) -> None:
    metadata = [{"number": change.number}] * len(change.ids)
    if change.kind == "add":
        index.add(change.ids, change.codes, metadata)
    elif change.kind == "upsert":
        index.upsert(change.ids, change.codes, metadata)
    elif change.kind == "remove":
        index.remove(change.ids)
    elif change.kind == "compact":
        index.compact()
    elif change.kind == "note":
        index.note("note", str(change.number))


def state_of(index: Index) -> State:
    items: Items = {}
    for item in index.get(index.list_ids(limit=100_000)):
        assert item is not None
        number = item.metadata["number"]
        assert isinstance(number, int)
        items[item.id] = (item.code.tobytes(), number)
    return State(items, index.notes().get("note", ""))


def check_answers(index: Index, state: State, seed: int) -> None:
    """Compare a search of all with the dict. The candidates of the first stage are all items, so answers are exact."""
    query = np.random.default_rng(seed).integers(0, 256, (1, CODE_BITS // 8), np.uint8)
    names = sorted(state.items)
    codes = np.frombuffer(b"".join(state.items[name][0] for name in names), np.uint8).reshape(-1, CODE_BITS // 8)
    best = sorted(zip(hamming(query, codes)[0].tolist(), names, strict=True))[:7]
    hits = index.search(query, 7)[0]
    assert list(zip(hits.distances.tolist(), hits.ids, strict=True)) == best
