"""The walk through all items in the background."""

from pathlib import Path

import numpy as np
from small_service import BITS, make_model, wait_until

from kenthash import Index
from kenthash.search.models import claim
from kenthash.service.service import make_service
from kenthash.service.settings import Settings

MANY = 2000


def test_labels_do_not_wait_for_the_codes_of_texts(tmp_path: Path) -> None:
    """Counting takes a moment, encoding texts for the first time minutes: the page shows what is known."""
    make_model(tmp_path / "model")
    with Index.create(tmp_path / "x.kh", BITS) as index:
        claim(index, tmp_path / "model")
        codes = np.zeros((MANY, BITS // 8), np.uint8)
        metadata = [{"text": f"thing {i}", "labels": ["thing", f"kind {i % 2}"]} for i in range(MANY)]
        index.add([str(i) for i in range(MANY)], codes, metadata)
    service = make_service(Settings(str(tmp_path / "x.kh")))
    try:
        census = service.state.served.census
        wait_until(lambda: census.labels)
        assert not census.complete and not census.texts.ready
        assert census.labels == [("thing", MANY), ("kind 0", MANY // 2), ("kind 1", MANY // 2)]
    finally:
        service.close()
