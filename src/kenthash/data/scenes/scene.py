"""What a picture of the set shows, before it is painted and before it is told.

All lengths are fractions of the picture's side; x runs right, y runs down, and a thing's x and y are the middle of its
lower edge.
"""

from dataclasses import dataclass

from kenthash.data.scenes.catalogue import Look, Place
from kenthash.data.scenes.drawings import Style

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
