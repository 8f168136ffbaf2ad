"""The feature cache: data is encoded once, whoever asks for its vectors later."""

import re
from pathlib import Path

from kenthash.data.dataset import Dataset
from kenthash.data.readers import read_dataset
from kenthash.data.readers.pack import is_pack
from kenthash.encoders import encoder_name, vector_encoder
from kenthash.encoders.features import FeaturePack
from kenthash.encoders.fingerprint import fingerprint
from kenthash.encoders.pipeline import encode_dataset, existing_pack
from kenthash.files import cache_folder, expand


def features_for(
    data: Path | Dataset, encoder: str = "light", cache: Path | None = None, device: str = "auto"
) -> FeaturePack:
    """The vectors of `data`: the pack itself where it is one, else encoded by `encoder` or found in the cache."""
    if isinstance(data, Path):
        data = expand(data)
        if is_pack(data):
            return FeaturePack.open(data)
        data = read_dataset(data)
    key = fingerprint(data, encoder_name(encoder))
    readable = re.sub(r"[^\w.-]+", "-", data.name)[:40]
    pack = (cache or cache_folder()) / "features" / f"{readable}-{key[:16]}"
    if existing_pack(pack, key) is None:
        encode_dataset(data, vector_encoder(encoder, device), pack)
    return FeaturePack.open(pack)
