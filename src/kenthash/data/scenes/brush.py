"""The few strokes that backgrounds are painted with. All are drawn at twice the size and reduced, for smooth edges."""

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageColor, ImageDraw

SIDE = 224  # pixels of a finished picture
LARGE = 2 * SIDE

Colour = tuple[int, int, int]

WHITE, BLACK = (255, 255, 255), (20, 22, 30)


def rgb(colour: str) -> Colour:
    red, green, blue = ImageColor.getrgb(colour)[:3]
    return red, green, blue


def mix(a: Colour, b: Colour, share: float) -> Colour:
    """`share` of b in a."""
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


def vary(colour: Colour, rng: Generator, by: float = 6.0) -> Colour:
    """A little lighter or darker, and a touch of another hue."""
    shade = rng.normal(0.0, by)
    red, green, blue = (min(255, max(0, round(c + shade + rng.normal(0.0, by / 3)))) for c in colour)
    return red, green, blue


class Brush:
    """A large canvas and its strokes, whose places are fractions of the side."""

    def __init__(self, rng: Generator, mode: str = "RGB") -> None:
        self.rng = rng
        self.image = Image.new(mode, (LARGE, LARGE))
        self.draw = ImageDraw.Draw(self.image)

    def finished(self, top: int = 0) -> Image.Image:
        """The picture at its own size, from the row `top` on."""
        return self.image.reduce(2, (0, 2 * top, LARGE, LARGE))

    def gradient(self, top: float, bottom: float, first: Colour, last: Colour) -> None:
        y0, y1 = round(top * LARGE), max(round(top * LARGE) + 1, round(bottom * LARGE))
        rows = np.linspace(first, last, y1 - y0).round().astype(np.uint8)[:, None, :]
        self.image.paste(Image.fromarray(rows).resize((LARGE, y1 - y0), Image.Resampling.NEAREST), (0, y0))

    def line(self, points: list[tuple[float, float]], colour: Colour, width: float = 0.006) -> None:
        self.draw.line(
            [(x * LARGE, y * LARGE) for x, y in points], fill=colour, width=max(1, round(width * LARGE)), joint="curve"
        )

    def shape(self, points: list[tuple[float, float]], colour: Colour) -> None:
        self.draw.polygon([(x * LARGE, y * LARGE) for x, y in points], fill=colour)

    def box(self, left: float, top: float, right: float, bottom: float, colour: Colour, radius: float = 0.0) -> None:
        frame = (left * LARGE, top * LARGE, right * LARGE, bottom * LARGE)
        self.draw.rounded_rectangle(frame, radius * LARGE, fill=colour)

    def disc(self, x: float, y: float, width: float, height: float, colour: Colour) -> None:
        frame = ((x - width) * LARGE, (y - height) * LARGE, (x + width) * LARGE, (y + height) * LARGE)
        self.draw.ellipse(frame, fill=colour)

    def specks(self, top: float, bottom: float, colour: Colour, count: int, size: int = 2) -> None:
        """Small dots, denser and finer towards the top, as on ground that recedes."""
        xs = self.rng.random(count) * LARGE
        ys = (top + (bottom - top) * self.rng.random(count) ** 1.4) * LARGE
        for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
            self.draw.ellipse((x, y, x + size, y + size / 2), fill=colour)

    def tufts(self, top: float, bottom: float, colour: Colour, count: int) -> None:
        """Blades of grass, longer the nearer."""
        for x, depth in zip(self.rng.random(count).tolist(), self.rng.random(count).tolist(), strict=True):
            y, reach = top + (bottom - top) * depth, 0.006 + 0.016 * depth
            for lean in (-0.5, 0.1, 0.6):
                self.line([(x, y), (x + lean * reach, y - reach)], colour, 0.004)

    def waves(self, top: float, bottom: float, colour: Colour, count: int) -> None:
        for x, depth in zip(self.rng.random(count).tolist(), self.rng.random(count).tolist(), strict=True):
            y, reach = top + (bottom - top) * depth, 0.015 + 0.03 * depth
            frame = ((x - reach) * LARGE, (y - reach / 3) * LARGE, (x + reach) * LARGE, (y + reach / 3) * LARGE)
            self.draw.arc(frame, 200, 340, fill=colour, width=3)

    def rows(self, top: float, bottom: float, colour: Colour, count: int, width: float = 0.004) -> None:
        """Horizontal lines that draw together towards the horizon."""
        for step in range(1, count):
            y = top + (bottom - top) * (step / count) ** 1.8
            self.line([(0.0, y), (1.0, y)], colour, width)

    def rays(self, top: float, bottom: float, colour: Colour, count: int, width: float = 0.004) -> None:
        """Lines that run from the horizon towards the viewer and spread."""
        shift = float(self.rng.uniform(0.35, 0.65))
        for step in range(-count, 2 * count + 1):
            x = step / count
            self.line([(shift + (x - shift) * 0.45, top), (shift + (x - shift) * 1.6, bottom)], colour, width)
