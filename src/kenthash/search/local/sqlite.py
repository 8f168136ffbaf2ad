"""The SQLite of local indexes: the one that the package pysqlite3 brings, under the names of Python's own module.

Python uses the SQLite of the system, which is often years old. Versions before 3.51.3 can lose committed changes: where
one connection writes a checkpoint while another begins the write-ahead log anew, the first may record that parts of the
new log are in the file already (https://sqlite.org/wal.html#walresetbug). Several processes may write to one index, so
that this could happen to it.

No other module of an open index may use the SQLite of the system: each of the two would drop the other's locks when it
closes a file (https://sqlite.org/howtocorrupt.html, 2.2.1).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
else:
    from pysqlite3 import dbapi2 as sqlite3

__all__ = ["old_version_warning", "sqlite3"]

SAFE_VERSION = "3.51.3"


def old_version_warning(version: str) -> str | None:
    """One line where a version can lose committed changes: pysqlite3 that was built here has the SQLite that was found,
    whichever that is."""
    if tuple(map(int, version.split("."))) >= tuple(map(int, SAFE_VERSION.split("."))):
        return None
    return (
        f"SQLite {version} can lose changes where several processes write to an index (before {SAFE_VERSION}): "
        "`pip install --force-reinstall --only-binary pysqlite3 pysqlite3`"
    )
