"""Recipes: every setting of a run in one YAML file.

A run's settings are, each over the one before: the defaults here, what the method changes (its own optimiser), the
recipe file, the command line. What comes out is written to the run folder as `recipe.yaml`, complete, and training
again from that file gives the same run.
"""

from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field

from kenthash.codes import check_bits
from kenthash.data.splits import Protocol
from kenthash.errors import DataError, UsageError
from kenthash.files import atomic_write
from kenthash.methods import METHODS
from kenthash.methods.base import settings_of
from kenthash.model.config import HeadConfig
from kenthash.validation import checked

LARGEST = 1 << 20  # bytes of a recipe file; ours have some thousand
MOST_VALUES = 10_000

ChooseBy = Literal["map", "recall", "both"]
Bits = Annotated[int, AfterValidator(check_bits)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
BelowOne = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True)
class SplitSizes:
    """None follows the field's sizes, scaled down for small sets (`data/splits.py`)."""

    query: int | None = None
    train: int | None = None
    validation: int | None = None


@dataclass(frozen=True)
class EncoderRecipe:
    # Used where DATA is pictures; a feature pack brings its own vectors. Any but the default also names the encoder of
    # further texts, as short ones, for a pack that does not say its own.
    spec: str = "light"
    trainable: bool = False
    lr: NotNegative = 1e-5
    frozen_epochs: Annotated[int, Field(ge=0)] = 0  # the first ones, in which the heads learn alone, on frozen vectors
    chunk: Annotated[int, Field(ge=0)] = 0  # pairs encoded at once in a step, to save memory; 0 is the whole batch

    @property
    def named(self) -> str:
        """The spec where one has been given: every resolved recipe has one, and this one is not the default."""
        return "" if self.spec == EncoderRecipe.spec else self.spec


@dataclass(frozen=True)
class OptimizerRecipe:
    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: NotNegative = 1e-3
    beta1: BelowOne = 0.9
    beta2: BelowOne = 0.98
    eps: NotNegative = 1e-6
    momentum: NotNegative = 0.0  # of sgd
    weight_decay: NotNegative = 0.0  # adamw decouples it from the gradient, adam and sgd add it to the gradient
    warmup: NotNegative = 0.1  # share of all steps in which the rate rises from 0
    decay: Literal["cosine", "constant"] = "cosine"


@dataclass(frozen=True)
class Lacking:
    """What is taken from the training items, for studies (`training/lacking.py`)."""

    labels: BelowOne = 0.0  # the share of their labels
    captions: BelowOne = 0.0  # the share of them that has no captions
    pictures: BelowOne = 0.0  # the share of them that has no picture, and is left out
    classes: list[str] = field(default_factory=list)  # training sees no item that has one of these labels


@dataclass(frozen=True)
class Recipe:
    data: str = ""  # a feature pack, or a folder that a reader knows
    method: str = "kcph"
    bits: Bits = 64
    nested: list[Bits] = field(default_factory=list)  # shorter lengths, of which the first bits of a code are codes too
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0  # what a saved split can hold
    protocol: Protocol = "honest"
    choose_by: ChooseBy = "map"  # of which figures on validation the mean is the best epoch's; recall is of own pairs
    split: SplitSizes = SplitSizes()
    encoder: EncoderRecipe = EncoderRecipe()
    head: HeadConfig = field(default_factory=HeadConfig)
    # A model, or the name of a pretrained one, from whose heads training goes on; "" is random heads. `kenthash train`
    # names one by itself where one fits (`training/start.py`).
    start: Annotated[str, BeforeValidator(lambda value: value or "")] = ""
    epochs: Annotated[int, Field(ge=1)] = 20
    batch: Annotated[int, Field(ge=2)] = 128
    clip: Annotated[float, Field(gt=0)] | None = 1.0  # largest norm of one tensor's gradient; None does not clip
    label_noise: Share = 0.0  # share of the training items that learn with another item's labels: for studies
    lacking: Lacking = Lacking()  # what training does without: for studies
    optimizer: OptimizerRecipe = OptimizerRecipe()  # of the heads, and of a trainable encoder at its own rate
    proxy_optimizer: OptimizerRecipe = OptimizerRecipe()  # of what the method itself learns
    settings: dict[str, Any] = field(default_factory=dict)  # the method's own, see its file in methods/


def make_recipe(*layers: dict[str, Any]) -> Recipe:
    """The recipe of `layers`, later ones over earlier ones, all over the method's own and the defaults.

    Example:

        >>> recipe = make_recipe({"method": "kdph", "settings": {"zeta": 0.5}}, {"bits": 16})
        >>> recipe.bits, recipe.settings["zeta"], recipe.settings["eta"]
        (16, 0.5, 0.1)

    Of the lengths of nested codes those below `bits` are kept:

        >>> make_recipe({"nested": [64, 32, 16]}, {"bits": 64}).nested
        [16, 32]
    """
    method = next((layer["method"] for layer in reversed(layers) if "method" in layer), Recipe.method)
    if not isinstance(method, str) or method not in METHODS:
        raise UsageError(f"method {method!r}: choose one of {', '.join(METHODS)}")
    values: dict[str, Any] = {"method": method}
    for layer in (METHODS[method].recipe, *layers):
        values = _merged(values, layer)
    values["settings"] = asdict(settings_of(METHODS[method], values.get("settings", {})))
    recipe = checked(Recipe, values)
    # null and "" of `start` mean the same, and the same settings are one recipe.
    nested = sorted({length for length in recipe.nested if length < recipe.bits})
    return replace(recipe, start=recipe.start or "", nested=nested)


def read_recipe(path: Path) -> dict[str, Any]:
    """The layer that a recipe file is."""
    try:
        if path.is_file() and path.stat().st_size > LARGEST:
            raise DataError(f"{path}: has {path.stat().st_size:,} bytes, but a recipe has at most {LARGEST:,}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    try:
        values = _parse_yaml(text)
    except ValueError as error:
        raise DataError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise DataError(f"{path}: a recipe is a mapping of names to values")
    if _has_too_many(values):
        raise DataError(f"{path}: a recipe has at most {MOST_VALUES:,} values, counting those that stand for others")
    return values


def stored_recipe(path: Path) -> Recipe:
    """The recipe that a run wrote; what a later version has added is at its default."""
    try:
        return make_recipe(read_recipe(path))
    except UsageError as error:
        raise DataError(f"{path}: not the recipe of a run: {error}") from error


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


def _has_too_many(values: Any) -> bool:
    """YAML can name a part and repeat it within itself: few lines then stand for billions of values, or for no end."""
    waiting, number = [values], 0
    while waiting and number <= MOST_VALUES:
        value = waiting.pop()
        number += 1
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple | set):
            waiting.extend(value)
    return number > MOST_VALUES


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for name, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = _merged(merged[name], value)
        else:
            merged[name] = value
    return merged
