"""The index in a PostgreSQL table, with pgvector 0.7 or later: `postgresql://user@host/database?table=name`.

The table has the columns `id text collate "C" primary key`, `code bit(K)` and `metadata jsonb`. A search is one SQL
statement, ordered by (code <~> query, id): exact, a scan of the table, in a transaction. A bit string has the highest
bit of each byte first; both sides of a distance do, so it stays the same. The values of a filter are parameters. The
codes of texts are in a second table, `"name texts"`; a trigger deletes them when their item changes or is removed.

A real-valued query (see `queries`) takes two statements: of the nearest codes by Hamming distance, the k-th best by
weights is at a distance d; then the items within the largest Hamming distance r with S(r) ≤ d are ranked by weights in
SQL, which has everything that can be as near. The second is left out where the first proves its answer.

Whole codes are compared in an index with two stages, too: a row takes more time than its bits.

With `hnsw=True` a graph index is used instead: fast on millions of items, and approximate. Its iterative scan goes on
until k items pass a filter (or hnsw.max_scan_tuples were seen), so filters cost recall but not the number of results.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import DataError, DuplicateId, KenthashError, UsageError
from kenthash.search.engine import MAX_TEXTS, Hits, IndexExists, Item, Metadata, NoSuchIndex, Stats, texts_of
from kenthash.search.filters import Among, And, Compare, Filter, Has, IsNull, Literal, NearPlace, Not, Or, kind
from kenthash.search.photo_counts import CELLS_PER_DEGREE, MONTH, PhotoGroup
from kenthash.search.queries import Queries
from kenthash.search.servers.addresses import parse_postgres_address

try:
    import psycopg
    from psycopg import sql
except ImportError as error:
    raise KenthashError("an index in PostgreSQL needs its client: pip install 'kenthash[postgres]'") from error

FORMAT = "kenthash index 1"
ROWS = "kenthash rows"  # a temporary table; the space keeps it apart from the tables of indexes
TEXTS = " texts"  # the end of the name of the table of texts; the space keeps it apart, too
MAX_NAME = 63  # characters of a table's name
DROP = "kenthash drop texts"
DROP_TEXTS = f"""
    create or replace function "{DROP}"() returns trigger language plpgsql as $$ begin
        execute format('delete from %%I.%%I where id = $1', tg_table_schema, tg_table_name || '{TEXTS}') using old.id;
        return null;
    end $$
"""
CONNECT_SECONDS = 5
HAMMING = "code <~> %s::bit({bits})"
OLDEST_PGVECTOR = (0, 7)  # the first with bit(K) and <~>
# `NearPlace.holds` as SQL. A case: `and` alone would not keep PostgreSQL from casting what is no number.
NEAR = """(case when jsonb_typeof(metadata -> 'latitude') = 'number'
        and jsonb_typeof(metadata -> 'longitude') = 'number'
    then power(sind(((metadata ->> 'latitude')::float8 - %s) / 2), 2)
        + cosd(%s) * cosd((metadata ->> 'latitude')::float8)
        * power(sind(((metadata ->> 'longitude')::float8 - %s) / 2), 2) <= %s
    else false end)"""
# The keys of `PhotoGroup`; cases for the same reason.
TEXT_VALUE = "case jsonb_typeof(metadata -> '{key}') when 'string' then metadata ->> '{key}' end as {key}"
ON_MAP_VALUE = """case when jsonb_typeof(metadata -> '{key}') = 'number'
    then case when (metadata ->> '{key}')::float8 between -{most} and {most}
        then floor(((metadata ->> '{key}')::float8 + {most}) * {cells} + 0.5)::int end end as {key}"""
PHOTO_VALUES = ", ".join(
    [TEXT_VALUE.format(key=key) for key in ("taken", "camera")]
    + [
        ON_MAP_VALUE.format(key=key, most=most, cells=CELLS_PER_DEGREE)
        for key, most in (("latitude", 90), ("longitude", 180))
    ]
)
PHOTO_GROUPS = f"""
    select month, camera, latitude, longitude, count(*) from (
        select left(taken, {MONTH}) as month, camera, case when longitude is not null then latitude end as latitude,
            case when latitude is not null then longitude end as longitude
        from (select {PHOTO_VALUES} from {{table}}) as "their photos"
    ) as "their months"
    where month is not null or camera is not null or latitude is not null
    group by month, camera, latitude, longitude
