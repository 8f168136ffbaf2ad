"""A filter's text cut into tokens, for the parser in `filters`."""

import re

from kenthash.errors import UsageError

Token = tuple[str, str, int]  # kind, text, position

TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>"[^"\\]+")|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<sign><=|>=|!=|<>|=|<|>|\(|\)|,)|(?P<word>[^\W\d]\w*))""",
    re.VERBOSE,
)
WORDS = frozenset({"and", "or", "not", "in", "is", "null", "has", "true", "false"})


def tokens(text: str) -> list[Token]:
    """(kind, text, position) of each token; words and signs of the language have themselves as kind."""
    found: list[Token] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        match = TOKEN.match(text, place)
        if not match:
            place += len(text[place:]) - len(text[place:].lstrip())
            raise UsageError(f"filter, position {place + 1}: {text[place : place + 10]!r} is not understood")
        kind = str(match.lastgroup)
        token, start, place = match[kind], match.start(kind), match.end()
        if kind == "sign" or (kind == "word" and token.lower() in WORDS):
            kind = token.lower()
        found.append((kind, token, start))
    return [*found, ("end", "the end", len(text))]
