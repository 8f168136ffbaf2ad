"""The model whose heads training goes on from: named by the recipe's `start`, or the pretrained one that fits the data.

A pretrained model has seen many more photos with captions than most collections have. Going on from its heads instead
of random ones keeps what it knows of words, and learns the labels and captions of the data on top (docs/findings.md has
what that is worth).
"""

import numpy as np
import torch

from kenthash.codes import pack
from kenthash.data.splits import Rows
from kenthash.errors import UsageError
from kenthash.evaluation import instance_scores
from kenthash.model.config import HeadConfig, read_config
from kenthash.model.network import HashNetwork
from kenthash.model.pretrained import find_model, pretrained_folders
from kenthash.training.recipe import Recipe
from kenthash.training.sources import VectorSource

PRETRAINED_BY = "kcph"  # the method that they were trained by, and that goes on from them by default
LOOKED_AT = 200  # training items
KNOWN = 0.5  # share of own pairs


def default_start(recipe: Recipe, source: VectorSource, rows: Rows) -> tuple[str, str]:
    """The name of the pretrained model that `kenthash train` goes on from where nobody says what to start from, or "",
    and what to tell about it.

    It is the one of the encoder that made the vectors, if the method and the heads are of its kind, its codes are long
    enough, and it knows such pictures: of `LOOKED_AT` of the training items `rows`, it has to find the own caption or
    picture of half among the first ten. Of photos it finds nearly all, of drawings a fifth, and what it says of these
    is not worth keeping.
    """
    if recipe.method != PRETRAINED_BY or recipe.head.kind != "mlp":
        return "", ""
    for name, folder in pretrained_folders().items():
        config = read_config(folder / "config.json")
        same = config.encoder == source.encoder_spec and source.encoder_weights in ("", config.encoder_weights)
        fits = (config.image_dim, config.text_dim) == (source.image_dim, source.text_dim)
        if same and fits and config.bits >= recipe.bits:
            looked_at = rows[source.captions[rows] > 0][:LOOKED_AT]
            found = _own_pairs_found(HashNetwork.load(folder, "cpu"), source, looked_at)
            if found >= KNOWN:
                return name, f"the heads go on from those of {name}; --set start= begins with random ones"
            return "", (
                f"the heads begin with random weights: {name} finds only {100 * found:.0f} % of own pairs among "
                f"{len(looked_at)} training items; --set start={name} goes on from it all the same"
            )
    return "", ""


def _own_pairs_found(model: HashNetwork, source: VectorSource, rows: Rows) -> float:
    """Recall@10 of own pairs among these items, which have captions; mean of both directions."""
    with torch.inference_mode():
        image, text = (vectors.cpu() for vectors in source.vectors(rows, np.zeros_like(rows)))
        outputs = model.image_head(image).numpy(), model.text_head(text).numpy()
    own = np.arange(len(rows))
    recalls = [instance_scores(pack(a), pack(b), own, own, [10]).recall[10] for a, b in (outputs, outputs[::-1])]
    return sum(recalls) / 2


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
