"""What a model's `config.json` says: the sizes of the codes and vectors, the kind of its heads, and its encoder."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kenthash.errors import DataError, UsageError
from kenthash.files import read_json

FORMAT = 1

HEAD_KINDS = ("tanh", "mlp", "softmax_pair", "tanh_mlp", "residual", "householder", "unit")
MAX_HIDDEN = 1 << 20
NEED_HIDDEN = ("mlp", "unit", "softmax_pair", "tanh_mlp")  # what these kinds cannot do without


@dataclass(frozen=True)
class HeadConfig:
    """The width `hidden` is read by the kind: 0 is the field's head, Linear(D→K), for `tanh`, and 4D for `residual`."""

    kind: str = "tanh"
    hidden: int = 0
    dropout: float = 0.2
    slope: float = 1.0  # of the tanh of `mlp` at the end of training

    def __post_init__(self) -> None:
        if self.kind not in HEAD_KINDS:
            raise UsageError(f"head kind {self.kind!r}: choose one of {', '.join(HEAD_KINDS)}")
        if self.kind in NEED_HIDDEN and self.hidden == 0:
            raise UsageError(f"head kind {self.kind} needs hidden units: set head.hidden, for example 128")
        if self.hidden > MAX_HIDDEN:
            raise UsageError(f"head.hidden: {self.hidden:,} is more than {MAX_HIDDEN:,} units")
        if self.hidden < 0 or not 0 <= self.dropout < 1:
            raise UsageError(f"head: hidden must be 0 or more and dropout in [0, 1), not {self.hidden}, {self.dropout}")
        if not 1 <= self.slope <= 100:
            raise UsageError(f"head.slope: {self.slope:g} is not between 1 and 100")
        if self.slope > 1 and self.kind != "mlp":
            raise UsageError(f"head.slope is for head kind mlp, not {self.kind}: set head.slope=1")


@dataclass(frozen=True)
class HasherConfig:
    bits: int
    image_dim: int
    text_dim: int
    image_head: HeadConfig
    text_head: HeadConfig
    encoder: str  # the spec that `load_encoder` takes; "" where vectors came from elsewhere
    encoder_trained: bool = False  # then the encoder's weights are saved with the heads
    encoder_weights: str = ""  # `Encoder.weights` in training; "" where that is not known, or where they are saved here
    nested: list[int] = field(default_factory=list)  # shorter lengths: the first bits of a code are codes, too
    about: dict[str, Any] = field(default_factory=dict)  # for the card: method, data, seed, epoch
    graphs: dict[str, str] = field(default_factory=dict)  # ONNX files beside it: name -> sha256; none in older models

    def lengths(self) -> str:
        """The code lengths that the model has, for messages."""
        if not self.nested:
            return f"the model has codes of {self.bits} bits only"
        return f"the model has codes of {', '.join(map(str, self.nested))} and {self.bits} bits"


def model_folder(folder: Path) -> Path:
    """The model folder of a run, or the model folder itself."""
    if (folder / "model" / "config.json").is_file():
        folder = folder / "model"
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder}: no config.json here, so not a saved model: `kenthash train` makes one")
    return folder


def read_config(path: Path) -> HasherConfig:
    values = read_json(path)
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise DataError(f"{path}: not a model of format {FORMAT}: it was written by another version of kenthash")
    try:
        for head in ("image_head", "text_head"):
            values[head] = HeadConfig(**values[head])
        config = HasherConfig(**values)
    except (TypeError, KeyError, UsageError) as error:
        raise DataError(f"{path}: not a model configuration: {error}") from error
    kinds = {"bits": int, "image_dim": int, "text_dim": int, "encoder": str, "encoder_weights": str, "about": dict}
    for name, kind in (kinds | {"graphs": dict}).items():
        value = getattr(config, name)
        if not isinstance(value, kind) or (isinstance(value, int) and value < 1):
            raise DataError(f"{path}: not a model configuration: {name} is {value!r}")
    if not isinstance(config.nested, list) or not all(type(k) is int and 0 < k < config.bits for k in config.nested):
        raise DataError(f"{path}: not a model configuration: nested is {config.nested!r}")
    return config
