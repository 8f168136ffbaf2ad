"""What a method is: proxies or other learned state, and named loss terms with their weights.

A method knows nothing of the loop that trains it, nor the loop of any one method. It is added by one file beside
this one and one line in `methods/__init__.py`.
"""

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from kenthash.proxies import ClassProxies
from kenthash.validation import checked

Fidelity = Literal["own", "paper", "code", "reconstruction", "control"]

# The optimiser of the heads that the CLIP-based methods of the field share: Adam with decoupled weight decay.
FIELD_OPTIMIZER: dict[str, Any] = {"name": "adamw", "weight_decay": 0.2}


@dataclass(frozen=True)
class Shapes:
    """The sizes a method is built for."""

    classes: int
    bits: int
    image_dim: int
    text_dim: int
    items: int  # training items


@dataclass(frozen=True)
class ShortQueries:
    """Short texts as people type them ("dog", "a photo of a dog", "red hat"), and which items of a batch each asks for:
    those with that label, or with that phrase in a caption."""

    outputs: Tensor  # [P, K] of the text head
    relevant: Tensor  # [P, B] boolean
    counted: Tensor  # [P, B] boolean: where it is known whether an item is relevant


@dataclass(frozen=True)
class Batch:
    """One global batch as a loss sees it: B items, image side x and text side t.

    Items without a label have a row of zeros in `labels`: what they share labels with is not known. Items without a
    caption have a row in `t` that is no text's and must not be used. A method meets either only where it says that it
    can learn from such items (`needs_labels`, `needs_captions`), and never an item that has neither.
    """

    x: Tensor  # [B, K] outputs of the image head, in [-1, 1]
    t: Tensor  # [B, K] outputs of the text head
    labels: Tensor  # [B, C] multi-hot, of the outputs' dtype; C is 0 in a set without labels
    image_features: Tensor  # [B, Di] what the image head was given, without gradient
    text_features: Tensor  # [B, Dt]
    items: Tensor  # [B] positions in the training set, 0 to N-1: for methods that remember
    captioned: Tensor  # [B] boolean: whether the item has a caption
    short: ShortQueries | None = None  # for a method that uses them, where an encoder can make them
    start: tuple[Tensor, Tensor] | None = None  # outputs [B, K'] of the model that training goes on from, both sides

    @property
    def labelled(self) -> Tensor:
        """[B] boolean: whether the item has a label."""
        return self.labels.any(dim=1)

    def first_bits(self, bits: int) -> "Batch":
        """The batch of the codes that are nested in these: outputs cut off after `bits`."""
        if bits == self.x.shape[1]:
            return self
        short = self.short and replace(self.short, outputs=self.short.outputs[:, :bits])
        return replace(self, x=self.x[:, :bits], t=self.t[:, :bits], short=short)


class Method(nn.Module):
    """Subclasses set the class attributes, build their proxies in `__init__` and write `terms` and `weights`."""

    key: ClassVar[str]  # its name on the command line
    title: ClassVar[str]  # its name in tables
    citation: ClassVar[str]
    fidelity: ClassVar[Fidelity]  # this project's, after the paper, after public code, rebuilt from less; no rival
    settings_class: ClassVar[type[Any]]  # a frozen dataclass with the method's own values, all with defaults
    needs_labels: ClassVar[bool] = True  # then items without labels are left out of training
    needs_captions: ClassVar[bool] = True  # and so are items without captions
    changes: ClassVar[str] = ""  # what the defaults change against that source, for the notes of tables
    recipe: ClassVar[dict[str, Any]] = {}  # what it changes in the default recipe: its own optimiser, epochs ...
    # Values that `compare --tune` draws from, by dotted names of a recipe; other numbers are scaled
    ranges: ClassVar[dict[str, tuple[Any, ...]]] = {}

    def __init__(self, shapes: Shapes, settings: Any) -> None:
        super().__init__()
        self.shapes = shapes
        self.settings = settings

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """The named loss terms of a batch, not yet weighted."""
        raise NotImplementedError

    def weights(self) -> dict[str, float]:
        """The factor of every term that `terms` returns."""
        raise NotImplementedError

    def uses_short_texts(self) -> bool:
        """Whether it learns from `Batch.short`, which costs encoding them."""
        return False

    def measures(self) -> dict[str, Tensor]:
        """Vectors worth watching during training, logged as histograms: κ, β, a temperature."""
        return {}

    def class_proxies(self) -> ClassProxies | None:
        """What stands for the classes, in methods that keep it as `self.proxies`; None in others."""
        return getattr(self, "proxies", None)


def settings_of(method: type[Method], values: Any) -> Any:
    """The method's settings with `values` over its defaults; an unknown name or a wrong type is refused."""
    known = fields(method.settings_class)
    assert all(f.default is not MISSING for f in known), f"a setting of {method.key} has no default"
    return checked(method.settings_class, values, "settings", method.key)
