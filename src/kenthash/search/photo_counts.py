"""When, where and by which cameras the photos of an index were taken: what a page can offer as filters.

Engines group items by month, camera and a cell of a tenth of a degree, since a count is needed, not every item.
Neighbouring cells are joined to places here.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kenthash.search.filters import NearPlace

CELLS_PER_DEGREE = 10
PLACE_KM = 25.0  # cells whose middles are at most so far from that of the one with the most photos join it
ONE_CELL_KM, CELLS_KM = 10.0, 35.0  # contain a place of one cell, of several: from middle to corner it is up to 8 km
MONTH = 7  # characters of "2023-06"


class PhotoGroup(NamedTuple):
    """Items that have this in common; None where they do not have it."""

    month: str | None  # the first seven characters of the text in `taken`
    camera: str | None  # the text in `camera`
    cell: tuple[int, int] | None  # of the numbers in `latitude` and `longitude`, where these are a point on the map
    items: int


@dataclass(frozen=True)
class PlaceCount:
    """Photos taken within `km` of a point; a few of the next place may be, too."""

    latitude: float
    longitude: float
    km: float
    items: int


@dataclass(frozen=True)
class PhotoCounts:
    months: list[tuple[str, int]]  # in order of time
    cameras: list[tuple[str, int]]  # the most frequent first
    places: list[PlaceCount]  # the one with the most photos first


def cell_of(latitude: float, longitude: float) -> tuple[int, int]:
    """Its middle is at (latitude, longitude) = (i / 10 - 90, j / 10 - 180) degrees: the tenth of a degree that is
    nearest to all of its points, so that a page can print it.

    Example:

        >>> cell_of(48.21, 16.37)
        (1382, 1964)
    """
    return int((latitude + 90) * CELLS_PER_DEGREE + 0.5), int((longitude + 180) * CELLS_PER_DEGREE + 0.5)


def photo_group_of(metadata: Mapping[str, object]) -> PhotoGroup:
    """The group of one item, for engines that do not group."""
    taken, camera = metadata.get("taken"), metadata.get("camera")
    latitude, longitude = _number(metadata.get("latitude")), _number(metadata.get("longitude"))
    on_map = abs(latitude) <= 90 and abs(longitude) <= 180
    return PhotoGroup(
        taken[:MONTH] if isinstance(taken, str) else None,
        camera if isinstance(camera, str) else None,
        cell_of(latitude, longitude) if on_map else None,
        1,
    )


def _number(value: object) -> float:
    """Infinity where it is none; true and false are none."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.inf


def summarise(groups: Iterable[PhotoGroup], limit: int) -> PhotoCounts:
    """The months, and the `limit` most frequent cameras and places."""
    months: Counter[str] = Counter()
    cameras: Counter[str] = Counter()
    cells: Counter[tuple[int, int]] = Counter()
    for group in groups:
        if group.month is not None and _is_month(group.month):
            months[group.month] += group.items
        if group.camera:
            cameras[group.camera] += group.items
        if group.cell is not None:
            cells[group.cell] += group.items
    most = sorted(cameras.items(), key=lambda pair: (-pair[1], pair[0]))
    return PhotoCounts(sorted(months.items()), most[:limit], _places(cells, limit))


def _is_month(text: str) -> bool:
    year, dash, month = text[:4], text[4:5], text[5:]
    return text.isascii() and year.isdigit() and dash == "-" and month.isdigit() and 1 <= int(month) <= 12


def _places(cells: Counter[tuple[int, int]], limit: int) -> list[PlaceCount]:
    """The cell with the most photos takes the cells around it, then the next of those that are left."""
    left = dict(sorted(cells.items(), key=lambda pair: (-pair[1], pair[0])))
    places: list[PlaceCount] = []
    while left and len(places) < limit:
        first = next(iter(left))
        around = NearPlace(*_middle(first), PLACE_KM)
        joined = [left.pop(cell) for cell in list(left) if around.holds(*_middle(cell))]
        latitude, longitude = (round(degrees, 1) for degrees in _middle(first))
        places.append(PlaceCount(latitude, longitude, ONE_CELL_KM if len(joined) == 1 else CELLS_KM, sum(joined)))
    return sorted(places, key=lambda place: -place.items)


def _middle(cell: tuple[int, int]) -> tuple[float, float]:
    latitude, longitude = (number / CELLS_PER_DEGREE for number in cell)
    return latitude - 90, longitude - 180
