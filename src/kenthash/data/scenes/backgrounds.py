"""What lies behind and under the things: sky or wall above the horizon, water, ground, and tables.

One function per kind, which places.yaml names. Walls are painted from the top of the picture down to the horizon,
grounds and tables from an edge down to the bottom.
"""

from collections.abc import Callable

from PIL import Image

from kenthash.data.scenes.brush import BLACK, SIDE, WHITE, Brush, Colour, mix, rgb, vary
from kenthash.data.scenes.catalogue import Catalogue
from kenthash.data.scenes.scene import Scene, choose

Paint = Callable[[Brush, float, Colour, Colour], None]  # with an edge, and the colours above and below


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
            colour = mix(first, last, (i + 0.5) / steps * 0.75)
            drift = 0.25 * i / steps
            points = [
                (x + drift, top),
                (x + drift + wide, top),
                (x + drift + wide + 0.04, bottom),
                (x + drift + 0.03, bottom),
            ]
            brush.shape(points, mix(colour, WHITE, 0.14 * (1 - i / steps)))
    for x, y in zip(brush.rng.random(10).tolist(), brush.rng.random(10).tolist(), strict=True):
        size = 0.004 + 0.006 * y
        brush.disc(x, y * horizon, size, size, mix(mix(first, last, y), WHITE, 0.3))


def _skirting(brush: Brush, horizon: float, colour: Colour) -> None:
    brush.box(0.0, horizon - 0.022, 1.0, horizon, colour)


def paint_below(brush: Brush, scene: Scene) -> None:
    first, last = choose(brush.rng, scene.place.below.colours)
    edge = scene.horizon if scene.shore is None else scene.shore - 0.02
    FLOORS[scene.place.below.kind](brush, edge, vary(rgb(first), brush.rng), vary(rgb(last), brush.rng))


