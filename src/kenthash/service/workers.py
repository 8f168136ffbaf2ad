"""Several processes that serve one index: `kenthash serve --workers N`. Linux.

A supervisor loads the model, and each worker is a fork of it: the model's weights and the mapped codes are in memory
once, whatever the number of workers. The supervisor opens no thread, file or connection that a worker would share with
it. Each worker has a socket of its own on the one port (SO_REUSEPORT), among which the kernel spreads connections,
opens the index by itself, and reloads it as a single server does (see `watch`).

A worker that has ended is replaced. When the supervisor ends, however it ends, so do the workers: each waits for the
end of a pipe that only the supervisor holds open.
"""

import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import NoReturn

from kenthash.errors import KenthashError, UsageError
from kenthash.service import logs
from kenthash.service.settings import ServiceSettings

RESTART_SECONDS = 1.0  # between the end of a worker and its replacement
END_SECONDS = 10.0  # that workers have to end by themselves
READY = b"1"

# Serves on a socket; calls back when it is ready.
Work = Callable[[ServiceSettings, socket.socket, Callable[[], None]], None]


def serve_by_workers(
    settings: ServiceSettings, listener: socket.socket, work: Work, started: Callable[[], None]
) -> None:
    """Serve by `settings.workers` forks of this process until SIGTERM or SIGINT. `listener` is bound and does not
    listen; `started` is called when all workers are ready."""
    if not sys.platform.startswith("linux"):
        raise UsageError(f"--workers {settings.workers}: several workers need Linux: leave it out")
    with tempfile.TemporaryDirectory(prefix="kenthash-metrics-") as metrics, logs.json_without_a_thread():
        threads = max(1, settings.threads // settings.workers)
        own = replace(settings, threads=threads, metrics=Path(metrics))
        _Supervisor(own, listener, work, started).run()


class _Supervisor:
    def __init__(
        self, settings: ServiceSettings, listener: socket.socket, work: Work, started: Callable[[], None]
    ) -> None:
        self.settings, self.listener, self.work, self.started = settings, listener, work, started
        self.held, self.kept_open = os.pipe()  # workers wait for the end of the second one
        self.workers: dict[int, int] = {}  # process id -> the pipe that tells whether it is ready
        self.stopping = False
        self.wake_read, self.wake_write = os.pipe2(os.O_NONBLOCK)  # written to by every signal

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake the loop
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        try:
            self._start_all()
            while not self.stopping:
                self._wait(None)
                self._replace_ended()
        finally:
            self._end_all()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._send(signal.SIGHUP)
        else:
            self.stopping = True

    def _start_all(self) -> None:
        waiting = [self._fork() for _ in range(self.settings.workers)]
        while waiting and not self.stopping:
            readable, _, _ = select.select([*waiting, self.wake_read], [], [])
            self._drain()
            for pipe in set(readable) & set(waiting):
                if os.read(pipe, 1) != READY:  # its end: the worker has ended, and has said why
                    raise KenthashError("a worker could not start: see the log")
                waiting.remove(pipe)
        if not self.stopping:
            self.started()

    def _replace_ended(self) -> None:
        while not self.stopping and (ended := self._ended()):
            logs.warning("a worker has ended and is replaced", worker=ended)
            self._wait(RESTART_SECONDS)
            if not self.stopping:
                self._fork()

    def _ended(self) -> int:
        """The id of a worker that has ended since the last call; 0 where there is none."""
        with suppress(ChildProcessError):
            process, _ = os.waitpid(-1, os.WNOHANG)
            if process:
                os.close(self.workers.pop(process))
                assert self.settings.metrics is not None
                for file in self.settings.metrics.glob(
                    f"gauge_live*_{process}.db"
                ):  # the counters of its life still count
                    file.unlink(missing_ok=True)
            return process
        return 0

    def _fork(self) -> int:
        """Start a worker; the pipe from which READY can be read when it is ready."""
        read_end, write_end = os.pipe()
        process = os.fork()
        if process == 0:
            self._be_worker(write_end)
        os.close(write_end)
        self.workers[process] = read_end
        return read_end

    def _be_worker(self, write_end: int) -> NoReturn:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until the server has its own
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor, which sends SIGTERM
            os.close(self.kept_open)
            threading.Thread(target=_end_with_supervisor, args=(self.held,), name="supervisor", daemon=True).start()

            def ready() -> None:
                os.write(write_end, READY)

            with own_socket(self.listener) as listener:
                self.work(self.settings, listener, ready)
            code = 0
        except KenthashError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            code = error.exit_code
        except BaseException as error:
            logs.failure("a worker has failed", error)
        finally:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(code)  # not through the supervisor's code

    def _end_all(self) -> None:
        self.stopping = True
        self._send(signal.SIGTERM)
        until = time.monotonic() + END_SECONDS
        while self.workers and time.monotonic() < until:
            if not self._ended():
                self._wait(0.1)
        self._send(signal.SIGKILL)
        while self.workers:
            self._ended()
            self._wait(0.01)
        os.close(self.kept_open)
        os.close(self.held)

    def _send(self, number: int) -> None:
        for process in list(self.workers):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _wait(self, seconds: float | None) -> None:
        """Until a signal arrives."""
        select.select([self.wake_read], [], [], seconds)
        self._drain()

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self.wake_read, 4096)


def own_socket(bound: socket.socket) -> socket.socket:
    """A socket of this process on the port of another one."""
    listener = socket.socket(bound.family, bound.type)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(bound.getsockname())
    return listener


def _end_with_supervisor(pipe: int) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
