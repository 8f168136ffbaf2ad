"""What lies behind the things: sky or wall above the horizon, and water. Grounds and tables are in `floors`.

One function a kind, named in places.yaml; each paints from the top of the picture down to the horizon.
"""

from collections.abc import Callable

from kenthash.data.scenes.brush import BLACK, WHITE, Brush, Colour, mix, rgb, vary
from kenthash.data.scenes.catalogue import Catalogue
from kenthash.data.scenes.contents import choose
from kenthash.data.scenes.scene import Scene

Wall = Callable[[Brush, float, Colour, Colour], None]


def paint_above(brush: Brush, scene: Scene, catalogue: Catalogue) -> None:
    rng, fill = brush.rng, scene.place.above
    light = catalogue.lights[scene.light]
    if fill.kind == "sky":
        first, last = choose(rng, light.skies)
        sky(brush, scene.horizon, vary(rgb(first), rng), vary(rgb(last), rng), scene.light)
        return
    first, last = choose(rng, fill.colours)
    WALLS[fill.kind](brush, scene.horizon, vary(rgb(first), rng), vary(rgb(last), rng))


def sky(brush: Brush, horizon: float, first: Colour, last: Colour, light: str) -> None:
    rng = brush.rng
    brush.gradient(0.0, horizon, first, last)
    x = float(rng.uniform(0.12, 0.88))
    if light == "night":
        brush.specks(0.0, horizon * 0.9, (235, 235, 215), int(rng.integers(12, 45)), 3)
        y, size = float(rng.uniform(0.08, 0.2)), float(rng.uniform(0.035, 0.06))
        brush.disc(x, y, size, size, (245, 240, 210))
        if rng.random() < 0.6:  # a crescent
            brush.disc(x + size * 0.5, y - size * 0.2, size * 0.9, size * 0.9, mix(first, last, y / horizon))
    elif light == "day" and rng.random() < 0.5:
        y, size = float(rng.uniform(0.06, 0.2)), float(rng.uniform(0.04, 0.065))
        for grow, share in ((1.8, 0.3), (1.4, 0.5)):
            brush.disc(x, y, size * grow, size * grow, mix(mix(first, last, y / horizon), (255, 250, 220), share))
        brush.disc(x, y, size, size, (255, 226, 92))
    elif light == "dusk":
        size = float(rng.uniform(0.07, 0.13))
        for grow, share in ((1.7, 0.25), (1.35, 0.45), (1.0, 0.9)):
            brush.disc(x, horizon, size * grow, size * grow, mix(last, (255, 244, 200), share))
    if rng.random() < 0.6:  # hills, paler the farther
        for share in (0.25, 0.45):
            colour = mix(last, mix(first, (70, 120, 90), 0.6), share)
            width = float(rng.uniform(0.3, 0.6))
            brush.disc(float(rng.random()), horizon + 0.1, width, float(rng.uniform(0.16, 0.24)), colour)


def water(brush: Brush, scene: Scene) -> None:
    """From the horizon to the shore, with a wavy edge of foam; the ground is already painted below."""
    if scene.shore is None:
        return
    rng = brush.rng
    far, near = choose(
        rng, (((74, 163, 209), (142, 211, 232)), ((47, 128, 168), (120, 200, 205)), ((90, 150, 200), (160, 205, 228)))
    )
    brush.gradient(scene.horizon, scene.shore, vary(far, rng), vary(near, rng))
    brush.waves(scene.horizon + 0.02, scene.shore - 0.02, mix(near, WHITE, 0.55), 26)
    steps, phase = 12, float(rng.random())
    wave = [(i / steps, scene.shore + 0.012 * (-1) ** i * (0.5 + 0.5 * phase)) for i in range(steps + 1)]
    brush.shape([(0.0, scene.shore - 0.03), *wave, (1.0, scene.shore - 0.03)], near)
    brush.line(wave, mix(near, WHITE, 0.8), 0.012)


def plain(brush: Brush, horizon: float, first: Colour, last: Colour) -> None:
    brush.gradient(0.0, horizon, first, last)
    _skirting(brush, horizon, mix(last, BLACK, 0.25))


def stripes(brush: Brush, horizon: float, first: Colour, last: Colour) -> None:
    brush.gradient(0.0, horizon, first, first)
    count = int(brush.rng.integers(6, 14))
    for i in range(count):
        brush.box((i + 0.25) / count, 0.0, (i + 0.75) / count, horizon, last)
    _skirting(brush, horizon, mix(first, WHITE, 0.6))


def dots(brush: Brush, horizon: float, first: Colour, last: Colour) -> None:
    brush.gradient(0.0, horizon, first, first)
    count = int(brush.rng.integers(7, 12))
    for i in range(count):
        for j in range(count):
            brush.disc((i + 0.5 * (j % 2) + 0.25) / count, (j + 0.4) / count * 0.75, 0.012, 0.012, last)
    brush.box(0.0, horizon, 1.0, 1.0, first)
    _skirting(brush, horizon, mix(first, WHITE, 0.6))


def tiles(brush: Brush, horizon: float, first: Colour, last: Colour) -> None:
    brush.gradient(0.0, horizon, first, first)
    count, offset = int(brush.rng.integers(6, 11)), 0.5 * float(brush.rng.integers(2))
    row = 0.5 / count if offset else 1.0 / count
    for j in range(int(horizon / row) + 1):
        brush.line([(0.0, j * row), (1.0, j * row)], last, 0.005)
        for i in range(count + 1):
            x = (i + offset * (j % 2)) / count
            brush.line([(x, j * row), (x, min(horizon, (j + 1) * row))], last, 0.005)
            if brush.rng.random() < 0.05:
                brush.box(x, j * row, x + 1 / count, min(horizon, (j + 1) * row), mix(first, last, 0.5))


