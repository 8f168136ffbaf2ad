"""The recipes of docs/sql.md, run by the databases themselves: codes as whole numbers, searched by plain SQL."""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import new_database

from components import need
from kenthash.codes import hamming

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"

Answer = list[tuple[str, int]]
Search = Callable[[int], Answer]


def recipe(database: str) -> list[str]:
    """The statements below a heading: the table, and the search."""
    section = PAGE.read_text().split(f"## {database}\n")[1].split("\n## ")[0]
    statements = re.findall(r"```sql\n(.*?);\n```", section, re.DOTALL)
    assert len(statements) == 2
    return statements


@pytest.fixture(scope="module")
def codes() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random codes, and those of numbers at the ends of the range."""
    random = np.random.default_rng(0).integers(0, 256, (500, 8), np.uint8)
    ends = np.array([0, -1, 1, -(2**63), 2**63 - 1, -(2**63) + 1, 2**32, -(2**32)], "<i8").view(np.uint8).reshape(-1, 8)
    return np.concatenate([random, ends])


def check(search: Search, codes: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    ids = [f"item {row:03}" for row in range(len(codes))]
    for query in [*range(5), *range(len(codes) - 8, len(codes))]:
        distances = hamming(codes[query : query + 1], codes)[0].tolist()
        expected = sorted(zip(distances, ids, strict=True))[:10]
        number = int(codes[query].view("<i8")[0])
        assert [(distance, id) for id, distance in search(number)] == expected


def rows(codes: np.ndarray[Any, np.dtype[np.uint8]]) -> list[tuple[str, int]]:
    return [(f"item {row:03}", number) for row, number in enumerate(codes.view("<i8")[:, 0].tolist())]


def test_sqlite(codes: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    table, statement = recipe("SQLite")
    connection = sqlite3.connect(":memory:")
    connection.execute(table)
    connection.executemany("insert into items values (?, ?)", rows(codes))
    check(lambda query: connection.execute(statement, {"query": query}).fetchall(), codes)


def test_duckdb(codes: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    duckdb = need("duckdb")
    table, statement = recipe("DuckDB")
    connection = duckdb.connect()
    connection.execute(table)
    connection.executemany("insert into items values (?, ?)", rows(codes))
    check(lambda query: connection.execute(statement.replace(":query", "$query"), {"query": query}).fetchall(), codes)


def test_postgresql(codes: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    psycopg = need("psycopg")
    table, statement = recipe("PostgreSQL")
    with psycopg.connect(new_database()) as connection:
        connection.execute(table)
        connection.cursor().executemany("insert into items values (%s, %s)", rows(codes))
        words = re.sub(r"(?<!:):query", "%(query)s::bigint", statement)
        check(lambda query: connection.execute(words, {"query": query}).fetchall(), codes)
