"""What a picture of the set shows: a place with its light, what is there, and where it stands.

First the contents are drawn (the place, the classes that happen to be there, how many of each and in which look), then
the positions, in a simple perspective: the nearer a thing, the lower it stands and the larger it is. Groups stand
together. A position is taken only if every thing of a class, this one and those before, stays visible enough to be
labelled.

All lengths are fractions of the picture's side; x runs right, y runs down, and a thing's x and y are the middle of its
lower edge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.random import Generator

from kenthash.data.scenes.catalogue import Catalogue, Extra, Look, Place
from kenthash.data.scenes.drawings import SKIN_TONES, Outfit, Style, shape

T = TypeVar("T")

MOST_THINGS = 10  # of classes; more would be a heap
TRIES = 14
MOST_HIDDEN = 0.42  # of a thing's box
MOST_HIDDEN_ON_WALL = 0.08  # nobody hangs one picture over another
SMALLEST = 0.085  # longer side of a thing: 19 pixels of 224

# What stands above the horizon where it is no wall.
_OPEN = {"sky": "sky", "stands": "sky", "woods": "sky", "sea": "sea"}

# Painted from back to front; within a layer from the far (high) to the near (low).
LAYERS = {
    "cloud": 0,
    "horizon": 1,
    "sky": 2,
    "wall": 2,
    "sea": 3,
    "water": 3,
    "ground": 3,
    "behind": 4,
    "table": 5,
    "front": 6,
}


@dataclass(frozen=True)
class Thing:
    """One drawing in the scene. `look` is None for what belongs to no class."""

    look: Look | None
    style: Style
    colour: str  # as a caption would name it, or ""
    zone: str
    x: float
    y: float
    width: float
    height: float
    flip: bool = False
    tilt: float = 0.0
    pole: float = 0.0  # share of the height that is the post below the drawing

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2

    @property
    def top(self) -> float:
        return self.y - self.height

    @property
    def order(self) -> tuple[int, float]:
        return LAYERS[self.zone], self.y


@dataclass(frozen=True)
class Scene:
    place: Place
    light: str
    horizon: float
    shore: float | None  # lower edge of the water, where there is water
    table: float | None  # upper edge of the table, where there is one
    things: tuple[Thing, ...]  # from back to front
    back: tuple[str, ...]  # what captions may say of the scenery

    @property
    def labels(self) -> list[str]:
        """Names of all classes that are seen, sorted."""
        return sorted({label for thing in self.things if thing.look for label in thing.look.labels})


@dataclass(frozen=True)
class Stage:
    """A place as it is this time: which zones it has and where they end."""

    place: Place
    light: str
    horizon: float
    shore: float | None
    table: float | None

    @property
    def indoors(self) -> bool:
        return self.place.above.kind not in _OPEN

    @property
    def zones(self) -> frozenset[str]:
        zones = {_OPEN.get(self.place.above.kind, "wall"), "ground"}
        if self.shore is not None:
            zones.add("water")
        # A person seen close stands behind the table where there is one, else at the lower edge of the picture.
        zones |= {"table", "behind"} if self.table is not None else {"front"}
        return frozenset(zones)


@dataclass(frozen=True)
class ObjectGroup:
    """Things of one class that stand together: each with its look, style and colour name."""

    zone: str
    members: tuple[tuple[Look, Style, str], ...]


def choose(rng: Generator, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
    """One of `options`. (Generator.choice would turn them into an array and is several times slower.)"""
    if weights is None:
        return options[int(rng.integers(len(options)))]
    point = rng.random() * sum(weights)
    for option, weight in zip(options, weights, strict=True):
        point -= weight
        if point < 0:
            return option
    return options[-1]


def set_stage(catalogue: Catalogue, rng: Generator) -> Stage:
    place = choose(rng, catalogue.places, [p.weight for p in catalogue.places])
    surfaces = []
    for surface in (place.water, place.table):
        there = surface is not None and rng.random() < surface.chance
        surfaces.append(float(rng.uniform(*surface.edge)) if surface is not None and there else None)
    return Stage(
        place=place,
        light=choose(rng, list(place.lights), list(place.lights.values())),
        horizon=float(rng.uniform(*place.horizon)),
        shore=surfaces[0],
        table=surfaces[1],
    )


def fill_stage(catalogue: Catalogue, stage: Stage, rng: Generator) -> list[ObjectGroup]:
    """Groups of things in random order, at least one."""
    while True:
        names = _drawn(stage.place.objects, rng)
        if stage.place.events:
            event = choose(rng, stage.place.events, [weight for weight, _ in stage.place.events])
            names += [name for name in _drawn(event[1], rng) if name not in names]
        groups: list[ObjectGroup] = []
        for name in sorted(names, key=lambda _: rng.random()):
            group = _group(catalogue, stage, name, rng)
            if group is not None and sum(len(g.members) for g in groups) + len(group.members) <= MOST_THINGS:
                groups.append(group)
        if groups:
            return groups


def _drawn(shares: Mapping[str, float], rng: Generator) -> list[str]:
    return [name for name, share in shares.items() if rng.random() < share]


def _group(catalogue: Catalogue, stage: Stage, name: str, rng: Generator) -> ObjectGroup | None:
    looks = [
        look
        for look in catalogue.classes[name]
        if (not look.places or stage.place.name in look.places) and stage.zones.intersection(look.zones)
    ]
    if not looks:
        return None
    first = choose(rng, looks, [look.weight for look in looks])
    zone = choose(rng, [z for z in first.zones if z in stage.zones])
    count = 1 + choose(rng, range(len(first.counts)), first.counts)
    fitting = [look for look in looks if zone in look.zones]
    weights = [look.weight for look in fitting]
    alike = name != "person" and rng.random() < 0.6  # a herd is of one kind more often than a crowd
    members = []
    for number in range(count):
        look = first if alike or number == 0 else choose(rng, fitting, weights)
        members.append((look, *dress_up(catalogue, look, rng)))
    return ObjectGroup(zone, tuple(members))


def dress_up(catalogue: Catalogue, look: Look, rng: Generator) -> tuple[Style, str]:
    """A style for the look, and the name of its colour where captions may name it."""
    code = choose(rng, look.codes).replace("{s}", choose(rng, SKIN_TONES))
    exchange: list[tuple[str, str]] = [(c, "") for c in catalogue.palette[look.drop]] if look.drop else []
    if look.skin:
        exchange.append((catalogue.palette[look.skin][0], choose(rng, catalogue.skins)))
    colour, outfit = "", None
    if look.dye is not None:
        target = choose(rng, look.dye.targets)
        if target != look.dye.source:
            exchange += zip(catalogue.palette[look.dye.source], catalogue.palette[target], strict=True)
        colour = "" if look.dye.quiet else target
    if look.dress is not None:
        colour, trousers = choose(rng, catalogue.outfits)
        outfit = Outfit(*look.dress, choose(rng, catalogue.skins), catalogue.palette[colour][0], trousers)
    return Style(code, tuple(exchange), outfit), colour


def chosen_extras(extra: Extra, stage: Stage, rng: Generator) -> list[str]:
    """Codes of the drawings of this extra that are there this time."""
    if extra.at != "horizon" and extra.at not in stage.zones:
        return []
    if rng.random() >= extra.chance:
        return []
    return [choose(rng, extra.codes) for _ in range(int(rng.integers(extra.count[0], extra.count[1] + 1)))]


@dataclass
class _Layout:
    stage: Stage
    zoom: float
    rng: Generator
    scenery: list[Thing] = field(default_factory=list)  # far behind all things, so it hides none
    things: list[Thing] = field(default_factory=list)
    hidden: list[float] = field(default_factory=list)

    def depth_range(self, zone: str) -> tuple[float, float]:
        """The heights at which things of a zone stand, far and near."""
        s = self.stage
        ground = s.horizon if s.shore is None else s.shore
        last = 0.98 if s.table is None else s.table
        return {
            "sky": (0.16, s.horizon - 0.02),
            "wall": (0.2, s.horizon - 0.06),
            "sea": (0.18, 0.9),
            "water": (s.horizon + 0.03, (s.shore or 1.0) - 0.02),
            "ground": (min(ground + 0.05, last), last),
            "behind": ((s.table or 1.0) + 0.02, (s.table or 1.0) + 0.05),
            "table": ((s.table or 1.0) + 0.09, 0.97),
            "front": (1.0, 1.05),
        }[zone]

    def unit(self, zone: str, y: float) -> float:
        """The height of a standing adult at that depth."""
        s = self.stage
        near = (y - s.horizon) / (1.0 - s.horizon)
        if zone in ("ground", "water"):
            return self.zoom * ((0.36 + 0.2 * near) if s.indoors else (0.17 + 0.38 * near))
        if zone == "table":
            table = s.table or 0.0
            return self.zoom * (0.42 + 0.2 * (y - table) / (1.0 - table))
        return self.zoom * {"sky": 0.3, "wall": 0.4, "sea": 0.36, "behind": 0.44, "front": 0.55}[zone]

    def thing(self, look: Look, style: Style, colour: str, zone: str, x: float, y: float, jitter: float) -> Thing:
        width, height = shape(style.code, style.exchange[0][0] if look.drop else "")
        size = max(look.size * jitter * self.unit(zone, y), SMALLEST)
        tall = height * (1.0 + look.pole)
        if zone in ("sky", "wall"):
            y = max(y, size * tall + 0.02)  # hang inside the picture
        flip = look.flip and bool(self.rng.random() < 0.5)
        tilt = float(self.rng.uniform(-look.tilt, look.tilt)) if self.rng.random() < 0.7 else 0.0
        return Thing(
            look, style, colour, zone, x, y, size * width, size * tall, flip, tilt, look.pole / (1.0 + look.pole)
        )

    def place_group(self, group: ObjectGroup) -> None:
        """The first stands anywhere, the others beside it; those for which there is no space are left out."""
        far, near = self.depth_range(group.zone)
        jitter = float(self.rng.lognormal(0.0, 0.12))
        if group.zone in ("sky", "sea"):
            jitter *= float(self.rng.uniform(0.75, 1.35))
        first: Thing | None = None
        for look, style, colour in group.members:
            for _ in range(TRIES):
                x, y = self._spot(first, far, near)
                thing = self.thing(look, style, colour, group.zone, x, y, jitter)
                if self._take(thing):
                    first = first or thing
                    break

    def _spot(self, first: Thing | None, far: float, near: float) -> tuple[float, float]:
        if first is None:
            return float(self.rng.uniform(0.06, 0.94)), float(self.rng.uniform(far, near))
        reach = max(first.width, 0.12)
        x = first.x + float(self.rng.uniform(0.6, 2.2)) * reach * (1 if self.rng.random() < 0.5 else -1)
        y = first.y + float(self.rng.normal(0.0, 0.35)) * (near - far)
        return x, float(np.clip(y, far, near))

    def _take(self, thing: Thing) -> bool:
        """Add the thing if it is well inside the picture and hides nothing too much, nor is hidden."""
        outside = max(0.0, -thing.left, thing.right - 1.0) / thing.width + max(0.0, -thing.top) / thing.height
        if thing.zone != "front":
            outside += max(0.0, thing.y - 1.0) / thing.height
        if outside > 0.2:
            return False
        limit = MOST_HIDDEN_ON_WALL if thing.zone == "wall" else MOST_HIDDEN
        hidden, others = outside, []
        for other, already in zip(self.things, self.hidden, strict=True):
            shared = _shared_area(thing, other)
            if thing.order >= other.order:
                already += shared / (other.width * other.height)
                if already > limit:
                    return False
            else:
                hidden += shared / (thing.width * thing.height)
            others.append(already)
        if hidden > limit:
            return False
        self.things.append(thing)
        self.hidden = [*others, hidden]
        return True

    def place_extras(self, extra: Extra, codes: list[str]) -> None:
        for code in codes:
            self._place_extra(code, extra.at, extra.size)

    def _place_extra(self, code: str, at: str, size: float) -> None:
        """Scenery stands far off behind everything; clutter stands among the things but hides none of them."""
        width, height = shape(code)
        for _ in range(TRIES):
            x = float(self.rng.uniform(0.04, 0.96))
            if at == "horizon":
                zone, y, scale = at, self.stage.horizon + 0.012, 0.2
            elif at == "sky":
                zone, y, scale = "cloud", float(self.rng.uniform(0.14, max(0.2, self.stage.horizon - 0.1))), 0.3
            else:
                zone, y = at, float(self.rng.uniform(*self.depth_range(at)))
                scale = self.unit(at, y)
            longer = max(size * scale * float(self.rng.lognormal(0.0, 0.15)), SMALLEST * 0.8)
            thing = Thing(None, Style(code), "", zone, x, y, longer * width, longer * height)
            if zone in ("horizon", "cloud"):
                self.scenery.append(thing)
                return
            if self._take(thing):
                return


def _shared_area(a: Thing, b: Thing) -> float:
    width = min(a.right, b.right) - max(a.left, b.left)
    height = min(a.y, b.y) - max(a.top, b.top)
    return width * height if width > 0 and height > 0 else 0.0


def make_scene(catalogue: Catalogue, rng: Generator) -> Scene:
    """Draw a scene. There is always something of a class in it."""
    while True:
        stage = set_stage(catalogue, rng)
        layout = _Layout(stage, min(1.2, float(rng.lognormal(0.0, 0.14))), rng)
        back: list[str] = []
        for extra in stage.place.scenery:
            codes = chosen_extras(extra, stage, rng)
            layout.place_extras(extra, codes)
            back += extra.phrases if codes else ()
        clutter = chosen_extras(stage.place.clutter, stage, rng)
        for group in sorted(fill_stage(catalogue, stage, rng), key=lambda g: -max(m[0].size for m in g.members)):
            layout.place_group(group)
        layout.place_extras(stage.place.clutter, clutter)  # in the space that the things leave
        if any(thing.look for thing in layout.things):
            things = tuple(sorted(layout.scenery + layout.things, key=lambda thing: thing.order))
            return Scene(stage.place, stage.light, stage.horizon, stage.shore, stage.table, things, tuple(back))
