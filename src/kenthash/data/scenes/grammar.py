"""Small English: articles, plurals, numbers in words, lists. Irregular words are in phrases.yaml."""

import re
from collections.abc import Mapping, Sequence

# The head of "piece of fruit" or "walker with a pup" stands before the first of these.
_PREPOSITION = re.compile(r" (?=(?:of|with|in|on|under|at|for|from) )")


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
    head, *rest = _PREPOSITION.split(phrase, maxsplit=1)
    *before, word = head.split(" ")
    if word in irregular:
        word = irregular[word]
    elif re.search(r"(s|x|z|ch|sh)$", word):
        word += "es"
    elif re.search(r"[^aeiou]y$", word):
        word = word[:-1] + "ies"
    else:
        word += "s"
    return " ".join([*before, word, *rest])


def enumerate_nouns(phrases: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(phrases[:-1]), phrases[-1]] if len(phrases) > 1 else phrases)


def sentence(text: str) -> str:
    """Close up spaces left by empty fields and start with a capital."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ([,.:])", r"\1", text)
    return text[:1].upper() + text[1:]
