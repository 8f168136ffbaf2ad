"""Ties are resolved exactly whatever a server gives first; texts are safe in expressions; passwords are not shown."""

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kenthash.errors import UsageError
from kenthash.search.engine import Metadata
from kenthash.search.servers.addresses import ServerAddress, parse_milvus_address, parse_postgres_address
from kenthash.search.servers.milvus_requests import (
    Near,
    decode_metadata,
    encode_metadata,
    plain_key,
    quoted,
    resolve_ties,
    safe_key,
)


@pytest.mark.parametrize("preferred", ["greatest ids", "smallest ids", "any ids"])
def test_ties_whatever_the_server_gives(preferred: str) -> None:
    """A server that gives the nearest `width`, and any of those that tie last."""
    rng = random.Random(preferred)
    for _ in range(300):
        levels = rng.randint(1, 4)
        items = [(rng.randrange(levels), f"{number:03d}") for number in rng.sample(range(200), rng.randint(0, 150))]
        k, spare = rng.randint(1, 12), rng.randint(1, 12)
        rounds: list[str] = []

        def search_below(below: str, items: Near = items, width: int = k + spare, rounds: list[str] = rounds) -> Near:
            rounds.append(below)
            order = sorted(hit[1] for hit in items if hit[1] < below)
            if preferred != "smallest ids":
                order.reverse() if preferred == "greatest ids" else rng.shuffle(order)
            place = {item_id: number for number, item_id in enumerate(order)}
            below_it = [hit for hit in items if hit[1] < below]
            return sorted(below_it, key=lambda hit: (hit[0], place[hit[1]]))[:width]

        assert resolve_ties(search_below("~"), k, k + spare, search_below) == sorted(items)[:k]
        assert len(rounds) <= 2 + len(items) // spare


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_keys_and_strings_are_harmless_in_an_expression(text: str) -> None:
    assert plain_key(safe_key(text)) == text
    assert set(safe_key(text)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
    inner = quoted(text)[1:-1]
    assert re.fullmatch(r"([A-Za-z0-9/._-]|\\u[0-9a-f]{4}|\\U[0-9a-f]{8})*", inner)
    assert inner.encode().decode("unicode_escape") == text
    entry: Metadata = {text: None, text + "x": [], text + "y": [text], text + "z": 0}
    assert decode_metadata(encode_metadata(entry)) == entry


def test_addresses() -> None:
    milvus = parse_milvus_address("milvus://me:s%40cret@host:1234/pictures?secure=true")
    assert (milvus.name, milvus.uri, milvus.token) == ("pictures", "https://host:1234", "me:s@cret")
    assert milvus.display == "milvus://host:1234/pictures"
    assert parse_milvus_address("milvus://[::1]/p").uri == "http://[::1]:19530"
    postgres = parse_postgres_address("postgresql://me:secret@host/db?host=%2Frun%2Fpg&table=pics&sslmode=require")
    assert postgres.name == "pics" and "secret" not in postgres.display
    assert postgres.uri == "postgresql://me:secret@host/db?host=%2Frun%2Fpg&sslmode=require"
    assert parse_postgres_address("postgres://host/db").name == "kenthash"
    for refused in "milvus://host", "milvus://host:x/n", "milvus:///n", "milvus://u:secret@h/a-b", "milvus://h/n?x=1":
        _refuses(parse_milvus_address, refused)
    for password in "x?secret", "1?secret", "x#secret", "x/secret", "x@secret", "50%secret":
        _refuses(parse_postgres_address, f"postgresql://u:{password}@h/d")
    for harmless in "host:5432/db?application_name=a@b", "[::1]:5432/db?x=a@b", "host/db?x=a@b", "u@host/db?x=a@b":
        assert "@" not in parse_postgres_address(f"postgresql://{harmless}").display
    for refused in "postgresql://h/d?table=a%22;drop", "postgresql://u:secret@h/d?table=" + "x" * 64:
        _refuses(parse_postgres_address, refused)


def _refuses(read: Callable[[str], ServerAddress], address: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(address)
    assert "\n" not in str(refused.value) and "secret" not in str(refused.value)
