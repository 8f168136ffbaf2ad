r"""A hook of mkdocs: formulas of the docs, written in LaTeX between $ or $$, become MathML in the page.

Browsers draw MathML themselves, so the site needs no script and no font from elsewhere and can be read offline.
`pymdownx.arithmatex` finds the formulas (and leaves code alone); it hands them over as `\(...\)` and `\[...\]`.
"""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

FOUND = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    return FOUND.sub(_formula, html)


def _formula(match: re.Match[str]) -> str:
    block = match[1] == "div"
    mathml: str = convert(unescape(match[2]).strip(), display="block" if block else "inline")
    return f"<div class=formula>{mathml}</div>" if block else mathml
