"""How well `index duplicates` tells edited copies from other photos: each photo with four edits, all pairs judged.

The edits: saved again as JPEG of quality 60; half as wide and high; 5 % of width and height cropped, at a random place;
a line of text across it. A pair is right if both come from one photo. Photos that are near-identical by themselves
count as mistakes.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from kenthash.data.fingerprint import BITS, fingerprint
from kenthash.data.pictures import BadPicture, open_picture
from kenthash.errors import DataError
from kenthash.files import expand
from kenthash.progress import bar
from kenthash.search.duplicates import LIMIT, near_pairs
from kenthash.search.folders.walk import walk_folder

EDITS = ("JPEG 60", "half size", "5 % crop", "text")
SIDE = 2048  # pixels to which larger photos are decoded


@dataclass(frozen=True)
class DuplicateFigures:
    photos: int
    limit: int  # bits of a fingerprint that may differ
    recall: dict[str, float]  # of a photo and each edit of it
    pair_recall: float  # of all pairs from one photo, two edits among them
    precision: float  # of all pairs that are reported
    wrong: int  # pairs of two photos

    def text(self) -> str:
        shares = " · ".join(f"{name} {value:.3f}" for name, value in self.recall.items())
        mean = sum(self.recall.values()) / len(self.recall)
        return (
            f"{self.photos:,} photos, each with {len(EDITS)} edits; at most {self.limit} of {BITS} bits differ\n"
            f"recall of a photo and its edit: {shares} · mean {mean:.3f}\n"
            f"recall of all pairs from one photo {self.pair_recall:.3f} · precision {self.precision:.4f} "
            f"({self.wrong} wrong pairs)"
        )


def bench_duplicates(folder: Path, photos: int = 1000, limit: int = LIMIT, seed: int = 0) -> DuplicateFigures:
    """Figures of `photos` photos of a folder, drawn at random."""
    content = walk_folder(expand(folder))
    rng = random.Random(seed)
    files = rng.sample([content.folder / file.name for file in content.files], len(content.files))
    prints: list[bytes] = []
    with bar(min(photos, len(files)), "edits", "photos") as progress:
        for file in files:
            if len(prints) == photos * (1 + len(EDITS)):
                break
            try:
                picture = open_picture(file, SIDE).convert("RGB")
            except BadPicture:
                continue
            prints += [bytes.fromhex(fingerprint(np.asarray(image))) for image in (picture, *_edits(picture, rng))]
            progress.update(1)
    if not prints:
        raise DataError(f"{folder}: none of its pictures can be opened")
    codes = np.frombuffer(b"".join(prints), np.uint8).reshape(-1, BITS // 8)
    each, number = 1 + len(EDITS), len(prints) // (1 + len(EDITS))
    reported = list(near_pairs(codes, limit))
    right = [(a, b) for a, b in reported if a // each == b // each]
    own = np.zeros(each, np.int64)  # by the edit, of pairs with the photo itself
    for a, b in right:
        own[b % each] += a % each == 0
    return DuplicateFigures(
        number,
        limit,
        {name: float(own[place]) / number for place, name in enumerate(EDITS, 1)},
        len(right) / (number * each * (each - 1) / 2),
        len(right) / max(len(reported), 1),
        len(reported) - len(right),
    )


def _edits(picture: Image.Image, rng: random.Random) -> Iterator[Image.Image]:
    stream = BytesIO()
    picture.save(stream, "JPEG", quality=60)
    yield Image.open(stream).convert("RGB")
    width, height = picture.size
    yield picture.resize((max(1, width // 2), max(1, height // 2)), Image.Resampling.LANCZOS)
    less, lower = round(0.05 * width), round(0.05 * height)
    left, top = rng.randint(0, less), rng.randint(0, lower)
    yield picture.crop((left, top, left + width - less, top + height - lower))
    written = picture.copy()
    font = ImageFont.load_default(max(8, height / 8))
    ImageDraw.Draw(written).text(
        (0.05 * width, 0.8 * height),
        "Holiday 2024",
        "white",
        font,
        stroke_width=max(1, height // 128),
        stroke_fill="black",
    )
    yield written
