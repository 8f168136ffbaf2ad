"""What may be said of where two groups of things stand: only what holds for every pair of them.

A group is told as a whole ("two dogs behind a car"), so a relation counts only if each dog stands so to each car.
"""

from collections.abc import Callable, Sequence

from kenthash.data.scenes.scene import Scene, Thing

_FLOORS = ("ground", "water", "behind", "table", "front")


def relations(a: Sequence[Thing], b: Sequence[Thing]) -> list[str]:
    """Names (of phrases.yaml) of the relations in which all of `a` stand to all of `b`."""
    pairs = [(x, y) for x in a for y in b]
    return [name for name, holds in RELATIONS.items() if all(holds(x, y) for x, y in pairs)]


def hold(scene: Scene, group: Sequence[Thing]) -> str:
    """near, far or "": whether the group stands clearly at the front or at the back."""
    if all(
        t.zone == "front" or (t.zone == "table" and t.y > 0.88) or (t.zone == "ground" and t.y > 0.9) for t in group
    ):
        return "near"
    if scene.shore is None and all(
        t.zone == "ground" and t.y < scene.horizon + 0.14 and t.height < 0.25 for t in group
    ):
        return "far"
    return ""


def _gap(a: Thing, b: Thing) -> float:
    """Free width between the two; negative where one stands in front of the other."""
    return max(a.left, b.left) - min(a.right, b.right)


def _standing(a: Thing, b: Thing) -> bool:
    return a.zone in _FLOORS and b.zone in _FLOORS


def _beside(a: Thing, b: Thing) -> bool:
    near = -0.3 * min(a.width, b.width) < _gap(a, b) < 0.12
    return near and ((_standing(a, b) and abs(a.y - b.y) < 0.13) or (a.zone == b.zone and abs(a.y - b.y) < 0.2))


def _before(a: Thing, b: Thing) -> bool:
    """Nearer, and in the way at least in part."""
    return _standing(a, b) and a.order > b.order and a.y - b.y > 0.06 and _gap(a, b) < -0.15 * min(a.width, b.width)


def _left(a: Thing, b: Thing) -> bool:
    return _gap(a, b) > -0.1 * min(a.width, b.width) and 0.08 < b.x - a.x < 0.6 and abs(a.y - b.y) < 0.25


def _over(a: Thing, b: Thing) -> bool:
    """Up in the air or on the wall, and something below it."""
    return a.zone in ("sky", "wall", "sea") and b.zone != a.zone and b.top > a.top + 0.7 * a.height and _gap(a, b) < 0.0


RELATIONS: dict[str, Callable[[Thing, Thing], bool]] = {
    "beside": _beside,
    "before": _before,
    "behind": lambda a, b: _before(b, a),
    "left": _left,
    "right": lambda a, b: _left(b, a),
    "over": _over,
    "under": lambda a, b: _over(b, a),
}
