"""The index in a PostgreSQL table, with pgvector 0.7 or later: `postgresql://user@host/database?table=name`.

The table holds `id text collate "C" primary key`, `code bit(K)` and `metadata jsonb`. A search is one SQL statement,
ordered by (code <~> query, id): exact, a scan of the table, transactional like everything in PostgreSQL. A bit string
shows each byte of a code from its highest bit down; both sides of a distance are turned alike, so it stays the same.
The codes of texts stand in a table beside it, `"name texts"`; a trigger drops them when their item changes or goes.

With `hnsw=True` a graph index answers instead: fast on millions of items, and approximate. Its iterative scan goes on
until k items pass a filter (or hnsw.max_scan_tuples were seen), so filters cost recall but not results.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Self

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.search.engine import MAX_TEXTS, Hits, Item, Metadata, NoSuchIndex, Stats, texts_of
from kenthash.search.filters import Filter
from kenthash.search.postgres_filter import condition, jsonb
from kenthash.search.targets import postgres_target

try:
    import psycopg
    from psycopg import sql
except ImportError as error:
    raise KenthashError("an index in PostgreSQL needs its client: pip install 'psycopg[binary]'") from error

FORMAT = "kenthash index 1"
ROWS = "kenthash rows"  # a temporary table; with a space, which no index's table has in its name
TEXTS = " texts"  # ends the name of the table of texts, which so is not that of an index
MAX_NAME = 63  # characters of a table's name
DROP = "kenthash drop texts"
DROP_TEXTS = f"""
    create or replace function "{DROP}"() returns trigger language plpgsql as $$ begin
        execute format('delete from %%I.%%I where id = $1', tg_table_schema, tg_table_name || '{TEXTS}') using old.id;
        return null;
    end $$
