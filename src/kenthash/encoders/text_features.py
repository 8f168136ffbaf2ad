"""Vectors of texts that belong to no picture, as prompts do, kept in the user's cache."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from kenthash.encoders import open_encoder
from kenthash.encoders.stream import BATCH, EncodeBatch, encode_stream
from kenthash.files import atomic_write, cache_folder, load_array


def text_features(texts: Sequence[str], encoder: str, weights: str = "") -> NDArray[np.float32]:
    """The vectors [n, Dt] of `texts` by the encoder that is named so and has these weights (see `open_encoder`), in the
    float16 of a feature pack, so that a text has the vector that it would have there."""
    opened = open_encoder(encoder, weights=weights)
    digest = hashlib.sha256(json.dumps([opened.name, opened.weights, list(texts)]).encode()).hexdigest()
    path = cache_folder() / "texts" / f"{digest[:32]}.npy"
    if not path.is_file():
        batches = (EncodeBatch([], list(texts[at : at + BATCH])) for at in range(0, len(texts), BATCH))
        with closing(encode_stream(opened, batches)) as stream:
            vectors = np.concatenate([encoded.text.astype(np.float16) for encoded in stream])
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            np.save(file, vectors, allow_pickle=False)
    return np.asarray(load_array(path), np.float32)
