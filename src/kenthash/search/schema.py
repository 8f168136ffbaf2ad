"""The SQLite file of a local index: its schema and how that grew, and what is refused when one is opened."""

import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.files import sync_folder
from kenthash.search.engine import NoSuchIndex

APPLICATION = 0x6B656E74  # marks the file as ours: "kent"
WAIT = 120.0  # seconds for another writer to finish
CACHE_KIB = 128 << 10  # at most; for large additions
HEAD = b"SQLite format 3\0"
NOT_OURS = "not an index of kenthash, or its beginning is damaged: restore it from a copy"
READ_ONLY = "cannot be changed: the file, its folder or its disk is read-only"
PAGE = 16384  # bytes; larger than SQLite's default, as are our files

OUTSIDE = frozenset(  # SQLite's errors that are not about what the file holds
    {
        sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_TOOBIG,
    }
)  # fmt: skip
FileState = tuple[int, ...]

# The schema's history: a file's user_version is the number of steps it has, and opening one applies those it lacks.
STEPS = (
    """
    CREATE TABLE about(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
    CREATE TABLE items(row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, code BLOB NOT NULL,
                       metadata TEXT NOT NULL);
    CREATE TABLE removed(seq INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL);
    """,
    "CREATE TABLE notes(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;",
)


def create_file(path: Path, bits: int, form: str) -> None:
    """Make an empty index under another name, and give it its own when it is whole."""
    if path.exists():
        raise UsageError(f"{path}: exists already: open it, or choose another name")
    identity = uuid.uuid4().hex
    partial = path.with_name(f"{path.name}.{identity}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_empty(path, partial, {"bits": bits, "identity": identity, "form": form})
            _give_name(partial, path)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise KenthashError(f"{path}: cannot be made: {error.strerror or error}") from error


def _write_empty(path: Path, partial: Path, about: dict[str, str | int]) -> None:
    with errors(path), closing(sqlite3.connect(partial, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        _migrate(path, connection)
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())


def _give_name(partial: Path, path: Path) -> None:
    try:
        path.hardlink_to(partial)  # unlike a rename, fails where another process was faster
    except FileExistsError:
        raise UsageError(f"{path}: exists already: open it, or choose another name") from None
    except OSError:  # a file system without hard links
        partial.replace(path)


def open_file(path: Path) -> tuple[sqlite3.Connection, FileState | None]:
    """A connection to an index, brought up to this version's schema.

    Where its folder cannot be written to, SQLite can make no log, and reads a file only if told that it never changes.
    Then the state of the file comes with the connection, which may be used as long as that stays the same.
    """
    _check_there(path)
    with errors(path):
        try:
            return _connect(path, path.absolute().as_uri()), None
        except sqlite3.OperationalError as error:
            if _kind(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            if _writable(path):
                raise
        state = file_state(path)
        for log in ("-wal", "-journal"):
            if path.with_name(path.name + log).exists() and path.with_name(path.name + log).stat().st_size:
                raise DataError(
                    f"{path}: not closed cleanly: what is in {path.name}{log} cannot be read where nothing can be "
                    "written: copy both to another folder and open the index there"
                )
        return _connect(path, path.absolute().as_uri() + "?immutable=1"), state


def _connect(path: Path, address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, timeout=WAIT, isolation_level=None, check_same_thread=False, uri=True)
    try:
        try:
            _check_version(path, connection)
        except sqlite3.OperationalError:  # locked, or not to be opened: not what the file holds
            raise
        except sqlite3.DatabaseError:
            _explain(path)
            raise
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cell_size_check = ON")  # notices more of the damage there may be
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        _migrate(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def file_state(path: Path) -> FileState:
    """What tells whether a file has been changed or replaced; nothing where it is gone."""
    try:
        about = path.stat()
    except OSError:
        return ()
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _check_version(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise DataError(f"{path}: an SQLite file, but not an index of kenthash")
    version = _version(connection)
    if version > len(STEPS):
        raise DataError(f"{path}: written by a newer kenthash (schema {version}): upgrade this one")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(path: Path, connection: sqlite3.Connection) -> None:
    if _version(connection) == len(STEPS):
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        for step in STEPS[_version(connection) :]:  # asked again: another process may have been faster
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if _kind(error) != sqlite3.SQLITE_READONLY:
            raise
        raise KenthashError(
            f"{path}: written by an older kenthash and read-only here: open it once where it can be changed"
        ) from error


def _check_there(path: Path) -> None:
    """Without opening the file. When a process closes a file, the system drops all locks that it has on it, those of
    its other connections too; then another process that closes the index takes itself for the last one and deletes
    the write-ahead log, with what is written to it from here on (SQLite, "How To Corrupt", 2.2)."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise NoSuchIndex(
            f"{path}: there is no such index: make one with `kenthash index add` or Index.create"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not path.is_file() or size < len(HEAD):
        raise DataError(f"{path}: {NOT_OURS}")


def _explain(path: Path) -> None:
    """Why SQLite cannot read a file, where its head tells."""
    try:
        with path.open("rb") as stream:
            head = stream.read(100)
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not head.startswith(HEAD) or len(head) < 100:
        raise DataError(f"{path}: {NOT_OURS}")
    page = int.from_bytes(head[16:18], "big")
    expected = int.from_bytes(head[28:32], "big") * (65536 if page == 1 else page)
    if size < expected:
        raise DataError(f"{path}: torn: {size:,} bytes of {expected:,} are there: restore it from a copy")


@contextmanager
def errors(path: Path) -> Iterator[None]:
    """SQLite's own errors as ours, in one line with the file's name."""
    try:
        yield
    except sqlite3.ProgrammingError:  # ours to mend
        raise
    except sqlite3.DatabaseError as error:
        kind = _kind(error)
        if kind == sqlite3.SQLITE_READONLY and not _writable(path):
            raise KenthashError(f"{path}: {READ_ONLY}") from error
        if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise KenthashError(f"{path}: {error}: another process has been writing to it for {WAIT:.0f} s") from error
        if kind in OUTSIDE:
            raise KenthashError(f"{path}: {error}") from error
        raise damaged(path, str(error)) from error


def damaged(path: Path, what: object) -> DataError:
    return DataError(f"{path}: damaged: {' '.join(str(what).split())[:100]}: restore it from a copy")


def _kind(error: sqlite3.Error) -> int:
    """SQLite's primary code of an error; one that Python raises of what SQLite returned has none of its own."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _writable(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return all(os.access(one, os.W_OK, effective_ids=effective) for one in (path, path.parent))
