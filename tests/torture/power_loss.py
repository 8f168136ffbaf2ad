"""Power loss at every moment of a run.

A run of changes is recorded. After each of its system calls the power fails, and the disk is left with all, none or
some of what was not flushed. Each such state is opened: what was acknowledged is there, the change under way as a whole
or not at all, searches answer as a dict does, and the index can be written to.
"""

import hashlib
import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from changes import CODE_BITS, State, after, change, check_answers, state_of
from disk import Content, Disk, write_content

from kenthash.errors import KenthashError
from kenthash.search import Index
from kenthash.search.local.maintenance import verify_index
from shim import Kind, read_records, run_shimmed, shimmed

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where flushing takes no time


def record_run(folder: Path, first: int, changes: int, synchronous: str = "FULL") -> tuple[Path, Path]:
    """Let a writer work in a folder of its own; the index and the record."""
    root, log = folder / "root", folder / "record"
    root.mkdir()
    run_shimmed(shimmed(root, log), "writer.py", str(root / "x.kh"), str(first), str(changes), synchronous)
    return root / "x.kh", log


def replay(path: Path, log: Path, mixtures: int, every: int = 1) -> Counter[str]:
    """Outcomes of opening each state: "right", or what is wrong. `mixtures` states with some of the unflushed calls are
    tried after each call; `every` leaves out all but each n-th moment."""
    outcomes: Counter[str] = Counter()
    disk, acknowledged, seeds, seen = Disk(), State(), [], set()
    is_created = False
    records = list(read_records(log))
    notes = [record.name for record in records if record.kind == Kind.NOTE]
    rng = random.Random(0)
    for moment, record in enumerate(records):
        if record.kind == Kind.NOTE:
            if record.name == "created":
                is_created = True
            else:
                acknowledged = after(acknowledged, change(int(record.name)))
                seeds.append(int(record.name))
        else:
            disk.apply(record)
        if moment % every:
            continue
        following = notes[len(seeds) + 1 : len(seeds) + 2] if is_created else []
        allowed = [acknowledged, *(after(acknowledged, change(int(note))) for note in following)]
        for content in (disk.all_kept(), disk.none_kept(), *(disk.some_kept(rng) for _ in range(mixtures))):
            key = hashlib.sha256(repr((len(seeds), is_created, sorted(content.items()))).encode()).digest()
            if key not in seen:
                seen.add(key)
                outcomes[outcome(content, path, allowed, is_created, moment)] += 1
    outcomes["system calls"] = len(records) - len(notes)
    outcomes["acknowledged changes"] = len(seeds)
    return outcomes


def outcome(content: Content, path: Path, allowed: list[State], is_created: bool, seed: int) -> str:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        write_content(content, path.parent, Path(folder))
        copy = Path(folder) / path.name
        if not copy.exists() and not is_created:
            return "right"
        try:
            with Index.open(copy) as index:
                actual = state_of(index)
                if actual not in allowed:
                    return f"lost or half: {len(actual.items)} items"
                check_answers(index, actual, seed)
                index.upsert(["after"], np.zeros((1, CODE_BITS // 8), np.uint8))
                index.compact()
            if faults := verify_index(copy).faults:
                return f"faults: {', '.join(faults)}"
        except KenthashError as error:
            return f"refused: {str(error).replace(folder, '')}"
        except AssertionError:
            return "wrong answer"
        codes = [file.name for file in Path(folder).iterdir() if ".codes" in file.name]
        return "right" if len(codes) == 1 else f"{len(codes)} code files are left"
