"""The filter language: what parses to what, what is refused where, and that SQLite answers like the plain meaning."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kenthash.errors import UsageError
from kenthash.search.filters import Among, And, Compare, Filter, Has, IsNull, NearPlace, Not, Or, matches, parse
from kenthash.search.local.schema import add_functions
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.local.store import condition


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("place = 'beach' and year >= 2020", And((Compare("place", "=", "beach"), Compare("year", ">=", 2020)))),
        ("a = 1 or b = 2 and c = 3", Or((Compare("a", "=", 1), And((Compare("b", "=", 2), Compare("c", "=", 3)))))),
        ("NOT a <> -1.5e2", Not(Compare("a", "!=", -150.0))),
        ("not (x is null or x is not null)", Not(Or((IsNull("x"), Not(IsNull("x")))))),
        ("labels has 'it''s' ", Has("labels", "it's")),
        ("\"shot on\" in ('film', 3, true)", Among("shot on", ("film", 3, True))),
        ("near(48.2, 16.4, 10 km)", NearPlace(48.2, 16.4, 10.0)),
        ("near(-90,180,500m) or near = 1", Or((NearPlace(-90.0, 180.0, 0.5), Compare("near", "=", 1)))),
    ],
)
def test_parse(text: str, tree: Filter) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 1),
        ("a =", 4),
        ("a = 'x", 5),
        ("a = 1 b", 7),
        ("(a = 1", 7),
        ("a = 1; drop table items", 6),
        ("a < true", 5),
        ("a = 99999999999999999999", 5),
        ("1 = a", 1),
        ("a in ()", 7),
        ("near(91, 0, 1 km)", 6),
        ("near(9, 0, 1)", 13),
        ("near(9, 0, 1 ly)", 14),
        ("near(9, 0, -1 km)", 12),
        ("(" * 40 + "a = 1" + ")" * 40, 34),
    ],
)
def test_errors_name_the_position(text: str, position: int) -> None:
    with pytest.raises(UsageError, match=rf"^filter, position {position}: [^\n]*$"):
        parse(text)


def test_errors_are_one_line() -> None:
    for text in ("a = 1 'two\nlines'", 'a = 1 "two\nlines"', "a = 1 'red\x1b[31m'"):
        with pytest.raises(UsageError, match=r"^filter, position 7: [ -~]*$"):
            parse(text)


def test_too_long_or_too_many() -> None:
    for text in ("a = '" + "x" * 5000 + "'", "a in (" + ",".join(["1"] * 300) + ")"):
        with pytest.raises(UsageError):
            parse(text)


keys = st.sampled_from(["a", "b", "a b", "$.a", "x[0]", "naïve"])
texts = st.sampled_from(["", "a", "B", "b%", "it's", "é", "🐕", '"', "1"])
literals = st.one_of(texts, st.integers(-3, 3), st.sampled_from([0.5, -1.0, 2.0]), st.booleans())
values = st.one_of(literals, st.none(), st.lists(texts, max_size=3))
degrees = st.one_of(st.sampled_from([48.2, 48.3, 16.4, 16.6, 0, 90, -90, 180, -180, 179.9, -179.9, 408.2]), values)
entries = st.builds(
    lambda plain, place: plain | place,
    st.dictionaries(keys, values, max_size=4),
    st.dictionaries(st.sampled_from(["latitude", "longitude"]), degrees),
)
ordered = st.builds(
    Compare, keys, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.one_of(texts, st.integers(-3, 3))
)
leaves = st.one_of(
    ordered,
    st.builds(Compare, keys, st.sampled_from(["=", "!="]), literals),
    st.builds(Among, keys, st.lists(literals, min_size=1, max_size=3).map(tuple)),
    st.builds(Has, keys, texts),
    st.builds(IsNull, keys),
    st.builds(
        NearPlace,
        st.sampled_from([48.2, 0.0, -89.9, 90.0]),
        st.sampled_from([16.4, 179.95, -180.0]),
        st.sampled_from([0.0, 1.0, 25.0, 3000.0, 20100.0]),
    ),
)
filters = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


def written(term: Filter) -> str:
    """A filter as a user would write it, every part in parentheses."""

    def literal(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)

    match term:
        case Compare(key, op, value):
            return f'"{key}" {op} {literal(value)}'
        case Among(key, several):
            return f'"{key}" in ({", ".join(map(literal, several))})'
        case Has(key, value):
            return f'"{key}" has {literal(value)}'
        case IsNull(key):
            return f'"{key}" is null'
        case NearPlace(latitude, longitude, km):
            return f"near({latitude}, {longitude}, {km} km)"
        case Not(inner):
            return f"not ({written(inner)})"
        case And(terms):
            return " and ".join(f"({written(part)})" for part in terms)
        case Or(terms):
            return " or ".join(f"({written(part)})" for part in terms)


@given(filters)
def test_what_is_written_is_parsed(term: Filter) -> None:
    assert parse(written(term)) == term


@given(filters, st.lists(entries, min_size=1, max_size=5))
def test_sqlite_answers_like_the_meaning(term: Filter, entries: list[dict[str, Any]]) -> None:
    with sqlite3.connect(":memory:") as connection:
        add_functions(connection)
        connection.execute("CREATE TABLE items(metadata TEXT)")
        connection.executemany(
            "INSERT INTO items VALUES (?)", [(json.dumps(entry, ensure_ascii=False),) for entry in entries]
        )
        text, parameters = condition(term)
        rows = connection.execute(f"SELECT {text} FROM items ORDER BY rowid", parameters).fetchall()
    assert [row[0] for row in rows] == [matches(term, entry) for entry in entries]


def test_missing_keys_never_compare() -> None:
    for text in ("year = 1", "year != 1", "year < 1", "year in (1)", "year has 'a'", "year is not null"):
        assert not matches(parse(text), {})
        assert not matches(parse(text), {"year": None})
    assert matches(parse("not year = 1 and year is null"), {})
    assert not matches(parse("flag = 1"), {"flag": True})  # true is no number


places = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


@given(places, places, st.sampled_from([1, 50, 900, 9e3]))
def test_near_is_the_distance_on_the_sphere(place: tuple[float, float], other: tuple[float, float], km: float) -> None:
    """By the angle between the two directions, as vectors; what is within a metre of the limit may go either way."""

    def direction(latitude: float, longitude: float) -> np.ndarray[Any, Any]:
        φ, λ = np.radians([latitude, longitude])
        return np.array([np.cos(φ) * np.cos(λ), np.cos(φ) * np.sin(λ), np.sin(φ)])

    a, b = direction(*place), direction(*other)
    distance = 6371.0088 * np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b)
    if abs(distance - km) > 0.001:
        assert matches(NearPlace(*place, km), {"latitude": other[0], "longitude": other[1]}) == (distance < km)


def test_has_looks_into_lists_and_texts() -> None:
    assert matches(parse("camera has 'Pixel'"), {"camera": "Google Pixel 7"})
    assert not matches(parse("camera has 'pixel'"), {"camera": "Google Pixel 7"})
    assert not matches(parse("labels has 'do'"), {"labels": ["dog"]})
