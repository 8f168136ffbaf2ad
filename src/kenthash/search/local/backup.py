"""`kenthash index backup`: a copy of a local index in one file, made while others search and write.

SQLite copies all pages as of one moment, the beginning of the copy; writers go on in the write-ahead log. The copy is
checked, flushed to disk and renamed when it is complete. It is an index like any other: to restore it, copy it to where
the index was, of which nothing may be left (SQLite would apply an old log to the copy). The code files, which are
caches, are not copied; the first search makes them again.
"""

import os
import uuid
from contextlib import closing
from pathlib import Path

from kenthash.errors import KenthashError, UsageError
from kenthash.files import sync_folder
from kenthash.search.local.schema import damaged, delete_file, errors
from kenthash.search.local.sqlite import sqlite3
from kenthash.search.local.store import Store
from kenthash.search.local.verify import local_path

CODE_FILES = ("codes", "codes_digest", "texts codes", "texts codes_digest")  # what names code files in `about`

UNREAD = "unable to get the page"  # of `quick_check`, where the disk fails


def backup_index(target: str | Path, out: str | Path) -> int:
    """Copy a local index to `out`, which must not exist yet. Returns the number of items in the copy.

    Example:

        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> from kenthash import Index
        >>> with TemporaryDirectory() as folder, Index.create(f"{folder}/pictures.kh", bits=8) as index:
        ...     index.add(["a.jpg", "b.jpg"], np.uint8([[1], [2]]))
        ...     copied = backup_index(f"{folder}/pictures.kh", f"{folder}/copy.kh")
        ...     copied, Index.open(f"{folder}/copy.kh").list_ids()
        (2, ['a.jpg', 'b.jpg'])
    """
    out = Path(out)
    for file in (out, out.with_name(out.name + "-wal"), out.with_name(out.name + "-journal")):
        if file.exists():
            raise UsageError(f"{file}: exists already: remove it, or choose another name")
    partial = out.with_name(f"{out.name}.{uuid.uuid4().hex}.partial")
    store = Store.open(local_path(target))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with errors(store.path):
            items = _copy(store, partial)
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        partial.rename(out)
        try:
            sync_folder(out.parent)
        except OSError:  # a copy that a power cut may take away again is none
            delete_file(out)
            raise
    except OSError as error:
        raise KenthashError(f"{out}: cannot be written: {error.strerror or error}") from error
    finally:
        store.close()
        delete_file(partial)
    return items


def _copy(store: Store, partial: Path) -> int:
    with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
        try:
            store.connection.backup(copy)
        except sqlite3.OperationalError as error:  # of either file, and without a code
            raise KenthashError(f"{store.path}: cannot be copied: {error}") from error
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with no log beside it
        for (line,) in copy.execute("PRAGMA quick_check(1)"):
            if UNREAD in line:
                raise KenthashError(f"{partial}: cannot be read: {' '.join(line.split())}")
            if line != "ok":
                raise damaged(store.path, line)
        # An index that is replaced by its copy while it is open is noticed by this.
        copy.execute("UPDATE about SET value = ? WHERE key = 'identity'", (uuid.uuid4().hex,))
        copy.executemany("DELETE FROM about WHERE key = ?", [(key,) for key in CODE_FILES])
        return int(copy.execute("SELECT count(*) FROM items").fetchone()[0])
