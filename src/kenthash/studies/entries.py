"""The results in a folder, own or other people's: what is used of their JSON files is checked before it is used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kenthash.errors import DataError
from kenthash.files import read_json
from kenthash.methods import METHODS
from kenthash.studies.submission import DESCRIPTION, read_submission
from kenthash.training.recipe import read_recipe

# Settings that tell the runs of one row apart, or where files were.
OWN = ("bits", "seed", "data")
LONGEST = 60  # letters of a name or a reference in a table
LARGEST = 1 << 26  # bytes of a JSON file: ours have some ten thousand

Record = TypeVar("Record", bound=BaseModel)
Share = Annotated[float, Field(ge=0, le=1)]  # which NaN is not
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Cutoff = Annotated[str, Field(pattern="^[1-9][0-9]{0,8}$")]


class _Checked(BaseModel):
    """No text for a number; what is not used may be anything."""

    model_config = ConfigDict(strict=True)


class Figures(_Checked):
    """What is used of one direction."""

    map: Share = 0.0
    instance_recall: dict[Cutoff, Share] = {}
    queries: Count = 0
    database: Count = 0
    excluded: Count = 0


class Metrics(_Checked):
    """What is used of a `metrics.json`."""

    data: str
    data_name: str = ""
    data_digest: str
    protocol: str
    ties: str
    code_version: str
    split: str
    bits: Annotated[int, Field(ge=8, le=1024, multiple_of=8)]
    seed: Count
    i2t: Figures
    t2i: Figures
    real_valued_map: dict[str, Share] = {}

    @model_validator(mode="after")
    def _both_directions(self) -> "Metrics":
        given = [{"map", "queries"} & side.model_fields_set for side in (self.i2t, self.t2i)]
        if given[0] != given[1] or given[0] == {"map"}:
            raise ValueError("`map` and `queries` have to be given of both directions, or of none")
        if not given[0] and not (self.i2t.instance_recall and self.t2i.instance_recall):
            raise ValueError("it has neither `map` nor `instance_recall` of both directions")
        if self.real_valued_map and not {"i2t", "t2i"} <= self.real_valued_map.keys():
            raise ValueError("`real_valued_map` has to have both directions")
        return self


class ControlFigures(_Checked):
    """Of one direction, one per seed; no mAP where the data has no labels."""

    map: list[Share]
    instance_recall: dict[Cutoff, list[Share]]


class ControlRecord(_Checked):
    """The `controls.json` of a comparison: real-valued controls at seeds 0, 1, ..., by name, bits and direction."""

    data: str = ""
    data_digest: str
    vectors: str = ""  # the digest of their files; none of earlier versions
    protocol: str
    ties: str
    code_version: str
    splits: dict[str, str]  # by seed
    controls: dict[str, dict[Cutoff, dict[Literal["i2t", "t2i"], ControlFigures]]]

    @model_validator(mode="after")
    def _of_all_seeds(self) -> "ControlRecord":
        seeds = len(self.splits)
        every = [f for by_bits in self.controls.values() for sides in by_bits.values() for f in sides.values()]
        counts = {len(values) for f in every for values in f.instance_recall.values()} | {len(f.map) for f in every}
        if self.splits.keys() != {str(seed) for seed in range(seeds)} or not counts <= {0, seeds}:
            raise ValueError("it does not have one figure for each of the seeds 0, 1, ... of `splits`")
        if any(len(sides) != 2 for by_bits in self.controls.values() for sides in by_bits.values()):
            raise ValueError("figures have to be given of both directions")
        return self


@dataclass(frozen=True)
class Entry:
    """One evaluated run or submission."""

    folder: Path
    title: str  # of the method
    reference: str
    fidelity: str
    metrics: dict[str, Any]
    recipe: str  # as YAML, without `OWN`

    @property
    def data_name(self) -> str:
        return self.metrics.get("data_name") or Path(self.metrics["data"]).name


def entries_below(folder: Path) -> Iterator[Entry]:
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder")
    for path in sorted(folder.rglob("metrics.json")):
        run = path.parent
        if (run / DESCRIPTION).is_file():
            submission = read_submission(run)
            recipe = {"citation": submission.citation, "url": submission.url, **submission.recipe}
            reference = shorten(submission.citation, LONGEST, placeholder=" …")
            yield Entry(run, submission.name, reference, "submitted", _metrics(path), _yaml(recipe))
        elif (run / "recipe.yaml").is_file():
            stored = read_recipe(run / "recipe.yaml")
            key = str(stored.get("method"))
            method = METHODS.get(key)
            title = method.title if method else shorten(key, LONGEST, placeholder=" …")
            reference, fidelity = (method.citation.rsplit(", ", 1)[-1], method.fidelity) if method else ("", "")
            recipe = {name: value for name, value in stored.items() if name not in OWN}
            yield Entry(run, title, reference, fidelity, _metrics(path), _yaml(recipe))


def read_controls(path: Path) -> ControlRecord:
    return _read(ControlRecord, path, "make it again with the same `kenthash compare`")[1]


def _metrics(path: Path) -> dict[str, Any]:
    return _read(Metrics, path, "write it again with `kenthash evaluate`")[0]


def _read(kind: type[Record], path: Path, advice: str) -> tuple[dict[str, Any], Record]:
    """The JSON of a file as it is, and what is used of it, checked."""
    if path.is_file() and path.stat().st_size > LARGEST:
        raise DataError(f"{path}: has {path.stat().st_size:,} bytes, but kenthash writes far fewer: {advice}")
    values = read_json(path)
    if not isinstance(values, dict):
        raise DataError(f"{path}: must be a JSON object: {advice}")
    try:
        return values, kind.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        where = f"{'.'.join(map(str, fault['loc']))}: " if fault["loc"] else ""
        why = fault["msg"].removeprefix("Value error, ")
        raise DataError(f"{path}: {where}{why[:1].lower()}{why[1:]}: {advice}") from error


def _yaml(recipe: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True)
    return text
