"""The SQLite file of a local index: its schema with the migrations, creating and opening a file, what is refused."""

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from kenthash.errors import DataError, KenthashError
from kenthash.files import sync_folder
from kenthash.search.engine import IndexExists, NoSuchIndex
from kenthash.search.filters import NearPlace
from kenthash.search.local.checksums import item_seal, notes_seal, text_seal
from kenthash.search.local.idorder import IdOrder
from kenthash.search.local.sqlite import sqlite3

APPLICATION = 0x6B656E74  # "kent" in SQLite's header: marks the files of kenthash
LOCK_SECONDS = 120.0  # how long to wait for another writer
READ_CACHE_KIB = 8 << 10  # per connection, at most: the system keeps the file in memory, too
WRITE_CACHE_KIB = 128 << 10  # of a connection while it writes: for large additions
HEAD = b"SQLite format 3\0"
NOT_OURS = "not an index of kenthash, or its beginning is damaged: restore it from a copy"
READ_ONLY = "cannot be changed: the file, its folder or its disk is read-only"
PAGE = 16384  # bytes: more than SQLite's default, since the files are large

ENVIRONMENT_ERRORS = frozenset(  # SQLite's errors that are not about the content of the file
    {
        sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_READONLY,
    }
)  # fmt: skip
FileIdentity = tuple[int, ...]

# The history of the schema: user_version of a file is the number of migrations it has; opening it applies the others.
# Up to 2, `id` was UNIQUE. Files from before keep that index of SQLite's own, which takes about 35 bytes per item; it
# does no harm.
MIGRATIONS = (
    """
    CREATE TABLE about(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
    CREATE TABLE items(row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, code BLOB NOT NULL,
                       metadata TEXT NOT NULL);
    CREATE TABLE removed(seq INTEGER PRIMARY KEY AUTOINCREMENT, row INTEGER NOT NULL);
    """,
    "CREATE TABLE notes(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;",
    "CREATE TABLE id_order(first TEXT PRIMARY KEY, rows BLOB NOT NULL) WITHOUT ROWID;",  # filled by `_migrate`
    "",  # checksums (see `checksums`), by `_seal_all`
)
NOTES_SEAL = "notes checksum"  # in `about`


