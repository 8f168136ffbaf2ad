"""Many pictures on one sheet, each with its caption."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kenthash.data.contact_sheet import contact_sheet
from kenthash.errors import UsageError


def test_lines_of_pixels_and_wide_pictures_are_shown_whole(tmp_path: Path) -> None:
    red, green = Image.new("RGB", (4000, 2), (200, 30, 30)), Image.new("RGB", (80, 40), (30, 200, 30))
    contact_sheet([red, green], ["", ""], tmp_path / "sheet.png")
    pixels = np.asarray(Image.open(tmp_path / "sheet.png")).astype(int)
    shown = [np.argwhere(np.abs(pixels - colour).max(axis=2) == 0) for colour in ((200, 30, 30), (30, 200, 30))]
    sides = [tuple((w.max(axis=0) - w.min(axis=0) + 1).tolist()) for w in shown]
    assert sides == [(1, 224), (112, 224)]


def test_pictures_come_in_reading_order(tmp_path: Path) -> None:
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30), (200, 30, 200)]
    pictures: list[Path | Image.Image] = [Image.new("RGB", (300, 300), colour) for colour in colours]
    Image.new("RGB", (300, 300), colours[0]).save(tmp_path / "first.png")
    pictures[0] = tmp_path / "first.png"
    captions = [
        "short",
        "a caption that is so long that it must be wrapped " * 12,
        "",
        "unbroken" * 40,
        "last\nand more",
    ]
    contact_sheet(pictures, captions, tmp_path / "sheet.png", columns=2, title="Five")
    pixels = np.asarray(Image.open(tmp_path / "sheet.png")).astype(int)
    where = [np.argwhere(np.abs(pixels - colour).max(axis=2) == 0) for colour in colours]
    assert all(len(w) == 224 * 224 for w in where)
    rows, columns = zip(*(w.min(axis=0).tolist() for w in where), strict=True)
    assert rows[0] == rows[1] < rows[2] == rows[3] < rows[4] and columns[0] == columns[2] == columns[4] < columns[1]
    paper = pixels[0, 0]
    assert np.abs(pixels[:, -20:] - paper).max() == 0  # no caption runs over the margin
    gap = pixels[rows[0] + 230 : rows[2] - 5, columns[0] + 226 : columns[1] - 2]
    assert gap.size and np.abs(gap - paper).max() == 0  # nor into its neighbour
    with pytest.raises(UsageError, match="captions"):
        contact_sheet(pictures, ["one"], tmp_path / "bad.png")
