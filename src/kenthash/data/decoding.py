"""Pictures decoded in processes of their own, where decoding can be ended.

A decoder is C code that runs on files from anywhere: it may run for hours, take all memory or crash. `DecoderPool`
runs it in worker processes, each picture within limits of time and memory. A worker that exceeds one ends itself by the
limit's signal; its picture is a `BadPicture`, and the next one gets a new worker. Workers import no PyTorch, hold one
picture at a time, and end when the process that started them does, however that ends.

Requests and replies go through the worker's standard input and output: two lengths, a JSON object and raw bytes.
Nothing that a worker sends is run or unpickled.

The limits of memory and of processor time, and the turns of large pictures, are those of POSIX. On Windows there is the
limit of time alone, by which the owner ends a worker.
"""

import json
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from PIL import Image

from kenthash.data.photo_facts import Facts
from kenthash.data.pictures import (
    MAX_PIXELS,
    NO_MEMORY,
    BadPicture,
    PictureInput,
    Pixels,
    Square,
    TooLarge,
    open_picture,
    square_with_facts,
    to_square,
)
from kenthash.errors import KenthashError

try:
    import fcntl
    import resource
except ImportError:  # Windows
    fcntl = resource = None  # type: ignore[assignment]

SECONDS = 20.0  # of processor time per picture: a hundred megapixels take about three
MEMORY = 2 << 30  # bytes of address space of a worker
WAITING = 6  # times the processor time is what a picture may take in all: on a busy machine, from a slow disk
QUALITY = 82  # of a thumbnail
HEAD = struct.Struct(">II")  # bytes of the JSON object, and of what follows it


