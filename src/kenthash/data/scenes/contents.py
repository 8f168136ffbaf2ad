"""What is in a scene: a place, its light, the classes that happen to be there, how many of each and in which look."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from numpy.random import Generator

from kenthash.data.scenes.catalogue import Catalogue, Extra, Look, Place
from kenthash.data.scenes.drawings import SKIN_TONES, Outfit, Style

T = TypeVar("T")

MOST_THINGS = 10  # of classes; more would be a heap

# What stands above the horizon where it is no wall.
_OPEN = {"sky": "sky", "stands": "sky", "woods": "sky", "sea": "sea"}


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
class Group:
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


def fill_stage(catalogue: Catalogue, stage: Stage, rng: Generator) -> list[Group]:
    """Groups of things in random order, at least one."""
    while True:
        names = _drawn(stage.place.objects, rng)
        if stage.place.events:
            event = choose(rng, stage.place.events, [weight for weight, _ in stage.place.events])
            names += [name for name in _drawn(event[1], rng) if name not in names]
        groups: list[Group] = []
        for name in sorted(names, key=lambda _: rng.random()):
            group = _group(catalogue, stage, name, rng)
            if group is not None and sum(len(g.members) for g in groups) + len(group.members) <= MOST_THINGS:
                groups.append(group)
        if groups:
            return groups


def _drawn(shares: Mapping[str, float], rng: Generator) -> list[str]:
    return [name for name, share in shares.items() if rng.random() < share]


def _group(catalogue: Catalogue, stage: Stage, name: str, rng: Generator) -> Group | None:
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
    return Group(zone, tuple(members))


def dress_up(catalogue: Catalogue, look: Look, rng: Generator) -> tuple[Style, str]:
    """A style for the look, and the name of its colour where captions may tell it."""
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
