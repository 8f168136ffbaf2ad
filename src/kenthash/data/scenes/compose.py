"""Paint a scene: background, things from back to front with their shadows, then the light over all."""

from functools import lru_cache

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from kenthash.data.scenes.backgrounds import paint_above, paint_below, paint_table, water
from kenthash.data.scenes.brush import SIDE, Brush
from kenthash.data.scenes.catalogue import Catalogue
from kenthash.data.scenes.drawings import LARGE, SMALL, raster
from kenthash.data.scenes.scene import LAYERS, Scene, Thing

GRAIN = 2.4  # standard deviation of the noise, of 255 levels


def paint(scene: Scene, catalogue: Catalogue, rng: Generator) -> Image.Image:
    """The picture, RGB, SIDE x SIDE."""
    brush = Brush(rng)
    paint_above(brush, scene, catalogue)
    paint_below(brush, scene)
    water(brush, scene)
    canvas = brush.finished()
    for thing in scene.things:
        if LAYERS[thing.zone] < LAYERS["table"]:
            paint_thing(canvas, thing)
    if scene.table is not None and scene.place.table is not None:
        table, row = paint_table(Brush(rng, "RGBA"), scene.place.table.kind, scene.table)
        canvas.paste(table, (0, row), table)
    for thing in scene.things:
        if LAYERS[thing.zone] >= LAYERS["table"]:
            paint_thing(canvas, thing)
    return _lit(canvas, catalogue.lights[scene.light].tint, rng)


def paint_thing(canvas: Image.Image, thing: Thing) -> None:
    drawing, corner = placed(thing)
    if thing.zone in ("ground", "table"):
        _shadow(canvas, thing)
    if thing.pole:
        post = ImageDraw.Draw(canvas)
        x, top = round(thing.x * SIDE), round((thing.top + thing.height * (1 - thing.pole)) * SIDE)
        wide = max(1, round(0.06 * thing.width * SIDE))
        post.rectangle((x - wide, top - 3, x + wide, round(thing.y * SIDE)), fill=(98, 100, 104), outline=(0, 0, 0))
    canvas.paste(drawing, corner, drawing)


def placed(thing: Thing) -> tuple[Image.Image, tuple[int, int]]:
    """The drawing at its size and tilt, and the pixel of its upper left corner."""
    height = thing.height * (1 - thing.pole)
    size = max(1, round(thing.width * SIDE)), max(1, round(height * SIDE))
    drawing = raster(thing.style, SMALL if max(size) < SMALL else LARGE)
    drawing = drawing.resize(size, Image.Resampling.BILINEAR)
    if thing.flip:
        drawing = drawing.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if abs(thing.tilt) >= 1.0:
        drawing = drawing.rotate(thing.tilt, Image.Resampling.BILINEAR, expand=True)
    x, y = thing.x * SIDE, (thing.top + height / 2) * SIDE
    return drawing.convert("RGBA"), (round(x - drawing.width / 2), round(y - drawing.height / 2))


@lru_cache(maxsize=1)
def _soft_ellipse() -> Image.Image:
    mask = Image.new("L", (64, 32))
    ImageDraw.Draw(mask).ellipse((8, 8, 56, 24), fill=105)
    return mask.filter(ImageFilter.GaussianBlur(4))


def _shadow(canvas: Image.Image, thing: Thing) -> None:
    width, height = round(thing.width * 1.15 * SIDE), round(max(0.02, thing.width * 0.2) * SIDE)
    mask = _soft_ellipse().resize((max(2, width), max(2, height)), Image.Resampling.BILINEAR)
    corner = round(thing.x * SIDE - width / 2), round(thing.y * SIDE - height * 0.6)
    canvas.paste((25, 28, 40), (*corner, corner[0] + mask.width, corner[1] + mask.height), mask)


@lru_cache(maxsize=1)
def _vignette() -> Image.Image:
    line = np.linspace(-1.0, 1.0, SIDE)
    shade = 255 * (1.0 - 0.045 * (line[:, None] ** 2 + line[None, :] ** 2) ** 1.5)
    return Image.fromarray(shade.round().astype(np.uint8)).convert("RGB")


@lru_cache(maxsize=1)
def _grain() -> Image.Image:
    """A sheet of noise about 128, from which each picture takes a piece: much faster than fresh noise."""
    noise = np.random.default_rng(0).normal(128.0, GRAIN, (2 * SIDE, 2 * SIDE))
    return Image.fromarray(noise.round().astype(np.uint8)).convert("RGB")


def _lit(canvas: Image.Image, tint: tuple[float, float, float], rng: Generator) -> Image.Image:
    gain = np.array(tint) * float(rng.uniform(0.97, 1.05))
    levels = np.minimum(255, np.rint(np.outer(gain, np.arange(256)))).astype(int).ravel().tolist()
    x, y = (int(offset) for offset in rng.integers(0, SIDE, 2))
    shaded = ImageChops.multiply(canvas.point(levels), _vignette())
    return ImageChops.add(shaded, _grain().crop((x, y, x + SIDE, y + SIDE)), scale=1.0, offset=-128)
