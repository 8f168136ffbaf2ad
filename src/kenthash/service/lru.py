"""A cache that holds what was used last, up to a total size. Threads may share one."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class LRU(Generic[V]):
    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self._held: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        with self._lock:
            self.size -= self._held.pop(key, (None, 0))[1]
            self._held[key] = (value, size)
            self.size += size
            while self.size > self.most:
                _, (_, gone) = self._held.popitem(last=False)
                self.size -= gone
