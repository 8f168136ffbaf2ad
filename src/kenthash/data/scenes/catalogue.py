"""What the scenes are made of: classes and their looks, places, lights and phrases. `loading` reads them from YAML."""

from dataclasses import dataclass

ZONES = ("sky", "wall", "sea", "water", "ground", "behind", "table", "front")


@dataclass(frozen=True)
class Dye:
    source: str
    targets: tuple[str, ...]
    quiet: bool  # captions do not name the colour


@dataclass(frozen=True)
class Look:
    """One way a class is drawn. `labels` are the classes the drawing shows, its own first."""

    codes: tuple[str, ...]
    labels: tuple[str, ...]
    noun: str
    nouns: tuple[str, ...]
    size: float
    zones: tuple[str, ...]
    counts: tuple[float, ...]
    weight: float
    places: tuple[str, ...]
    doing: tuple[str, ...]
    tilt: float
    flip: bool
    pole: float
    dye: Dye | None
    dress: tuple[float, float] | None
    drop: str | None
    skin: str | None


@dataclass(frozen=True)
class Extra:
    """Drawings that belong to no class: scenery behind the things, clutter among them."""

    codes: tuple[str, ...]
    at: str
    size: float
    count: tuple[int, int]
    chance: float
    phrases: tuple[str, ...]


@dataclass(frozen=True)
class Fill:
    kind: str
    colours: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Surface:
    """A sheet of water or a table: there by `chance`, its edge within a range of the picture's height."""

    kind: str
    chance: float
    edge: tuple[float, float]
    called: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    name: str
    weight: float
    at: tuple[str, ...]
    called: tuple[str, ...]
    horizon: tuple[float, float]
    above: Fill
    below: Fill
    water: Surface | None
    table: Surface | None
    lights: dict[str, float]
    objects: dict[str, float]
    events: tuple[tuple[float, dict[str, float]], ...]
    scenery: tuple[Extra, ...]
    clutter: Extra


@dataclass(frozen=True)
class Light:
    skies: tuple[tuple[str, str], ...]
    tint: tuple[float, float, float]


@dataclass(frozen=True)
class Phrases:
    sentences: tuple[tuple[float, str, bool], ...]  # weight, text, only for a scene with a single group of things
    relations: dict[str, tuple[str, ...]]
    holds: dict[str, tuple[str, ...]]
    lights: dict[str, tuple[str, ...]]
    numbers: dict[str, tuple[str, ...]]
    plurals: dict[str, str]
    an: tuple[str, ...]
    a: tuple[str, ...]


@dataclass(frozen=True)
class Catalogue:
    classes: dict[str, tuple[Look, ...]]
    places: tuple[Place, ...]
    lights: dict[str, Light]
    palette: dict[str, tuple[str, str]]
    skins: tuple[str, ...]
    outfits: tuple[tuple[str, str], ...]
    phrases: Phrases
