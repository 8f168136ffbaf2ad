"""The index on Milvus, for what one machine does not hold: `milvus://host:port/name`.

**Exact.** A BIN_FLAT index compares every code. Milvus answers with the k nearest but takes any of those that tie at
the last distance; `ties.settle` asks on until the ones with the smallest ids are known. With `lists` (BIN_IVF_FLAT)
only the nearest lists are compared: faster on many millions, and approximate.

**Consistent.** Every read is made at Milvus's "Strong" level: it waits until all that was acknowledged before it, by
whichever client, can be seen; so you read what you, or anyone, wrote. The price is the wait for one time tick of
the server (0.2 s by default) when writes are under way. Milvus has no unique keys and no transactions: `add` looks for
the ids first, so two writers that add one id in the same instant are not told of it; let one process write.

**Texts.** Their codes stand in a second collection, `name_texts`, with the metadata of their items for filters. They
are deleted before an item changes, and count only while its metadata are the same.

**Limits.** Milvus gives at most 16,384 results to a query and keeps at most 65,536 bytes of JSON an item.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from copy import copy
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.search.engine import MAX_TEXTS, Hits, Item, Metadata, NoSuchIndex, Stats, texts_of
from kenthash.search.filters import Filter
from kenthash.search.milvus_filter import expression
from kenthash.search.milvus_rows import FIELD, item, quoted, requests, restored
from kenthash.search.targets import milvus_target
from kenthash.search.ties import Near, settle

try:
    from grpc import RpcError
    from pymilvus import DataType, MilvusClient
    from pymilvus.exceptions import MilvusException
except ImportError as error:
    raise KenthashError("an index on Milvus needs its client: pip install pymilvus") from error

FORMAT, TEXTS_FORMAT = "kenthash index, format 1", "kenthash texts, format 1"
NOTE = "kenthash.note."
CONNECT_SECONDS, CALL_SECONDS = 5.0, 60.0
MAX_TOP = 16_384  # results of one query in one request
REQUEST_HITS = 200_000  # of one search
REQUEST_IDS = 4096  # asked for or deleted at once: at most 24 MB of text
REQUEST_ROWS = 500  # looked up with their metadata: at most 32 MB
LABEL_ROWS = 2000  # whose labels are counted at once: at most 128 MB, as a rule 1
MAX_LABELS = 1_000_000  # told apart

LABELLED = f'(exists {FIELD}["m"]["labels"])'

T = TypeVar("T")


class MilvusEngine:
    def __init__(self, target: str) -> None:
        """Connect. `bits` is known after `create` or `open`."""
        self.bits = 0
        place = milvus_target(target)
        self.where, self.name = place.shown, place.name
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL + 1)  # it logs a trace for what is raised as well
        try:
            self.client = MilvusClient(uri=place.address, token=place.token, timeout=CONNECT_SECONDS)
        except (MilvusException, RpcError) as error:
            raise KenthashError(f"{self.where}: Milvus does not answer there: {_line(error)}") from error
        self.probes: int | None = None
        self.texts: Self | None = None

    @classmethod
    def create(cls, target: str, bits: int, shards: int = 1, lists: int | None = None) -> Self:
        """A new collection of `shards` write channels; `lists` makes its search approximate (BIN_IVF_FLAT)."""
        engine = cls(target)
        with ExitStack() as undo:
            undo.callback(engine.close)
            engine._create(bits, shards, lists)
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

    def _create(self, bits: int, shards: int, lists: int | None) -> None:
        if self._call(self.client.has_collection, self.name, timeout=CONNECT_SECONDS):
            raise UsageError(f"{self.where}: exists already: open it, or choose another name")
        self.bits = bits
        self._create_collection(FORMAT, shards, lists)

    def _create_collection(self, format: str, shards: int, lists: int | None) -> None:
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False, description=format)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=4096 + len(_text_name("", 0)))
        schema.add_field("code", DataType.BINARY_VECTOR, dim=self.bits)
        schema.add_field(FIELD, DataType.JSON)
        index = self.client.prepare_index_params()
        kind, params = ("BIN_IVF_FLAT", {"nlist": lists}) if lists else ("BIN_FLAT", {})
        index.add_index("code", index_type=kind, metric_type="HAMMING", params=params)
        options = {"num_shards": shards, "consistency_level": "Strong", "timeout": CALL_SECONDS}
        self._call(self.client.create_collection, self.name, schema=schema, index_params=index, **options)

    def _open(self, probes: int | None) -> None:
        if not self._call(self.client.has_collection, self.name, timeout=CONNECT_SECONDS):
            raise NoSuchIndex(f"{self.where}: there is no such index: create it first")
        found = self._describe()
        if found["description"] != FORMAT:
            raise DataError(f"{self.where}: a collection that kenthash did not make: choose another name")
        self.bits = next(int(field["params"]["dim"]) for field in found["fields"] if field["name"] == "code")
        self.probes = probes
        self._call(self.client.load_collection, self.name, timeout=CALL_SECONDS)

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        known = [row["id"] for row in self._rows(ids, [])]
        if known:
            raise DataError(f"{self.where}: id {min(known)!r} exists already: nothing was added; use upsert to replace")
        sent: list[str] = []
        try:
            for rows in requests(self.where, ids, codes, metadata):
                sent += [row["id"] for row in rows]
                self._call(self.client.insert, self.name, rows, timeout=CALL_SECONDS)
        except KenthashError:
            with suppress(KenthashError):
                self._delete(sent)
            raise

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        self._delete_texts(ids)
        self._upsert(ids, codes, metadata)

    def _upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> None:
        for rows in requests(self.where, ids, codes, metadata):
            self._call(self.client.upsert, self.name, rows, timeout=CALL_SECONDS)

    def remove(self, ids: Sequence[str]) -> int:
        known = [row["id"] for row in self._rows(ids, [])]
        self._delete_texts(known)
        self._delete(known)
        return len(known)

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        rows = {row["id"]: row for row in self._rows(ids, ["code", FIELD])}
        return [item(rows[one]) if one in rows else None for one in ids]

    def search(self, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        condition = expression(filter) if filter else ""
        width = min(MAX_TOP, 2 * k + 64)
        step = max(1, REQUEST_HITS // width)
        found: list[Near] = []
        for start in range(0, len(codes), step):
            batch = codes[start : start + step]
            for code, top in zip(batch, self._top(batch, width, condition), strict=True):
                near = settle(top, k, width, partial(self._top_below, code, width, condition))
                found.append([hit for hit in near if radius is None or hit[0] <= radius])
        # Metadata come last, for the hits alone. Whatever was removed in between is left out.
        rows = self._rows(sorted({one for near in found for _, one in near}), [FIELD])
        metadata = {row["id"]: restored(row[FIELD]) for row in rows}
        return [_hits([hit for hit in near if hit[1] in metadata], metadata) for near in found]

    def _top_below(self, code: Codes, width: int, condition: str, last: str) -> Near:
        below = f"id < {quoted(last)}"
        return self._top(code[None], width, f"({condition}) and {below}" if condition else below)[0]

    def _top(self, codes: Codes, width: int, condition: str) -> list[Near]:
        """(distance, id) of the nearest `width` to each code, ties as Milvus happens to choose."""
        params = {"nprobe": self.probes} if self.probes else {}
        found = self._call(
            self.client.search,
            self.name,
            data=[code.tobytes() for code in codes],
            limit=width,
            filter=condition,
            search_params={"metric_type": "HAMMING", "params": params},
            consistency_level="Strong",
            timeout=CALL_SECONDS,
        )
        return [[(int(hit["distance"]), hit["id"]) for hit in hits] for hits in found]

    def put_texts(self, ids: Sequence[str], metadata: Sequence[Metadata], codes: Sequence[Codes]) -> None:
        texts = self._texts(make=True)
        assert texts is not None
        same = [i for i, item in enumerate(self.get(ids)) if item is not None and item.metadata == metadata[i]]
        self._delete_texts([ids[i] for i in same])
        owners = [(i, number) for i in same for number in range(len(codes[i]))]
        if owners:
            names = [_text_name(ids[i], number) for i, number in owners]
            texts._upsert(names, np.concatenate([codes[i] for i in same]), [metadata[i] for i, _ in owners])

    def count_texts(self, ids: Sequence[str]) -> list[int]:
        texts = self._texts()
        rows = texts._rows([_text_name(item_id, n) for item_id in ids for n in range(MAX_TEXTS)], []) if texts else ()
        counts = Counter(_item_of(row["id"]) for row in rows)
        return [counts[item_id] for item_id in ids]

    def search_texts(self, codes: Codes, k: int, radius: int | None, filter: Filter | None) -> list[Hits]:
        texts = self._texts()
        if texts is None:
            return [_text_hits([], self.bits) for _ in codes]
        found = []
        for code in codes:
            near = self._nearest_texts(texts, code, k, expression(filter) if filter else "")
            near = [hit for hit in near if radius is None or hit[0] <= radius]
            items = self.get([item_id for _, item_id, _ in near])
            held = texts.get([_text_name(item_id, number) for _, item_id, number in near])
            found.append(_text_hits(list(zip(near, items, held, strict=True)), self.bits))
        return found

    def _nearest_texts(self, texts: Self, code: Codes, k: int, condition: str) -> list[tuple[int, str, int]]:
        """(distance, item, number) of the nearest text of each of the k nearest items. Each is among the k nearest of
        the texts with its number: whatever is nearer there belongs to other items, which are nearer, too."""
        width = min(MAX_TOP, 2 * k + 64)
        best: dict[str, tuple[int, int]] = {}
        for number in range(MAX_TEXTS):
            numbered = f'id like "{_text_name("", number)}%"'
            wanted = f"({condition}) and {numbered}" if condition else numbered
            top = texts._top(code[None], width, wanted)[0]
            if not top:  # who has no second text has no third
                break
            for distance, name in settle(top, k, width, partial(texts._top_below, code, width, wanted)):
                item_id = _item_of(name)
                best[item_id] = min(best.get(item_id, (distance, number)), (distance, number))
        return sorted((distance, item_id, number) for item_id, (distance, number) in best.items())[:k]

    def _texts(self, make: bool = False) -> Self | None:
        """The collection of texts, which is made when the first are put there; None where there is none."""
        if self.texts is None:
            texts = copy(self)
            texts.name, texts.where, texts.probes = f"{self.name}_texts", f"{self.where}_texts", None
            there = texts._call(self.client.has_collection, texts.name, timeout=CONNECT_SECONDS)
            if not there and not make:
                return None
            if not there:
                texts._create_collection(TEXTS_FORMAT, 1, None)
            elif texts._describe()["description"] != TEXTS_FORMAT:  # an index that happens to be called so
                if not make:
                    return None
                raise DataError(f"{texts.where}: an index, where the texts of this one would be: use another name")
            texts._call(self.client.load_collection, texts.name, timeout=CALL_SECONDS)
            self.texts = texts
        return self.texts

    def _delete_texts(self, ids: Sequence[str]) -> None:
        texts = self._texts()
        if texts is not None:
            texts._delete([_text_name(item_id, number) for item_id in ids for number in range(MAX_TEXTS)])

    def list_ids(self, after: str, limit: int) -> list[str]:
        ids: list[str] = []
        while len(ids) < limit:  # a page of Milvus's comes in the order of the ids
            wanted = min(limit - len(ids), MAX_TOP)
            page = self._query(f"id > {quoted(ids[-1] if ids else after)}", ["id"], wanted)
            ids += sorted(row["id"] for row in page)
            if len(page) < wanted:
                break
        return ids

    def label_counts(self, limit: int) -> list[tuple[str, int]]:
        """Milvus does not aggregate: all items that have labels are fetched, a page at a time. Of more than MAX_LABELS
        different labels the rarest are forgotten on the way, and may be counted short."""
        counts: Counter[str] = Counter()
        last = ""
        while page := self._query(f"{LABELLED} and id > {quoted(last)}", ["id", FIELD], LABEL_ROWS):
            for row in page:
                labels = restored(row[FIELD])["labels"]
                counts.update(set(labels) if isinstance(labels, list) else ())
            if len(counts) > MAX_LABELS:
                counts = Counter(dict(counts.most_common(MAX_LABELS // 2)))
            last = max(row["id"] for row in page)
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def notes(self) -> dict[str, str]:
        properties: dict[str, str] = self._describe()["properties"]
        return {key.removeprefix(NOTE): value for key, value in properties.items() if key.startswith(NOTE)}

    def note(self, key: str, value: str) -> None:
        self._call(self.client.alter_collection_properties, self.name, {NOTE + key: value}, timeout=CONNECT_SECONDS)

    def stats(self) -> Stats:
        (row,) = self._query("", ["count(*)"], None)
        shards = int(self._describe()["num_shards"])
        return Stats("milvus", int(row["count(*)"]), self.bits, 0, {"address": self.where, "shards": shards})

    def compact(self) -> None:
        """Seal what has been written into segments, which Milvus then indexes, and merge the small ones."""
        texts = self._texts()
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
            few = ids[start : start + step]
            yield from self._query(_among(few), ["id", *fields], len(few))

    def _delete(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), REQUEST_IDS):
            condition = _among(ids[start : start + REQUEST_IDS])
            self._call(self.client.delete, self.name, filter=condition, timeout=CALL_SECONDS)

    def _call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        try:
            return function(*arguments, **options)
        except (MilvusException, RpcError) as error:
            raise KenthashError(f"{self.where}: Milvus: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(getattr(error, "message", error)).split())[:300]


def _among(ids: Sequence[str]) -> str:
    return f"id in [{', '.join(map(quoted, ids))}]"


def _text_name(item: str, number: int) -> str:
    """The key of a text: those with one number stand together, in the order of their items."""
    return f"{number}/{item}"


def _item_of(text_name: str) -> str:
    return text_name.partition("/")[2]


def _text_hits(found: list[tuple[tuple[int, str, int], Item | None, Item | None]], bits: int) -> Hits:
    """Of the nearest texts those whose items are still there and as they were."""
    kept = [
        (distance, item, text.code, texts_of(item.metadata)[number])
        for (distance, _, number), item, text in found
        if item is not None and text is not None and item.metadata == text.metadata
    ]
    codes = np.array([code for _, _, code, _ in kept], np.uint8).reshape(-1, bits // 8)
    distances = np.array([distance for distance, _, _, _ in kept], np.int64)
    metadata = [item.metadata for _, item, _, _ in kept]
    return Hits([item.id for _, item, _, _ in kept], distances, metadata, codes, None, [text for *_, text in kept])


def _hits(near: Near, metadata: dict[str, Metadata]) -> Hits:
    ids = [one for _, one in near]
    return Hits(ids, np.array([distance for distance, _ in near], np.int64), [metadata[one] for one in ids])
