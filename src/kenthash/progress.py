"""Long work: a bar with rate and time left, on standard error where that is a terminal, and the number of processors
that the work may use."""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

Item = TypeVar("Item")


def bar(total: int, what: str, unit: str = "items", initial: int = 0, show: bool | None = None) -> "tqdm[Any]":
    """A bar to advance by hand: `with bar(...) as b: b.update(n)`. `b.write(line)` prints above it. It is shown where
    standard error is a terminal, unless `show` says otherwise."""
    from tqdm import tqdm  # not at the top: one search needs `cores` and shows no bar

    return tqdm(
        total=total,
        initial=initial,
        desc=what,
        unit=f" {unit}",
        disable=None if show is None else not show,
        dynamic_ncols=True,
        leave=False,
    )


def track(items: Iterable[Item], what: str, total: int | None = None, unit: str = "items") -> Iterator[Item]:
    from tqdm import tqdm

    yield from tqdm(items, desc=what, total=total, unit=f" {unit}", disable=None, dynamic_ncols=True, leave=False)


def cores() -> int:
    """How many processors this process may use, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
