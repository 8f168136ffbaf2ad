"""The index that users hold: items found by the Hamming distance of their codes, on any engine.

    from kenthash import Index
    with Index.create("pictures.kh", bits=64) as index:
        index.add(ids, codes, metadata)
        hits = index.search(hasher.encode_texts(["two dogs and a kite"]), k=10, filter="place = 'beach'")

A target is the path of a file (the local engine), `milvus://host:19530/name` or `postgresql://...`. All arguments are
checked here, once, so that engines need not check them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, check_bits
from kenthash.errors import DataError, DuplicateId, UsageError
from kenthash.search.engine import Engine, Hits, IndexExists, Item, Metadata, NoSuchIndex, Stats, Value, coded_texts
from kenthash.search.filters import UNENCODABLE, Filter, parse
from kenthash.search.metadata import CONTROL, MAX_ID, JsonMetadata, check_id, check_metadata
from kenthash.search.photo_counts import PhotoCounts, summarise
from kenthash.search.queries import Queries, real_valued
from kenthash.search.servers.addresses import without_password

if TYPE_CHECKING:
    from kenthash.search.folders.folder import FolderHasher, IndexingReport

Outputs = NDArray[np.floating[Any]]  # [n, bits]

MAX_K = 10_000
MAX_LIST = 1 << 31  # ids of one list
TEXTS = "texts"  # a note: whether the codes of texts are "begun" or "complete"
NO_TEXTS = "this index has no texts: run `kenthash index add FOLDER --texts`"


class Index:
    """Items by id, each with a code and metadata, on the engine that the target names.

    Example:

        >>> from tempfile import TemporaryDirectory
        >>> codes = np.uint8([[0b1111], [0b0111], [0b0000]])
        >>> with TemporaryDirectory() as folder, Index.create(f"{folder}/pictures.kh", bits=8) as index:
        ...     index.add(["a.jpg", "b.jpg", "c.jpg"], codes, [{"year": 2019}, {"year": 2021}, {"year": 2022}])
        ...     (hits,) = index.search(codes[:1], k=2)
        ...     (late,) = index.search(codes[:1], k=2, filter="year > 2020")
        >>> hits.ids, hits.distances.tolist()
        (['a.jpg', 'b.jpg'], [0, 1])
        >>> late.ids, late.metadata
        (['b.jpg', 'c.jpg'], [{'year': 2021}, {'year': 2022}])

    It is a collection of items by id: `len(index)`, `"a.jpg" in index`, `index["a.jpg"]`, `for id in index`.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._closed = False

    @classmethod
    def create(cls, target: str | Path, bits: int, rerank_bits: int | None = None, **options: Any) -> Self:
        """Create an empty index; it is an error if it exists already.

        With `rerank_bits` it takes nested codes of as many bits: a search finds candidates by the first `bits`, and
        ranks them by all (see `snapshot`); up to 100,000 items in a file are all ranked. Memory and tables are those
        of an index of `bits`, beyond so many items.
        """
        code_bits = check_bits(bits) if rerank_bits is None else check_bits(rerank_bits)
        if code_bits < bits:
            raise UsageError(f"rerank_bits {code_bits}: must be more than the first {bits} bits")
        return cls(_engine_class(str(target)).create(str(target), bits, code_bits, **options))

    @classmethod
    def open(cls, target: str | Path, **options: Any) -> Self:
        return cls(_engine_class(str(target)).open(str(target), **options))

    @classmethod
    def open_or_create(cls, target: str | Path, bits: int, rerank_bits: int | None = None) -> Self:
        """Open an index of codes of this length, or create it where there is none yet."""
        try:
            index = cls.open(target)
        except NoSuchIndex:
            try:
                return cls.create(target, bits, rerank_bits)
            except IndexExists:  # another process has created it meanwhile
                index = cls.open(target)
        if index.code_bits != (rerank_bits or bits):
            actual = index.code_bits
            index.close()
            where = without_password(str(target))
            raise UsageError(f"{where}: holds codes of {actual} bits, not {rerank_bits or bits}")
        return index

    @property
    def bits(self) -> int:
        """The bits that are in memory, by which items are found: all, or the first of an index with two stages."""
        return self.engine.bits

    @property
    def code_bits(self) -> int:
        """The bits of the codes that the index takes."""
        return self.engine.code_bits

    def add(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Mapping[str, Value]] | None = None) -> None:
        """Add items. When this returns they are on disk; an id that exists is an error, and nothing is added."""
        self._open_engine().add(*self._checked_items(ids, codes, metadata))

    def upsert(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Mapping[str, Value]] | None = None) -> None:
        """Add items, replacing those whose id exists. New and changed texts have no codes until `add_texts`."""
        self._open_engine().upsert(*self._checked_items(ids, codes, metadata))

    def add_folder(
        self, folder: Path | str, hasher: "FolderHasher", texts: bool = False, exclude: Sequence[str] | None = None
    ) -> "IndexingReport":
        """Add the pictures of a folder, or update them, as `kenthash index add` does: new and changed ones are encoded
        by `hasher` (a `Hasher`), removed ones dropped. `texts` also makes codes of the items' texts; `exclude` has
        patterns of files to leave out. An index takes the codes of one model only."""
        from kenthash.search.folders.folder import add_content
        from kenthash.search.folders.walk import walk_folder

        return add_content(self, walk_folder(Path(folder)), hasher, texts, exclude)

    def import_items(
        self, ids: Sequence[str], codes: Codes, metadata: Sequence[Mapping[str, Value]], staging: str
    ) -> None:
        """As `add`, by Milvus's bulk import: the items are written to a file in `staging`, a folder or an address of
        the object storage that the server reads."""
        engine = self._open_engine()
        if not hasattr(engine, "import_items"):
            raise UsageError("only Milvus imports files: use `add`")
        engine.import_items(*self._checked_items(ids, codes, metadata), staging)

    def remove(self, ids: Sequence[str]) -> int:
        """Remove items and return the number removed; unknown ids are ignored."""
        return self._open_engine().remove(_checked_ids(ids))

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        return self._open_engine().get(_checked_ids(ids))

    def search(
        self, queries: Codes | Outputs, k: int = 10, radius: int | None = None, filter: Filter | str | None = None
    ) -> list[Hits]:
        """The k nearest items of each query: by ascending distance, then by id.

        Queries are codes [Q, code_bits / 8], compared by Hamming distance; or real-valued outputs [Q, code_bits], such
        as `Hasher.query_texts` gives, which weigh the bits (see `queries`) and rank better. One query may be given
        without its first dimension; the answer is a list also then. `Hits.proven` says whether an answer is certainly
        exact: on a local index of one stage it always is.

        `radius` leaves out items that differ in more bits; `filter` (see `filters`), those for which it is not true.
        """
        checked = self._checked_queries(queries, k, radius)
        hits = self._open_engine().search(checked, k, radius, parse(filter) if isinstance(filter, str) else filter)
        return _completed(checked, hits)

    def search_texts(
        self, queries: Codes | Outputs, k: int = 10, radius: int | None = None, filter: Filter | str | None = None
    ) -> list[Hits]:
        """The k items with the nearest texts; `Hits.texts` has the nearest text of each item. The codes of texts are
        made by `kenthash.search.add_texts`. Queries, answers and their order are as in `search`."""
        checked = self._checked_queries(queries, k, radius)
        if not self.has_texts():
            raise UsageError(NO_TEXTS)
        condition = parse(filter) if isinstance(filter, str) else filter
        return _completed(checked, self._open_engine().search_texts(checked, k, radius, condition))

    def has_texts(self) -> bool:
        """Whether items can be found by their texts."""
        return self.notes().get(TEXTS) == "complete"

    def keeps_texts(self) -> bool:
        """Whether those who add items should make the codes of their texts."""
        return TEXTS in self.notes()

    def put_texts(self, items: Sequence[Item], codes: Sequence[Codes]) -> None:
        """Set the codes of the items' texts: for each item one row per text, in the order of `coded_texts`. Items that
        have changed since they were read are skipped."""
        for item, rows in zip(items, codes, strict=True):
            self._check_codes(rows)
            if len(rows) != len(coded_texts(item.metadata)):
                raise UsageError(f"{len(rows)} codes for the {len(coded_texts(item.metadata))} texts of {item.id!r}")
        self._open_engine().put_texts([item.id for item in items], [item.metadata for item in items], codes)

    def count_texts(self, ids: Sequence[str]) -> list[int]:
        """For each item, the number of its texts that have codes."""
        return self._open_engine().count_texts(_checked_ids(ids))

    def update_words(self, most: int | None = None) -> None:
        """Make the words of new items known (see `local.fulltext`), where the engine has words. With `most`, only where
        this index has words already, and no more new items than that."""
        if hasattr(engine := self._open_engine(), "update_words"):
            engine.update_words(most)

    def match_words(self, text: str, limit: int = 1000) -> list[str]:
        """Up to `limit` ids of items that have all words of a text; none where the engine has no words."""
        engine = self._open_engine()
        return list(engine.match_words(text, limit)) if hasattr(engine, "match_words") else []

    def list_ids(self, after: str = "", limit: int = 1000) -> list[str]:
        """Up to `limit` ids that come after `after`, in plain string order."""
        if not 1 <= limit <= MAX_LIST:
            raise UsageError(f"limit {limit}: must be from 1 to {MAX_LIST:,}")
        (start,) = _checked_ids(after)
        return self._open_engine().list_ids(start, limit)

    def label_counts(self, limit: int = 100) -> list[tuple[str, int]]:
        """The most frequent labels, each with the number of items that have it in their list `labels`."""
        if not 1 <= limit <= MAX_K:
            raise UsageError(f"limit {limit}: must be from 1 to {MAX_K:,}")
        return self._open_engine().label_counts(limit)

    def photo_counts(self, limit: int = 100) -> PhotoCounts:
        """In which months, by which cameras and at which places the items were taken, with their numbers: by the keys
        `taken`, `camera`, `latitude` and `longitude` of metadata. `limit` is for cameras and places."""
        return summarise(self._open_engine().photo_groups(), limit)

    def notes(self) -> dict[str, str]:
        return self._open_engine().notes()

    def note(self, key: str, value: str) -> None:
        if UNENCODABLE.search(key + value):
            raise DataError(f"note {key!r}: {value[:60]!r} holds half a character or a zero byte, which cannot be kept")
        self._open_engine().note(key, value)

    def stats(self) -> Stats:
        return self._open_engine().stats()

    def compact(self) -> None:
        """Prepare the index for fast search: a local one writes sorted codes and the tables of multi-index hashing."""
        self._open_engine().compact()

    def close(self) -> None:
        self._closed = True
        self.engine.close()

    def __len__(self) -> int:
        return self.stats().items

    def __bool__(self) -> bool:
        """An index is something also where it is empty: `if index` asks whether there is one."""
        return True

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.get([id])[0] is not None

    def __getitem__(self, id: str) -> Item:
        (item,) = self.get([id])
        if item is None:
            raise KeyError(id)
        return item

    def __iter__(self) -> Iterator[str]:
        """The ids in plain string order, read in pages: items that are added meanwhile may be among them."""
        after = ""
        while page := self.list_ids(after):
            yield from page
            after = page[-1]

    def __repr__(self) -> str:
        if self._closed:
            return f"<Index {self.engine.where}, closed>"
        stages = "" if self.bits == self.code_bits else f", found by the first {self.bits}"
        return f"<Index {self.engine.where}: {len(self):,} items, {self.code_bits} bits{stages}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_engine(self) -> Engine:
        if self._closed:
            raise UsageError("the index is closed: open it again")
        return self.engine

    def _checked_queries(self, queries: NDArray[Any], k: int, radius: int | None) -> Queries:
        if not 1 <= k <= MAX_K:
            raise UsageError(f"k = {k}: must be from 1 to {MAX_K:,}")
        if radius is not None and not 0 <= radius <= self.code_bits:
            raise UsageError(f"radius {radius}: must be from 0 to the {self.code_bits} bits of the index")
        if isinstance(queries, np.ndarray) and queries.ndim == 1:
            queries = queries[None]
        if not isinstance(queries, np.ndarray) or queries.dtype.kind != "f":
            self._check_codes(queries)
            return Queries(np.ascontiguousarray(queries))
        if queries.ndim != 2 or queries.shape[1] != self.code_bits:
            raise UsageError(f"outputs of shape {queries.shape}: this index takes [n, {self.code_bits}]")
        if not np.isfinite(queries).all():
            raise UsageError("outputs that hold NaN or infinity cannot be compared with codes")
        return real_valued(queries)

    def _check_codes(self, codes: Codes) -> None:
        if not isinstance(codes, np.ndarray) or codes.dtype != np.uint8:
            raise UsageError(f"codes must be a uint8 array, not {getattr(codes, 'dtype', type(codes).__name__)}")
        if codes.ndim != 2 or codes.shape[1] * 8 != self.code_bits:
            raise UsageError(
                f"codes of shape {codes.shape}: this index of {self.code_bits} bits takes [n, {self.code_bits // 8}]"
            )

    def _checked_items(
        self, ids: Sequence[str], codes: Codes, metadata: Sequence[Mapping[str, Value]] | None
    ) -> tuple[list[str], Codes, Sequence[Metadata]]:
        self._check_codes(codes)
        names = _checked_ids(ids)
        entries: Sequence[Metadata] = [{}] * len(names)
        if metadata is not None:
            entries = metadata if isinstance(metadata, JsonMetadata) else cast(list[Metadata], list(metadata))
        if not len(names) == len(codes) == len(entries):
            raise UsageError(
                f"{len(names)} ids, {len(codes)} codes and {len(entries)} metadata: give the same number of each"
            )
        lengths = list(map(len, names))
        if names and not (min(lengths) > 0 and max(lengths) <= MAX_ID and not CONTROL.search("".join(names))):
            for name in names:
                check_id(name)
        if len(set(names)) < len(names):
            duplicate = Counter(names).most_common(1)[0][0]
            raise DuplicateId(f"id {duplicate!r} is given twice: each item needs its own")
        if metadata is not None and not isinstance(metadata, JsonMetadata):  # which is checked already
            for name, entry in zip(names, entries, strict=True):
                check_metadata(name, entry)
        return names, np.ascontiguousarray(codes), entries