"""
JSON_TYPES = {"text": "string", "number": "number", "boolean": "boolean"}  # by `filters.kind`


class SqlCondition(NamedTuple):
    """A condition of a statement, and the values of its parameters."""

    text: str
    values: list[Any]


class PostgresEngine:
    def __init__(self, target: str) -> None:
        """Connect. `bits` and `code_bits` are known after `create` or `open`."""
        self.bits = self.code_bits = 0
        address = parse_postgres_address(target)
        self.where, self.name, self.uri = address.display, address.name, address.uri
        self.texts = address.name + TEXTS
        self.connection: psycopg.Connection[Any] | None = None
        self.lock = threading.RLock()
        self.hnsw = False

    @classmethod
    def create(cls, target: str, bits: int, code_bits: int, hnsw: bool = False) -> Self:
        """A new table. The extension is created where the user may do so; `hnsw` makes searches approximate."""
        engine = cls(target)
        with ExitStack() as undo, engine._transaction() as cursor:
            undo.callback(engine.close)
            cursor.execute("create extension if not exists vector")
            engine._check_pgvector(cursor)
            cursor.execute("select to_regclass(%s)", [f'"{engine.name}"'])
            if cursor.fetchone() != (None,):
                raise IndexExists(f"{engine.where}: exists already: open it, or choose another table")
            engine.bits, engine.code_bits, engine.hnsw = bits, code_bits, hnsw
            columns = 'id text collate "C" primary key, code bit({bits}) not null, metadata jsonb not null'
            engine._run(cursor, f"create table {{table}} ({columns})")
            if hnsw:
                engine._run(cursor, "create index on {table} using hnsw (code bit_hamming_ops)")
            lengths = {"bits": bits, "code_bits": code_bits}
            engine._describe(cursor, {"format": FORMAT, **lengths, "hnsw": hnsw, "notes": {}})
            undo.pop_all()
        return engine

    @classmethod
    def open(cls, target: str) -> Self:
        engine = cls(target)
        with ExitStack() as undo, engine._transaction() as cursor:
            undo.callback(engine.close)
            description = engine._description(cursor)
            engine._check_pgvector(cursor)
            undo.pop_all()
        engine.bits, engine.hnsw = int(description["bits"]), bool(description["hnsw"])
        engine.code_bits = int(description.get("code_bits", engine.bits))  # missing in those of earlier versions
        return engine

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        try:
            with self._transaction() as cursor:
                self._copy(cursor, self.name, ids, codes, metadata)
        except DuplicateId as error:
            with self._transaction() as cursor:
                self._run(cursor, "select min(id) from {table} where id = any(%s)", [list(ids)])
                (existing,) = cursor.fetchone() or (None,)
            raise DuplicateId(
                f"{self.where}: id {existing!r} exists already: nothing was added; use upsert to replace"
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
            items = {item_id: Item(item_id, _code(bits), metadata) for item_id, bits, metadata in cursor}
        return [items.get(item_id) for item_id in ids]

    def search(self, queries: Queries, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        values: list[Any] = []  # of the filter
        where = SqlCondition(condition(filter, values) if filter else "true", values)
        with self._transaction() as cursor:
            cursor.execute("set transaction isolation level repeatable read, read only")  # one state for all queries
            if self.hnsw:
                candidates = k if queries.weights is None else _candidates(k)
                cursor.execute("set local hnsw.iterative_scan = strict_order")
                cursor.execute(f"set local hnsw.ef_search = {min(1000, max(100, 2 * candidates)):d}")
            if queries.weights is None:
                return [self._nearest(cursor, queries, q, k, radius, where) for q in range(len(queries))]
            return [self._nearest_weighted(cursor, queries, q, k, radius, where) for q in range(len(queries))]

    def _nearest(
        self, cursor: psycopg.Cursor[Any], queries: Queries, q: int, k: int, radius: int | None, where: SqlCondition
    ) -> Hits:
        """By Hamming distance."""
        (bits,) = _bit_strings(queries.codes[q : q + 1])
        query = f"select id, ({HAMMING})::int as distance, code::text, metadata from {{table}} where {where.text}"
        graph, limits = [], [k] if radius is None else [radius, k]
        if self.hnsw:  # the graph orders by distance only: ties among its results are ordered outside
            query += f" order by {HAMMING} limit %s"
            graph = [bits, k]
        statement = f"select * from ({query}) as nearest{'' if radius is None else ' where distance <= %s'}"
        self._run(cursor, f"{statement} order by distance, id limit %s", [bits, *where.values, *graph, *limits])
        return self._hits(cursor.fetchall())

    def _nearest_weighted(
        self, cursor: psycopg.Cursor[Any], queries: Queries, q: int, k: int, radius: int | None, where: SqlCondition
    ) -> Hits:
        near = self._nearest(cursor, queries, q, _candidates(k), radius, where)
        assert near.codes is not None
        weights = queries.distances(q, near.codes)
        order = sorted(range(len(near)), key=lambda i: (weights[i], near.ids[i]))[:k]
        least = queries.least_distances[q]
        all_near = len(near) < _candidates(k) or weights[order[-1]] < least[near.distances[-1]]
        if self.hnsw or all_near:
            metadata = [near.metadata[i] for i in order]
            return replace(near, ids=[near.ids[i] for i in order], distances=weights[order], metadata=metadata,
                           codes=near.codes[order])  # fmt: skip
        within = int(np.searchsorted(least, weights[order[-1]], "right")) - 1
        distance, planes = _weighted_distance(queries, q)
        (bits,) = _bit_strings(queries.codes[q : q + 1])
        self._run(
            cursor,
            f"select id, {distance} as distance, code::text, metadata from {{table}} "
            f"where {HAMMING} <= %s and {where.text} order by distance, id limit %s",
            [*planes, bits, within if radius is None else min(within, radius), *where.values, k],
        )
        return self._hits(cursor.fetchall())

    def _hits(self, rows: list[tuple[str, int, str, Metadata]]) -> Hits:
        ids, distances, codes, metadata = zip(*rows, strict=True) if rows else ((),) * 4
        packed = np.array([_code(code) for code in codes], np.uint8).reshape(-1, self.code_bits // 8)
        return Hits(list(ids), np.array(distances, np.int64), list(metadata), packed, proven=not self.hnsw)

    def put_texts(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        with self._transaction() as cursor:
            self._create_texts(cursor)
            # Locked until the end: others that change one of these items wait, and then delete what is inserted here.
            self._run(cursor, "select id, metadata from {table} where id = any(%s) for update", [list(ids)])
            present = dict(cursor.fetchall())
            same = [i for i, item_id in enumerate(ids) if present.get(item_id) == metadata[i]]
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

    def search_texts(self, queries: Queries, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        """Exact also where the items have a graph index: every text is compared. The nearest text of an item, and the
        first of several, is the one with the smallest distance * MAX_TEXTS + number."""
        values: list[Any] = []  # of the filter
        joined = f"join {{table}} using (id) where {condition(filter, values)}" if filter else "where true"
        answers = []
        with self._transaction() as cursor:
            cursor.execute("set transaction isolation level repeatable read, read only")  # one state for all queries
            if not self._has_texts(cursor):
                return [_text_hits([], self.code_bits)] * len(queries)
            for q, bits in enumerate(_bit_strings(queries.codes)):
                distance, planes = _weighted_distance(queries, q, "{texts}.code")
                within = "" if radius is None else "and {texts}.code <~> %s::bit({bits}) <= %s"
                limits = [] if radius is None else [bits, radius]
                nearest = f"select id, min({distance} * {MAX_TEXTS} + number) as best from {{texts}} {joined} {within}"
                statement = (
                    f"select id, best / {MAX_TEXTS}, number, {{texts}}.code::text, metadata from (select * from "
                    f"({nearest} group by id) as texts order by best / {MAX_TEXTS}, id limit %s) as nearest "
                    f"join {{table}} using (id) join {{texts}} using (id) where number = best %% {MAX_TEXTS} "
                    f"order by best / {MAX_TEXTS}, id"
                )
                self._run(cursor, statement, [*planes, *values, *limits, k])
                answers.append(_text_hits(cursor.fetchall(), self.code_bits))
        return answers

    def list_ids(self, after: str, limit: int) -> list[str]:
        with self._transaction() as cursor:
            self._run(cursor, "select id from {table} where id > %s order by id limit %s", [after, limit])
            return [item_id for (item_id,) in cursor]

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        lists = "case jsonb_typeof(metadata -> 'labels') when 'array' then metadata -> 'labels' else '[]' end"
        labels = f'lateral (select distinct jsonb_array_elements_text({lists}) as label) as "their labels"'
        # On a connection of its own, since it reads all items: searches do not wait for it.
        with self._errors(), self._connect() as connection, connection.cursor() as cursor:
            self._run(
                cursor,
                f"select label, count(*) as items from {{table}}, {labels} group by label "
                'order by items desc, label collate "C" limit %s',
                [limit],
            )
            return cursor.fetchall()

    def photo_groups(self) -> list[PhotoGroup]:
        with self._errors(), self._connect() as connection, connection.cursor() as cursor:  # as for labels
            self._run(cursor, PHOTO_GROUPS)
            return [PhotoGroup(month, camera, None if i is None else (i, j), n) for month, camera, i, j, n in cursor]

    def notes(self) -> dict[str, str]:
        with self._transaction() as cursor:
            return dict(self._description(cursor)["notes"])

    def note(self, key: str, value: str) -> None:
        with self._transaction() as cursor:
            self._run(cursor, "lock table {table} in share update exclusive mode")  # one writer at a time
            description = self._description(cursor)
            self._describe(cursor, {**description, "notes": {**description["notes"], key: value}})

    def stats(self) -> Stats:
        with self._transaction() as cursor:
            statement = "select count(*), pg_total_relation_size(to_regclass(%s)) from {table}"
            self._run(cursor, statement, [f'"{self.name}"'])
            items, size = cursor.fetchone() or (0, 0)
        return Stats("postgresql", items, self.code_bits, size, {"address": self.where, "hnsw": int(self.hnsw)})

    def compact(self) -> None:
        """Reuse the space of removed items, and update the statistics of the planner."""
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
            for item_id, bits, entry in zip(ids, _bit_strings(codes), metadata, strict=True):
                copy.write_row((item_id, bits, jsonb(entry)))

    def _has_texts(self, cursor: psycopg.Cursor[Any]) -> bool:
        cursor.execute("select to_regclass(%s)", [f'"{self.texts}"'])
        return cursor.fetchone() != (None,)

    def _create_texts(self, cursor: psycopg.Cursor[Any]) -> None:
        """Create the table of texts, where there is none yet, and the trigger that deletes texts of changed items."""
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
        """What the table's comment says about the index: its format, bits, and notes."""
        cursor.execute("select oid, obj_description(oid) from pg_class where oid = to_regclass(%s)", [f'"{self.name}"'])
        row = cursor.fetchone()
        if row is None:
            raise NoSuchIndex(f"{self.where}: there is no such index: create it first")
        try:
            description = json.loads(row[1] or "")
        except ValueError:
            description = None
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise DataError(f"{self.where}: a table that kenthash did not make: choose another name")
        return description

    def _describe(self, cursor: psycopg.Cursor[Any], description: dict[str, Any]) -> None:
        text = sql.Literal(json.dumps(description))
        cursor.execute(sql.SQL("comment on table {} is {}").format(sql.Identifier(self.name), text))

    def _run(self, cursor: psycopg.Cursor[Any], statement: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement that kenthash wrote: names are put in as identifiers, values as parameters."""
        template = sql.SQL(statement)
        names = {"table": sql.Identifier(self.name), "texts": sql.Identifier(self.texts)}
        cursor.execute(template.format(**names, bits=sql.Literal(self.code_bits)), parameters)

    @contextmanager
    def _transaction(self, single: bool = False) -> Iterator[psycopg.Cursor[Any]]:
        """A transaction, of one thread at a time; connects first if necessary. `single`: one statement without one."""
        with self.lock, self._errors():
            if self.connection is None or self.connection.closed:
                self.connection = self._connect()
            with nullcontext() if single else self.connection.transaction(), self.connection.cursor() as cursor:
                yield cursor

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.uri, connect_timeout=CONNECT_SECONDS, autocommit=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn PostgreSQL's errors into KenthashErrors: one line with the address of the index."""
        try:
            yield
        except psycopg.errors.UniqueViolation as error:
            raise DuplicateId(f"{self.where}: an id exists already") from error
        except psycopg.Error as error:
            raise KenthashError(f"{self.where}: PostgreSQL: {' '.join(str(error).split())[:300]}") from error


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


def _candidates(k: int) -> int:
    """Items that are nearest by Hamming distance, among which the k best by weights are looked for first."""
    return max(256, 4 * k)


def _weighted_distance(queries: Queries, q: int, column: str = "code") -> tuple[str, list[str]]:
    """The distance of a code to one of the queries as SQL, and its parameters: the number of bits that differ in each
    plane of the weights, times what they weigh."""
    terms: list[str] = []
    parameters: list[str] = []
    for weight, plane in queries.planes(q):
        parameters += _bit_strings(np.stack((plane, queries.codes[q] & plane)))
        terms.append(f"(({column} & %s::bit({{bits}})) <~> %s::bit({{bits}}))::int * {weight}")
    return f"({' + '.join(terms) or '0'})", parameters


def jsonb(value: object) -> str:
    """A number, true or false, or an item's metadata, as the text of a jsonb.

    jsonb keeps decimal digits: 1e+30 would come back as the integer 10^30, which is not equal to the float. A whole
    float is written with all digits and .0 instead, and comes back as the same float.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {jsonb(part)}" for key, part in value.items()) + "}"
    if isinstance(value, float) and value.is_integer():
        return f"{value:.1f}"
    return json.dumps(value)


def condition(term: Filter, parameters: list[Any]) -> str:
    """A filter as SQL, whose placeholders take what is appended to `parameters`; true or false, never null."""
    match term:
        case Compare(key, op, value):
            return f"coalesce({_comparison(key, op, value, parameters)}, false)"
        case Among(key, values):
            return condition(Or(tuple(Compare(key, "=", value) for value in values)), parameters)
        case Has(key, value):
            parameters += [key, key, _check_null(value), key, value]
            return (
                "(case jsonb_typeof(metadata -> %s) when 'array' then (metadata -> %s) ? %s "
                "when 'string' then strpos(metadata ->> %s, %s) > 0 else false end)"
            )
        case IsNull(key):
            parameters.append(key)
            return "coalesce(jsonb_typeof(metadata -> %s), 'null') = 'null'"
        case NearPlace(latitude, longitude):
            box = condition(term.box(), parameters)
            parameters += [latitude, latitude, longitude, term.square]
            return f"({box} and {NEAR})"
        case Not(inner):
            return f"not ({condition(inner, parameters)})"
        case And(terms):
            return "(" + " and ".join(condition(part, parameters) for part in terms) + ")"
        case Or(terms):
            return "(" + " or ".join(condition(part, parameters) for part in terms) + ")"


def _comparison(key: str, op: str, value: Literal, parameters: list[Any]) -> str:
    parameters += [key, JSON_TYPES[kind(value)], key]
    operator = "<>" if op == "!=" else op
    if isinstance(value, str):
        # As text in the "C" collation: jsonb itself would order strings by the database's locale.
        parameters.append(_check_null(value))
        return f'jsonb_typeof(metadata -> %s) = %s and (metadata ->> %s) collate "C" {operator} %s'
    parameters.append(jsonb(value))
    return f"jsonb_typeof(metadata -> %s) = %s and (metadata -> %s) {operator} %s::jsonb"


def _check_null(text: str) -> str:
    if "\0" in text:
        raise UsageError("filter: text with a null character matches nothing that an index can hold: leave it out")
    return text
