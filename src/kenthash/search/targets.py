"""The addresses of indexes on servers. A password in one never enters a message."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from kenthash.errors import UsageError

MILVUS_FORM = "milvus://[user:password@]host:port/name[?secure=true]"
POSTGRES_FORM = "postgresql://[user:password@]host:port/database[?table=name]"


@dataclass(frozen=True)
class Target:
    shown: str  # what messages call it
    name: str  # of the collection or table
    address: str  # what the client library takes
    token: str = ""  # Milvus: user:password


def shown(target: str) -> str:
    """Any address without its user and password, as messages may print it."""
    scheme, separator, rest = target.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}" if separator else target


def milvus_target(target: str) -> Target:
    try:
        parts = urlsplit(target)
        host, port = parts.hostname, parts.port or 19530
    except ValueError as error:
        raise UsageError(f"a Milvus address with a host or port that is none: write {MILVUS_FORM}") from error
    name, options = parts.path.strip("/"), dict(parse_qsl(parts.query))
    shown = f"milvus://{host}:{port}/{name}"
    if not host or not _plain(name, 255):
        raise UsageError(f"{shown}: write {MILVUS_FORM}, the name of ASCII letters, digits and underscores")
    if options not in ({}, {"secure": "true"}, {"secure": "false"}):
        raise UsageError(f"{shown}: option {', '.join(options)}: write {MILVUS_FORM}")
    scheme = "https" if options.get("secure") == "true" else "http"
    bracketed = f"[{host}]" if ":" in host else host
    token = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    return Target(shown, name, f"{scheme}://{bracketed}:{port}", token)


def postgres_target(target: str) -> Target:
    """All options but `table` (by default `kenthash`) go to libpq as they are."""
    rest = target.partition("://")[2].partition("#")[0]
    base, _, query = rest.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    name = dict(options).get("table", "kenthash")
    shown = f"postgresql://{base.rpartition('@')[2]}?table={name}"
    if not _plain(name, 63):
        raise UsageError(f"{shown}: write {POSTGRES_FORM}, the name of ASCII letters, digits and underscores")
    kept = urlencode([pair for pair in options if pair[0] != "table"], quote_via=quote)
    return Target(shown, name, f"postgresql://{base}?{kept}" if kept else f"postgresql://{base}")


def _plain(name: str, length: int) -> bool:
    return name.isascii() and name.isidentifier() and len(name) <= length
