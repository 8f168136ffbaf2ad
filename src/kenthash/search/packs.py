"""The items of a feature pack in an index: codes of its vectors, so that no picture is encoded again.

Ids are the pack's; `text` or `texts` and `labels` become metadata, where the pack has them. Items are added or
replaced, never removed: an item does not tell from which pack it came.
"""

import numpy as np

from kenthash.codes import Codes
from kenthash.data.dataset import Dataset
from kenthash.errors import DataError
from kenthash.search.engine import Item, Metadata
from kenthash.search.folders.folder import IndexingReport
from kenthash.search.index import Index
from kenthash.search.metadata import check_id, check_metadata
from kenthash.search.models import PACKED, assign_version

BATCH = 1000  # items committed at a time


def add_pack(index: Index, dataset: Dataset, codes: Codes, version: str) -> IndexingReport:
    """Add the items of a pack with these codes. `version` is that of the picture pipeline by which the pack was made,
    "" where it does not tell."""
    assign_version(index, version or PACKED, "pack")
    report = IndexingReport()
    for start in range(0, len(dataset), BATCH):
        _add_batch(index, dataset, range(start, min(start + BATCH, len(dataset))), codes, report)
    return report


def _add_batch(index: Index, dataset: Dataset, rows: range, codes: Codes, report: IndexingReport) -> None:
    new: list[tuple[str, int, Metadata]] = []
    entries = [(dataset.ids[row], row, _metadata(dataset, row)) for row in rows]
    usable = [(name, row, metadata) for name, row, metadata in entries if _is_usable(name, metadata, report)]
    for (name, row, metadata), item in zip(usable, index.get([name for name, _, _ in usable]), strict=True):
        _check_owner(name, item)
        if item is not None and item.metadata == metadata and np.array_equal(item.code, codes[row]):
            report.unchanged += 1
            continue
        new.append((name, row, metadata))
        report.added += item is None
        report.changed += item is not None
    if new:
        index.upsert([name for name, _, _ in new], codes[[row for _, row, _ in new]], [entry for _, _, entry in new])


def _is_usable(name: str, metadata: Metadata, report: IndexingReport) -> bool:
    try:
        check_id(name)
        check_metadata(name, metadata)
    except DataError as error:
        report.skipped[name] = str(error)
        return False
    return True


def _metadata(dataset: Dataset, row: int) -> Metadata:
    texts = [text for text in dataset.texts[row] if text.strip()] if dataset.texts is not None else []
    metadata: Metadata = {"text": texts[0]} if len(texts) == 1 else {"texts": texts} if texts else {}
    if dataset.classes:
        metadata["labels"] = [dataset.classes[column] for column in dataset.labels[row].nonzero()[0].tolist()]
    return metadata


def _check_owner(name: str, item: Item | None) -> None:
    if item is not None and "path" in item.metadata:
        raise DataError(
            f"id {name!r} is taken by {item.metadata['path']}: use another index, or remove that item first"
        )
