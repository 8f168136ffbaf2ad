"""Milvus's bulk import: items are written to a Parquet file where the server reads files, and it makes segments of it.

This spares the way through proxy and log that inserted rows take. The place is the server's own storage: a folder, for
a server with `storageType: local`, or an address below its bucket (`s3://bucket/folder`), written by fsspec. A file is
imported as a whole or not at all, and removed afterwards.

Milvus has no unique keys, and an import goes on when the client is gone: so imports that are under way are awaited
first, and ids that exist refused, as by `add`.

The request is that of Milvus 2.2 and 2.3 (`do_bulk_insert`), which later servers keep; pymilvus drops it in 3.1.
"""

import json
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from kenthash.codes import Codes
from kenthash.errors import KenthashError
from kenthash.search.engine import Metadata
from kenthash.search.servers.milvus_requests import FIELD, check_size, encode_metadata
from kenthash.storage import is_address, remove_stored, write_stored

WAIT_SECONDS = 0.2  # between two looks at an import
MOST_SECONDS = 3600.0  # of one import


class BulkImport:
    """Imports into one collection. To be used as a context manager: its connection is its own."""

    def __init__(self, where: str, uri: str, token: str, collection: str) -> None:
        from pymilvus import connections, utility

        self.where, self.collection = where, collection
        self._alias = f"kenthash import {uuid.uuid4().hex}"
        self._utility, self._connections = utility, connections
        with _old_api():
            connections.connect(alias=self._alias, uri=uri, token=token)

    def close(self) -> None:
        with _old_api():
            self._connections.disconnect(self._alias)

    def wait_for_others(self) -> bool:
        """Wait until no import into the collection is under way. Whether there have been any."""
        until = time.monotonic() + MOST_SECONDS
        while any(map(self._is_under_way, tasks := self._tasks())):
            if time.monotonic() > until:
                raise KenthashError(
                    f"{self.where}: an import has been under way for {MOST_SECONDS:.0f} s: look at the server's log"
                )
            time.sleep(WAIT_SECONDS)
        return bool(tasks)

    def run(self, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata], staging: str) -> None:
        """Import items from a file that is written to `staging`."""
        address = f"{staging.rstrip('/')}/{self.collection}-{uuid.uuid4().hex}.parquet"
        if not is_address(address):
            address = str(Path(address).absolute())
        with written(address, self.where, ids, codes, metadata):
            # Of a bucket, the server knows the names below it.
            file = urlsplit(address).path.lstrip("/") if is_address(address) else address
            with _old_api():
                task = self._utility.do_bulk_insert(self.collection, [file], using=self._alias)
            self._await(task, len(ids))

    def _await(self, task: int, items: int) -> None:
        until = time.monotonic() + MOST_SECONDS
        while True:
            with _old_api():
                state = self._utility.get_bulk_insert_state(task, using=self._alias)
            if state.state_name == "Completed" and state.row_count == items:
                return
            if not self._is_under_way(state) or time.monotonic() > until:
                reason = " ".join(str(state.failed_reason or state.state_name).split())[:300]
                raise KenthashError(f"{self.where}: Milvus could not import {items:,} items: {reason}")
            time.sleep(WAIT_SECONDS)

    def _tasks(self) -> list[Any]:
        with _old_api():
            return list(self._utility.list_bulk_insert_tasks(collection_name=self.collection, using=self._alias))

    def _is_under_way(self, state: Any) -> bool:
        return state.state_name not in ("Completed", "Failed", "Failed and cleaned", "Unknown")


@contextmanager
def written(address: str, where: str, ids: Sequence[str], codes: Codes, metadata: Sequence[Metadata]) -> Iterator[None]:
    """The file to be imported, which is there for the time of the import."""
    import pyarrow
    from pyarrow import parquet

    texts = [json.dumps(encode_metadata(entry), ensure_ascii=False) for entry in metadata]
    for item, text in zip(ids, texts, strict=True):
        check_size(where, item, len(text.encode()))
    flat = pyarrow.array(codes.reshape(-1), pyarrow.uint8())
    offsets = pyarrow.array(range(0, codes.size + 1, codes.shape[1]), pyarrow.int32())
    table = pyarrow.table(
        {"id": list(ids), "code": pyarrow.ListArray.from_arrays(offsets, flat), FIELD: pyarrow.array(texts)}
    )
    stream: IO[bytes]
    with write_stored(address) as stream:
        parquet.write_table(table, stream)
    try:
        yield
    finally:
        with suppress(KenthashError):
            remove_stored(address)


@contextmanager
def _old_api() -> Iterator[None]:
    """Without pymilvus's warnings that this will go."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
