"""The code file of a store: which one counts, when it is too far behind, and how it is made anew.

Each code file has its own name, and the store says which one counts: they change together, in one transaction.
"""

import glob
import logging
import re
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy as np

from kenthash.search import codefile, mih, planner, scan
from kenthash.search.blocks import Damaged
from kenthash.search.codefile import CodeFile
from kenthash.search.schema import damaged
from kenthash.search.store import Mark, Store

logger = logging.getLogger(__name__)

MAX_FRESH = 50_000  # items outside the code file before a search has it made anew; or a share of those in it
SHARE = 32
STAMP = 12  # hexadecimal digits in the name of a code file


def code_file(store: Store) -> CodeFile | None:
    """The one that the store names, if it names one; Damaged where that is not there or not as it was written."""
    path = named(store)
    return None if path is None else codefile.read(path, str(store.about("codes_digest")))


def named(store: Store) -> Path | None:
    stamp = str(store.about("codes") or "")
    if stamp and not re.fullmatch(f"[0-9a-f]{{{STAMP}}}", stamp):
        raise damaged(store.path, f"it names the code file {stamp[:20]!r}")
    return _path(store, stamp) if stamp else None


def lags(base: CodeFile | None, mark: Mark) -> bool:
    """Whether a code file, or none, is too far behind the store."""
    known, items = (base.mark, len(base.codes)) if base else (Mark(0, 0), 0)
    return max(mark.row - known.row, mark.removal - known.removal) > max(MAX_FRESH, items // SHARE)


def replace_damaged(store: Store, damage: Damaged, threads: int) -> None:
    """Make the code file anew, unless the store names another by now: then the damaged one may well be gone."""

    def still_counts() -> bool:
        counts = named(store) == damage.path
        if counts:
            logger.warning("%s: making it anew from %s", damage, store.path.name)
        return counts

    if named(store) == damage.path:
        compact(store, threads, still_counts)


def compact(store: Store, threads: int, if_true: Callable[[], bool] = lambda: True) -> None:
    """Make the code file anew from the store, and clear the log of removals up to there. `if_true` is asked while
    nobody else may write: another thread or process may have done it while this one waited for its turn."""
    path = None
    try:
        with store.writing() as connection:
            if not if_true():
                return
            mark = store.mark()
            # Listed while nobody else may write: a file that another makes after this is not ours to delete.
            old = _all_files(store)
            rows, codes = codefile.sorted_codes(store)
            worth = store.form != "scan" and planner.worth_tables(store.bits, len(rows)) and scan.has_numba()
            cuts = mih.cut(store.bits, len(rows)) if worth else np.empty((0, 3), np.int64)
            stamp, fast = uuid.uuid4().hex[:STAMP], store.form == "fast"
            path = _path(store, stamp)
            digest = codefile.write(path, mark, store.bits, codes, rows, cuts, fast, threads)
            store.replace_codes(connection, stamp, digest, mark.removal)
    except BaseException:
        if path is not None:
            path.unlink(missing_ok=True)  # the store does not name it
        raise
    for file in old:
        file.unlink(missing_ok=True)


def _path(store: Store, stamp: str) -> Path:
    return store.path.with_name(f"{store.path.name}.{stamp}{store.code_suffix}")


def _all_files(store: Store) -> list[Path]:
    """Of this index, not of one whose name begins alike: the one that counts, and what kills have left behind."""
    stamp = "[0-9a-f]" * STAMP
    return list(store.path.parent.glob(f"{glob.escape(store.path.name)}.{stamp}{store.code_suffix}*"))
