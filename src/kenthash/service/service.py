"""What the routes share: settings, metrics, threads, caches, and what is being served."""

from dataclasses import dataclass

from kenthash.service.metrics import Metrics
from kenthash.service.settings import Settings
from kenthash.service.state import Served, State
from kenthash.service.thumbnails import Thumbnails
from kenthash.service.workers import Workers


@dataclass(frozen=True)
class Service:
    settings: Settings
    metrics: Metrics
    searchers: Workers
    openers: Workers  # of pictures: slower, and not to stand in the way of searches
    thumbnails: Thumbnails
    state: State

    def close(self) -> None:
        self.state.close()
        self.searchers.close()
        self.openers.close()


def make_service(settings: Settings) -> Service:
    metrics = Metrics()
    openers = Workers("pictures", settings.threads, 2 * settings.max_in_flight)
    state = State(lambda: Served(settings, metrics, openers))
    searchers = Workers("search", settings.threads, 2 * settings.max_in_flight)
    return Service(settings, metrics, searchers, openers, Thumbnails(settings.thumbnail_bytes), state)
