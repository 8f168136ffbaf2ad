"""Each system call of an operation fails once: `python faults.py NAME FIRST STEP` in a process with the shim.

NAME is one of OPERATIONS, on an index, or of COMMANDS. The operation is carried out again and again; the first time its
call number FIRST fails, then the one STEP later, and so on until it makes no more calls, for each of ERRORS. Prints the
number of cases by outcome as JSON; "right" means

- the operation succeeds, or fails with one clear line;
- the index that is open stays usable, holds all or nothing of the change (all where it succeeded), and is healthy;
- a command that is repeated succeeds, with the same result as if nothing had failed;
- no files are left over.
"""

import contextlib
import errno
import importlib
import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from changes import BITS, CODE_BITS, Change, State, after, carry_out, change, check_answers, state_of

from kenthash.errors import KenthashError
from kenthash.search import Index
from kenthash.search.local import scan
from kenthash.search.local.maintenance import backup_index, verify_index
from shim import Shim, run_shimmed, shimmed

ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR)


def _change(kind: str) -> Change:
    return next(what for what in map(change, range(100, 200)) if what.kind == kind and len(what.ids) > 5)


def _operation(kind: str) -> Callable[[Index, Path], State | None]:
    """What carries out a change on an index and tells what the change is to lead to, from the state of BEFORE."""

    def operate(index: Index, path: Path) -> State:
        carry_out(index, _change(kind))
        return after(BEFORE, _change(kind))

    return operate


def _open(index: Index, path: Path) -> State:
    with Index.open(path) as other:
        return state_of(other)


def _search(index: Index, path: Path) -> State:
    check_answers(index, BEFORE, 1)
    return BEFORE


def _backup(index: Index, path: Path) -> State:
    backup_index(path, path.with_name("copy.kh"))
    return BEFORE


def _create(index: Index, path: Path) -> State:
    other = path.with_name("other.kh")
    Index.create(other, BITS, CODE_BITS).close()
    return BEFORE


OPERATIONS: dict[str, Callable[[Index, Path], State | None]] = {
    **{kind: _operation(kind) for kind in ("add", "upsert", "remove", "compact", "note")},
    "open": _open,
    "search": _search,
    "backup": _backup,
    "create": _create,
}
STARTING = [what for what in map(change, range(30)) if what.kind in ("add", "upsert", "remove", "compact")]
BEFORE = State()
for _what in STARTING:
    BEFORE = after(BEFORE, _what)


def attack_index(name: str, root: Path, first: int, step: int) -> Counter[str]:
    scan._words_left = 1 << 40  # by numpy: the cache of compiled kernels is not what is tested
    template = root.parent / "template"
    template.mkdir()
    with Index.create(template / "x.kh", BITS, CODE_BITS) as index:
        for what in STARTING:
            carry_out(index, what)
    outcomes: Counter[str] = Counter()
    shim = Shim()
    for error in ERRORS:
        number = first
        while True:
            shutil.rmtree(root)
            shutil.copytree(template, root)
            result = _attempt(OPERATIONS[name], root / "x.kh", shim, number, error)
            if result is None:
                break
            outcomes[result if result == "right" else f"{errno.errorcode[error]} {number}: {result}"] += 1
            number += step
    return outcomes


