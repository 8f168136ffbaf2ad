"""Filters mean the same on every engine, whatever stands in keys and values."""

import random
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from brute_force import Metadata, Reference, agree, clustered, names

from kenthash.codes import Codes
from kenthash.search.filters import (
    OPERATORS,
    Among,
    And,
    Compare,
    Filter,
    Has,
    IsNull,
    Literal,
    NearPlace,
    Not,
    Or,
    matches,
)
from kenthash.search.index import Index

HOSTILE = [
    "it's",
    'say "no"',
    "back\\slash",
    "' or 1=1 --",
    '"] or true or metadata["m"]["x"] == "',
    "%s %(id)s {table}",
]
HOSTILE += ["$1; drop table filters", "日本語", "😀", "e\u0301", "line\nbreak\ttab", "a_b", "", "\\u0041", "null"]
KEYS = ["place", "shot on", "ключ", "a/b~c", "it's", "_x", "%s", "{table}"]
PLACES = [(48.2, 16.4), (48.25, 16.5), (48.25, 16.6), (0, -179.1), (90, 77)]  # the third is 16 km from the first
NUMBERS = [0, -3, 2020, 2020.5, 0.1, 1e-9, -1e30, 2**53 + 1, 2**63 - 1]

FILTERS: list[tuple[str, Callable[[Metadata], bool]]] = [
    ("year = 2020", lambda e: e.get("year") == 2020),
    ("year != 2020", lambda e: "year" in e and e["year"] != 2020),
    ("not year = 2020", lambda e: e.get("year") != 2020),
    ("year < 0.5", lambda e: "year" in e and e["year"] < 0.5),
    ("year >= 2020 and year <= 2020.5", lambda e: "year" in e and 2020 <= e["year"] <= 2020.5),
    (f"year > {2**53}", lambda e: "year" in e and e["year"] > 2**53),
    ("year < -9e18 or year = 1e-9", lambda e: e.get("year") in (-1e30, 1e-9)),
    ("year in (-3, 0.1, 'x')", lambda e: e.get("year") in (-3, 0.1)),
    ("year = 'text' or place = 2020", lambda e: False),
    ("indoor = true", lambda e: e.get("indoor") is True),
    ("indoor != true", lambda e: e.get("indoor") is False),
    ("indoor = 1 or indoor > 0", lambda e: False),
    ("indoor is null", lambda e: e.get("indoor") is None),
    ("labels is not null", lambda e: "labels" in e),
    ("labels has 'dog'", lambda e: "dog" in e.get("labels", [])),
    (
        "not (labels has 'dog' or indoor = false)",
        lambda e: "dog" not in e.get("labels", []) and e["indoor"] is not False,
    ),
    ("labels = 'dog' or year has '20'", lambda e: False),
    (
        "place has '%' or place has '_'",
        lambda e: isinstance(e.get("place"), str) and bool({"%", "_"} & set(e["place"])),
    ),
    ("near(48.2, 16.4, 10 km)", lambda e: e.get("longitude") in (16.4, 16.5)),
    ("near(0, 180, 120 km)", lambda e: e.get("latitude") == 0),
    ("not near(90, 0, 1 km) and latitude > 0", lambda e: "latitude" in e and 0 < e["latitude"] < 90),
    ("place < 'b' and place > 'A'", lambda e: isinstance(e.get("place"), str) and "A" < e["place"] < "b"),
    ("place >= '日'", lambda e: isinstance(e.get("place"), str) and e["place"] >= "日"),
    ("missing is null and not missing = 1", lambda e: True),
    ("missing != 'x'", lambda e: False),
]


@pytest.fixture(scope="module")
def filled(target: Callable[[str], str]) -> Iterator[tuple[Index, Reference, Codes]]:
    rng = np.random.default_rng(3)
    codes, ids, reference = clustered(rng, 240, 64), names(rng, 240), Reference()
    metadata: list[Metadata] = []
    for n in range(240):
        entry: Metadata = {KEYS[n % 8]: HOSTILE[n % len(HOSTILE)], "indoor": [True, False, None][n % 3]}
        if n % 2:
            entry["year"] = NUMBERS[n % len(NUMBERS)]
        if n % 5:
            entry["labels"] = [["dog"], [], ["cat", *HOSTILE]][n % 3]
        if n % 7 < 5:
            entry["latitude"], entry["longitude"] = PLACES[n % 5]
        metadata.append(entry)
    reference.put(ids, codes, metadata)
    with Index.create(target("filters"), bits=64) as index:
        index.add(ids, codes, metadata)
        yield index, reference, codes[:2]


@pytest.mark.parametrize("text, true_of", FILTERS, ids=[text for text, _ in FILTERS])
def test_filters(filled: tuple[Index, Reference, Codes], text: str, true_of: Callable[[Metadata], bool]) -> None:
    index, reference, queries = filled
    agree(index, reference, queries, k=240, filter=text, true_of=true_of)


def test_hostile_strings(filled: tuple[Index, Reference, Codes]) -> None:
    index, reference, queries = filled
    total = 0
    for n, text in enumerate(HOSTILE):
        key, literal = KEYS[n % 8], "'" + text.replace("'", "''") + "'"
        condition = f'"{key}" = {literal} or labels has {literal} and place is null'
        total += agree(
            index,
            reference,
            queries,
            k=240,
            filter=condition,
            true_of=lambda e, key=key, text=text: (
                e.get(key) == text or (text in e.get("labels", []) and e.get("place") is None)
            ),
        )
    assert total > 100
    many = ", ".join(f"'{n}'" for n in range(240)) + ", '日本語'"
    agree(index, reference, queries, k=240, filter=f"place in ({many})", true_of=lambda e: e.get("place") == "日本語")
    assert len(index.list_ids()) == 240


def random_filter(rng: random.Random, depth: int) -> Filter:
    if depth and rng.random() < 0.7:
        terms = tuple(random_filter(rng, depth - 1) for _ in range(rng.randint(2, 3)))
        compound: list[Filter] = [And(terms), Or(terms), Not(terms[0])]
        return rng.choice(compound)
    key = rng.choice([*KEYS, "year", "year", "indoor", "labels", "missing"])
    literals: list[Literal] = [rng.choice(HOSTILE), rng.choice(NUMBERS), rng.random() < 0.5]
    value = rng.choice(literals)
    op = rng.choice(["=", "!="] if isinstance(value, bool) else list(OPERATORS))
    among = Among(key, (value, rng.choice(HOSTILE), rng.choice(NUMBERS)))
    has = Has(key, rng.choice(["dog", *HOSTILE]))
    near = NearPlace(*rng.choice(PLACES), rng.choice([0.0, 12.0, 20e3]))
    simple: list[Filter] = [Compare(key, op, value), Compare(key, op, value), among, has, IsNull(key), near]
    return rng.choice(simple)


def test_random_filters(filled: tuple[Index, Reference, Codes]) -> None:
    """A translation keeps the meaning that `matches` gives to a filter (whose own tests are elsewhere)."""
    index, reference, queries = filled
    rng = random.Random(11)
    sizes = set()
    for _ in range(40):
        term = random_filter(rng, 3)
        true_of = partial(matches, term)
        sizes.add(agree(index, reference, queries[:1], k=240, filter=term, true_of=true_of))
    assert len(sizes) >= 8
