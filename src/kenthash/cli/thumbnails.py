"""Small pictures in terminals that can show them: kitty's protocol, or iTerm2's. Never in pipes, files or tmux."""

import base64
import os
import sys
from io import BytesIO
from pathlib import Path

from kenthash.data.pictures import BadPicture, open_picture

SIDE = 160  # pixels
LINES = 4  # of text that a picture is high
CHUNK = 4096  # characters that kitty takes at a time


def protocol() -> str | None:
    """What the terminal on standard output understands, by what it says of itself in the environment."""
    if not sys.stdout.isatty() or os.environ.get("TMUX") or os.environ.get("TERM", "").startswith("screen"):
        return None
    if os.environ.get("KITTY_WINDOW_ID") or os.environ.get("TERM") in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    if os.environ.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm"):
        return "iterm"
    return None


def escape(path: Path, how: str) -> str:
    """The characters that draw a picture file; none where it cannot be opened any more."""
    try:
        picture = open_picture(path, SIDE)
    except BadPicture:
        return ""
    picture.thumbnail((SIDE, SIDE))
    stream = BytesIO()
    picture.save(stream, "PNG")
    data = base64.b64encode(stream.getvalue()).decode()
    if how == "iterm":
        return f"\x1b]1337;File=inline=1;height={LINES}:{data}\a\n"
    parts = [data[i : i + CHUNK] for i in range(0, len(data), CHUNK)]
    drawn = []
    for number, part in enumerate(parts):
        first = f"a=T,f=100,r={LINES}," if number == 0 else ""
        drawn.append(f"\x1b_G{first}m={int(number < len(parts) - 1)};{part}\x1b\\")
    return "".join(drawn) + "\n"
