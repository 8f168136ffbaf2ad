"""Files by path or by address: local ones by the system's own calls, `s3://`, `gs://`, `https://` and what else fsspec
knows by fsspec, with the package that it asks for.

Addresses are written as WebDataset's users write them: one file, a folder, a pattern with `*` or `?`, and
`{00000..00999}` or `{train,val}` for several of these.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

from kenthash.errors import DataError, UsageError
from kenthash.files import atomic_write, expand, reading

MAX_BRACES = 1_000_000  # names that braces may stand for
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


class StoredFile(NamedTuple):
    address: str
    state: str  # changes when the file does: its size, with its time or its ETag where the storage tells them


def is_address(data: str) -> bool:
    """Whether this is the address of a storage, not a path."""
    return _SCHEME.match(data) is not None


def display_address(address: str) -> str:
    """An address as messages may show it: without a password, and without the query, which may be a signature."""
    if not is_address(address):
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def absolute(data: str) -> str:
    """A path as it is understood in any folder; an address as it is."""
    return data if is_address(data) else str(expand(Path(data)).absolute())


@contextmanager
def open_stored(address: str) -> Iterator[IO[bytes]]:
    """Open a file to be read from its beginning; what the storage does wrong is told in one line."""
    if not is_address(address):
        path = Path(address)
        with reading(path), path.open("rb") as stream:
            yield stream
        return
    with _errors(address):
        file_system, path_there = _file_system(address)
        with file_system.open(path_there, "rb") as remote:
            yield remote


@contextmanager
def write_stored(address: str) -> Iterator[IO[bytes]]:
    """Write a file, which appears whole."""
    if not is_address(address):
        with atomic_write(Path(address)) as stream:
            yield stream
        return
    with _errors(address, "written"):
        file_system, path = _file_system(address)
        with file_system.open(path, "wb") as remote:
            yield remote


def remove_stored(address: str) -> None:
    with _errors(address, "removed"):
        if is_address(address):
            file_system, path = _file_system(address)
            file_system.rm_file(path)
        else:
            Path(address).unlink()


def list_stored(data: str, suffixes: tuple[str, ...]) -> list[StoredFile]:
    """The files that `data` means and whose names end like this, in the order of their names; of a folder, all below
    it but hidden ones."""
    files: list[StoredFile] = []
    for pattern in expand_braces(data):
        with _errors(pattern):
            listed = _list_remote(pattern) if is_address(pattern) else _list_local(pattern)
        files += [file for file in listed if _path_of(file.address).lower().endswith(suffixes)]
    return files


def expand_braces(pattern: str) -> Iterator[str]:
    """All that a name with `{000..123}` or `{a,b}` in it stands for, in this order.

    Example:

        >>> list(expand_braces("{train,val}/{08..10}.tar"))[2:4]
        ['train/10.tar', 'val/08.tar']
    """
    texts, choices, total = [], [], 1
    for number, part in enumerate(_BRACES.split(pattern)):
        if number % 2 == 0:
            texts.append(part)
            continue
        choice = _choice(part)
        choices.append(choice)
        total *= len(choice)
        if total > MAX_BRACES:
            raise UsageError(f"{display_address(pattern)}: the braces stand for more than {MAX_BRACES:,} names")
    for chosen in product(*choices):
        yield texts[0] + "".join(word + text for word, text in zip(chosen, texts[1:], strict=True))


def _choice(part: str) -> Sequence[str]:
    """What stands between braces: numbers, of as many digits as the first, or words; else the braces themselves."""
    if numbers := _RANGE.fullmatch(part):
        first, last = numbers.groups()
        span = range(int(first), int(last) + 1)
        if len(span) > MAX_BRACES:
            raise UsageError(f"{{{part}}}: stands for more than {MAX_BRACES:,} names")
        return [f"{number:0{len(first)}}" for number in span]
    return part.split(",") if "," in part else [f"{{{part}}}"]


def _list_local(pattern: str) -> list[StoredFile]:
    path = expand(Path(pattern)).absolute()
    if path.is_dir():
        files = [file for file in path.rglob("*") if not any(p.startswith(".") for p in file.relative_to(path).parts)]
    elif any(mark in pattern for mark in "*?[") and not path.exists():
        files = list(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    else:
        files = [path]
    states = [(file, file.stat()) for file in sorted(files) if files == [path] or file.is_file()]
    return [StoredFile(str(file), f"{state.st_size}-{state.st_mtime_ns}") for file, state in states]


def _list_remote(pattern: str) -> list[StoredFile]:
    file_system, path = _file_system(pattern)
    if any(mark in path for mark in "*?["):
        listed: dict[str, Any] = file_system.glob(path, detail=True)
    elif file_system.isfile(path):  # asked first: an HTTP server has files, and seldom a list of them
        return [StoredFile(pattern, _remote_state(file_system.info(path)))]
    else:
        listed = file_system.find(path, detail=True)
    if not listed:
        raise FileNotFoundError
    return [
        StoredFile(file_system.unstrip_protocol(name), _remote_state(about))
        for name, about in sorted(listed.items())
        if about.get("type") != "directory" and not name.rpartition("/")[2].startswith(".")
    ]


def _remote_state(about: dict[str, Any]) -> str:
    marks = (about.get(key) for key in ("size", "ETag", "etag", "md5Hash", "LastModified", "mtime", "created"))
    return "-".join(str(mark) for mark in marks if mark is not None)


def _path_of(address: str) -> str:
    return urlsplit(address).path if is_address(address) else address


def _file_system(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise UsageError(
            f"{display_address(address)}: this needs fsspec, which is not installed: pip install 'kenthash[remote]'"
        ) from error
    try:
        file_system, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:  # "Install s3fs to access S3", "Protocol not known"
        raise UsageError(f"{display_address(address)}: {error}") from error
    return file_system, path


@contextmanager
def _errors(address: str, what: str = "read") -> Iterator[None]:
    """What a storage raises, in one line. Its libraries have errors of their own, which share no base."""
    try:
        yield
    except (DataError, UsageError):
        raise
    except FileNotFoundError as error:
        raise DataError(f"{display_address(address)}: there is no such file or folder") from error
    except OSError as error:
        raise DataError(
            f"{display_address(address)}: cannot be {what}: {error.strerror or ' '.join(str(error).split())}"
        ) from error
    except Exception as error:
        if not is_address(address) or not type(error).__module__.startswith(("fsspec", "aiohttp", "botocore", "gcsfs")):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"{display_address(address)}: cannot be {what}: {reason}") from error
