"""A table of results, once, and its forms: Markdown, LaTeX, CSV and HTML; and the page around those of HTML."""

import csv
import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from kenthash import __version__

Value = str | float | int | None

MISSING = "–"
# What LaTeX reads as a command, and what pdflatex does not set by itself.
TEX = str.maketrans({
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "✓": r"$\checkmark$", "→": r"$\to$", "–": "--", "−": "$-$", "±": r"$\pm$", "≥": r"$\geq$", "Δ": r"$\Delta$",
    "β": r"$\beta$", "ε": r"$\epsilon$", "ζ": r"$\zeta$", "η": r"$\eta$", "κ": r"$\kappa$",
})  # fmt: skip


@dataclass(frozen=True)
class Sheet:
    """Words are written as they are, numbers with `digits` after the point; None and NaN are a dash.

    A word of the form **x** is bold.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Value]]
    caption: str
    name: str = "table"  # the stem of its files
    digits: int = 4

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.head) for row in self.rows), f"{self.name}: a row is not as long as the head"

    def text(self, value: Value) -> str:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return MISSING
        if isinstance(value, float):
            return f"{value:.{self.digits}f}".replace("-", "−")
        return " ".join(str(value).split())  # one line, whatever a name is

    def markdown(self) -> str:
        right = [self._numeric(column) for column in range(len(self.head))]
        lines = ["| " + " | ".join(self.head) + " |", "|" + "".join("---:|" if r else "---|" for r in right)]
        lines += ["| " + " | ".join(self.text(value).replace("|", r"\|") for value in row) + " |" for row in self.rows]
        return "\n".join([*lines, "", self.caption]) + "\n"

    def latex(self) -> str:
        form = "".join("r" if self._numeric(column) else "l" for column in range(len(self.head)))
        lines = [rf"\begin{{tabular}}{{{form}}}", r"\toprule", " & ".join(map(tex, self.head)) + r" \\", r"\midrule"]
        lines += [" & ".join(tex(self.text(value)) for value in row) + r" \\" for row in self.rows]
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def comma_separated(self) -> str:
        """Numbers with six digits, nothing bold, an empty field where there is none."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.head)
        for row in self.rows:
            writer.writerow([_plain(value) for value in row])
        return stream.getvalue()

    def forms(self) -> dict[str, str]:
        """The table as files, by their suffix."""
        return {"md": self.markdown(), "tex": self.latex(), "csv": self.comma_separated()}

    def to_json(self) -> dict[str, object]:
        """Its name, caption and rows, each row by the names of the columns; numbers that are words, as those with a
        deviation, stay words."""
        rows = [dict(zip(self.head, map(_json, row), strict=True)) for row in self.rows]
        return {"name": self.name, "caption": self.caption, "rows": rows}

    def html(self) -> str:
        kinds = ["n" if self._numeric(column) else "w" for column in range(len(self.head))]
        head = "".join(
            f'<th scope="col" class="{k}">{html.escape(n)}</th>' for n, k in zip(self.head, kinds, strict=True)
        )
        body = []
        for row in self.rows:
            cells = [f'<td class="{k}">{_html(self.text(v))}</td>' for v, k in zip(row, kinds, strict=True)]
            body.append(f"<tr>{''.join(cells)}</tr>")
        caption = f"<caption>{prose(self.caption)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"

    def _numeric(self, column: int) -> bool:
        """A column of numbers: its words, if any, are numbers too (bold, or with their deviation)."""
        return all(_is_number(row[column]) for row in self.rows)


def tex(word: str) -> str:
    """A word for LaTeX."""
    if word.startswith("**") and word.endswith("**"):
        return rf"\textbf{{{word.strip('*').translate(TEX)}}}"
    return word.translate(TEX)


def _is_number(value: Value) -> bool:
    if not isinstance(value, str):
        return True
    word = value.strip("*").split(" ± ")[0].removesuffix(" %")
    try:
        float(word.replace("−", "-").replace(",", ""))
    except ValueError:
        return word in ("", MISSING)
    return True


def _plain(value: Value) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value).replace("**", "")


def _json(value: Value) -> Value:
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 6)
    return value.replace("**", "") if isinstance(value, str) else value


def _html(word: str) -> str:
    if word.startswith("**") and word.endswith("**"):
        return f"<strong>{html.escape(word.strip('*'))}</strong>"
    return html.escape(word)


def prose(text: str) -> str:
    """Text for HTML: escaped, with the apostrophes that print uses, and `names` as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text.replace("'", "’")))


def html_page(title: str, header: str, body: str, wide: bool = False) -> str:
    """A page that opens offline: its style is inside, and nothing is loaded from elsewhere. A wide one takes the width
    that there is, for tables of many columns."""
    style = (files("kenthash") / "studies" / "report.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title, quote=False)}</title>
<style>
{style}</style>
</head>
<body{' class="wide"' if wide else ""}>
<header>
<p class="kicker">kenthash {html.escape(__version__)}</p>
{header}
</header>
{body}
</body>
</html>
"""