def plain_floor(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    brush.gradient(edge, 1.0, far, near)


def grass(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    brush.gradient(edge, 1.0, far, near)
    if brush.rng.random() < 0.35:  # a path
        x = float(brush.rng.uniform(0.3, 0.7))
        foot = x + float(brush.rng.uniform(-0.3, 0.3))
        brush.shape(
            [(x, edge), (x + 0.03, edge), (foot + 0.2, 1.0), (foot - 0.16, 1.0)], mix(far, (226, 206, 164), 0.7)
        )
    brush.tufts(edge + 0.04, 1.0, mix(near, BLACK, 0.18), 22)
    brush.tufts(edge + 0.04, 1.0, mix(far, WHITE, 0.25), 14)


def sand(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    brush.gradient(edge, 1.0, far, near)
    brush.specks(edge + 0.02, 1.0, mix(near, BLACK, 0.2), 60)
    brush.specks(edge + 0.02, 1.0, mix(far, WHITE, 0.5), 50)


def snow(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    brush.gradient(edge, 1.0, far, near)
    for _ in range(3):
        x, width = float(brush.rng.random()), float(brush.rng.uniform(0.3, 0.6))
        y = float(brush.rng.uniform(edge + 0.1, 0.98))
        brush.line([(x - width, y), (x, y - 0.02), (x + width, y + 0.03)], mix(near, (150, 180, 210), 0.3), 0.008)
    brush.specks(edge, 1.0, WHITE, 60, 3)


def road(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    """A pavement along the houses, the kerb, then the carriageway with its dashes."""
    kerb = edge + float(brush.rng.uniform(0.05, 0.12))
    brush.gradient(edge, kerb, (205, 200, 190), (190, 185, 176))
    brush.gradient(kerb, 1.0, far, near)
    brush.box(0.0, kerb, 1.0, kerb + 0.012, (226, 224, 218))
    brush.specks(kerb + 0.02, 1.0, mix(near, BLACK, 0.2), 40)
    y = kerb + (1.0 - kerb) * float(brush.rng.uniform(0.35, 0.55))
    shift, gap = float(brush.rng.random()) * 0.3, 0.3
    for i in range(-1, 4):
        x = i * gap + shift
        brush.shape([(x, y), (x + 0.15, y), (x + 0.16, y + 0.022), (x + 0.005, y + 0.022)], (238, 234, 214))
    if brush.rng.random() < 0.3:  # a crossing
        x = float(brush.rng.uniform(0.1, 0.6))
        for i in range(5):
            left, foot = x + i * 0.055, x - 0.08 + i * 0.085
            brush.shape(
                [(left, kerb + 0.02), (left + 0.03, kerb + 0.02), (foot + 0.05, 1.0), (foot, 1.0)], (238, 236, 228)
            )


def apron(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    brush.gradient(edge, 1.0, far, near)
    brush.box(0.0, edge, 1.0, edge + 0.03, (140, 178, 104))
    brush.rows(edge + 0.05, 1.0, mix(near, BLACK, 0.12), 4)
    x = float(brush.rng.uniform(0.2, 0.8))
    brush.line([(x, edge + 0.03), (x + float(brush.rng.uniform(-0.3, 0.3)), 1.0)], (236, 200, 70), 0.012)


def planks(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    brush.gradient(edge, 1.0, far, near)
    brush.rays(edge, 1.0, mix(near, BLACK, 0.2), int(brush.rng.integers(5, 9)))


def tiled_floor(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    brush.gradient(edge, 1.0, far, mix(far, near, 0.5))
    brush.rays(edge, 1.0, near, int(brush.rng.integers(5, 9)), 0.006)
    brush.rows(edge, 1.0, near, 5, 0.006)


def rug(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    planks(brush, edge, far, near)
    colour = vary(
        choose(brush.rng, ((196, 92, 84), (92, 130, 170), (120, 150, 110), (214, 178, 108), (150, 120, 160))), brush.rng
    )
    x, y = float(brush.rng.uniform(0.35, 0.65)), edge + (1.0 - edge) * 0.6
    for grow, share in ((1.0, 0.0), (0.86, 0.45), (0.78, 0.1)):
        brush.disc(x, y, 0.36 * grow, (1.0 - edge) * 0.26 * grow, mix(colour, WHITE, share))


def pitch(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    brush.gradient(edge, 1.0, far, near)
    steps = 6
    for i in range(0, steps, 2):
        top, bottom = (edge + (1.0 - edge) * (k / steps) ** 1.6 for k in (i, i + 1))
        brush.gradient(top, bottom, mix(far, WHITE, 0.1), mix(near, WHITE, 0.1))
    brush.line([(0.0, edge + 0.05), (1.0, edge + 0.05)], (245, 245, 240), 0.008)
    x = float(brush.rng.uniform(0.2, 0.8))
    brush.line([(x, edge + 0.05), (x * 2 - 0.5, 1.0)], (245, 245, 240), 0.012)


def stones(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
    brush.gradient(edge, 1.0, far, near)
    brush.box(0.0, edge, 1.0, edge + 0.045, mix(near, BLACK, 0.18))
    brush.rows(edge + 0.045, 1.0, mix(near, BLACK, 0.18), 4)
    brush.rays(edge + 0.045, 1.0, mix(near, BLACK, 0.13), 4)


def paint_table(brush: Brush, kind: str, edge: float) -> tuple[Image.Image, int]:
    """The table alone, on a clear ground, and the row of the picture where it starts."""
    rng = brush.rng
    woods = ((205, 160, 108), (170, 120, 76), (224, 190, 146), (140, 98, 66))
    cloths = ((250, 248, 242), (226, 120, 108), (150, 190, 214), (240, 214, 140), (170, 200, 150), (240, 190, 200))
    marbles = ((222, 218, 210), (196, 204, 208), (120, 124, 128), (236, 230, 216))
    if kind in ("cloth", "blanket"):
        _cloth(brush, edge, vary(choose(rng, cloths), rng), kind == "blanket")
    else:
        top = vary(choose(rng, marbles if kind == "counter" and rng.random() < 0.6 else woods), rng)
        _slab(brush, edge, top, narrow=kind == "table")
    row = max(0, int((edge - 0.02) * SIDE))
    return brush.finished(row), row


def _slab(brush: Brush, edge: float, top: Colour, narrow: bool) -> None:
    inset = float(brush.rng.uniform(0.02, 0.1)) if narrow else -0.1
    left, right = inset + 0.06, 0.94 - inset
    brush.shape([(left, edge), (right, edge), (1.0 - inset, 1.02), (inset, 1.02)], top)
    brush.line([(left, edge + 0.006), (right, edge + 0.006)], mix(top, WHITE, 0.4), 0.014)
    brush.line([(left, edge), (right, edge)], mix(top, BLACK, 0.55), 0.007)
    for _ in range(5):  # grain
        x, y = float(brush.rng.uniform(left, right - 0.1)), float(brush.rng.uniform(edge + 0.05, 0.98))
        brush.line(
            [(x, y), (min(right - 0.02, x + float(brush.rng.uniform(0.05, 0.3))), y)], mix(top, BLACK, 0.1), 0.004
        )


def _cloth(brush: Brush, edge: float, colour: Colour, blanket: bool) -> None:
    lean = float(brush.rng.uniform(0.06, 0.16)) if blanket else 0.02
    corners = [(lean, edge), (1.0 - lean, edge), (1.02, 1.02), (-0.02, 1.02)]
    brush.shape(corners, colour)
    if blanket or brush.rng.random() < 0.4:
        check = mix(colour, WHITE if min(colour) < 215 else (214, 84, 80), 0.42)
        count = 9
        for i in range(0, count, 2):
            far = [lean + side / count * (1 - 2 * lean) for side in (i, i + 1)]
            near = [side / count * 1.04 - 0.02 for side in (i + 1, i)]
            brush.shape([*((x, edge) for x in far), *((x, 1.02) for x in near)], check)
        darker = mix(check, BLACK, 0.08)
        for i in range(0, 6, 2):
            top, bottom = (edge + (1.0 - edge) * (k / 6) ** 1.3 for k in (i, i + 1))
            slope = (edge - top) / (1.02 - edge) * (lean + 0.02) + lean
            brush.shape([(slope, top), (1 - slope, top), (1 - slope + 0.01, bottom), (slope - 0.01, bottom)], darker)
    brush.line([corners[0], corners[1]], mix(colour, BLACK, 0.45), 0.006)


WALLS: dict[str, Paint] = {
    wall.__name__: wall for wall in (plain, stripes, dots, tiles, panels, chalkboard, stands, woods, sea)
}
FLOORS: dict[str, Paint] = {
    "plain": plain_floor,
    "tiles": tiled_floor,
    **{floor.__name__: floor for floor in (grass, sand, snow, road, apron, planks, rug, pitch, stones)},
}
TABLES = ("counter", "desk", "cloth", "table", "blanket")
