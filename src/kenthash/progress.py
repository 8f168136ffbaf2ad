"""Progress on standard error: a bar with rate and time left on a terminal, silence elsewhere."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


def bar(total: int, what: str, unit: str = "items", initial: int = 0) -> "tqdm[Any]":
    """A bar to advance by hand: `with bar(...) as b: b.update(n)`. `b.write(line)` prints above it."""
    return tqdm(
        total=total,
        initial=initial,
        desc=what,
        unit=f" {unit}",
        disable=None,
        dynamic_ncols=True,
        leave=False,
    )


def track(items: Iterable[Item], what: str, total: int | None = None, unit: str = "items") -> Iterator[Item]:
    yield from tqdm(items, desc=what, total=total, unit=f" {unit}", disable=None, dynamic_ncols=True, leave=False)
