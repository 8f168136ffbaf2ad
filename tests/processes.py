"""Other processes in tests: how long to wait for them, and how to kill one at a point that no clock decides."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

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
