"""Filters on metadata: a small safe language, parsed to a tree that each engine translates.

    place = 'beach' and year >= 2020
    labels has 'dog' and not (indoor = true or place in ('bar', 'cinema'))
    author is null or "shot on" != 'film'
    taken >= '2023-06' and camera has 'Pixel' and near(48.2, 16.4, 10 km)

A filter is true or false of an item, never unknown. A comparison is true only where the key is there and holds a value
of the literal's kind (text, number, or true/false); so both `year = 2020` and `year != 2020` are false of an item
without a year, while `not year = 2020` is true of it. `is null` is true where the key is missing or null. `has` asks
whether a list of strings holds a string, or whether a text contains it. `near` asks whether the place in the keys
`latitude` and `longitude`, in degrees, is at most so far from a point. Text compares by code points, whatever the
locale. Keys that are not plain words are in double quotes, text is in single quotes with '' for a quote in it.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from kenthash.errors import UsageError

Literal = str | int | float | bool

Token = tuple[str, str, int]  # kind, text, position

TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>"[^"\\]+")|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<sign><=|>=|!=|<>|=|<|>|\(|\)|,)|(?P<word>[^\W\d]\w*))""",
    re.VERBOSE,
)
WORDS = frozenset({"and", "or", "not", "in", "is", "null", "has", "true", "false"})

MAX_LENGTH = 4096  # characters of a filter
MAX_DEPTH = 32  # parentheses and nots within each other
MAX_TERMS = 256  # comparisons, and values of an `in`
EARTH = 6371.0088  # its mean radius in km (IUGG)
UNITS = {"km": 1.0, "m": 0.001, "mi": 1.609344}

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Compare:
    """`op` is one of OPERATORS; true and false take = and != only."""

    key: str
    op: str
    value: Literal


@dataclass(frozen=True)
class Among:
    """The key's value equals one of these (each compared as by `=`)."""

    key: str
    values: tuple[Literal, ...]


@dataclass(frozen=True)
class Has:
    """The key holds a list of strings with this one in it, or a text that contains it."""

    key: str
    value: str


@dataclass(frozen=True)
class IsNull:
    """The key is missing or holds null."""

    key: str


@dataclass(frozen=True)
class NearPlace:
    """The place of an item is at most `km` from this one: it is in the box around it, and the distance is not more."""

    latitude: float  # degrees
    longitude: float
    km: float

    def box(self) -> "Filter":
        """Comparisons that are true of every place near this one, and of few others, for whom the distance is left to
        be computed."""
        reach = self.km / EARTH * (1 + 1e-9)
        south, north = self.latitude - math.degrees(reach), self.latitude + math.degrees(reach)
        latitudes = (Compare("latitude", ">=", south), Compare("latitude", "<=", north))
        if south <= -90 or north >= 90:  # around a pole all longitudes are near
            return And((*latitudes, Not(IsNull("longitude"))))
        half = math.degrees(math.asin(min(1.0, math.sin(reach) / math.cos(math.radians(self.latitude)))))
        west, east = self.longitude - half, self.longitude + half
        within = (Compare("longitude", ">=", west), Compare("longitude", "<=", east))
        across = [Compare("longitude", ">=", west + 360)] if west < -180 else []
        across += [Compare("longitude", "<=", east - 360)] if east > 180 else []
        return And((*latitudes, Or((And(within), *across)) if across else And(within)))

    def holds(self, latitude: float, longitude: float) -> bool:
        """By the haversine formula: with the differences in latitude and longitude Δφ and Δλ, the distance on a sphere
        of radius R is 2R asin √(sin²(Δφ/2) + cos φ cos φ' sin²(Δλ/2))."""
        between = math.radians(latitude - self.latitude), math.radians(longitude - self.longitude)
        cosines = math.cos(math.radians(self.latitude)) * math.cos(math.radians(latitude))
        square = math.sin(between[0] / 2) ** 2 + cosines * math.sin(between[1] / 2) ** 2
        return square <= self.square

    @property
    def square(self) -> float:
        """The largest sin²(distance / 2R) that is near: what engines compare with."""
        return math.sin(min(self.km / EARTH, math.pi) / 2) ** 2


@dataclass(frozen=True)
class Not:
    term: "Filter"


@dataclass(frozen=True)
class And:
    terms: tuple["Filter", ...]


@dataclass(frozen=True)
class Or:
    terms: tuple["Filter", ...]


Filter = Compare | Among | Has | IsNull | NearPlace | Not | And | Or


