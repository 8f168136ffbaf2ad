"""Commands in tests: in this process, where that is enough, and in others: how long to wait for them, and how to kill
one at a point that no clock decides."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from kenthash.cli import main

PATIENCE = 600  # seconds after which a wait has failed, however busy the machine is; every wait ends when it can

_KILLED_BY_ITS_OWN_WORDS = """
import os, runpy, signal, sys

class Stderr:
    def __init__(self, stream, words):
        self.stream, self.words = stream, words
    def write(self, text):
        if self.words in text:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.stream.write(text)
    def __getattr__(self, name):
        return getattr(self.stream, name)

sys.stderr = Stderr(sys.stderr, sys.argv.pop(1))
sys.argv[0] = "kenthash"
runpy.run_module("kenthash", run_name="__main__")
"""


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a kenthash command in this process. One of its own would import PyTorch again, which takes seconds."""
    code: str | int | None = 0
    stdout, stderr = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        patch.setattr(sys, "argv", ["kenthash", *arguments])
        try:
            main()
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(arguments, int(code or 0), stdout.getvalue(), stderr.getvalue())


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.05)


def after_code(code: str, command: list[str]) -> list[str]:
    """The command, in whose process this Python code has run before it.

    What `preexec_fn` of subprocess is for. That runs in a fork of the tests' process, which aborts at times before it
    becomes the command: gRPC, whose threads a test of Milvus leaves behind, does not survive a fork.
    """
    return [sys.executable, "-c", f"{code}\nimport os, sys\nos.execv(sys.argv[1], sys.argv[1:])", *command]


def run_until(words: str, *arguments: str) -> None:
    """Run a kenthash command that is killed when it is about to write a line with these words to standard error.

    A killer outside would come late on a busy machine, when the command has gone on or ended.
    """
    command = [sys.executable, "-c", _KILLED_BY_ITS_OWN_WORDS, words, *arguments]
    completed = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=PATIENCE)
    assert completed.returncode == -signal.SIGKILL, completed.stderr
