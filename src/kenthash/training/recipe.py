"""Recipes: every setting of a run in one YAML file.

A run's settings are, each over the one before: the defaults here, what the method changes (its own optimiser), the
recipe file, the command line. What comes out is written to the run folder as `recipe.yaml`, complete, and training
again from that file gives the same run.
"""

import difflib
import math
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

import yaml

from kenthash.codes import check_bits
from kenthash.data.splits import Protocol
from kenthash.errors import DataError, UsageError
from kenthash.files import atomic_write
from kenthash.hints import describe, fits
from kenthash.methods import METHODS
from kenthash.methods.base import settings_of
from kenthash.model.config import HeadConfig


@dataclass(frozen=True)
class SplitSizes:
    """None follows the field's sizes, scaled down for small sets (`data/splits.py`)."""

    query: int | None = None
    train: int | None = None
    validation: int | None = None


@dataclass(frozen=True)
class EncoderRecipe:
    spec: str = "light"  # used where DATA is pictures; a feature pack brings its own vectors
    trainable: bool = False
    lr: float = 1e-5


@dataclass(frozen=True)
class OptimizerRecipe:
    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-6
    momentum: float = 0.0  # of sgd
    weight_decay: float = 0.0  # adamw decouples it from the gradient, adam and sgd add it to the gradient
    warmup: float = 0.1  # share of all steps in which the rate rises from 0
    decay: Literal["cosine", "constant"] = "cosine"


# What the numbers of an optimiser must stay below; none may be negative.
BELOW = {
    "lr": math.inf,
    "beta1": 1.0,
    "beta2": 1.0,
    "eps": math.inf,
    "momentum": math.inf,
    "weight_decay": math.inf,
    "warmup": math.inf,
}