def panels(brush: Brush, horizon: float, first: Colour, last: Colour) -> None:
    brush.gradient(0.0, horizon, first, mix(first, last, 0.15))
    rail, count = horizon * float(brush.rng.uniform(0.5, 0.7)), int(brush.rng.integers(4, 8))
    brush.box(0.0, rail, 1.0, horizon, last)
    for i in range(count):
        brush.box((i + 0.12) / count, rail + 0.04, (i + 0.88) / count, horizon - 0.03, mix(last, WHITE, 0.13), 0.01)
    brush.box(0.0, rail, 1.0, rail + 0.018, mix(last, WHITE, 0.35))


def chalkboard(brush: Brush, horizon: float, first: Colour, last: Colour) -> None:
    brush.gradient(0.0, horizon, first, mix(first, BLACK, 0.06))
    left, right = float(brush.rng.uniform(0.06, 0.3)), float(brush.rng.uniform(0.7, 0.95))
    top, bottom = 0.08, horizon * 0.78
    brush.box(left - 0.015, top - 0.015, right + 0.015, bottom + 0.02, (150, 108, 66), 0.012)
    brush.box(left, top, right, bottom, last)
    chalk = mix(last, WHITE, 0.75)
    for i in range(int(brush.rng.integers(1, 4))):  # a few lines of writing that nobody can read
        x, y = left + 0.05, top + 0.07 + 0.08 * i
        for _ in range(int(brush.rng.integers(3, 8))):
            step = float(brush.rng.uniform(0.02, 0.06))
            if x + step > right - 0.04:
                break
            brush.line([(x, y), (x + step * 0.4, y - 0.02), (x + step * 0.8, y)], chalk, 0.005)
            x += step + 0.012
    _skirting(brush, horizon, mix(first, BLACK, 0.3))


def stands(brush: Brush, horizon: float, first: Colour, last: Colour) -> None:
    """Tiers full of people too far off to be more than dots."""
    brush.gradient(0.0, horizon, first, last)
    brush.gradient(0.0, 0.08, (190, 220, 240), (220, 235, 245))
    rows = 9
    shirts = [(226, 88, 80), (240, 200, 70), (245, 245, 245), (90, 150, 215), (120, 175, 90), (40, 45, 60)]
    for j in range(rows):
        y = 0.1 + (horizon - 0.14) * j / rows
        brush.line([(0.0, y + 0.018), (1.0, y + 0.018)], mix(last, BLACK, 0.25), 0.004)
        for x in (brush.rng.random(20) * 1.02).tolist():
            brush.disc(x, y, 0.009, 0.011, choose(brush.rng, shirts))
    brush.box(0.0, horizon - 0.045, 1.0, horizon, (240, 240, 236))
    for i in range(4):
        brush.box(
            i / 4 + 0.02,
            horizon - 0.036,
            i / 4 + 0.21,
            horizon - 0.01,
            vary(choose(brush.rng, shirts), brush.rng),
            0.004,
        )


def woods(brush: Brush, horizon: float, first: Colour, last: Colour) -> None:
    brush.gradient(0.0, horizon, first, mix(first, last, 0.5))
    for share in (0.3, 0.55, 0.8):  # three ranks of trunks, the nearer the darker
        for x in brush.rng.random(7).tolist():
            wide = 0.006 + 0.014 * share * float(brush.rng.random())
            brush.box(x, 0.0, x + wide, horizon, mix(first, mix(last, (80, 60, 40), 0.35), share))
    for x in brush.rng.random(9).tolist():
        brush.disc(
            x, 0.0, 0.14, float(brush.rng.uniform(0.04, 0.12)), mix(first, last, float(brush.rng.uniform(0.6, 0.95)))
        )


def sea(brush: Brush, horizon: float, first: Colour, last: Colour) -> None:
    brush.gradient(0.0, horizon, first, last)
    for x in brush.rng.random(4).tolist():  # shafts of light
        wide = float(brush.rng.uniform(0.03, 0.08))
        steps = 8
        for i in range(steps):
            top, bottom = horizon * 0.75 * i / steps, horizon * 0.75 * (i + 1) / steps
            here = mix(first, last, (i + 0.5) / steps * 0.75)
            drift = 0.25 * i / steps
            points = [
                (x + drift, top),
                (x + drift + wide, top),
                (x + drift + wide + 0.04, bottom),
                (x + drift + 0.03, bottom),
            ]
            brush.shape(points, mix(here, WHITE, 0.14 * (1 - i / steps)))
    for x, y in zip(brush.rng.random(10).tolist(), brush.rng.random(10).tolist(), strict=True):
        size = 0.004 + 0.006 * y
        brush.disc(x, y * horizon, size, size, mix(mix(first, last, y), WHITE, 0.3))


def _skirting(brush: Brush, horizon: float, colour: Colour) -> None:
    brush.box(0.0, horizon - 0.022, 1.0, horizon, colour)


WALLS: dict[str, Wall] = {
    wall.__name__: wall for wall in (plain, stripes, dots, tiles, panels, chalkboard, stands, woods, sea)
}
