"""Metrics for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """One registry per service, so that a process can hold several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter(
            "kenthash_requests", "Requests answered", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "kenthash_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=registry
        )
        self.in_flight = Gauge("kenthash_requests_in_flight", "Requests being processed", registry=registry)
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
        self.items = Gauge("kenthash_items", "Items in the index", registry=registry)
        self.reloads = Counter("kenthash_reloads", "Reloads of the index and the model", ["result"], registry=registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)