class DecoderPool:
    """Decodes in as many workers as threads ask at a time. To be closed, or used as a context manager.

    `seconds` is the processor time per picture; `patience`, the time that passes until it is given up all the same.
    """

    def __init__(
        self,
        seconds: float = SECONDS,
        patience: float | None = None,
        memory: int = MEMORY,
        one_large: bool = False,
    ) -> None:
        """With `one_large` the workers decode pictures that take much memory one after the other."""
        takes_turns = one_large and fcntl is not None
        self._turn = tempfile.TemporaryFile() if takes_turns else None  # noqa: SIM115 (closed by `close`)
        turn = self._turn.fileno() if self._turn else None
        self._limits = _Limits(seconds, WAITING * seconds if patience is None else patience, memory, turn)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False

    def start(self, workers: int) -> None:
        """Start so many workers before they are needed. This does not wait for them."""
        with self._lock:
            self._idle += [self._start() for _ in range(workers)]

    def square(self, source: PictureInput, square: Square, max_pixels: int = MAX_PIXELS) -> Pixels:
        """As `to_square`. Pixels that are at hand need no worker."""
        if isinstance(source, Image.Image):
            return to_square(source, square)
        _, content = self._run_job(source, {"square": asdict(square), "max_pixels": max_pixels})
        return np.frombuffer(content, np.uint8).reshape(square.size, square.size, 3)

    def square_with_facts(self, source: PictureInput, square: Square) -> tuple[Pixels, Facts]:
        """As the function of this name."""
        if isinstance(source, Image.Image):
            return square_with_facts(source, square)
        answer, content = self._run_job(source, {"square": asdict(square), "max_pixels": MAX_PIXELS})
        return np.frombuffer(content, np.uint8).reshape(square.size, square.size, 3), answer["facts"]

    def thumbnail(self, path: Path, side: int) -> bytes:
        """A JPEG whose longer side is `side`, or less if the picture's is."""
        return self._run_job(path, {"thumbnail": side})[1]

    def close(self) -> None:
        """Ends all workers at once. What threads wait for is then a `BadPicture`."""
        with self._lock:
            self._closed = True
            workers = list(self._all)
        for worker in workers:
            worker.end()
        if self._turn is not None:
            self._turn.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run_job(self, source: Path | bytes, job: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        name = str(source) if isinstance(source, Path) else "picture"
        content = b""
        if isinstance(source, Path):
            job["path"] = os.path.abspath(source)  # noqa: PTH100 (a Path of it would drop "..", and links with it)
        else:
            content = source
        for attempt in (1, 2):
            with self._worker() as worker:
                try:
                    answer, pixels = worker.run_job(job, content)
                except _WorkerEnded as ended:
                    if ended.by_limit or attempt == 2 or self._closed:
                        raise BadPicture(name, str(ended)) from ended
                    continue  # perhaps not the picture's fault: a system short of memory kills processes
            if "reason" in answer:
                raise (TooLarge if answer.get("too_large") else BadPicture)(name, str(answer["reason"]))
            return answer, pixels
        raise AssertionError

    @contextmanager
    def _worker(self) -> Iterator["_Worker"]:
        """A worker for one picture. One that has ended is replaced at once, so that no picture waits for its start."""
        with self._lock:
            if self._closed:
                raise KenthashError("the decoders of pictures have been closed")
            worker = self._idle.pop() if self._idle else self._start()
        try:
            yield worker
        except BaseException:
            worker.end()
            raise
        finally:
            with self._lock:
                if not worker.ended:
                    self._idle.append(worker)
                else:
                    self._all.discard(worker)
                    with suppress(KenthashError):  # raised again when a worker is needed
                        if not self._closed:
                            self._idle.append(self._start())

    def _start(self) -> "_Worker":
        try:
            worker = _Worker(self._limits)
        except OSError as error:
            raise KenthashError(f"a process to decode pictures cannot be started: {error}") from error
        self._all.add(worker)
        return worker


@dataclass(frozen=True)
class _Limits:
    seconds: float
    patience: float
    memory: int
    turn: int | None = None  # the descriptor of a file: its lock is held while a large picture is decoded


class _WorkerEnded(Exception):
    def __init__(self, reason: str, by_limit: bool) -> None:
        super().__init__(reason)
        self.by_limit = by_limit


class _Worker:
    """One process, as its owner sees it. One thread at a time asks."""

    def __init__(self, limits: _Limits) -> None:
        self._limits = limits
        self._ready = self.ended = False
        self._until = 0.0
        # -P: not from the current folder, where foreign pictures may lie beside a foreign PIL.py.
        command = [sys.executable, "-P", "-m", "kenthash.data.decoding"]
        package = str(Path(__file__).parents[2])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        few = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        few["MALLOC_MMAP_THRESHOLD_"] = "1048576"  # glibc gives the memory of a large picture back at once
        self._process = subprocess.Popen(
            [*command, json.dumps(asdict(limits))],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=() if limits.turn is None else (limits.turn,),
            env={**os.environ, **few, "PYTHONPATH": os.pathsep.join(paths)},
        )

    def run_job(self, job: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdin is not None
        self._wait_until_ready()
        # A little more than the worker gives itself: then it has hung where its own limits do not reach.
        self._until = time.monotonic() + self._limits.patience + 1
        with suppress(OSError):  # it has ended: the reply says so
            _send(self._process.stdin, job, content)
        described, raw = HEAD.unpack(self._read(HEAD.size))
        return json.loads(self._read(described)), self._read(raw)

    def end(self) -> None:
        self.ended = True
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)

    def _wait_until_ready(self) -> None:
        """A worker that cannot start is a fault of the installation, not of the picture that it should have decoded."""
        if not self._ready:
            self._until = time.monotonic() + 120
            try:
                self._read(len(READY))
            except _WorkerEnded as error:
                command = "python -P -m kenthash.data.decoding '{}'"
                raise KenthashError(f"a process to decode pictures cannot be started: see `{command}`") from error
            self._ready = True

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            left = max(0.0, self._until - time.monotonic())
            part = self._read_within(left, min(size, 1 << 20))
            if not part:
                raise self._why(timed_out=time.monotonic() >= self._until)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _read_within(self, seconds: float, size: int) -> bytes:
        """What the worker has sent, up to `size` bytes; none if it sends nothing in this time, or has ended."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            return os.read(descriptor, size) if poll.poll(1e3 * seconds) else b""
        ends = threading.Timer(seconds, self._process.kill)  # Windows cannot wait for a pipe: its end is waited for
        ends.start()
        try:
            return os.read(descriptor, size)
        finally:
            ends.cancel()

    def _why(self, timed_out: bool) -> _WorkerEnded:
        if not timed_out:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        code = self._process.returncode
        self.end()
        name = {-number.value: number.name for number in signal.Signals}.get(code)  # Windows knows neither of the two
        if name == "SIGPROF":
            return _WorkerEnded(f"takes more than {self._limits.seconds:g} s of processor time to decode", True)
        if timed_out or name == "SIGALRM":
            return _WorkerEnded(f"takes more than {self._limits.patience:g} s to decode", True)
        return _WorkerEnded("the decoder fails on it", False)


READY = b"ready\n"


def work(limits: _Limits) -> None:
    """The worker: decodes pictures one by one until its input ends."""
    _limit(limits)
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    replies.write(READY)
    replies.flush()
    while len(head := requests.read(HEAD.size)) == HEAD.size:
        described, raw = HEAD.unpack(head)
        job, content = json.loads(requests.read(described)), requests.read(raw)
        _set_timers(limits.seconds, limits.patience)
        answer, pixels = _answer(job, content, limits.turn)
        _set_timers(0, 0)
        _send(replies, answer, pixels)


def _set_timers(seconds: float, patience: float) -> None:
    """Signals that nothing catches: they end a decoder in the middle of its C code. Windows has none."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, patience)


def _limit(limits: _Limits) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, for all its processes: the owner decides
    if resource is None:
        return
    with suppress(ValueError, OSError):  # a lower limit is set already, or the system knows none (macOS)
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _answer(job: dict[str, Any], content: bytes, turn: int | None) -> tuple[dict[str, Any], bytes]:
    source = Path(job["path"]) if "path" in job else content

    def wait_for_turn() -> None:
        if turn is not None:
            fcntl.lockf(turn, fcntl.LOCK_EX)

    try:
        if "thumbnail" in job:
            return {}, _thumbnail(source, job["thumbnail"])
        pixels, facts = square_with_facts(source, Square(**job["square"]), job["max_pixels"], wait_for_turn)
        return {"facts": facts}, pixels.tobytes()
    except BadPicture as error:
        return {"reason": error.reason, "too_large": isinstance(error, TooLarge)}, b""
    except MemoryError:  # after decoding: what happens in it is a BadPicture
        return {"reason": NO_MEMORY}, b""
    finally:
        if turn is not None:
            fcntl.lockf(turn, fcntl.LOCK_UN)


def _thumbnail(source: Path | bytes, side: int) -> bytes:
    picture = open_picture(source, side)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = BytesIO()
    picture.save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def _send(stream: IO[bytes], described: dict[str, Any], content: bytes) -> None:
    head = json.dumps(described).encode()
    for part in (HEAD.pack(len(head), len(content)) + head, content):
        unwritten = memoryview(part)
        while unwritten:  # an unbuffered pipe may take only a part
            unwritten = unwritten[stream.write(unwritten) :]
    stream.flush()


if __name__ == "__main__":
    work(_Limits(**json.loads(sys.argv[1])))
