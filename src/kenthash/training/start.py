"""The model whose heads training goes on from: named by the recipe's `start`, or the pretrained one that fits the data.

A pretrained model has seen many more photos with captions than most collections have. Going on from its heads instead
of random ones keeps what it knows of words, and learns the labels and captions of the data on top (docs/findings.md has
what that is worth).
"""

from pathlib import Path

from kenthash.data.pack import is_pack
from kenthash.errors import UsageError
from kenthash.files import expand, read_json
from kenthash.model.config import HeadConfig, read_config
from kenthash.model.network import HashNetwork
from kenthash.model.pretrained import find_model, pretrained_folders
from kenthash.training.recipe import Recipe
from kenthash.training.sources import VectorSource

PRETRAINED_BY = "kcph"  # the method that they were trained by, and that goes on from them by default


def default_start(recipe: Recipe) -> str:
    """The name of the pretrained model that `kenthash train` goes on from where nobody says what to start from: the one
    of the encoder that made the vectors, if the method and the heads are of its kind and its codes are long enough; ""
    where there is none."""
    if recipe.method != PRETRAINED_BY or recipe.head.kind != "mlp":
        return ""
    encoder, weights = _encoder_of(recipe)
    for name, folder in pretrained_folders().items():
        config = read_config(folder / "config.json")
        same = config.encoder == encoder and weights in ("", config.encoder_weights)
        if same and config.bits >= recipe.bits:
            return name
    return ""


def _encoder_of(recipe: Recipe) -> tuple[str, str]:
    """The name of the encoder of the recipe's data, and the digest of its weights where that is known."""
    data = expand(Path(recipe.data))
    if not is_pack(data):
        return recipe.encoder.spec, ""
    meta = read_json(data / "meta.json")
    if not isinstance(meta, dict):  # a damaged pack, which reading it names
        return "", ""
    return str(meta.get("encoder") or ""), str(meta.get("encoder_weights") or "")


def open_start(recipe: Recipe, source: VectorSource, head: HeadConfig) -> HashNetwork | None:
    """The model of `recipe.start`, if it can be gone on from with this data and this kind of heads; None where none is
    named."""
    name, bits = recipe.start, recipe.bits
    if not name:
        return None
    start = HashNetwork.load(find_model(name), "cpu")
    config = start.config
    if config.encoder_trained:
        raise UsageError(f"start={name}: its encoder was trained with it: choose a model with a frozen encoder")
    if config.image_head.kind != "mlp" or head.kind != "mlp":
        raise UsageError(f"start={name}: only heads of kind mlp can be gone on from: train both with head.kind=mlp")
    if config.bits < bits:
        raise UsageError(f"start={name}: its codes have {config.bits} bits: choose at most as many, not {bits}")
    widths, own = (config.image_dim, config.text_dim), (source.image_dim, source.text_dim)
    if widths != own or (config.encoder and source.encoder_spec not in ("", config.encoder)):
        raise UsageError(
            f"start={name}: takes vectors of {config.encoder or 'an unknown encoder'}, {widths[0]}-d and "
            f"{widths[1]}-d, not of {source.encoder_spec or 'an unknown encoder'}, {own[0]}-d and {own[1]}-d"
        )
    return start
