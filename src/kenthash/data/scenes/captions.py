"""Describe a scene in English: some of its things, by one of their names, with numbers, relations and the place.

No caption lists the labels: things are left out, named by other words than their class, or counted together. Where they
stand is said only of what holds for every pair: of "two dogs behind a car", each dog stands behind the car.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from numpy.random import Generator

from kenthash.data.scenes.catalogue import Catalogue
from kenthash.data.scenes.scene import Scene, Thing, choose

# Captions of one picture tend to use the same words: some classes of an item are never called by their name, the others
# often are.
NEVER_NAMED = 0.3
PLAIN_NAME = 0.75
NAMED_COLOUR = 0.25
# What a sentence of phrases.yaml may leave to be filled in.
SENTENCE_FIELDS = (
    "a",
    "b",
    "rel",
    "list",
    "rest",
    "doing",
    "is",
    "are",
    "place",
    "called",
    "light",
    "back",
    "table",
    "hold",
)
MENTIONED = (0.1, 0.3, 0.33, 0.27)  # one, two, three, four groups in a caption, where there are so many
_FLOORS = ("ground", "water", "behind", "table", "front")
# The head of "piece of fruit" or "walker with a pup" stands before the first of these.
_PREPOSITION = re.compile(r" (?=(?:of|with|in|on|under|at|for|from) )")


@dataclass(frozen=True)
class Noun:
    """A group of things of one class as a caption describes it."""

    things: tuple[Thing, ...]
    words: str
    many: bool
    doing: str


def make_captions(scene: Scene, catalogue: Catalogue, rng: Generator, count: int) -> list[str]:
    """`count` different captions."""
    captions: list[str] = []
    unnamed = {label for label in scene.labels if rng.random() < NEVER_NAMED}
    while len(captions) < count:
        caption = _caption(scene, catalogue, unnamed, rng)
        if caption and caption not in captions:
            captions.append(caption)
    return captions


def _caption(scene: Scene, catalogue: Catalogue, unnamed: set[str], rng: Generator) -> str:
    """One caption, or "" where the sentence that was drawn asks for more than the scene has."""
    phrases = catalogue.phrases
    _, text, alone = choose(rng, phrases.sentences, [weight for weight, _, _ in phrases.sentences])
    fields = {name for _, name, _, _ in Formatter().parse(text) if name}
    groups = _groups(scene, on_table="table" in fields)
    if not groups or (alone and len(groups) > 1):
        return ""
    count = 1 + choose(rng, range(len(MENTIONED)), MENTIONED)
    mentioned = [_noun(group, catalogue, unnamed, rng) for group in _salient(groups, min(count, len(groups)), rng)]
    filled = {name: _field(name, mentioned, scene, catalogue, rng) for name in sorted(fields - {"rel", "b", "rest"})}
    if "b" in fields:
        filled |= _related(mentioned, catalogue, rng)
    if "rest" in fields:
        filled["rest"] = enumerate_nouns([noun.words for noun in mentioned[1:]])
    return sentence(text.format(**filled)) if all(filled.values()) else ""


def _groups(scene: Scene, on_table: bool) -> list[list[Thing]]:
    groups: dict[str, list[Thing]] = {}
    for thing in scene.things:
        if thing.look is not None and (not on_table or thing.zone == "table"):
            groups.setdefault(thing.look.labels[0], []).append(thing)
    return list(groups.values())


def _salient(groups: list[list[Thing]], count: int, rng: Generator) -> list[list[Thing]]:
    """So many groups in random order; the larger they are in the picture, the sooner they are mentioned."""
    sizes = [sum(thing.width * thing.height for thing in group) for group in groups]
    keys = [float(rng.exponential()) / (0.005 + size) for size in sizes]
    return [group for _, group in sorted(zip(keys, groups, strict=True), key=lambda pair: pair[0])][:count]


def _noun(things: Sequence[Thing], catalogue: Catalogue, unnamed: set[str], rng: Generator) -> Noun:
    looks = [thing.look for thing in things if thing.look is not None]
    shared = [noun for noun in looks[0].nouns if all(noun in look.nouns for look in looks)]
    plain = looks[0].labels[0] not in unnamed and rng.random() < PLAIN_NAME
    word = looks[0].noun if plain or not shared else choose(rng, shared)
    doing = [act for act in looks[0].doing if all(act in look.doing for look in looks)]
    colours = {thing.colour for thing in things}
    if word == looks[0].noun and "person" in looks[0].labels[1:]:
        doing, colours = [], {""}  # a cyclist rides along in red, a bicycle does not
    if len(colours) == 1 and "" not in colours and rng.random() < NAMED_COLOUR:
        colour = colours.pop()
        worn = looks[0].dress is not None or "person" in looks[0].labels
        word = f"{word} in {colour}" if worn else f"{colour} {word}"
    phrases, number = catalogue.phrases, len(things)
    if number == 1:
        words = article(word, phrases.an, phrases.a)
    else:
        # "a pair of slices of pizza" has one "of" too many.
        amounts = [n for n in phrases.numbers[str(min(number, 5))] if " of" not in n or " of " not in word]
        words = f"{choose(rng, amounts)} {plural(word, phrases.plurals)}"
    return Noun(tuple(things), words, number > 1, choose(rng, doing) if doing else "")


def _field(name: str, mentioned: list[Noun], scene: Scene, catalogue: Catalogue, rng: Generator) -> str:
    phrases, subject = catalogue.phrases, mentioned[0]
    match name:
        case "a":
            return subject.words
        case "list":
            return enumerate_nouns([noun.words for noun in mentioned])
        case "doing":
            return subject.doing
        case "is":
            return "are" if subject.many else "is"
        case "are":
            return "are" if subject.many or len(mentioned) > 1 else "is"
        case "place":
            return choose(rng, scene.place.at)
        case "called":
            return article(choose(rng, scene.place.called), phrases.an, phrases.a)
        case "light":
            return _one_of(phrases.lights.get(scene.light, ()), rng)
        case "back":
            return _one_of(scene.back, rng)
        case "table":
            return choose(rng, scene.place.table.called) if scene.table is not None and scene.place.table else ""
        case "hold":
            return _one_of(phrases.holds.get(hold(scene, subject.things), ()), rng)
    raise ValueError(f"no field {name} in a sentence")


def _one_of(options: Sequence[str], rng: Generator) -> str:
    return choose(rng, options) if options else ""


def _related(mentioned: list[Noun], catalogue: Catalogue, rng: Generator) -> dict[str, str]:
    """The subject's relation to the first of the others that it has one to."""
    for other in mentioned[1:]:
        names = relations(mentioned[0].things, other.things)
        if names:
            return {"b": other.words, "rel": choose(rng, catalogue.phrases.relations[choose(rng, names)])}
    return {"b": ""}