@dataclass(frozen=True)
class Recipe:
    data: str = ""  # a feature pack, or a folder that a reader knows
    method: str = "kaph"
    bits: int = 64
    seed: int = 0
    protocol: Protocol = "honest"
    split: SplitSizes = SplitSizes()
    encoder: EncoderRecipe = EncoderRecipe()
    head: HeadConfig = field(default_factory=HeadConfig)
    epochs: int = 20
    batch: int = 128
    clip: float | None = 1.0  # largest norm of one tensor's gradient
    label_noise: float = 0.0  # share of the training items that learn with another item's labels: for studies
    optimizer: OptimizerRecipe = OptimizerRecipe()  # of the heads, and of a trainable encoder at its own rate
    proxy_optimizer: OptimizerRecipe = OptimizerRecipe()  # of what the method itself learns
    settings: dict[str, Any] = field(default_factory=dict)  # the method's own, see its file in methods/

    def __post_init__(self) -> None:
        check_bits(self.bits)
        for name, least in (("epochs", 1), ("batch", 2), ("seed", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name}: {getattr(self, name)} is too small, it must be {least} or more")
        if self.seed >= 1 << 63:  # what a saved split can hold
            raise UsageError(f"seed: {self.seed} is too large, it must be below 2**63")
        if self.clip is not None and not self.clip > 0:
            raise UsageError(f"clip: {self.clip} must be above 0, or null for no clipping")
        if not 0 <= self.label_noise <= 1:
            raise UsageError(f"label_noise: {self.label_noise} is not a share from 0 to 1")
        _check_rates("encoder", self.encoder, {"lr": math.inf})
        _check_rates("optimizer", self.optimizer, BELOW)
        _check_rates("proxy_optimizer", self.proxy_optimizer, BELOW)


Section = TypeVar("Section")


def make_recipe(*layers: dict[str, Any]) -> Recipe:
    """The recipe of `layers`, later ones over earlier ones, all over the method's own and the defaults.

    Example:

        >>> recipe = make_recipe({"method": "kdph", "settings": {"zeta": 0.5}}, {"bits": 16})
        >>> recipe.bits, recipe.settings["zeta"], recipe.settings["eta"]
        (16, 0.5, 0.1)
    """
    method = next((layer["method"] for layer in reversed(layers) if "method" in layer), Recipe.method)
    if not isinstance(method, str) or method not in METHODS:
        raise UsageError(f"method {method!r}: choose one of {', '.join(METHODS)}")
    values: dict[str, Any] = {"method": method}
    for layer in (METHODS[method].recipe, *layers):
        values = _merged(values, layer)
    if not isinstance(values.setdefault("settings", {}), dict):
        raise UsageError(f"settings: a section with {method}'s own settings, not {values['settings']!r}")
    values["settings"] = asdict(settings_of(METHODS[method], values["settings"]))
    return _section(Recipe, values, "")


def read_recipe(path: Path) -> dict[str, Any]:
    """The layer that a recipe file is."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    try:
        values = _parse_yaml(text)
    except ValueError as error:
        raise DataError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path}: a recipe is a mapping of names to values")
    return values


def find_recipe(name: str) -> Path:
    """A recipe file by its path, or by the name of one that comes with kenthash."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    shipped = Path(str(files("kenthash") / "recipes"))
    if not (shipped / f"{name}.yaml").is_file():
        names = ", ".join(sorted(p.stem for p in shipped.glob("*.yaml")))
        raise UsageError(f"--recipe {name}: no such file, nor one of the recipes that come with kenthash: {names}")
    return shipped / f"{name}.yaml"


def write_recipe(path: Path, recipe: Recipe) -> None:
    with atomic_write(path, "w") as stream:
        yaml.safe_dump(asdict(recipe), stream, sort_keys=False)


def parse_set(assignments: list[str]) -> dict[str, Any]:
    """The layer of `--set a.b=value` options; values are read as YAML, so 1e-3, true and null mean what they say.

    Example:

        >>> parse_set(["optimizer.lr=1e-3", "head.hidden=512", "clip=null"])
        {'optimizer': {'lr': 0.001}, 'head': {'hidden': 512}, 'clip': None}
    """
    layer: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {assignment}: write it as name=value, for example --set settings.epsilon=40")
        try:
            value = _parse_yaml(text)
        except ValueError as error:
            raise UsageError(f"--set {name}={text[:40]}: is not a value: {error}") from error
        if isinstance(value, str):  # YAML 1.1 takes 1e-3 (without a dot) for a word
            with suppress(ValueError):
                value = float(value)
        *sections, leaf = name.split(".")
        inner = layer
        for section in sections:
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise UsageError(f"--set {assignment}: another --set gives {section} itself a value: leave one out")
        inner[leaf] = value
    return layer


def _parse_yaml(text: str) -> Any:
    """A YAML value that a stranger wrote; whatever is wrong with it is a ValueError of one line."""
    try:
        return yaml.safe_load(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except (yaml.YAMLError, ValueError) as error:  # also a date that does not exist, or a number of 5,000 digits
        raise ValueError(" ".join(str(error).split())[:300]) from error


def _check_rates(section: str, values: Any, below: dict[str, float]) -> None:
    for name, top in below.items():
        value = getattr(values, name)
        if not 0 <= value < top:
            limit = "" if top == math.inf else f" and below {top:g}"
            raise UsageError(f"{section}.{name}: {value} must be a number from 0 on{limit}")


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = _merged(merged[name], value)
        else:
            merged[name] = value
    return merged


def _section(kind: type[Section], values: Any, path: str) -> Section:
    assert is_dataclass(kind)
    if not isinstance(values, dict):
        raise UsageError(f"{path[:-1]}: a section with {', '.join(f.name for f in fields(kind))}, not {values!r}")
    hints = get_type_hints(kind)
    ready: dict[str, Any] = {}
    for name, value in values.items():
        if name not in hints:
            near = difflib.get_close_matches(str(name), hints, n=1)
            hint = f"did you mean {path}{near[0]}?" if near else f"choose one of {', '.join(hints)}"
            raise UsageError(f"{path}{name}: no such setting, {hint}")
        if is_dataclass(hints[name]):
            ready[name] = _section(hints[name], value, f"{path}{name}.")
        elif name == "settings" or fits(value, hints[name]):
            ready[name] = value
        else:
            raise UsageError(f"{path}{name}: {value!r} is not {describe(hints[name])}")
    return kind(**ready)