def _completed(queries: Queries, answers: list[Hits]) -> list[Hits]:
    """Answers with what follows from the queries."""
    completed = []
    for query, full, hits in zip(queries.codes, queries.full_distances.tolist(), answers, strict=True):
        differing = hits.distances
        if queries.weights is not None:
            assert hits.codes is not None
            differing = np.bitwise_count(hits.codes ^ query).sum(axis=1, dtype=np.int64)
        completed.append(replace(hits, differing=differing, full_distance=full))
    return completed


def _checked_ids(ids: Sequence[str]) -> list[str]:
    names = [ids] if isinstance(ids, str) else list(ids)
    for name in names:
        if not isinstance(name, str):
            raise UsageError(f"id {name!r}: ids are strings")
        if UNENCODABLE.search(name):
            raise DataError(f"id {name[:60]!r}: holds half a character or a zero byte, which no id can")
    return names


def _engine_class(target: str) -> Any:
    """The class of the engine for a target; imported when it is needed, since each needs its own client library."""
    scheme = target.partition("://")[0] if "://" in target else ""
    if scheme == "milvus":
        from kenthash.search.servers.milvus import MilvusEngine

        return MilvusEngine
    if scheme in ("postgresql", "postgres"):
        from kenthash.search.servers.postgres import PostgresEngine

        return PostgresEngine
    if scheme:
        raise UsageError(f"{without_password(target)}: an index is a file, milvus://host:port/name or postgresql://...")
    if not target:
        raise UsageError("an index without a name: give a file, milvus://host:port/name or postgresql://...")
    if Path(target).is_dir():
        raise UsageError(f"{target}: a folder: an index is a file, such as .kenthash.kh in a folder that was indexed")
    from kenthash.search.local.local_engine import LocalEngine

    return LocalEngine
