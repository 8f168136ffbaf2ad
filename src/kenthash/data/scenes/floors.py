"""Grounds and tables. One function a kind, named in places.yaml; each paints from an edge down to the bottom."""

from collections.abc import Callable

from PIL import Image

from kenthash.data.scenes.brush import BLACK, SIDE, WHITE, Brush, Colour, mix, rgb, vary
from kenthash.data.scenes.contents import choose
from kenthash.data.scenes.scene import Scene

Floor = Callable[[Brush, float, Colour, Colour], None]


def paint_below(brush: Brush, scene: Scene) -> None:
    first, last = choose(brush.rng, scene.place.below.colours)
    edge = scene.horizon if scene.shore is None else scene.shore - 0.02
    FLOORS[scene.place.below.kind](brush, edge, vary(rgb(first), brush.rng), vary(rgb(last), brush.rng))


def plain(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
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


def tiles(brush: Brush, edge: float, far: Colour, near: Colour) -> None:
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


FLOORS: dict[str, Floor] = {
    floor.__name__: floor for floor in (plain, grass, sand, snow, road, apron, planks, tiles, rug, pitch, stones)
}
TABLES = ("counter", "desk", "cloth", "table", "blanket")
