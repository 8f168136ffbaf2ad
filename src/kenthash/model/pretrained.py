"""The models that come with the package, each known by the name of the encoder before it.

They were trained on COCO photos with captions, so that a folder of pictures can be searched without labels or training.
Their cards, `kenthash/pretrained/NAME/README.md`, say how, and what they reach.
"""

import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kenthash.encoders import find_exported, open_encoder
from kenthash.encoders.clip import cached_clip, get_clip
from kenthash.encoders.onnx_encoder import is_whole
from kenthash.errors import EXTRAS, KenthashError, UsageError
from kenthash.model.config import model_folder, read_config

FOLDER = Path(__file__).parents[1] / "pretrained"
ABOUT = {
    "clip": "CLIP ViT-B/16 for pictures (MIT, 78 MB), MiniLM-L6 for texts (Apache-2.0, 21 MB); ONNX, no PyTorch needed",
    "light": "EfficientNet-Lite0 for pictures, MiniLM-L6 for texts (both Apache-2.0); come with kenthash[train]",
}
NAMES = tuple(ABOUT)  # the better one first


@dataclass(frozen=True)
class Pretrained:
    """What `kenthash models list` prints of a model."""

    name: str
    folder: Path
    bits: int
    about: str  # the encoder, its size and its licence
    encoder: Path | None  # the folder of the encoder's graphs, if they are in the cache
    note: str  # what is missing, if anything


def pretrained_folders() -> dict[str, Path]:
    return {name: FOLDER / name for name in NAMES}


def find_model(reference: Path | str) -> Path:
    """The model folder that is meant: a model or run folder, or the name of a pretrained model.

    A folder is taken before a model of the same name.
    """
    path, name = Path(reference), str(reference)
    if name in NAMES and not any((path / part).is_file() for part in ("config.json", "model/config.json")):
        return FOLDER / name
    if not path.is_dir() and len(path.parts) == 1:
        raise UsageError(f"{name}: neither a folder nor a pretrained model: these are {', '.join(NAMES)}")
    return model_folder(path)


def best_pretrained() -> str:
    """The name of the best model that can be used here: `clip`, whose encoder is fetched when first needed; where that
    cannot be had, `light`, if what its encoder needs is there."""
    try:
        get_clip()
    except KenthashError as error:
        if _missing_of_light():
            raise
        print(f"note: {error}; using the model `light` instead", file=sys.stderr)
        return "light"
    return "clip"


def list_pretrained() -> list[Pretrained]:
    models = []
    for name, folder in pretrained_folders().items():
        encoder = cached_clip() if name == "clip" else find_exported(name)
        note = ""
        if encoder is None:
            note = "its encoder is fetched when first needed" if name == "clip" else _missing_of_light()
        models.append(Pretrained(name, folder, read_config(folder / "config.json").bits, ABOUT[name], encoder, note))
    return models


def get_pretrained(name: str, files: list[Path]) -> Path:
    """Put the encoder of a model into the user's cache, from the package index or from `files`; its folder. One that is
    there and damaged is replaced."""
    if name not in NAMES:
        raise UsageError(f"{name}: not a pretrained model: these are {', '.join(NAMES)}")
    cached = cached_clip() if name == "clip" else find_exported(name)
    if cached is not None and not is_whole(cached):
        shutil.rmtree(cached)
    if name == "clip":
        return get_clip(files)
    if files:
        raise UsageError(f"{name}: its encoder is made by PyTorch, not read from files: leave out --file")
    return open_encoder(name).folder


def _missing_of_light() -> str:
    """What is to be done before the encoder of `light` can be used; "" if nothing."""
    if find_exported("light") or all(find_spec(package) for package in EXTRAS["train"]):
        return ""
    return "its encoder needs more packages: pip install 'kenthash[train]'"
