"""What Prometheus asks for."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """One registry a service, so that several can live in a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        held = self.registry
        self.requests = Counter("kenthash_requests", "Requests answered", ["method", "route", "status"], registry=held)
        self.seconds = Histogram(
            "kenthash_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=held
        )
        self.in_flight = Gauge("kenthash_requests_in_flight", "Requests at work", registry=held)
        self.refused = Counter("kenthash_refused", "Requests refused because of too much to do", registry=held)
        self.batches = Histogram(
            "kenthash_encode_batch", "Items encoded at once", ["kind"], buckets=(1, 2, 4, 8, 16, 32), registry=held
        )
        self.encode_seconds = Counter("kenthash_encode_seconds", "Time spent encoding", ["kind"], registry=held)
        self.cached = Counter("kenthash_cached", "Answers from a cache", ["cache"], registry=held)
        self.search_seconds = Histogram("kenthash_search_seconds", "Time in the engine", buckets=SECONDS, registry=held)
        self.looked_at = Counter("kenthash_codes_looked_at", "Codes compared with a query", registry=held)
        self.items = Gauge("kenthash_items", "Items in the index", registry=held)
        self.reloads = Counter("kenthash_reloads", "Reloads of the index and the model", ["result"], registry=held)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)
