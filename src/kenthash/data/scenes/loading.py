"""Read the classes, places and phrases of the scenes set from their YAML files and check them.

They are data: a new class or place needs no code. A file that breaks a rule is refused with one line that names it.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from kenthash.data.scenes.backgrounds import FLOORS, TABLES, WALLS
from kenthash.data.scenes.captions import RELATIONS, SENTENCE_FIELDS
from kenthash.data.scenes.catalogue import ZONES, Catalogue, Dye, Extra, Fill, Light, Look, Phrases, Place, Surface
from kenthash.data.scenes.drawings import SKIN_TONES, drawing_path
from kenthash.errors import DataError
from kenthash.files import reading

FOLDER = Path(__file__).parent
COLOUR = re.compile(r"#[0-9A-Fa-f]{6}")

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times faster

_CLASS = ("noun", "size", "zones", "count", "nouns", "tilt", "flip", "looks")
_LOOK = (
    "codes", "weight", "nouns", "size", "zones", "count", "places", "doing", "tilt", "flip", "pole", "dye", "dress",
    "also", "drop", "skin",
)  # fmt: skip
_PLACE = (
    "weight", "at", "called", "horizon", "above", "below", "water", "table", "lights", "objects", "events", "scenery",
    "clutter",
)  # fmt: skip


def load_catalogue(folder: Path = FOLDER) -> Catalogue:
    """Read classes.yaml, places.yaml and phrases.yaml of `folder`."""
    drawn, placed = _read(folder / "classes.yaml"), _read(folder / "places.yaml")
    palette = {name: drawn.sub("palette").pair(name) for name in drawn.sub("palette").names()}
    classes = {name: _looks(drawn, name, palette) for name in drawn.sub("classes").names()}
    lights = {name: _light(placed.sub("lights").sub(name)) for name in placed.sub("lights").names()}
    drawings = {code for looks in classes.values() for look in looks for code in look.codes}
    places = []
    for name in placed.sub("places").names():
        places.append(_place(placed.sub("places").sub(name), name, classes, lights, drawings))
    known = {place.name for place in places}
    for name, looks in classes.items():
        for look in looks:
            drawn.sub("classes").sub(name).among("places", look.places, known)
            drawn.sub("classes").sub(name).among("also", look.labels, classes)
    return Catalogue(
        classes=classes,
        places=tuple(places),
        lights=lights,
        palette=palette,
        skins=drawn.colours("skins"),
        outfits=_outfits(drawn, palette),
        phrases=_phrases(_read(folder / "phrases.yaml")),
    )


class Fields:
    """Typed access to a mapping that came out of a YAML file; every error is one line that says where.

    `Fields("classes.yaml", {...}).sub("classes").sub("dog").number("size")` is a float or a DataError that reads
    "classes.yaml: classes: dog: size: must be a number of at least 0, not 'big'".
    """

    def __init__(self, where: str, content: Any) -> None:
        if not isinstance(content, dict):
            raise DataError(f"{where}: must be a mapping of names to values, not {type(content).__name__}")
        self.where = where
        self.content = {str(key): value for key, value in content.items()}

    def wrong(self, key: str, what: str) -> DataError:
        return DataError(f"{self.where}: {key}: {what}")

    def names(self) -> list[str]:
        return list(self.content)

    def has(self, key: str) -> bool:
        return key in self.content

    def only(self, allowed: Collection[str]) -> None:
        for key in self.content:
            if key not in allowed:
                raise self.wrong(key, f"unknown name; known are {', '.join(sorted(allowed))}")

    def among(self, key: str, values: Sequence[str], known: Collection[str]) -> None:
        for value in values:
            if value not in known:
                raise self.wrong(key, f"{value!r} is not one of {', '.join(sorted(known))}")

    def over(self, other: "Fields") -> "Fields":
        """These fields, and those of `other` that are not here."""
        return Fields(self.where, {**other.content, **self.content})

    def get(self, key: str) -> Any:
        if key not in self.content:
            raise self.wrong(key, "is missing")
        return self.content[key]

    def sub(self, key: str) -> "Fields":
        return Fields(f"{self.where}: {key}", self.get(key))

    def parts(self, key: str, default: tuple[()] | None = None) -> list["Fields"]:
        if default is not None and not self.has(key):
            return []
        return [Fields(f"{self.where}: {key} {i + 1}", item) for i, item in enumerate(self._list(key))]

    def text(self, key: str, default: str | None = None) -> str:
        if default is not None and not self.has(key):
            return default
        value = self.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"must be a text, not {value!r}")
        return value

    def texts(self, key: str, default: tuple[()] | None = None) -> tuple[str, ...]:
        """A list of texts; with a default it may be missing or empty."""
        if default is not None and not self.content.get(key):
            return default
        values = self._list(key)
        for value in values:
            # An OpenMoji code of digits alone (2708) is read as a number.
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise self.wrong(key, f"must be a list of texts, but holds {value!r}")
        return tuple(str(value) for value in values)

    def flag(self, key: str, default: bool) -> bool:
        value = self.content.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"must be true or false, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = default if default is not None and not self.has(key) else self.get(key)
        return self._number(key, value)

    def numbers(self, key: str) -> tuple[float, ...]:
        return tuple(self._number(key, value) for value in self._list(key))

    def range(self, key: str, most: float = 1.0) -> tuple[float, float]:
        values = self.numbers(key)
        if len(values) != 2 or not values[0] <= values[1] <= most:
            raise self.wrong(key, f"must be two numbers, the smaller first, up to {most:g}, not {list(values)}")
        return values[0], values[1]

    def shares(self, key: str, known: Collection[str]) -> dict[str, float]:
        part = self.sub(key)
        part.only(known)
        return {name: part.number(name) for name in part.names()}

    def pair(self, key: str) -> tuple[str, str]:
        return self._pair(key, self.get(key))

    def colours(self, key: str) -> tuple[str, ...]:
        for value in self.texts(key):
            if not COLOUR.fullmatch(value):
                raise self.wrong(key, f"must be colours like '#92D3F5', not {value!r}")
        return self.texts(key)

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        return tuple(self._pair(key, value) for value in self._list(key))

    def _pair(self, key: str, value: Any) -> tuple[str, str]:
        if not isinstance(value, list) or len(value) != 2 or not all(COLOUR.fullmatch(str(v)) for v in value):
            raise self.wrong(key, f"must be two colours like '#92D3F5', not {value!r}")
        return value[0], value[1]

    def _list(self, key: str) -> list[Any]:
        value = self.get(key)
        if not isinstance(value, list) or not value:
            raise self.wrong(key, f"must be a list with something in it, not {value!r}")
        return value

    def _number(self, key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise self.wrong(key, f"must be a number of at least 0, not {value!r}")
        return float(value)


def _read(path: Path) -> Fields:
    with reading(path):
        text = path.read_text(encoding="utf-8")
    try:
        content = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise DataError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    return Fields(path.name, content)


def _outfits(file: Fields, palette: dict[str, tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    outfits = []
    for pair in file.get("outfits"):
        top, trousers = pair if isinstance(pair, list) and len(pair) == 2 else ("", "")
        if top not in palette or not COLOUR.fullmatch(str(trousers)):
            raise file.wrong("outfits", f"must be pairs of a palette name and a colour, not {pair!r}")
        outfits.append((str(top), str(trousers)))
    return tuple(outfits)


def _looks(file: Fields, name: str, palette: dict[str, tuple[str, str]]) -> tuple[Look, ...]:
    whole = file.sub("classes").sub(name)
    whole.only(_CLASS)
    counts = file.sub("counts")
    looks = []
    for part in whole.parts("looks"):
        part.only(_LOOK)
        own = part.over(whole)
        dye = part.sub("dye") if part.has("dye") else None
        if dye is not None:
            part.among("dye", (dye.text("from"), *dye.texts("to")), palette)
        for key in ("drop", "skin"):
            if part.has(key):
                part.among(key, (part.text(key),), palette)
        own.among("zones", own.texts("zones"), ZONES)
        own.among("count", (own.text("count"),), counts.names())
        looks.append(
            Look(
                codes=tuple(_expand(part, code) for code in part.texts("codes")),
                labels=(name, *part.texts("also", ())),
                noun=whole.text("noun", name),
                nouns=own.texts("nouns", ()),
                size=own.number("size"),
                zones=own.texts("zones"),
                counts=counts.numbers(own.text("count")),
                weight=part.number("weight", 1.0),
                places=part.texts("places", ()),
                doing=part.texts("doing", ()),
                tilt=own.number("tilt", 4.0),
                flip=own.flag("flip", True),
                pole=part.number("pole", 0.0),
                dye=Dye(dye.text("from"), dye.texts("to"), dye.flag("quiet", False)) if dye is not None else None,
                dress=part.range("dress", 72.0) if part.has("dress") else None,
                drop=part.text("drop") if part.has("drop") else None,
                skin=part.text("skin") if part.has("skin") else None,
            )
        )
    return tuple(looks)


def _expand(part: Fields, code: str) -> str:
    """Check that the drawing is there, in every skin tone where {s} asks for one."""
    for tone in SKIN_TONES if "{s}" in code else ("",):
        if not drawing_path(code.replace("{s}", tone)).is_file():
            raise part.wrong("codes", f"OpenMoji has no drawing {code.replace('{s}', tone)}")
    return code


def _light(part: Fields) -> Light:
    part.only(("skies", "tint"))
    tint = part.numbers("tint")
    if len(tint) != 3:
        raise part.wrong("tint", "must have three numbers: red, green, blue")
    return Light(skies=part.pairs("skies"), tint=(tint[0], tint[1], tint[2]))


def _place(
    part: Fields, name: str, classes: dict[str, tuple[Look, ...]], lights: dict[str, Light], drawings: set[str]
) -> Place:
    part.only(_PLACE)
    events = tuple((event.number("weight"), event.shares("objects", classes)) for event in part.parts("events", ()))
    return Place(
        name=name,
        weight=part.number("weight"),
        at=part.texts("at"),
        called=part.texts("called"),
        horizon=part.range("horizon"),
        above=_fill(part, "above", WALLS),
        below=_fill(part, "below", FLOORS),
        water=_surface(part.sub("water"), "shore") if part.has("water") else None,
        table=_surface(part.sub("table"), "edge") if part.has("table") else None,
        lights=part.shares("lights", lights),
        objects=part.shares("objects", classes),
        events=events,
        scenery=tuple(_extra(extra, drawings) for extra in part.parts("scenery")),
        clutter=_extra(part.sub("clutter"), drawings),
    )


def _fill(part: Fields, key: str, kinds: Collection[str]) -> Fill:
    if part.get(key) == "sky":  # its colours are the light's
        return Fill("sky", ())
    fill = part.sub(key)
    fill.only(("kind", "colours"))
    fill.among("kind", (fill.text("kind"),), kinds)
    return Fill(fill.text("kind"), fill.pairs("colours"))


def _surface(part: Fields, edge: str) -> Surface:
    part.only(("kind", "chance", edge, "called"))
    part.among("kind", (part.text("kind", "water"),), ("water", *TABLES))
    return Surface(part.text("kind", "water"), part.number("chance"), part.range(edge), part.texts("called", ()))


def _extra(part: Fields, drawings: set[str]) -> Extra:
    part.only(["codes", "at", "size", "count", "chance", "phrase"])
    codes = tuple(_expand(part, code) for code in part.texts("codes"))
    shared = drawings.intersection(codes)
    if shared:
        raise part.wrong("codes", f"{sorted(shared)[0]} is a look of a class and would go unlabelled here")
    part.among("at", (part.text("at"),), ("horizon", *ZONES))
    low, high = part.range("count", 20.0)
    return Extra(
        codes,
        part.text("at"),
        part.number("size"),
        (int(low), int(high)),
        part.number("chance", 1.0),
        part.texts("phrase", ()),
    )


def _phrases(file: Fields) -> Phrases:
    sentences = []
    for part in file.parts("sentences"):
        part.only(("weight", "text", "alone"))
        named = [name for _, name, _, _ in Formatter().parse(part.text("text")) if name is not None]
        part.among("text", named, SENTENCE_FIELDS)
        sentences.append((part.number("weight"), part.text("text"), part.flag("alone", False)))
    lists = {}
    for key, needed in (("relations", RELATIONS), ("holds", ("near", "far")), ("numbers", "2345"), ("lights", ())):
        part = file.sub(key)
        for name in needed:
            part.texts(name)
        lists[key] = {name: part.texts(name) for name in part.names()}
    plurals = {name: file.sub("plurals").text(name) for name in file.sub("plurals").names()}
    return Phrases(tuple(sentences), **lists, plurals=plurals, an=file.texts("an"), a=file.texts("a"))