def article(phrase: str, an: Sequence[str], a: Sequence[str]) -> str:
    """ "a dog", "an old dog", "an SUV", "a one-humped animal"."""
    word = phrase.split()[0]
    if word in an:
        vowel = True
    elif word in a:
        vowel = False
    else:
        vowel = word[0].lower() in "aeiou"
    return f"{'an' if vowel else 'a'} {phrase}"


def plural(phrase: str, irregular: Mapping[str, str]) -> str:
    """ "dogs", "pieces of fruit", "old women", "passers-by"."""
    head, *complement = _PREPOSITION.split(phrase, maxsplit=1)
    *before, word = head.split(" ")
    if word in irregular:
        word = irregular[word]
    elif re.search(r"(s|x|z|ch|sh)$", word):
        word += "es"
    elif re.search(r"[^aeiou]y$", word):
        word = word[:-1] + "ies"
    else:
        word += "s"
    return " ".join([*before, word, *complement])


def enumerate_nouns(phrases: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)


def sentence(text: str) -> str:
    """Close up spaces left by empty fields and start with a capital."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ([,.:])", r"\1", text)
    return text[:1].upper() + text[1:]


def relations(a: Sequence[Thing], b: Sequence[Thing]) -> list[str]:
    """Names (of phrases.yaml) of the relations in which all of `a` stand to all of `b`."""
    pairs = [(x, y) for x in a for y in b]
    return [name for name, holds in RELATIONS.items() if all(holds(x, y) for x, y in pairs)]


def hold(scene: Scene, group: Sequence[Thing]) -> str:
    """near, far or "": whether the group stands clearly at the front or at the back."""
    if all(
        t.zone == "front" or (t.zone == "table" and t.y > 0.88) or (t.zone == "ground" and t.y > 0.9) for t in group
    ):
        return "near"
    if scene.shore is None and all(
        t.zone == "ground" and t.y < scene.horizon + 0.14 and t.height < 0.25 for t in group
    ):
        return "far"
    return ""


def _gap(a: Thing, b: Thing) -> float:
    """Free width between the two; negative where one stands in front of the other."""
    return max(a.left, b.left) - min(a.right, b.right)


def _standing(a: Thing, b: Thing) -> bool:
    return a.zone in _FLOORS and b.zone in _FLOORS


def _beside(a: Thing, b: Thing) -> bool:
    near = -0.3 * min(a.width, b.width) < _gap(a, b) < 0.12
    return near and ((_standing(a, b) and abs(a.y - b.y) < 0.13) or (a.zone == b.zone and abs(a.y - b.y) < 0.2))


def _before(a: Thing, b: Thing) -> bool:
    """Nearer, and in the way at least in part."""
    return _standing(a, b) and a.order > b.order and a.y - b.y > 0.06 and _gap(a, b) < -0.15 * min(a.width, b.width)


def _left(a: Thing, b: Thing) -> bool:
    return _gap(a, b) > -0.1 * min(a.width, b.width) and 0.08 < b.x - a.x < 0.6 and abs(a.y - b.y) < 0.25


def _over(a: Thing, b: Thing) -> bool:
    """Up in the air or on the wall, and something below it."""
    return a.zone in ("sky", "wall", "sea") and b.zone != a.zone and b.top > a.top + 0.7 * a.height and _gap(a, b) < 0.0


RELATIONS: dict[str, Callable[[Thing, Thing], bool]] = {
    "beside": _beside,
    "before": _before,
    "behind": lambda a, b: _before(b, a),
    "left": _left,
    "right": lambda a, b: _left(b, a),
    "over": _over,
    "under": lambda a, b: _over(b, a),
}
