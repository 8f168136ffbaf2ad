"""A model with its encoder: what may be given to it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_clip import make_pictures, write_clip

from kenthash import Hasher
from kenthash.encoders import load_encoder
from kenthash.model.hasher import HasherConfig
from kenthash.model.heads import HeadConfig


@pytest.fixture(scope="module")
def hasher(tmp_path_factory: pytest.TempPathFactory) -> Hasher:
    """Untrained, of 16 bits, over a small CLIP."""
    folder = tmp_path_factory.mktemp("clip")
    write_clip(folder)
    spec, head = f"openclip:{folder}", HeadConfig()
    return Hasher(HasherConfig(16, 24, 24, head, head, spec), load_encoder(spec))


def test_one_text_or_picture_is_one_code(hasher: Hasher, tmp_path: Path) -> None:
    listed = hasher.encode_texts(["two dogs"])
    assert listed.shape == (1, 2)
    assert np.array_equal(hasher.encode_texts("two dogs"), listed)
    (file,) = make_pictures(tmp_path, 1)
    with Image.open(file) as picture:
        expected = hasher.encode_pictures([file])
        for given in (file, str(file), file.read_bytes(), picture):
            assert np.array_equal(hasher.encode_pictures(given), expected), type(given)
