"""Metrics for Prometheus. Several workers of one service count in files of a folder, and any of them gives the sums."""

import os
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """One registry per service, so that a process can hold several."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is that of several workers; it is set for the whole process."""
        self._folder, self.shared = folder, folder is not None
        if folder is not None:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
            values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter(
            "kenthash_requests", "Requests answered", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "kenthash_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=registry
        )
        self.in_flight = Gauge(
            "kenthash_requests_in_flight", "Requests being processed", registry=registry, multiprocess_mode="livesum"
        )
        self.refused = Counter("kenthash_refused", "Requests refused because of overload", registry=registry)
        self.batches = Histogram(
            "kenthash_encode_batch", "Items encoded at once", ["kind"], buckets=(1, 2, 4, 8, 16, 32), registry=registry
        )
        self.encode_seconds = Counter("kenthash_encode_seconds", "Time spent encoding", ["kind"], registry=registry)
        self.cached = Counter("kenthash_cached", "Answers from a cache", ["cache"], registry=registry)
        self.search_seconds = Histogram(
            "kenthash_search_seconds", "Time in the engine", buckets=SECONDS, registry=registry
        )
        self.looked_at = Counter("kenthash_codes_looked_at", "Codes compared with a query", registry=registry)
        self.items = Gauge(
            "kenthash_items", "Items in the index", registry=registry, multiprocess_mode="livemostrecent"
        )
        self.reloads = Counter("kenthash_reloads", "Reloads of the index and the model", ["result"], registry=registry)
        self._answered: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def text(self) -> bytes:
        if self._folder is None:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together, str(self._folder))  # type: ignore[no-untyped-call]
        return generate_latest(together)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        labels = (method, route, status)
        if labels not in self._answered:  # a look-up by labels takes longer than to count
            self._answered[labels] = self.requests.labels(method, route, str(status)), self.seconds.labels(route)
        count, histogram = self._answered[labels]
        count.inc()
        histogram.observe(seconds)
