"""Addresses of indexes on servers: parsed, and as messages may show them, without passwords."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from kenthash.errors import UsageError

MILVUS_FORM = "milvus://[user:password@]host:port/name[?secure=true]"
POSTGRES_FORM = "postgresql://[user:password@]host:port/database[?table=name]"


@dataclass(frozen=True)
class ServerAddress:
    display: str  # as messages show it
    name: str  # of the collection or table
    uri: str  # for the client library
    token: str = ""  # Milvus: user:password


def without_password(target: str) -> str:
    """Any address without its user and password, as messages may show it."""
    scheme, separator, location = target.partition("://")
    if not separator:
        return target
    base, _, query = location.partition("?")
    host = base.rpartition("@")[2] if "@" in base or "@" not in query else "..."  # a password with ? in it
    table = dict(parse_qsl(query)).get("table")  # other options may be secret: libpq takes password= there
    return f"{scheme}://{host}?table={table}" if table else f"{scheme}://{host}"


def parse_milvus_address(target: str) -> ServerAddress:
    try:
        parts = urlsplit(target)
        host, port = parts.hostname, parts.port or 19530
    except ValueError as error:
        raise UsageError(f"a Milvus address whose host or port is invalid: write {MILVUS_FORM}") from error
    name, options = parts.path.strip("/"), dict(parse_qsl(parts.query))
    where = f"milvus://{host}:{port}/{name}" if host else without_password(target)
    if not host or not _is_plain_name(name, 255):
        raise UsageError(f"{where}: write {MILVUS_FORM}, the name of ASCII letters, digits and underscores")
    if options not in ({}, {"secure": "true"}, {"secure": "false"}):
        raise UsageError(f"{where}: option {', '.join(options)}: write {MILVUS_FORM}")
    scheme = "https" if options.get("secure") == "true" else "http"
    bracketed = f"[{host}]" if ":" in host else host
    token = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    return ServerAddress(where, name, f"{scheme}://{bracketed}:{port}", token)


def parse_postgres_address(target: str) -> ServerAddress:
    """All options but `table` (by default `kenthash`) go to libpq as they are."""
    location = target.partition("://")[2]
    _check_password(location)
    location = location.partition("#")[0]
    base, _, query = location.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    name = dict(options).get("table", "kenthash")
    where = f"postgresql://{base.rpartition('@')[2]}?table={name}"
    if not _is_plain_name(name, 63):
        raise UsageError(f"{where}: write {POSTGRES_FORM}, the name of ASCII letters, digits and underscores")
    libpq_options = urlencode([pair for pair in options if pair[0] != "table"], quote_via=quote)
    return ServerAddress(
        where, name, f"postgresql://{base}?{libpq_options}" if libpq_options else f"postgresql://{base}"
    )


def _check_password(location: str) -> None:
    """Refuse a password that is cut by a character with a meaning in addresses: the rest of it would be taken for a
    host or port, here or by libpq, and shown in a message."""
    authority = re.split("[/?#]", location)[0]
    port = authority.rpartition("]")[2].partition(":")[2]
    cut = (
        "@" in location and "@" not in authority and ("@" in location.partition("/")[0] or not (port or "0").isdigit())
    )
    if cut or authority.count("@") > 1 or re.search("%(?![0-9A-Fa-f]{2})", authority):
        raise UsageError(
            f"write {POSTGRES_FORM}, and in a user or password %25 %2F %3F %23 %40 for the characters % / ? # @"
        )


def _is_plain_name(name: str, length: int) -> bool:
    return name.isascii() and name.isidentifier() and len(name) <= length
