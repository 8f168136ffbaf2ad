"""What a picture file says about itself, as metadata: its size and orientation, and when, where and by which camera it
was taken.

    {"width": 4032, "height": 3024, "orientation": "landscape", "taken": "2023-06-14 18:05:31",
     "camera": "Google Pixel 7", "latitude": 48.208493, "longitude": 16.373118}

Tags are those of Exif 2.32. A tag that is missing, damaged or impossible is left out.
"""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from PIL import Image
from PIL.ExifTags import GPS, IFD, Base

Facts = dict[str, str | int | float]

TIME = re.compile(r"((?:18|19|20|21)\d\d):([01]\d):([0-3]\d) ([0-2]\d:[0-5]\d:[0-6]\d)")
MAX_CAMERA = 100  # characters


def photo_facts(size: tuple[int, int], exif: Image.Exif) -> Facts:
    """Facts about a picture of this size, as it is stored, with these tags.

    Example:

        >>> exif = Image.Exif()
        >>> exif[Base.Make], exif[Base.Model], exif[Base.Orientation] = "Canon", "Canon EOS 5D", 6
        >>> photo_facts((400, 300), exif)
        {'width': 300, 'height': 400, 'orientation': 'portrait', 'camera': 'Canon EOS 5D'}
    """
    facts: Facts = {}
    width, height = size
    with suppress(Exception):  # damaged tags raise anything
        if exif.get(Base.Orientation) in (5, 6, 7, 8):  # to be turned by a quarter
            width, height = height, width
    facts["width"], facts["height"] = width, height
    facts["orientation"] = "landscape" if width > height else "portrait" if width < height else "square"
    for part in (_taken, _camera, _place):
        with suppress(Exception):
            facts.update(part(exif))
    return facts


def _taken(exif: Image.Exif) -> Iterator[tuple[str, str]]:
    details = exif.get_ifd(IFD.Exif)
    times = [details.get(Base.DateTimeOriginal), exif.get(Base.DateTimeOriginal), details.get(Base.DateTimeDigitized)]
    for value in (*times, exif.get(Base.DateTime)):
        if isinstance(value, str) and (match := TIME.match(value)):
            year, month, day, time = match.groups()
            yield "taken", f"{year}-{month}-{day} {time}"
            return


def _camera(exif: Image.Exif) -> Iterator[tuple[str, str]]:
    make, model = (_text(exif.get(tag)) for tag in (Base.Make, Base.Model))
    if make and model and make.split()[0].lower() == model.split()[0].lower():
        make = ""  # "NIKON CORPORATION" and "NIKON D70"
    if name := f"{make} {model}".strip()[:MAX_CAMERA]:
        yield "camera", name


def _place(exif: Image.Exif) -> list[tuple[str, float]]:
    tags = exif.get_ifd(IFD.GPSInfo)
    latitude = _degrees(tags.get(GPS.GPSLatitude), tags.get(GPS.GPSLatitudeRef) == "S")
    longitude = _degrees(tags.get(GPS.GPSLongitude), tags.get(GPS.GPSLongitudeRef) == "W")
    # Some cameras write zeros until they have seen a satellite.
    possible = abs(latitude) <= 90 and abs(longitude) <= 180 and (latitude, longitude) != (0, 0)
    return [("latitude", latitude), ("longitude", longitude)] if possible else []


def _degrees(value: Any, negative: bool) -> float:
    """Degrees, minutes and seconds as degrees."""
    degrees, minutes, seconds = map(float, value)
    total = degrees + minutes / 60 + seconds / 3600
    if not math.isfinite(total) or total < 0:
        raise ValueError("no angle")
    return round(-total if negative else total, 6)


def _text(value: object) -> str:
    """A string without the zero bytes and spaces that cameras fill it up with."""
    return " ".join("".join(c if c.isprintable() else " " for c in value).split()) if isinstance(value, str) else ""
