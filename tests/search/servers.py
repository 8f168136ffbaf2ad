"""Real servers for the tests: started by scripts/servers.py, ended with the test run however it ends."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components import need
from processes import PATIENCE

SCRIPT = Path(__file__).parents[2] / "scripts" / "servers.py"
CLIENTS = {"milvus": "pymilvus", "postgres": "psycopg"}


@contextmanager
def running(kind: str) -> Iterator[str]:
    """The address of a fresh server. Where there can be none the test skips, or fails where CI is set."""
    need(CLIENTS[kind])
    # The server lives as long as the pipe to its standard input, which a killed test run closes too.
    server = subprocess.Popen(
        [sys.executable, str(SCRIPT), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert server.stdin and server.stdout and server.stderr
    try:
        answered, _, _ = select.select([server.stdout], [], [], PATIENCE)  # the first start of all also installs Milvus
        address = server.stdout.readline().decode().strip() if answered else ""
        if not address:
            server.stdin.close()
            problem = f"{kind} did not start: {server.stderr.read().decode(errors='replace')[-1000:]}"
            if os.environ.get("CI"):
                pytest.fail(problem)
            pytest.skip(problem)
        yield address
    finally:
        server.stdin.close()
        server.wait(timeout=PATIENCE)
