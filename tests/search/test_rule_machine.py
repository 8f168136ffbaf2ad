"""Any sequence of operations leaves every engine with the answers of a dict: sequences that Hypothesis makes up.

`KENTHASH_TORTURE=20` tries 20 times as many; `make torture` sets it.
"""

import itertools
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable
from functools import wraps
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from brute_force import Metadata, Reference, agree, outputs_near
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from kenthash.codes import Codes
from kenthash.errors import DataError
from kenthash.search import Index
from kenthash.search.local.maintenance import backup_index, verify_index
from processes import wait_until

TIMES = int(os.environ.get("KENTHASH_TORTURE", "1"))
# Sequences, and steps of each. The first that Hypothesis tries is trivial, and each leaves out some operations.
EXAMPLES = {"local": (12, 20), "postgres": (25, 20), "milvus": (6, 10)}
KILLED_WITHIN = {"local": 0.05, "postgres": 0.05, "milvus": 0.2}  # seconds: about twice the time of a change
WRITER = "writer that is killed"  # its name for PostgreSQL
IDS = ["a", "b", "B", "é", "日", "x/y 1.jpg", "'", "%", *(f"item {n}" for n in range(30))]
FILTERS: list[tuple[str, Callable[[Metadata], bool]]] = [
    ("n < 10", lambda entry: entry["n"] < 10),
    ("not (n < 10 or labels has 'dog')", lambda entry: entry["n"] >= 10 and "dog" not in entry["labels"]),
    ("labels has 'it''s'", lambda entry: "it's" in entry["labels"]),
    ("place in ('a', 'b') and n >= 3", lambda entry: entry.get("place") in ("a", "b") and entry["n"] >= 3),
    ("place is null", lambda entry: "place" not in entry),
]
numbers = itertools.count()

batches = st.lists(st.sampled_from(IDS), min_size=1, max_size=12, unique=True)
seeds = st.integers(0, 2**32 - 1)
search_options = st.fixed_dictionaries(
    {
        "k": st.sampled_from([1, 3, 50]),
        "radius": st.none() | st.integers(0, 32),
        "condition": st.none() | st.sampled_from(FILTERS),
    }
)