def kind(value: object) -> str:
    """The kind within which values compare: text, number, boolean, or another."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def matches(term: Filter, metadata: Mapping[str, object]) -> bool:
    """Whether the filter is true of an item: the meaning that every engine's translation must keep.

    Example:

        >>> [matches(parse(text), {"place": "bar"}) for text in ("year = 2020", "year != 2020", "not year = 2020")]
        [False, False, True]
    """
    match term:
        case Compare(key, op, value):
            present = metadata.get(key)
            return kind(present) == kind(value) and OPERATORS[op](present, value)
        case Among(key, values):
            present = metadata.get(key)
            return any(kind(present) == kind(value) and present == value for value in values)
        case Has(key, value):
            present = metadata.get(key)
            return isinstance(present, list | str) and value in present
        case IsNull(key):
            return metadata.get(key) is None
        case NearPlace():
            if not matches(term.box(), metadata) or kind(metadata["longitude"]) != "number":
                return False
            return term.holds(cast(float, metadata["latitude"]), cast(float, metadata["longitude"]))
        case Not(inner):
            return not matches(inner, metadata)
        case And(terms):
            return all(matches(part, metadata) for part in terms)
        case Or(terms):
            return any(matches(part, metadata) for part in terms)


def keys_of(term: Filter) -> set[str]:
    """The keys of metadata that decide whether a filter is true of an item."""
    match term:
        case Compare(key) | Among(key) | Has(key) | IsNull(key):
            return {key}
        case NearPlace():
            return {"latitude", "longitude"}
        case Not(inner):
            return keys_of(inner)
        case And(terms) | Or(terms):
            return set().union(*map(keys_of, terms))


UNENCODABLE = re.compile("[\\x00\\ud800-\\udfff]")  # what neither JSON nor a database can hold


def parse(text: str) -> Filter:
    """Parse a filter; an error is one line with the position (from 1) at which it went wrong.

    Example:

        >>> parse("labels has 'dog' and year >= 2020")
        And(terms=(Has(key='labels', value='dog'), Compare(key='year', op='>=', value=2020)))
        >>> parse("year >= ")
        Traceback (most recent call last):
        kenthash.errors.UsageError: ...
    """
    if len(text) > MAX_LENGTH:
        raise UsageError(f"filter of {len(text):,} characters: at most {MAX_LENGTH:,} are taken")
    if half := UNENCODABLE.search(text):
        raise UsageError(f"filter: at {half.start() + 1} a zero byte or half a character, which no text can hold")
    parser = _Parser(_tokens(text))
    term = parser.disjunction(0)
    parser.expect("'and', 'or' or the end", "end")
    return term


def _tokens(text: str) -> list[Token]:
    """The tokens of a filter; keywords and operators have themselves as kind."""
    split: list[Token] = []
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
        split.append((kind, token, start))
    return [*split, ("end", "the end", len(text))]


class _Parser:
    """Recursive descent: `or` binds weakest, then `and`, then `not`."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.place, self.terms = tokens, 0, 0

    @property
    def kind(self) -> str:
        return self.tokens[self.place][0]

    def take(self, *kinds: str) -> str | None:
        """The next token's text if it is of one of these kinds."""
        if self.kind not in kinds:
            return None
        self.place += 1
        return self.tokens[self.place - 1][1]

    def expect(self, what: str, *kinds: str) -> str:
        token = self.take(*kinds)
        return self.fail(what) if token is None else token

    def fail(self, expected: str) -> str:
        _, token, position = self.tokens[self.place]
        printed = token[:20] if token.isprintable() else repr(token[:20])
        raise UsageError(f"filter, position {position + 1}: {expected} expected, not {printed}")

    def disjunction(self, depth: int) -> Filter:
        terms = [self.conjunction(depth)]
        while self.take("or"):
            terms.append(self.conjunction(depth))
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def conjunction(self, depth: int) -> Filter:
        terms = [self.negation(depth)]
        while self.take("and"):
            terms.append(self.negation(depth))
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def negation(self, depth: int) -> Filter:
        if depth > MAX_DEPTH:
            self.fail(f"no more than {MAX_DEPTH} parentheses within each other")
        if self.take("not"):
            return Not(self.negation(depth + 1))
        if self.take("("):
            term = self.disjunction(depth + 1)
            self.expect("')'", ")")
            return term
        return self.comparison()

    def comparison(self) -> Filter:
        is_call = self.tokens[self.place][:2] == ("word", "near")
        key = self.expect("a key", "word", "name").strip('"')
        self.count_term()
        if is_call and self.take("("):
            return self.near()
        if self.take("is"):
            negated = self.take("not")
            self.expect("'null'", "null")
            return Not(IsNull(key)) if negated else IsNull(key)
        if self.take("has"):
            return Has(key, _unquoted(self.expect("text in single quotes", "text")))
        if self.take("in"):
            return Among(key, self.values())
        if self.take("not"):
            self.expect("'in'", "in")
            return Not(Among(key, self.values()))
        op = self.expect("=, !=, <, <=, >, >=, in, has or is", *OPERATORS, "<>").replace("<>", "!=")
        value = self.literal()
        if isinstance(value, bool) and op not in ("=", "!="):
            self.place -= 1
            self.fail("text or a number (true and false have no order)")
        return Compare(key, op, value)

    def near(self) -> Filter:
        latitude = self.number("a latitude from -90 to 90", -90, 90)
        self.expect("','", ",")
        longitude = self.number("a longitude from -180 to 180", -180, 180)
        self.expect("','", ",")
        distance = self.number("a distance, such as 10 km", 0, 1e9)
        unit = UNITS.get(self.expect("km, m or mi", "word"))
        if unit is None:
            self.place -= 1
            self.fail("km, m or mi")
        self.expect("')'", ")")
        return NearPlace(latitude, longitude, distance * (unit or 0))

    def number(self, expected: str, least: float, most: float) -> float:
        value = float(self.expect(expected, "number"))
        if not least <= value <= most:
            self.place -= 1
            self.fail(expected)
        return value

    def values(self) -> tuple[Literal, ...]:
        self.expect("'('", "(")
        values = [self.literal()]
        while self.take(","):
            self.count_term()
            values.append(self.literal())
        self.expect("',' or ')'", ")")
        return tuple(values)

    def count_term(self) -> None:
        self.terms += 1
        if self.terms > MAX_TERMS:
            self.fail(f"no more than {MAX_TERMS} comparisons and values")

    def literal(self) -> Literal:
        kind = self.kind
        token = self.expect("text in single quotes, a number, true or false", "text", "number", "true", "false")
        if kind == "text":
            return _unquoted(token)
        if kind == "number":
            value = float(token) if set(token) & set(".eE") else int(token)
            if not -(2.0**63) <= value < 2.0**63:
                self.place -= 1
                self.fail("a number of 64 bits")
            return value
        return kind == "true"


def _unquoted(token: str) -> str:
    return token[1:-1].replace("''", "'")
