"""Who may send requests: a key in a file; without one, only this machine."""

import hashlib
import hmac
import ipaddress
import socket
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from kenthash.errors import DataError, UsageError

MIN_KEY = 16  # characters: shorter ones can be guessed
PORTS = {"http": 80, "https": 443}
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
    """Refuse to be reachable from other machines without a key."""
    if key is None and not is_loopback(host):
        raise UsageError(
            f"--host {host} can be reached from other machines: give --api-key-file FILE, or use 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host or "0.0.0.0", None)}
    except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
        raise UsageError(f"--host {host}: not an address or a name of this machine") from error
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in addresses)


def is_open(path: str) -> bool:
    return path in OPEN or path.startswith("/static/")


def has_key(headers: Headers, key: str) -> bool:
    """Whether a request has the key. Digests are compared, in a time that does not depend on where they differ."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    presented_key = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    return hmac.compare_digest(_digest(presented_key), _digest(key))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


@lru_cache(64)
def is_local_name(host: str, bound: str) -> bool:
    """Whether a Host header names this machine. Another name that resolves to loopback belongs to a page of another
    site in the user's browser (DNS rebinding), which could read the index through it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower().rstrip(".")
    if name in ("", "localhost", bound.lower()):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_foreign(method: str, path: str, headers: Headers) -> bool:
    """Whether a web page of another origin makes this request. The page cannot read the answer, but the work would be
    done: a form with a picture needs no permission (CORS preflight) to be sent.

    Only browsers send these headers, and pages cannot change them: a request without them comes from a program.
    Addresses that are open to everyone are still served, and so are links that a user follows, which the browser marks.
    """
    if method in ("GET", "HEAD"):
        navigation = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if navigation or is_open(path):
            return False
    # This header of the browser is valid behind any proxy. Old browsers do not send it, nor does any over plain HTTP to
    # another machine: then the origin has to be the address that was requested.
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and not _same_host(origin, headers.get("host", ""))


@lru_cache(64)
def _same_host(origin: str, host: str) -> bool:
    """Whether an origin (scheme, name, port) is the one that a Host header names. The scheme may differ: behind a proxy
    that does TLS the request comes as plain HTTP."""
    try:
        page, service = urlsplit(origin), urlsplit(f"//{host}")
        port = page.port or PORTS.get(page.scheme)
        ports = {service.port} if service.port else set(PORTS.values())
    except ValueError:
        return False
    return page.hostname is not None and page.hostname == service.hostname and port in ports