def create_file(path: Path, about: Mapping[str, str | int]) -> None:
    """Make an empty index under a temporary name, and rename it when it is complete. `about` says what it will hold."""
    if path.exists():
        raise IndexExists(f"{path}: exists already: open it, or choose another name")
    identity = uuid.uuid4().hex
    partial = path.with_name(f"{path.name}.{identity}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_empty(path, partial, {**about, "identity": identity})
            _publish(partial, path)
        finally:
            delete_file(partial)
        sync_folder(path.parent)
    except OSError as error:
        raise KenthashError(f"{path}: cannot be made: {error.strerror or error}") from error


def _write_empty(path: Path, partial: Path, about: dict[str, str | int]) -> None:
    with errors(path), closing(sqlite3.connect(partial, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        _migrate(path, connection)
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())


def delete_file(path: Path) -> None:
    """Delete an unfinished SQLite file and what SQLite keeps beside it, as far as the disk allows."""
    for file in (path, *(path.with_name(path.name + end) for end in ("-journal", "-wal", "-shm"))):
        with suppress(OSError):
            file.unlink()


def _publish(partial: Path, path: Path) -> None:
    try:
        path.hardlink_to(partial)  # unlike a rename, fails where another process has created it
    except FileExistsError:
        raise IndexExists(f"{path}: exists already: open it, or choose another name") from None
    except OSError:  # a file system without hard links
        partial.replace(path)


def open_file(path: Path) -> tuple[sqlite3.Connection, FileIdentity | None]:
    """A connection to an index, brought up to this version's schema.

    Where its folder cannot be written to, SQLite cannot create a log, and reads a file only as an immutable one. Then
    the state of the file is returned with the connection, which may be used as long as that state stays the same.
    """
    _check_exists(path)
    with errors(path):
        try:
            return _connect(path, path.absolute().as_uri()), None
        except sqlite3.OperationalError as error:
            if _error_code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            if _is_writable(path):
                raise
        state = file_identity(path)
        for log in ("-wal", "-journal"):
            if path.with_name(path.name + log).exists() and path.with_name(path.name + log).stat().st_size:
                raise DataError(
                    f"{path}: not closed cleanly: what is in {path.name}{log} cannot be read where nothing can be "
                    "written: copy both to another folder and open the index there"
                )
        return _connect(path, path.absolute().as_uri() + "?immutable=1"), state


def _connect(path: Path, address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    try:
        try:
            _check_version(path, connection)
        except sqlite3.OperationalError:  # locked, or cannot be opened: not about the content of the file
            raise
        except sqlite3.DatabaseError:
            _check_head(path)
            raise
        add_functions(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cell_size_check = ON")  # detects more kinds of damage
        connection.execute(f"PRAGMA cache_size = -{READ_CACHE_KIB}")
        _migrate(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def add_functions(connection: sqlite3.Connection) -> None:
    """What filters need and not every SQLite has, which may be built without sines."""

    def near(latitude: float, longitude: float, place_latitude: float, place_longitude: float, km: float) -> bool:
        return NearPlace(place_latitude, place_longitude, km).holds(latitude, longitude)

    connection.create_function("near", 5, near, deterministic=True)


def file_identity(path: Path) -> FileIdentity:
    """What changes when a file is changed or replaced; () where it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _check_version(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise DataError(f"{path}: an SQLite file, but not an index of kenthash")
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise DataError(f"{path}: written by a newer kenthash (schema {version}): upgrade this one")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(path: Path, connection: sqlite3.Connection) -> None:
    if _version(connection) == len(MIGRATIONS):
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        version = _version(connection)  # read again: another process may have applied them
        for step in MIGRATIONS[version:]:
            for statement in step.split(";"):
                connection.execute(statement)
        _seal_all(connection)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if _error_code(error) != sqlite3.SQLITE_READONLY:
            raise
        raise KenthashError(
            f"{path}: written by an older kenthash and read-only here: open it once where it can be changed"
        ) from error


def _seal_all(connection: sqlite3.Connection) -> None:
    """Put checksums to all that an index of an earlier version holds."""
    connection.create_function("item_seal", 4, item_seal, deterministic=True)
    connection.create_function("text_seal", 4, text_seal, deterministic=True)
    # `||` makes text of them, which the cast takes back, byte by byte.
    seal = "UPDATE {0} SET code = CAST(code || {1} AS BLOB)"
    connection.execute(seal.format("items", "item_seal(row, id, metadata, code)"))
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'texts'").fetchall():
        connection.execute(seal.format("texts", "text_seal(row, item, number, code)"))
    IdOrder(connection).rebuild()
    notes = dict(connection.execute("SELECT key, value FROM notes"))
    connection.execute("INSERT INTO about VALUES (?, ?)", (NOTES_SEAL, notes_seal(notes)))


def _check_exists(path: Path) -> None:
    """This must not open the file. When a process closes a file, the system drops all locks that the process has on it,
    also those of its other connections; then another process that closes the index takes itself for the last one and
    deletes the write-ahead log, with what is written to it later (SQLite, "How To Corrupt", 2.2)."""
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


def _check_head(path: Path) -> None:
    """Say why SQLite cannot read a file, where its header shows that."""
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
    """Turn SQLite's errors into KenthashErrors: one line with the name of the file."""
    try:
        yield
    except sqlite3.ProgrammingError:  # a bug of kenthash
        raise
    except UnicodeDecodeError as error:  # SQLite's message quotes what is damaged
        raise damaged(path, "its schema is not UTF-8") from error
    except sqlite3.DatabaseError as error:
        code = _error_code(error)
        if code == sqlite3.SQLITE_READONLY and not _is_writable(path):
            raise KenthashError(f"{path}: {READ_ONLY}") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise KenthashError(
                f"{path}: {error}: another process has been writing to it for {LOCK_SECONDS:.0f} s"
            ) from error
        if is_of_environment(error):
            raise KenthashError(f"{path}: {error}") from error
        # SQLite reports what the disk fails to read (EIO) as a malformed file too.
        unread = ", or the disk fails to read it" if code == sqlite3.SQLITE_CORRUPT else ""
        raise damaged(path, f"{error}{unread}") from error


def is_of_environment(error: sqlite3.Error) -> bool:
    """Whether an error of SQLite's is about the disk or the system, not about the content of the file."""
    return _error_code(error) in ENVIRONMENT_ERRORS


def damaged(path: Path, what: object) -> DataError:
    return DataError(f"{path}: damaged: {' '.join(str(what).split())[:100]}: restore it from a copy")


def _error_code(error: sqlite3.Error) -> int:
    """SQLite's primary code of an error; errors that Python itself raises about SQLite's values have no code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _is_writable(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return all(os.access(place, os.W_OK, effective_ids=effective) for place in (path, path.parent))
