"""What the routes share: settings, metrics, threads, caches, and what is being served."""

from dataclasses import dataclass

from kenthash.service.metrics import Metrics
from kenthash.service.settings import Settings
from kenthash.service.state import Served, State
from kenthash.service.thumbnails import Thumbnails
from kenthash.service.workers import Decoders, Workers


@dataclass(frozen=True)
class Service:
    settings: Settings
    metrics: Metrics
    searchers: Workers
    uploads: Decoders  # of pictures that strangers send: not to stand in the way of searches
    thumbnailers: Decoders  # of the index's own pictures: uploads are not to stand in their way either
    thumbnails: Thumbnails
    state: State

    def close(self) -> None:
        self.uploads.close()
        self.thumbnailers.close()
        self.state.close()
        self.searchers.close()


def make_service(settings: Settings) -> Service:
    metrics = Metrics()
    uploads = Decoders(settings.threads, 2 * settings.max_in_flight, settings.upload_seconds)
    thumbnailers = Decoders(settings.threads, 2 * settings.max_in_flight, settings.thumbnail_seconds)
    state = State(lambda: Served(settings, metrics, uploads))
    searchers = Workers("search", settings.threads, 2 * settings.max_in_flight)
    return Service(settings, metrics, searchers, uploads, thumbnailers, Thumbnails(settings.thumbnail_bytes), state)