def _attempt(
    operation: Callable[[Index, Path], State | None], path: Path, shim: Shim, number: int, error: int
) -> str | None:
    """None where the operation makes fewer calls."""
    succeeded, expected = True, BEFORE
    try:
        with Index.open(path) as index:
            shim.fail(number, error)
            try:
                expected = operation(index, path) or BEFORE
            except KenthashError as problem:
                succeeded = False
                wrong = "damaged" in str(problem) and "or the disk fails to read it" not in str(problem)
                if "\n" in str(problem) or wrong:
                    return f"unclear: {problem}"
            finally:
                has_failed = shim.has_failed()
                shim.fail(0, 0)
            if not has_failed:
                return None
            actual = state_of(index)  # the index that was open all the time
            if actual != expected if succeeded else actual not in (BEFORE, _goal(operation, index, path)):
                return "lost or half"
            check_answers(index, actual, number)
            index.upsert(["after"], np.zeros((1, CODE_BITS // 8), np.uint8), [{"number": 0}])
        with Index.open(path) as index:
            if state_of(index).items != actual.items | {"after": (bytes(CODE_BITS // 8), 0)}:
                return "lost after it was opened again"
        if faults := verify_index(path).faults:
            return f"faults: {faults}"
        return _left_over(path, succeeded) or "right"
    except Exception as problem:
        place = traceback.extract_tb(problem.__traceback__)[-1]
        return f"{type(problem).__name__} in {Path(place.filename).name} {place.name}: {str(problem)[:100]}"


def _goal(operation: Callable[[Index, Path], State | None], index: Index, path: Path) -> State:
    for kind in ("add", "upsert", "remove", "note"):
        if operation is OPERATIONS[kind]:
            return after(BEFORE, _change(kind))
    return BEFORE


def _left_over(path: Path, succeeded: bool) -> str:
    """Files that should not be there. What could not be deleted goes with the next compaction, or the next opening;
    an index whose creation succeeded but not its opening is whole and empty."""
    with Index.open(path) as index:
        index.compact()
    new = path.with_name("other.kh")
    if new.exists():
        with Index.open(new) as index:
            if index.list_ids():
                return "the new index is not empty"
    copy = path.with_name("copy.kh")
    if copy.exists() and succeeded:
        with Index.open(copy) as index:
            if state_of(index) != BEFORE:
                return "the copy differs"
    # Where the second name of a new index cannot be deleted, it stays.
    files = [file for file in path.parent.iterdir() if not (new.exists() and file.samefile(new))]
    extra = {file.name for file in files} - {path.name}
    extra -= {copy.name} if succeeded else set()
    code_files = {name for name in extra if name.endswith(".codes")}
    extra -= code_files if len(code_files) == 1 else set()
    return f"left over: {sorted(extra)}" if extra else ""


# Commands: each attempt in a process forked from this one, which has imported everything and used nothing.


class Ended(NamedTuple):
    code: int
    text: str  # of standard error
    has_failed: bool  # whether a call has
    modules: list[str]


def _run(arguments: list[str], shim: Shim, number: int, error: int) -> Ended:
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        stderr, code = io.StringIO(), 1
        try:
            from kenthash.cli import main

            sys.argv = ["kenthash", *arguments]
            shim.fail(number, error)
            with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
                try:
                    main()
                    code = 0
                except SystemExit as end:
                    code = int(end.code or 0)
                except BaseException:
                    traceback.print_exc()
            has_failed = shim.has_failed()
            shim.fail(0, 0)
            with os.fdopen(send, "wb") as stream:
                ended = Ended(code, stderr.getvalue()[-20000:], has_failed, [] if number else list(sys.modules))
                stream.write(json.dumps(ended).encode())
        finally:
            os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        return Ended(1, f"Traceback: killed by {signal.Signals(os.WTERMSIG(status)).name}", True, [])
    return Ended(*json.loads(answer))


def attack_command(name: str, root: Path, first: int, step: int) -> Counter[str]:
    arguments, out, parts = COMMANDS[name](root)
    shim, outcomes = Shim(), Counter[str]()
    code, text, _, modules = _run(arguments, shim, 0, 0)  # also fills the cache of graphs
    assert code == 0, text
    for module in modules:
        with contextlib.suppress(Exception):  # some are no files
            importlib.import_module(module)
    right, listing = _content(out, parts), _listing(root)
    for error in ERRORS:
        number = first
        while True:
            shutil.rmtree(out)
            code, text, has_failed, _ = _run(arguments, shim, number, error)
            if not has_failed:
                break
            lines = text.strip().splitlines()
            clear = code == 0 or (code == 1 and lines and lines[-1].startswith("error: ") and "Traceback" not in text)
            resumed = [*arguments, "--resume"] if name == "train" and out.exists() else arguments
            result = "right" if clear else f"unclear: {text.strip()[-300:]}"
            if code == 0 and _content(out, parts) != right:
                result = "succeeded with another result"
            code, text, _, _ = _run(resumed, shim, 0, 0)
            if code or _content(out, parts) != right:
                result = f"cannot be repeated: {text[-300:]}"
            elif extra := _listing(root) ^ listing:
                result = f"left over or missing: {sorted(extra)}"
                shutil.rmtree(out)
                for file in _listing(root) - listing:
                    (root / file).unlink()
            outcomes[result if result == "right" else f"{errno.errorcode[error]} {number}: {result}"] += 1
            number += step
    return outcomes


def _content(out: Path, parts: tuple[str, ...]) -> dict[str, bytes]:
    return {part: (out / part).read_bytes() if (out / part).exists() else b"" for part in parts}


def _listing(root: Path) -> set[str]:
    files = {file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file()}
    return {name for name in files if "/events/" not in name}  # which have the time in their names


def _encode(root: Path) -> tuple[list[str], Path, tuple[str, ...]]:
    from small_clip import make_pictures, write_clip

    write_clip(root / "clip", layers=2)  # of which the numbers of calls in test_faults were counted
    files = make_pictures(root / "pictures", 6)
    rows = [json.dumps({"file_name": file.name, "text": f"text of {file.stem}", "labels": ["a"]}) for file in files]
    (root / "pictures" / "metadata.jsonl").write_text("\n".join(rows) + "\n")
    out = root / "pack"
    arguments = ["encode", str(root / "pictures"), "--encoder", f"openclip:{root / 'clip'}", "--batch", "4"]
    parts = ("ids.txt", "image.npy", "text.npy", "text_offsets.npy", "labels.npy", "texts.jsonl", "meta.json")
    return [*arguments, "--device", "cpu", "--out", str(out)], out, parts


def _train(root: Path) -> tuple[list[str], Path, tuple[str, ...]]:
    from packs import write_pack

    pack, out = write_pack(root / "pack", items=80, classes=4), root / "run"
    arguments = ["train", "--data", str(pack), "--bits", "16", "--set", "epochs=2", "--set", "batch=32"]
    parts = ("recipe.yaml", "split.npz", "model/model.safetensors", "metrics.json")
    return [*arguments, "--device", "cpu", "--out", str(out)], out, parts


COMMANDS = {"encode": _encode, "train": _train}


def attack_by_faults(folder: Path, name: str, first: int, step: int) -> dict[str, int]:
    """Cases by outcome, from a process with the shim that works in an empty folder."""
    root = folder / "root"
    root.mkdir()
    environment = shimmed(root) | {
        "XDG_CACHE_HOME": str(root / "cache"),
        "OMP_NUM_THREADS": "1",  # attempts are forked: they would wait for threads that PyTorch has started here
        "ORT_DISABLE_TELEMETRY": "1",  # a thread of onnxruntime writes it below the cache, where calls are counted
    }
    outcomes: dict[str, int] = json.loads(run_shimmed(environment, "faults.py", name, str(first), str(step)))
    return outcomes


def main() -> None:
    name, first, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    root = Path(os.environ["SHIM_ROOT"])
    attack = attack_index if name in OPERATIONS else attack_command
    print(json.dumps(attack(name, root, first, step)))


if __name__ == "__main__":
    main()
