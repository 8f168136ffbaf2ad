"""The other direction: items found by the codes of their texts.

An index of pictures holds one code an item, the picture's. The codes of texts stand in a second index beside it,
`photos-texts.kh` for `photos.kh`, with one entry a text and the item's metadata, so that filters work the same. It is
brought up to date in the background; what is there is kept for the next start. Where nothing can be written beside the
index, or it is on a server, it is made anew in a temporary folder at each start.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kenthash.codes import Codes
from kenthash.errors import KenthashError
from kenthash.search import Hits, Index, Item
from kenthash.search.engine import Metadata, texts_of
from kenthash.search.filters import Filter
from kenthash.search.index import MAX_ID, MAX_K
from kenthash.service.encoding import Encoding

MAX_TEXTS = 5  # of an item: as many as COCO has captions
OF, MODEL = "texts of", "texts by"  # notes


class Found(NamedTuple):
    """An item near a query."""

    id: str
    distance: int
    metadata: Metadata
    code: bytes


def found(hits: Hits) -> list[Found]:
    if hits.codes is None:
        codes = [b""] * len(hits)
    else:
        packed, size = hits.codes.tobytes(), hits.codes.shape[1]
        codes = [packed[start : start + size] for start in range(0, len(packed), size)]
    return list(map(Found, hits.ids, hits.distances.tolist(), hits.metadata, codes))


class TextCodes:
    def __init__(self, index: Index, encoding: Encoding, target: str, model: str) -> None:
        self._main, self._encoding, self._target, self._model = index, encoding, target, model
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._index: Index | None = None
        self._seen = 0
        self.ready = False

    def begin(self) -> None:
        """A walk through all items begins; the last one may have failed halfway."""
        self._seen = 0

    def add(self, items: Sequence[Item]) -> None:
        """Encode the texts of these items, as far as they are new or have changed."""
        wanted: dict[str, Metadata] = {}
        for item in items:
            for number, text in enumerate(texts_of(item.metadata)[:MAX_TEXTS]):
                if len(item.id) < MAX_ID - 1:
                    wanted[f"{number} {item.id}"] = {**item.metadata, "text": text}
        self._seen += len(wanted)
        if not wanted or not self._encoding.able:
            return
        index = self._index or self._open()
        held = index.get(list(wanted))
        new = {
            name: entry
            for (name, entry), old in zip(wanted.items(), held, strict=True)
            if old is None or old.metadata != entry
        }
        if new:
            texts = [str(entry["text"]) for entry in new.values()]
            codes = self._encoding.batcher.encode_in_background(self._encoding.texts, texts)
            index.upsert(list(new), np.stack(codes), list(new.values()))

    def finish(self) -> None:
        """All items have been seen: drop what belongs to none of them any more."""
        if self._index is not None:
            if self._index.stats().items > self._seen:
                self._drop_orphans(self._index)
            self.ready = True

    def _drop_orphans(self, index: Index) -> None:
        after = ""
        while names := index.list_ids(after, 1000):
            items = self._main.get([name[2:] for name in names])
            gone = [
                name
                for name, item in zip(names, items, strict=True)
                if item is None or int(name[0]) >= len(texts_of(item.metadata))
            ]
            index.remove(gone)
            after = names[-1]

    def search(self, code: Codes, k: int, radius: int | None, where: Filter | None) -> tuple[list[Found], int | None]:
        """The k items with the nearest texts: each by the nearest of its own, which is then its text. A text whose item
        has gone, or has other texts by now, is not found, though its code may still be here."""
        assert self._index is not None and self.ready
        want, looked_at = k * MAX_TEXTS, 0
        while True:
            hits = self._index.search(code, min(want, MAX_K), radius, where)[0]
            looked_at += hits.looked_at or 0
            best: dict[str, Found] = {}
            for one in self._held(found(hits)):
                best.setdefault(one.id, one)
            if len(best) >= k or len(hits) < want:  # enough, or all there are
                return list(best.values())[:k], looked_at
            want *= 4

    def _held(self, entries: list[Found]) -> Iterator[Found]:
        """Those that are still texts of items, under the ids of the items."""
        names = list(dict.fromkeys(entry.id[2:] for entry in entries))
        items = dict(zip(names, self._main.get(names), strict=True))
        for entry in entries:
            item = items[entry.id[2:]]
            if item is not None and entry.metadata["text"] in texts_of(item.metadata)[:MAX_TEXTS]:
                yield entry._replace(id=item.id)

    def close(self) -> None:
        if self._index is not None:
            self._index.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _open(self) -> Index:
        bits = self._main.bits
        try:
            index = self._beside(bits)
        except (KenthashError, OSError):
            index = None
        if index is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="kenthash-texts-")
            index = Index.create(Path(self._temporary.name) / "texts.kh", bits)
        self._index = index
        return index

    def _beside(self, bits: int) -> Index | None:
        """The one beside the index, emptied where its codes are of another index or model; None where there can be
        none, or the name is taken by something else."""
        if "://" in self._target:
            return None
        main = Path(self._target).resolve()
        index = Index.open_or_create(main.with_name(f"{main.stem}-texts{main.suffix}"), bits)
        notes = index.notes()
        if OF not in notes and index.list_ids(limit=1):
            index.close()
            return None
        if (notes.get(OF), notes.get(MODEL)) != (str(main), self._model):
            while names := index.list_ids(limit=10_000):
                index.remove(names)
            index.note(OF, str(main))
            index.note(MODEL, self._model)
        return index
