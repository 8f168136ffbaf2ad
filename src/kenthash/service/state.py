"""What is being served: one index with its model. A reload makes a new one beside it, and the old one goes when the
last request that uses it has ended."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from kenthash.errors import UsageError
from kenthash.model.hasher import Hasher
from kenthash.search import Index, Stats, scan
from kenthash.search.models import digest, model_for, pictures_warning
from kenthash.service import logs
from kenthash.service.encoding import Encoding
from kenthash.service.labels import Labels
from kenthash.service.metrics import Metrics
from kenthash.service.settings import Settings
from kenthash.service.workers import Decoders


class Served:
    """An open index and the model of its codes. `held` while in use; closed after `retire` when nobody holds it."""

    def __init__(self, settings: Settings, metrics: Metrics, decoders: Decoders) -> None:
        with ExitStack() as undo:  # whatever fails, nothing stays open
            self.index = undo.enter_context(Index.open(settings.index))
            self.folder = model_for(self.index, settings.model)
            self.digest = digest(self.folder)
            hasher = Hasher.load(self.folder, settings.device)
            if hasher.bits != self.index.bits:
                raise UsageError(f"{self.folder}: makes {hasher.bits} bits, the index holds {self.index.bits}")
            self.config = hasher.config
            self.encoding = Encoding(hasher, settings, metrics, decoders)
            undo.callback(self.encoding.close)
            self.encoding.warm_up()
            scan.use_compiled()
            self.index.search(np.zeros((1, hasher.bits // 8), np.uint8), 1)  # which may have kernels to compile
            self.stats: Stats = self.index.stats()
            self.warning = pictures_warning(self.index)
            self.has_texts, self.keeps_texts = self.index.has_texts(), self.index.keeps_texts()
            undo.pop_all()
        if self.warning is not None:
            logs.warning("old codes", error=self.warning)
        metrics.items.set(self.stats.items)
        self._metrics = metrics
        self._lock = threading.Lock()
        self._holders, self._retired = 0, False
        self.labels = Labels(self.index)

    def refresh(self) -> None:
        """After a change of the items: what answers tell of all of them."""
        self.stats = self.index.stats()
        self.warning = pictures_warning(self.index)
        self.has_texts, self.keeps_texts = self.index.has_texts(), self.index.keeps_texts()
        self._metrics.items.set(self.stats.items)
        self.labels.items_changed()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                last = self._retired and self._holders == 0
            if last:
                threading.Thread(target=self._close, name="closing").start()  # waits for threads: not in the event loop

    def retire(self) -> None:
        with self._lock:
            self._retired = True
            idle = self._holders == 0
        if idle:
            self._close()

    def _close(self) -> None:
        self.encoding.close()
        self.index.close()

    def about_model(self) -> dict[str, object]:
        config = self.config
        return {**config.about, "bits": config.bits, "digest": self.digest, "encoder_trained": config.encoder_trained}


class State:
    def __init__(self, make: Callable[[], Served]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._served = make()
        self.draining = False

    @property
    def served(self) -> Served:
        return self._served

    @contextmanager
    def use(self) -> Iterator[Served]:
        with ExitStack() as stack:
            with self._lock:  # or a reload could close it between the two
                served = self._served
                stack.enter_context(served.held())
            yield served

    def reload(self) -> None:
        """Whatever fails, fails before the change: then the old one goes on."""
        new = self._make()
        with self._lock:
            old, self._served = self._served, new
        old.retire()

    def close(self) -> None:
        self._served.retire()