def items_of(ids: list[str], seed: int, bits: int) -> tuple[Codes, list[Metadata]]:
    """Codes with many ties, and metadata."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (4, bits // 8), np.uint8)[rng.integers(0, 4, len(ids))]
    codes[:, 0] ^= 1 << rng.integers(0, 8, len(ids), np.uint8)
    entries: list[Metadata] = []
    for _ in ids:
        entry: Metadata = {"n": int(rng.integers(20)), "labels": ["dog", "it's", "ü"][: rng.integers(4)]}
        entries.append(entry | ({"place": "abc"[rng.integers(3)]} if rng.integers(2) else {}))
    return codes, entries


def upsert_and_wait(address: str, ids: list[str], seed: int, bits: int, ready: Connection) -> None:
    with Index.open(address) as index:
        ready.send(None)
        index.upsert(ids, *items_of(ids, seed, bits))
        time.sleep(600)


Operation = TypeVar("Operation", bound=Callable[..., None])


def counted(operation: Operation) -> Operation:
    @wraps(operation)
    def count(self: "Machine", *arguments: Any, **options: Any) -> None:
        self.counts[operation.__name__] += 1
        operation(self, *arguments, **options)

    return cast(Operation, count)


class Machine(RuleBasedStateMachine):
    engine: str  # this and the next three are set by the test
    address_of: Callable[[str], str]
    counts: Counter[str]
    collections: dict[bool, str]  # of Milvus, which is slow to create one: emptied and used again
    index: Index

    def __init__(self) -> None:
        super().__init__()
        self.address = type(self).address_of(f"machine{os.getpid()}x{next(numbers)}")
        self.is_local = self.engine == "local"
        self.reference = Reference()

    @initialize(two_stages=st.booleans())
    @counted
    def create(self, two_stages: bool) -> None:
        self.bits = 64 if two_stages else 32
        if two_stages in self.collections:
            self.address = self.collections[two_stages]
            self.index = Index.open(self.address)
            return
        self.index = Index.create(self.address, 32, 64 if two_stages else None)
        if self.engine == "milvus":
            self.collections[two_stages] = self.address

    @rule(ids=batches, seed=seeds)
    @counted
    def add(self, ids: list[str], seed: int) -> None:
        codes, entries = items_of(ids, seed, self.bits)
        if any(name in self.reference.items for name in ids):
            with pytest.raises(DataError, match="already"):
                self.index.add(ids, codes, entries)
        else:
            self.index.add(ids, codes, entries)
            self.reference.put(ids, codes, entries)

    @rule(ids=batches, seed=seeds)
    @counted
    def upsert(self, ids: list[str], seed: int) -> None:
        codes, entries = items_of(ids, seed, self.bits)
        self.index.upsert(ids, codes, entries)
        self.reference.put(ids, codes, entries)

    @rule(ids=batches)
    @counted
    def remove(self, ids: list[str]) -> None:
        expected = sum(self.reference.items.pop(name, None) is not None for name in ids)
        assert self.index.remove(ids) == expected

    @rule(seed=seeds, options=search_options)
    @counted
    def search(self, seed: int, options: dict[str, Any]) -> None:
        queries, _ = items_of(["", ""], seed, self.bits)
        self.check_answers(queries, options)

    @rule(seed=seeds, options=search_options)
    @counted
    def search_by_real_values(self, seed: int, options: dict[str, Any]) -> None:
        codes, _ = items_of(["", ""], seed, self.bits)
        self.check_answers(outputs_near(np.random.default_rng(seed), codes), options)

    def check_answers(self, queries: NDArray[Any], options: dict[str, Any]) -> None:
        k, radius, condition = options["k"], options["radius"], options["condition"]
        filtering = {"filter": condition[0], "true_of": condition[1]} if condition else {}
        agree(self.index, self.reference, queries, k=k, radius=radius, **filtering)
        self.counts["searches with a filter"] += bool(condition)
        self.counts["searches in two stages"] += self.bits == 64

    @rule(after=st.sampled_from(["", *IDS]), limit=st.integers(1, 40))
    @counted
    def look(self, after: str, limit: int) -> None:
        ordered = sorted(self.reference.items)
        assert self.index.list_ids(after, limit) == [name for name in ordered if name > after][:limit]
        assert self.index.stats().items == len(ordered)
        for name, item in zip(IDS, self.index.get(IDS), strict=True):
            assert (item and (item.code.tobytes(), item.metadata)) == self.reference.items.get(name)

    @rule()
    @counted
    def compact(self) -> None:
        self.index.compact()

    @rule()
    @counted
    def reopen(self) -> None:
        self.index.close()
        self.index = Index.open(self.address)

    @precondition(lambda self: self.is_local)
    @rule()
    @counted
    def backup(self) -> None:
        """From now on the copy is the index."""
        copy = Path(self.address).with_suffix(f".{next(numbers)}.kh")
        assert backup_index(self.address, copy) == len(self.reference.items)
        self.index.close()
        self.address = str(copy)
        self.index = Index.open(self.address)

    @rule(ids=batches, seed=seeds, share=st.floats(0, 1))
    @counted
    def kill(self, ids: list[str], seed: int, share: float) -> None:
        """Another process writes and is killed: its change is there as a whole, or not at all. Milvus promises this for
        each item by itself; there the change is then repeated."""
        context = multiprocessing.get_context("forkserver")
        module = {"local": "local.local_engine"}.get(self.engine, f"servers.{self.engine}")
        context.set_forkserver_preload([f"kenthash.search.{module}", "test_rule_machine"])
        named = f"&application_name={WRITER}" if self.engine == "postgres" else ""
        is_ready, ready = context.Pipe(duplex=False)
        writer = context.Process(target=upsert_and_wait, args=(self.address + named, ids, seed, self.bits, ready))
        writer.start()
        ready.close()
        is_ready.recv()
        time.sleep(share * KILLED_WITHIN[self.engine])
        writer.kill()
        writer.join()
        if self.engine == "postgres":  # where the server may not have noticed yet
            wait_until(lambda: not self.is_connected(WRITER))
        after = Reference(self.reference.items.copy())
        after.put(ids, *items_of(ids, seed, self.bits))
        items = self.index.get(list(after.items))
        actual = {item.id: (item.code.tobytes(), item.metadata) for item in items if item is not None}
        self.counts["kills after which the change is there"] += actual == after.items
        if self.engine == "milvus":
            for name in after.items:
                assert actual.get(name) in (self.reference.items.get(name), after.items[name])
            self.upsert(ids=ids, seed=seed)
        else:
            assert actual in (self.reference.items, after.items)
            self.reference = Reference(actual)

    def is_connected(self, name: str) -> bool:
        """To PostgreSQL."""
        import psycopg

        with psycopg.connect(self.address.partition("&table=")[0]) as connection:
            statement = "select count(*) from pg_stat_activity where application_name = %s"
            return connection.execute(statement, [name]).fetchone() != (0,)

    def teardown(self) -> None:
        if not hasattr(self, "index"):  # which could not be created
            return
        self.look("", 40)
        if self.engine == "milvus":
            self.index.remove(self.index.list_ids())
        self.index.close()
        if self.is_local:
            assert verify_index(self.address).healthy


def test_any_sequence_of_operations(target: Callable[[str], str], request: pytest.FixtureRequest) -> None:
    engine = request.node.callspec.params["target"]
    examples, steps = EXAMPLES[engine]
    counts: Counter[str] = Counter()
    attributes = {"engine": engine, "address_of": staticmethod(target), "counts": counts, "collections": {}}
    machine = type(f"{engine} machine", (Machine,), attributes)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples * TIMES, stateful_step_count=steps, deadline=None)
    )
    print(f"{engine}: {', '.join(f'{operation} {number:,}' for operation, number in counts.items())}")
    assert len(counts) > 6  # not the same operation again and again