"""
CONNECT_SECONDS = 5
OLDEST_PGVECTOR = (0, 7)  # the first with bit(K) and <~>


class PostgresEngine:
    def __init__(self, target: str) -> None:
        """Connect. `bits` is known after `create` or `open`."""
        self.bits = 0
        place = postgres_target(target)
        self.where, self.name, self.address = place.shown, place.name, place.address
        self.texts = place.name + TEXTS
        self.connection: psycopg.Connection[Any] | None = None
        self.lock = threading.RLock()
        self.hnsw = False

    @classmethod
    def create(cls, target: str, bits: int, hnsw: bool = False) -> Self:
        """A new table. The extension is created where the user may do so; `hnsw` makes searches approximate."""
        engine = cls(target)
        with ExitStack() as undo, engine._transaction() as cursor:
            undo.callback(engine.close)
            cursor.execute("create extension if not exists vector")
            engine._check_pgvector(cursor)
            cursor.execute("select to_regclass(%s)", [f'"{engine.name}"'])
            if cursor.fetchone() != (None,):
                raise UsageError(f"{engine.where}: exists already: open it, or choose another table")
            engine.bits, engine.hnsw = bits, hnsw
            columns = 'id text collate "C" primary key, code bit({bits}) not null, metadata jsonb not null'
            engine._run(cursor, f"create table {{table}} ({columns})")
            if hnsw:
                engine._run(cursor, "create index on {table} using hnsw (code bit_hamming_ops)")
            engine._describe(cursor, {"format": FORMAT, "bits": bits, "hnsw": hnsw, "notes": {}})
            undo.pop_all()
        return engine

    @classmethod
    def open(cls, target: str) -> Self:
        engine = cls(target)
        with ExitStack() as undo, engine._transaction() as cursor:
            undo.callback(engine.close)
            found = engine._description(cursor)
            engine._check_pgvector(cursor)
            undo.pop_all()
        engine.bits, engine.hnsw = int(found["bits"]), bool(found["hnsw"])
        return engine

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        try:
            with self._transaction() as cursor:
                self._copy(cursor, self.name, ids, codes, metadata)
        except DuplicateId as error:
            with self._transaction() as cursor:
                self._run(cursor, "select min(id) from {table} where id = any(%s)", [list(ids)])
                (known,) = cursor.fetchone() or (None,)
            raise DataError(
                f"{self.where}: id {known!r} exists already: nothing was added; use upsert to replace"
            ) from error

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        with self._transaction() as cursor:
            self._run(cursor, f'create temporary table "{ROWS}" (like {{table}}) on commit drop')
            self._copy(cursor, ROWS, ids, codes, metadata)
            self._run(
                cursor,
                f'insert into {{table}} select * from "{ROWS}" order by id '
                "on conflict (id) do update set code = excluded.code, metadata = excluded.metadata",
            )

    def remove(self, ids: Sequence[str]) -> int:
        with self._transaction() as cursor:
            self._run(cursor, "delete from {table} where id = any(%s)", [list(ids)])
            return cursor.rowcount

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        with self._transaction() as cursor:
            self._run(cursor, "select id, code::text, metadata from {table} where id = any(%s)", [list(ids)])
            rows = {one: Item(one, _code(bits), metadata) for one, bits, metadata in cursor}
        return [rows.get(one) for one in ids]

    def search(self, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        wanted: list[Any] = []
        where = condition(filter, wanted) if filter else "true"
        query = f"select id, (code <~> %s::bit({{bits}}))::int as distance, metadata from {{table}} where {where}"
        after: list[Any] = [k]
        if self.hnsw:  # the graph knows distances only: ties among what it finds are ordered outside
            query += " order by code <~> %s::bit({bits}) limit %s"
        statement = f"select * from ({query}) as found"
        if radius is not None:
            statement += " where distance <= %s"
            after.insert(0, radius)
        statement += " order by distance, id limit %s"
        found = []
        with self._transaction() as cursor:
            cursor.execute("set transaction isolation level repeatable read, read only")  # one state for all queries
            if self.hnsw:
                cursor.execute("set local hnsw.iterative_scan = strict_order")
                cursor.execute(f"set local hnsw.ef_search = {min(1000, max(100, 2 * k)):d}")
            for bits in _bit_strings(codes):
                self._run(cursor, statement, [bits, *wanted, *([bits, k] if self.hnsw else []), *after])
                found.append(_hits(cursor.fetchall()))
        return found

    def put_texts(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        with self._transaction() as cursor:
            self._make_texts(cursor)
            # Locked until the end: whoever changes one of these items waits, and then drops what is put here.
            self._run(cursor, "select id, metadata from {table} where id = any(%s) for update", [list(ids)])
            there = dict(cursor.fetchall())
            same = [i for i, item_id in enumerate(ids) if there.get(item_id) == metadata[i]]
            self._run(cursor, "delete from {texts} where id = any(%s)", [[ids[i] for i in same]])
            statement = sql.SQL("copy {} (id, number, code) from stdin").format(sql.Identifier(self.texts))
            with cursor.copy(statement) as copy:
                for i in same:
                    for number, bits in enumerate(_bit_strings(codes[i])):
                        copy.write_row((ids[i], number, bits))

    def count_texts(self, ids: Sequence[str]) -> list[int]:
        with self._transaction() as cursor:
            if not self._has_texts(cursor):
                return [0] * len(ids)
            self._run(cursor, "select id, count(*) from {texts} where id = any(%s) group by id", [list(ids)])
            counts = dict(cursor.fetchall())
        return [counts.get(item_id, 0) for item_id in ids]

    def search_texts(self, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        """Exact also where the items have a graph index: every text is compared. The nearest text of an item, and of
        several the first, is the one with the least distance * MAX_TEXTS + number."""
        wanted: list[Any] = []
        joined = f" join {{table}} using (id) where {condition(filter, wanted)}" if filter else ""
        each = f"(({{texts}}.code <~> %s::bit({{bits}}))::int * {MAX_TEXTS} + number)"
        within = f" having min{each} / {MAX_TEXTS} <= %s" if radius is not None else ""
        nearest = f"select id, min{each} as best from {{texts}}{joined} group by id{within}"
        statement = (
            f"select id, best / {MAX_TEXTS}, number, {{texts}}.code::text, metadata from ({nearest} "
            f"order by min{each} / {MAX_TEXTS}, id limit %s) as nearest join {{table}} using (id) "
            f"join {{texts}} using (id) where number = best %% {MAX_TEXTS} order by best / {MAX_TEXTS}, id"
        )
        found = []
        with self._transaction() as cursor:
            cursor.execute("set transaction isolation level repeatable read, read only")  # one state for all queries
            if not self._has_texts(cursor):
                return [_text_hits([], self.bits)] * len(codes)
            for bits in _bit_strings(codes):
                limits = [] if radius is None else [bits, radius]
                self._run(cursor, statement, [bits, *wanted, *limits, bits, k])
                found.append(_text_hits(cursor.fetchall(), self.bits))
        return found

    def list_ids(self, after: str, limit: int) -> list[str]:
        with self._transaction() as cursor:
            self._run(cursor, "select id from {table} where id > %s order by id limit %s", [after, limit])
            return [one for (one,) in cursor]

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        lists = "case jsonb_typeof(metadata -> 'labels') when 'array' then metadata -> 'labels' else '[]' end"
        labels = f'lateral (select distinct jsonb_array_elements_text({lists}) as label) as "their labels"'
        # On a connection of its own, since it looks at all items: searches need not wait for it.
        with self._errors(), self._connect() as connection, connection.cursor() as cursor:
            self._run(
                cursor,
                f"select label, count(*) as items from {{table}}, {labels} group by label "
                'order by items desc, label collate "C" limit %s',
                [limit],
            )
            return cursor.fetchall()

    def notes(self) -> dict[str, str]:
        with self._transaction() as cursor:
            return dict(self._description(cursor)["notes"])

    def note(self, key: str, value: str) -> None:
        with self._transaction() as cursor:
            self._run(cursor, "lock table {table} in share update exclusive mode")  # one noter at a time
            found = self._description(cursor)
            self._describe(cursor, {**found, "notes": {**found["notes"], key: value}})

    def stats(self) -> Stats:
        with self._transaction() as cursor:
            counted = "select count(*), pg_total_relation_size(to_regclass(%s)) from {table}"
            self._run(cursor, counted, [f'"{self.name}"'])
            items, size = cursor.fetchone() or (0, 0)
        return Stats("postgresql", items, self.bits, size, {"address": self.where, "hnsw": int(self.hnsw)})

    def compact(self) -> None:
        """Give the room of removed items back to the table, and fresh statistics to the planner."""
        with self._transaction(single=True) as cursor:
            self._run(cursor, "vacuum (analyze) {table}")
            if self._has_texts(cursor):
                self._run(cursor, "vacuum (analyze) {texts}")

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def _copy(
        self, cursor: psycopg.Cursor[Any], table: str, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]
    ) -> None:
        statement = sql.SQL("copy {} (id, code, metadata) from stdin").format(sql.Identifier(table))
        with cursor.copy(statement) as copy:
            for one, bits, entry in zip(ids, _bit_strings(codes), metadata, strict=True):
                copy.write_row((one, bits, jsonb(entry)))

    def _has_texts(self, cursor: psycopg.Cursor[Any]) -> bool:
        cursor.execute("select to_regclass(%s)", [f'"{self.texts}"'])
        return cursor.fetchone() != (None,)

    def _make_texts(self, cursor: psycopg.Cursor[Any]) -> None:
        """The table of texts, where there is none yet, and the trigger that keeps it in step with the items."""
        if self._has_texts(cursor):
            return
        if len(self.texts) > MAX_NAME:
            raise UsageError(
                f"{self.where}: a table with texts has a name of at most {MAX_NAME - len(TEXTS)} characters"
            )
        columns = 'id text collate "C", number int, code bit({bits}) not null, primary key (id, number)'
        self._run(cursor, f"create table {{texts}} ({columns})")
        self._run(cursor, DROP_TEXTS)
        self._run(
            cursor,
            f'create trigger "{DROP}" after update or delete on {{table}} for each row execute function "{DROP}"()',
        )

    def _check_pgvector(self, cursor: psycopg.Cursor[Any]) -> None:
        cursor.execute("select extversion from pg_extension where extname = 'vector'")
        (version,) = cursor.fetchone() or ("0.0",)
        if tuple(map(int, version.split(".")[:2])) < OLDEST_PGVECTOR:
            raise KenthashError(f"{self.where}: has pgvector {version}: 0.7 or later is needed for Hamming distance")

    def _description(self, cursor: psycopg.Cursor[Any]) -> dict[str, Any]:
        """What the table's comment says of the index: its format, bits, and notes."""
        cursor.execute("select oid, obj_description(oid) from pg_class where oid = to_regclass(%s)", [f'"{self.name}"'])
        row = cursor.fetchone()
        if row is None:
            raise NoSuchIndex(f"{self.where}: there is no such index: create it first")
        try:
            found = json.loads(row[1] or "")
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise DataError(f"{self.where}: a table that kenthash did not make: choose another name")
        return found

    def _describe(self, cursor: psycopg.Cursor[Any], description: dict[str, Any]) -> None:
        text = sql.Literal(json.dumps(description))
        cursor.execute(sql.SQL("comment on table {} is {}").format(sql.Identifier(self.name), text))

    def _run(self, cursor: psycopg.Cursor[Any], statement: str, parameters: Sequence[Any] = ()) -> None:
        """A statement of ours, never of the user's: names are put in as identifiers, values as parameters."""
        ours = sql.SQL(statement)
        names = {"table": sql.Identifier(self.name), "texts": sql.Identifier(self.texts)}
        cursor.execute(ours.format(**names, bits=sql.Literal(self.bits)), parameters)

    @contextmanager
    def _transaction(self, single: bool = False) -> Iterator[psycopg.Cursor[Any]]:
        """All or nothing, one thread at a time; connects first if need be. `single`: a statement that is its own."""
        with self.lock, self._errors():
            if self.connection is None or self.connection.closed:
                self.connection = self._connect()
            with nullcontext() if single else self.connection.transaction(), self.connection.cursor() as cursor:
                yield cursor

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.address, connect_timeout=CONNECT_SECONDS, autocommit=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """PostgreSQL's own errors as ours, in one line with the index's address."""
        try:
            yield
        except psycopg.errors.UniqueViolation as error:
            raise DuplicateId(f"{self.where}: an id exists already") from error
        except psycopg.Error as error:
            raise KenthashError(f"{self.where}: PostgreSQL: {' '.join(str(error).split())[:300]}") from error


class DuplicateId(DataError):
    """An id that is added exists; `add` finds out which."""


def _bit_strings(codes: Codes) -> Iterator[str]:
    for row in np.unpackbits(codes, axis=1) + ord("0"):
        yield row.tobytes().decode()


def _code(bits: str) -> Codes:
    return np.packbits(np.frombuffer(bits.encode(), np.uint8) - ord("0"))


def _text_hits(rows: list[tuple[str, int, int, str, Metadata]], bits: int) -> Hits:
    ids, distances, numbers, codes, metadata = zip(*rows, strict=True) if rows else ((),) * 5
    packed = np.array([_code(code) for code in codes], np.uint8).reshape(-1, bits // 8)
    texts = [texts_of(entry)[number] for entry, number in zip(metadata, numbers, strict=True)]
    return Hits(list(ids), np.array(distances, np.int64), list(metadata), packed, None, texts)


def _hits(rows: list[tuple[str, int, Metadata]]) -> Hits:
    distances = np.array([distance for _, distance, _ in rows], np.int64)
    return Hits([one for one, _, _ in rows], distances, [metadata for _, _, metadata in rows])
