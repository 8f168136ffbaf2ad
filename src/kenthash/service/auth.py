"""Who may ask: a key in a file, and loopback alone without one."""

import hashlib
import hmac
import ipaddress
import socket
from functools import lru_cache
from pathlib import Path

from starlette.datastructures import Headers

from kenthash.errors import DataError, UsageError

MIN_KEY = 16  # characters: shorter ones can be guessed
OPEN = frozenset({"/", "/healthz", "/readyz", "/openapi.json", "/docs", "/favicon.ico"})  # and /static/


def read_key(path: Path) -> str:
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: the key cannot be read: {getattr(error, 'strerror', 'not UTF-8')}") from error
    if len(key) < MIN_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise DataError(f"{path}: a key is one line of at least {MIN_KEY} plain characters: `openssl rand -hex 24`")
    return key


def check_binding(host: str, key: str | None) -> None:
    """Refuse to be reachable from elsewhere without a key."""
    if key is None and not is_loopback(host):
        raise UsageError(f"--host {host} can be reached from elsewhere: give --api-key-file FILE, or use 127.0.0.1")


def is_loopback(host: str) -> bool:
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host or "0.0.0.0", None)}
    except (OSError, UnicodeError) as error:  # the latter of a name that no host can have
        raise UsageError(f"--host {host}: not an address or a name of this machine") from error
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


def is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/static/")


def allows(key: str, headers: Headers) -> bool:
    """Whether a request brings the key. Digests are compared, in a time that says nothing of where they differ."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    return hmac.compare_digest(_digest(given), _digest(key))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


@lru_cache(64)
def is_local_name(host: str, bound: str) -> bool:
    """Whether a Host header names this machine. Another name that leads to loopback is a page of a stranger's in the
    user's browser (DNS rebinding), which would read the index through it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower().rstrip(".")
    if name in ("", "localhost", bound.lower()):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
