"""All items in the background: the codes of the items' texts."""

import threading
import time
from collections.abc import Iterator

from kenthash.errors import KenthashError
from kenthash.search import Index, Item
from kenthash.service import logs
from kenthash.service.encoding import Encoding
from kenthash.service.texts import TextCodes

STEP = 500  # items looked at at once
PAUSE = 1.0  # of the time a step took: so that requests have the machine
RETRY = 30.0  # seconds after a walk that failed


class Census:
    def __init__(self, index: Index, encoding: Encoding, target: str, model: str) -> None:
        self._index, self._encoding = index, encoding
        self.texts = TextCodes(index, encoding, target, model)
        self._changed, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="census", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def again(self) -> None:
        """Items have changed."""
        self._changed.set()

    def stop(self) -> None:
        """What has been found out stays."""
        self._stop.set()
        self._changed.set()
        self._encoding.batcher.drop_background()
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        self.stop()
        self.texts.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._changed.clear()
            start = time.monotonic()
            try:
                self._walk()
            except Exception as error:
                if self._stop.is_set():
                    return
                logs.write("census failed", "warning", error=str(error), expected=isinstance(error, KenthashError))
                self._stop.wait(RETRY)
                continue
            self._stop.wait(max(1.0, 4 * (time.monotonic() - start)))  # many changes in a row are looked at together
            if not self._stop.is_set():  # or `stop` has waked it already, and will not again
                self._changed.wait()

    def _walk(self) -> None:
        self.texts.begin()
        for items in self._all_items():
            self.texts.add(items)
        if self._stop.is_set():
            return
        self.texts.finish()

    def _all_items(self) -> Iterator[list[Item]]:
        """In steps, with a pause after each; fewer when it is to stop."""
        after = ""
        while (names := self._index.list_ids(after, STEP)) and not self._stop.is_set():
            start = time.monotonic()
            yield [item for item in self._index.get(names) if item is not None]
            after = names[-1]
            self._stop.wait(PAUSE * (time.monotonic() - start))
