"""A contact sheet: pictures in a grid with their captions below, as one PNG to look at."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from kenthash.data.pictures import open_picture
from kenthash.errors import UsageError
from kenthash.files import atomic_write

CELL, GAP, MARGIN = 224, 20, 28
PAPER, INK, SOFT, EDGE = "#FBFAF7", "#22252B", "#5A606B", "#D9D5CC"
LINES = 5  # of a caption, and as many of its paler part; longer ones end in an ellipsis


def contact_sheet(
    pictures: Sequence[Path | Image.Image],
    captions: Sequence[str],
    out: Path,
    columns: int = 4,
    title: str = "",
) -> None:
    """Write the sheet to `out` as PNG. Pictures are shown whole; what follows a caption's first line break is paler."""
    if not pictures or len(pictures) != len(captions) or columns < 1:
        raise UsageError(
            f"a contact sheet needs as many captions as pictures and at least one column, "
            f"not {len(pictures)} pictures, {len(captions)} captions, {columns} columns"
        )
    plain, large = _font("DejaVuSans.ttf", 13), _font("DejaVuSans-Bold.ttf", 22)
    columns = min(columns, len(pictures))
    texts = [_coloured(caption, plain) for caption in captions]
    line = 17
    head = MARGIN + (44 if title else 0)
    rows = [texts[i : i + columns] for i in range(0, len(texts), columns)]
    heights = [CELL + 10 + line * max(map(len, row)) + GAP for row in rows]
    width = 2 * MARGIN + columns * CELL + (columns - 1) * GAP
    sheet = Image.new("RGB", (width, head + sum(heights) + MARGIN - GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    if title:
        draw.text((MARGIN, MARGIN - 4), _wrapped(title, large, width - 2 * MARGIN)[0], fill=INK, font=large)
    for index, (picture, text) in enumerate(zip(pictures, texts, strict=True)):
        row, column = divmod(index, columns)
        x, y = MARGIN + column * (CELL + GAP), head + sum(heights[:row])
        _paste(sheet, picture, x, y)
        for number, (words, colour) in enumerate(text):
            draw.text((x, y + CELL + 8 + number * line), words, fill=colour, font=plain)
    with atomic_write(out) as stream:
        sheet.save(stream, format="PNG", optimize=True)


def _paste(sheet: Image.Image, picture: Path | Image.Image, x: int, y: int) -> None:
    opened = open_picture(picture, CELL) if isinstance(picture, Path) else picture.convert("RGB")
    scale = CELL / max(opened.size)
    width, height = (max(1, round(side * scale)) for side in opened.size)  # a picture of one row of pixels keeps one
    fitted = opened.resize((width, height), Image.Resampling.LANCZOS)
    ImageDraw.Draw(sheet).rectangle((x - 1, y - 1, x + CELL, y + CELL), fill="white", outline=EDGE)
    sheet.paste(fitted, (x + (CELL - fitted.width) // 2, y + (CELL - fitted.height) // 2))


def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """DejaVu, which ships with matplotlib: it has the letters of most alphabets."""
    import matplotlib

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)


def _coloured(caption: str, font: ImageFont.FreeTypeFont) -> list[tuple[str, str]]:
    title, _, details = caption.partition("\n")
    lines = [(line, INK) for line in _wrapped(title, font, CELL)]
    return lines + ([(line, SOFT) for line in _wrapped(details, font, CELL)] if details else [])


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Lines no wider than `width` pixels, at most LINES of them; a word that is too long alone is cut."""
    lines: list[str] = []
    for paragraph in text.splitlines() or [""]:
        current = ""
        for word in paragraph.split():
            longer = f"{current} {word}".strip()
            if font.getlength(longer) <= width:
                current = longer
                continue
            if current:
                lines.append(current)
            current = _cut(word, font, width)
        lines.append(current)
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], _cut(f"{lines[LINES - 1]} …", font, width, always=True)]
    return lines


def _cut(word: str, font: ImageFont.FreeTypeFont, width: int, always: bool = False) -> str:
    if font.getlength(word) <= width:
        return word
    end = " …" if always else "…"
    while len(word) > 1 and font.getlength(word + end) > width:
        word = word[:-1]
    return word + end
