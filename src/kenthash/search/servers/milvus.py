"""The index on Milvus, for more items than one machine can hold: `milvus://host:port/name`.

**Exact.** A BIN_FLAT index compares every code. Milvus answers with the k nearest but takes any of those that tie at
the last distance; `resolve_ties` searches on until the ones with the smallest ids are known. With `lists`
(BIN_IVF_FLAT) only the nearest lists are compared: faster on many millions, and approximate.

**Real-valued queries** (see `queries`): of the nearest by Hamming distance, the k best by weights are taken. Four times
as many are asked for until that is proven, or until they are 16,384; `Hits.proven` says which. Whole codes are compared
in an index with two stages, too.

**Consistent.** Every read is made at Milvus's "Strong" level: it waits until all writes that were acknowledged before
it, of any client, can be seen. It may wait for one time tick of the server (0.2 s by default) while others write.
Milvus has no unique keys and no transactions: `add` looks for the ids first, so two writers that add one id at the same
moment get no error; let one process write.

**Texts.** Their codes are in a second collection, `name_texts`, with the metadata of their items for filters. They are
deleted before an item changes, and count only while its metadata are the same.

**Limits.** Milvus gives at most 16,384 results per query and keeps at most 65,536 bytes of JSON per item.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import DataError, DuplicateId, KenthashError, UsageError
from kenthash.search.engine import MAX_TEXTS, Hits, IndexExists, Item, Metadata, NoSuchIndex, Stats, texts_of
from kenthash.search.filters import Filter, matches
from kenthash.search.photo_counts import PhotoGroup, photo_group_of
from kenthash.search.queries import Queries
from kenthash.search.servers.addresses import parse_milvus_address
from kenthash.search.servers.milvus_import import BulkImport
from kenthash.search.servers.milvus_requests import (
    FIELD,
    Near,
    decode_metadata,
    filter_expression,
    insert_requests,
    quoted,
    resolve_ties,
    to_item,
)

try:
    from grpc import RpcError
    from pymilvus import DataType, MilvusClient
    from pymilvus.exceptions import MilvusException
except ImportError as error:
    raise KenthashError("an index on Milvus needs its client: pip install 'kenthash[milvus]'") from error

FORMAT, TEXTS_FORMAT = "kenthash index, format 1", "kenthash texts, format 1"
NOTE = "kenthash.note."
FIRST_BITS = "kenthash.first_bits"  # a property of collections of indexes with two stages
CONNECT_SECONDS, CALL_SECONDS = 5.0, 60.0
MAX_RESULTS = 16_384  # of one query in one request
REQUEST_HITS = 200_000  # of all queries in one request
REQUEST_IDS = 4096  # looked up or deleted at once: at most 24 MB of text
REQUEST_ROWS = 500  # looked up with their metadata: at most 32 MB
LISTED_ROWS = 2000  # looked at at once to see whether a term is true of them: at most 128 MB, usually 1 MB
MAX_LISTED = 100_000  # items that a term of a filter may list: some MB of text
COUNTED_ROWS = 2000  # whose labels, or dates and places, are counted at once: at most 128 MB, usually 1 MB
MAX_LABELS = 1_000_000  # different ones that are counted

LABELLED = f'(exists {FIELD}["m"]["labels"])'
PHOTOS = f"""({" or ".join(f'(exists {FIELD}["m"]["{key}"])' for key in ("taken", "camera", "latitude"))})"""

T = TypeVar("T")


@dataclass(frozen=True)
class Best:
    """The nearest ids of a query."""

    near: Near
    codes: dict[str, Codes] | None  # of a real-valued query
    proven: bool


class MilvusEngine:
    def __init__(self, target: str) -> None:
        """Connect. `bits` and `code_bits` are known after `create` or `open`."""
        self.bits = self.code_bits = 0
        self.address = address = parse_milvus_address(target)
        self.where, self.name = address.display, address.name
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL + 1)  # it logs a trace for what is raised as well
        try:
            self.client = MilvusClient(uri=address.uri, token=address.token, timeout=CONNECT_SECONDS)
        except (MilvusException, RpcError) as error:
            raise KenthashError(f"{self.where}: Milvus does not answer there: {_one_line(error)}") from error
        self.probes: int | None = None
        self.exact = True
        self.texts: Self | None = None

    @classmethod
    def create(cls, target: str, bits: int, code_bits: int, shards: int = 1, lists: int | None = None) -> Self:
        """A new collection of `shards` write channels; `lists` makes its search approximate (BIN_IVF_FLAT)."""
        engine = cls(target)
        with ExitStack() as undo:
            undo.callback(engine.close)
            engine._create(bits, code_bits, shards, lists)
            undo.pop_all()
        return engine

    @classmethod
    def open(cls, target: str, probes: int | None = None) -> Self:
        """Open a collection that `create` made; `probes` of its lists are compared where it is approximate."""
        engine = cls(target)
        with ExitStack() as undo:
            undo.callback(engine.close)
            engine._open(probes)
            undo.pop_all()
        return engine

    def _create(self, bits: int, code_bits: int, shards: int, lists: int | None) -> None:
        if self._call(self.client.has_collection, self.name, timeout=CONNECT_SECONDS):
            raise IndexExists(f"{self.where}: exists already: open it, or choose another name")
        self.bits, self.code_bits, self.exact = bits, code_bits, lists is None
        self._create_collection(FORMAT, shards, lists)
        if code_bits > bits:
            properties = {FIRST_BITS: str(bits)}
            self._call(self.client.alter_collection_properties, self.name, properties, timeout=CONNECT_SECONDS)

    def _create_collection(self, format: str, shards: int, lists: int | None) -> None:
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False, description=format)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=4096 + len(_text_name("", 0)))
        schema.add_field("code", DataType.BINARY_VECTOR, dim=self.code_bits)
        schema.add_field(FIELD, DataType.JSON)
        index = self.client.prepare_index_params()
        kind, params = ("BIN_IVF_FLAT", {"nlist": lists}) if lists else ("BIN_FLAT", {})
        index.add_index("code", index_type=kind, metric_type="HAMMING", params=params)
        options = {"num_shards": shards, "consistency_level": "Strong", "timeout": CALL_SECONDS}
        self._call(self.client.create_collection, self.name, schema=schema, index_params=index, **options)

    def _open(self, probes: int | None) -> None:
        if not self._call(self.client.has_collection, self.name, timeout=CONNECT_SECONDS):
            raise NoSuchIndex(f"{self.where}: there is no such index: create it first")
        description = self._describe()
        if description["description"] != FORMAT:
            raise DataError(f"{self.where}: a collection that kenthash did not make: choose another name")
        self.code_bits = next(int(field["params"]["dim"]) for field in description["fields"] if field["name"] == "code")
        self.bits = int(description["properties"].get(FIRST_BITS, self.code_bits))
        index = self._call(self.client.describe_index, self.name, "code", timeout=CONNECT_SECONDS)
        self.probes, self.exact = probes, index["index_type"] == "BIN_FLAT"
        self._call(self.client.load_collection, self.name, timeout=CALL_SECONDS)

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        self._check_new(ids)
        sent: list[str] = []
        try:
            for rows in insert_requests(self.where, ids, codes, metadata):
                sent += [row["id"] for row in rows]
                self._call(self.client.insert, self.name, rows, timeout=CALL_SECONDS)
        except KenthashError:
            with suppress(KenthashError):
                self._delete(sent)
            raise

    def import_items(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata], staging: str) -> None:
        """Add items by a file that the server imports (see `milvus_import`); none of them where one exists already."""
        address = self.address
        with closing(self._call(BulkImport, self.where, address.uri, address.token, self.name)) as bulk:
            if self._call(bulk.wait_for_others):  # perhaps of a client that was killed before it could do this
                self._call(self.client.refresh_load, self.name, timeout=CALL_SECONDS)
            if self.stats().items:
                self._check_new(ids)
            self._call(bulk.run, ids, codes, metadata, staging)
        self._call(self.client.refresh_load, self.name, timeout=CALL_SECONDS)

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        self._delete_texts(ids)
        self._upsert(ids, codes, metadata)

    def _upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        for rows in insert_requests(self.where, ids, codes, metadata):
            self._call(self.client.upsert, self.name, rows, timeout=CALL_SECONDS)

    def remove(self, ids: Sequence[str]) -> int:
        existing = [row["id"] for row in self._rows(ids, [])]
        self._delete_texts(existing)
        self._delete(existing)
        return len(existing)

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        rows = {row["id"]: row for row in self._rows(ids, ["code", FIELD])}
        return [to_item(rows[item_id]) if item_id in rows else None for item_id in ids]

    def search(self, queries: Queries, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        nearest = self._nearest_ids(queries, k, radius, self._expression(filter))
        # Metadata are fetched last, for the hits alone. Items that were removed in between are left out.
        rows = self._rows(sorted({item_id for best in nearest for _, item_id in best.near}), [FIELD])
        metadata = {row["id"]: decode_metadata(row[FIELD]) for row in rows}
        return [_hits(best, metadata, self.code_bits) for best in nearest]

    def _nearest_ids(self, queries: Queries, k: int, radius: int | None, condition: str) -> list[Best]:
        """The k best of each query, by distance and id."""
        within = queries.bits if radius is None else radius
        if queries.weights is not None:
            return self._nearest_by_weights(queries, k, within, condition)
        codes, width = queries.codes, min(MAX_RESULTS, 2 * k + 64)
        step = max(1, REQUEST_HITS // width)
        nearest = []
        for start in range(0, len(codes), step):
            part = codes[start : start + step]
            for code, hits in zip(part, self._top(part, width, condition), strict=True):
                top = [(distance, item_id) for distance, item_id, _ in hits]
                near = resolve_ties(top, k, width, partial(self._top_below, code, width, condition)) if top else []
                nearest.append(Best([hit for hit in near if hit[0] <= within], None, self.exact))
        return nearest

    def _nearest_by_weights(self, queries: Queries, k: int, within: int, condition: str) -> list[Best]:
        """An item that is not among the nearest by Hamming distance differs in at least as many bits as the last of
        these, which bounds its distance."""
        nearest: dict[int, Best] = {}
        width = min(MAX_RESULTS, max(256, 4 * k))
        step = max(1, REQUEST_HITS // MAX_RESULTS)
        while left := [q for q in range(len(queries)) if q not in nearest]:
            for start in range(0, len(left), step):
                part = left[start : start + step]
                for q, top in zip(part, self._top(queries.codes[part], width, condition, with_codes=True), strict=True):
                    near = [hit for hit in top if hit[0] <= within]
                    codes = np.array([code for _, _, code in near], np.uint8).reshape(-1, queries.bits // 8)
                    distances = queries.distances(q, codes).tolist()
                    order = sorted(range(len(near)), key=lambda i: (distances[i], near[i][1]))[:k]
                    last = max((bits for bits, _, _ in top), default=0)
                    proven = (
                        len(top) < width
                        or last > within
                        or (len(order) == k and distances[order[-1]] < queries.least_distances[q, last])
                    )
                    if proven or width == MAX_RESULTS:
                        best = [(distances[i], near[i][1]) for i in order]
                        nearest[q] = Best(best, {near[i][1]: near[i][2] for i in order}, proven and self.exact)
            width = min(MAX_RESULTS, 4 * width)
        return [nearest[q] for q in range(len(queries))]

    def _expression(self, filter: Filter | None) -> str:
        return filter_expression(filter, self._listed) if filter is not None else ""

    def _listed(self, term: Filter, candidates: str) -> str:
        """The items among the candidates of which a term is true that Milvus cannot express, as an expression."""
        ids: list[str] = []
        last = ""
        while page := self._query(f"({candidates}) and id > {quoted(last)}", ["id", FIELD], LISTED_ROWS):
            ids += [row["id"] for row in page if matches(term, decode_metadata(row[FIELD]))]
            if len(ids) > MAX_LISTED:
                raise UsageError(
                    f"filter: near and has are true of more than {MAX_LISTED:,} items, too many for Milvus"
                )
            last = max(row["id"] for row in page)
        return _id_in(ids)

    def _top_below(self, code: Codes, width: int, condition: str, last: str) -> Near:
        below = f"id < {quoted(last)}"
        (hits,) = self._top(code[None], width, f"({condition}) and {below}" if condition else below)
        return [(distance, item_id) for distance, item_id, _ in hits]

    def _top(
        self, codes: Codes, width: int, condition: str, with_codes: bool = False
    ) -> list[list[tuple[int, str, Codes]]]:
        """(Hamming distance, id, code if wanted) of the nearest `width` to each code; of those that tie last, any."""
        params = {"nprobe": self.probes} if self.probes else {}
        results = self._call(
            self.client.search,
            self.name,
            data=[code.tobytes() for code in codes],
            limit=width,
            filter=condition,
            output_fields=["code"] if with_codes else [],
            search_params={"metric_type": "HAMMING", "params": params},
            consistency_level="Strong",
            timeout=CALL_SECONDS,
        )
        return [
            [(int(hit["distance"]), hit["id"], np.frombuffer(hit["entity"].get("code", b""), np.uint8)) for hit in hits]
            for hits in results
        ]

    def put_texts(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        texts = self._texts_collection(create=True)
        assert texts is not None
        same = [i for i, item in enumerate(self.get(ids)) if item is not None and item.metadata == metadata[i]]
        self._delete_texts([ids[i] for i in same])
        owners = [(i, number) for i in same for number in range(len(codes[i]))]
        if owners:
            names = [_text_name(ids[i], number) for i, number in owners]
            texts._upsert(names, np.concatenate([codes[i] for i in same]), [metadata[i] for i, _ in owners])

    def count_texts(self, ids: Sequence[str]) -> list[int]:
        texts = self._texts_collection()
        rows = texts._rows([_text_name(item_id, n) for item_id in ids for n in range(MAX_TEXTS)], []) if texts else ()
        counts = Counter(_item_of(row["id"]) for row in rows)
        return [counts[item_id] for item_id in ids]

    def search_texts(self, queries: Queries, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        texts = self._texts_collection()
        if texts is None:
            return [_text_hits([], self.code_bits, True) for _ in range(len(queries))]
        answers = []
        for near, proven in texts._nearest_texts(queries, k, radius, texts._expression(filter)):
            items = self.get([item_id for _, item_id, _ in near])
            text_items = texts.get([_text_name(item_id, number) for _, item_id, number in near])
            answers.append(_text_hits(list(zip(near, items, text_items, strict=True)), self.code_bits, proven))
        return answers

    def _nearest_texts(
        self, queries: Queries, k: int, radius: int | None, condition: str
    ) -> list[tuple[list[tuple[int, str, int]], bool]]:
        """For each query, (distance, item, number) of the nearest text of each of the k nearest items, and whether that
        is proven. Each such text is among the k nearest of the texts with its number, since any nearer ones there
        belong to other items, which are nearer."""
        best: list[dict[str, tuple[int, int]]] = [{} for _ in range(len(queries))]
        proven = [True] * len(queries)
        for number in range(MAX_TEXTS):
            numbered = f'id like "{_text_name("", number)}%"'
            both = f"({condition}) and {numbered}" if condition else numbered
            nearest = self._nearest_ids(queries, k, radius, both)
            if radius is None and not any(names.near for names in nearest):  # without a second text there is no third
                break
            for q, names in enumerate(nearest):
                proven[q] &= names.proven
                for distance, name in names.near:
                    item_id = _item_of(name)
                    best[q][item_id] = min(best[q].get(item_id, (distance, number)), (distance, number))
        ranked = [sorted((distance, item_id, n) for item_id, (distance, n) in items.items())[:k] for items in best]
        return list(zip(ranked, proven, strict=True))

    def _texts_collection(self, create: bool = False) -> Self | None:
        """The collection of texts, which is created when the first are put there; None where there is none."""
        if self.texts is None:
            texts = copy(self)
            texts.name, texts.where, texts.probes = f"{self.name}_texts", f"{self.where}_texts", None
            texts.exact = True
            exists = texts._call(self.client.has_collection, texts.name, timeout=CONNECT_SECONDS)
            if not exists and not create:
                return None
            if not exists:
                texts._create_collection(TEXTS_FORMAT, 1, None)
            elif texts._describe()["description"] != TEXTS_FORMAT:  # an index with that name
                if not create:
                    return None
                raise DataError(f"{texts.where}: an index, where the texts of this one would be: use another name")
            texts._call(self.client.load_collection, texts.name, timeout=CALL_SECONDS)
            self.texts = texts
        return self.texts

    def _delete_texts(self, ids: Sequence[str]) -> None:
        texts = self._texts_collection()
        if texts is not None:
            texts._delete([_text_name(item_id, number) for item_id in ids for number in range(MAX_TEXTS)])

    def list_ids(self, after: str, limit: int) -> list[str]:
        ids: list[str] = []
        while len(ids) < limit:  # Milvus gives the smallest ids first
            wanted = min(limit - len(ids), MAX_RESULTS)
            page = self._query(f"id > {quoted(ids[-1] if ids else after)}", ["id"], wanted)
            ids += sorted(row["id"] for row in page)
            if len(page) < wanted:
                break
        return ids

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        """Milvus does not aggregate: all items that have labels are fetched, page by page. Where there are more than
        MAX_LABELS different labels, the rarest so far are dropped on the way, and their counts may be too small."""
        counts: Counter[str] = Counter()
        for page in self._all_metadata(LABELLED):
            for entry in page:
                labels = entry["labels"]
                counts.update(set(labels) if isinstance(labels, list) else ())
            if len(counts) > MAX_LABELS:
                counts = Counter(dict(counts.most_common(MAX_LABELS // 2)))
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def photo_groups(self) -> list[PhotoGroup]:
        groups = Counter(photo_group_of(entry) for page in self._all_metadata(PHOTOS) for entry in page)
        return [group._replace(items=items) for group, items in groups.items()]

    def _all_metadata(self, condition: str) -> Iterator[list[Metadata]]:
        """The metadata of all items for which a condition is true, page by page: Milvus does not aggregate."""
        last = ""
        while page := self._query(f"{condition} and id > {quoted(last)}", ["id", FIELD], COUNTED_ROWS):
            yield [decode_metadata(row[FIELD]) for row in page]
            last = max(row["id"] for row in page)

    def notes(self) -> dict[str, str]:
        properties: dict[str, str] = self._describe()["properties"]
        return {key.removeprefix(NOTE): value for key, value in properties.items() if key.startswith(NOTE)}

    def note(self, key: str, value: str) -> None:
        self._call(self.client.alter_collection_properties, self.name, {NOTE + key: value}, timeout=CONNECT_SECONDS)

    def stats(self) -> Stats:
        (row,) = self._query("", ["count(*)"], None)
        shards = int(self._describe()["num_shards"])
        return Stats("milvus", int(row["count(*)"]), self.code_bits, 0, {"address": self.where, "shards": shards})

    def compact(self) -> None:
        """Seal the segments with what was written, which Milvus then indexes, and merge the small ones."""
        texts = self._texts_collection()
        for name in [self.name] if texts is None else [self.name, texts.name]:
            self._call(self.client.flush, name, timeout=CALL_SECONDS)
            self._call(self.client.compact, name, timeout=CALL_SECONDS)

    def close(self) -> None:
        self.client.close()

    def _describe(self) -> dict[str, Any]:
        return self._call(self.client.describe_collection, self.name, timeout=CONNECT_SECONDS)

    def _query(self, condition: str, fields: list[str], limit: int | None) -> list[dict[str, Any]]:
        options = {} if limit is None else {"limit": limit}
        return list(
            self._call(
                self.client.query,
                self.name,
                filter=condition,
                output_fields=fields,
                consistency_level="Strong",
                timeout=CALL_SECONDS,
                **options,
            )
        )

    def _rows(self, ids: Sequence[str], fields: list[str]) -> Iterator[dict[str, Any]]:
        step = REQUEST_ROWS if fields else REQUEST_IDS
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            yield from self._query(_id_in(part), ["id", *fields], len(part))

    def _check_new(self, ids: Sequence[str]) -> None:
        existing = [row["id"] for row in self._rows(ids, [])]
        if existing:
            raise DuplicateId(
                f"{self.where}: id {min(existing)!r} exists already: nothing was added; use upsert to replace"
            )

    def _delete(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), REQUEST_IDS):
            condition = _id_in(ids[start : start + REQUEST_IDS])
            self._call(self.client.delete, self.name, filter=condition, timeout=CALL_SECONDS)

    def _call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        try:
            return function(*arguments, **options)
        except (MilvusException, RpcError) as error:
            raise KenthashError(f"{self.where}: Milvus: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(getattr(error, "message", error)).split())[:300]


def _id_in(ids: Sequence[str]) -> str:
    return f"id in [{', '.join(map(quoted, ids))}]"


def _text_name(item: str, number: int) -> str:
    """The key of a text: keys with the same number are in the order of their items."""
    return f"{number}/{item}"


def _item_of(text_name: str) -> str:
    return text_name.partition("/")[2]


def _text_hits(near: list[tuple[tuple[int, str, int], Item | None, Item | None]], bits: int, proven: bool) -> Hits:
    """The hits among the nearest texts, without those whose items were removed or changed meanwhile."""
    current = [
        (distance, item, text.code, texts_of(item.metadata)[number])
        for (distance, _, number), item, text in near
        if item is not None and text is not None and item.metadata == text.metadata
    ]
    codes = np.array([code for _, _, code, _ in current], np.uint8).reshape(-1, bits // 8)
    distances = np.array([distance for distance, _, _, _ in current], np.int64)
    ids, metadata = [item.id for _, item, _, _ in current], [item.metadata for _, item, _, _ in current]
    return Hits(ids, distances, metadata, codes, None, [text for *_, text in current], proven)


def _hits(best: Best, metadata: dict[str, Metadata], bits: int) -> Hits:
    near = [(distance, item_id) for distance, item_id in best.near if item_id in metadata]
    ids = [item_id for _, item_id in near]
    codes = None
    if best.codes is not None:
        codes = np.array([best.codes[item_id] for item_id in ids], np.uint8).reshape(-1, bits // 8)
    distances = np.array([distance for distance, _ in near], np.int64)
    return Hits(ids, distances, [metadata[item_id] for item_id in ids], codes, proven=best.proven)
