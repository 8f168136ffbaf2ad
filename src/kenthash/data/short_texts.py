"""Short texts as people type them into a search box: a class's name, a phrase, either of them in a prompt.

A caption says what is on one photo; "dog" or "a photo of a dog" asks for many. Such texts are made from what a data set
has: the names of its classes, and the phrases that captions of several items share.
"""

import re
from collections import Counter
from collections.abc import Sequence

TRAINED = ("{}", "{a}", "the {}", "a photo of {a}", "photo of {}", "there is {a}", "{} in the picture")
UNSEEN = ("a picture of {a}", "show me {a}", "{} photos")  # asked by the benchmark, never trained on

LONGEST = 3  # words of a phrase
LEAST_ITEMS = 5  # that share a phrase
MOST_PHRASES = 1000

WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
# Words that say nothing of what is seen: phrases are the runs of words between them.
FUNCTION_WORDS = """
    a about above across after against all along also am among an and another any are around as at away back be
    because been before behind being below beneath beside besides between both but by can could did do does doing done
    down each either else every few for from had has have having he her here hers him his how i if in inside into is it
    its itself just like may me might more most much my near next no nor not of off on one onto or other others our out
    over own past per quite rather she should so some such than that the their them then there these they this those
    through to too toward towards under underneath until up upon us very via was we were what when where which while who
    whose why will with within without would yet you your there's it's
"""
_FUNCTION_WORDS = frozenset(FUNCTION_WORDS.split())


def in_prompt(template: str, name: str) -> str:
    """`template` about `name`: "{}" is the name, "{a}" the name with its article.

    Example:

        >>> in_prompt("a photo of {a}", "elephant"), in_prompt("{} photos", "dog")
        ('a photo of an elephant', 'dog photos')
    """
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return template.replace("{a}", f"{article} {name}").replace("{}", name)


def phrases(caption: str) -> set[str]:
    """The runs of up to three words in a caption that are not interrupted by function words or punctuation, as RAKE
    cuts candidates for key words (Rose et al., Automatic Keyword Extraction from Individual Documents, 2010).

    Example:

        >>> sorted(phrases("A man in a red hat."))
        ['hat', 'man', 'red', 'red hat']
    """
    distinct: set[str] = set()
    for part in re.split(r"[^\w\s'’-]+", caption.lower()):
        run: list[str] = []
        for word in WORD.findall(part):
            if word in _FUNCTION_WORDS:
                run = []
                continue
            run.append(word)
            distinct.update(" ".join(run[-length:]) for length in range(1, min(LONGEST, len(run)) + 1))
    return distinct


def shared_phrases(captions: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """The phrases that captions of at least five items share, the most frequent 1,000 of them, each with the
    items (by number, in order) that have it. Those that half of the items or more have tell nothing and are left out.

    Example:

        >>> shared_phrases([["a red hat"], ["the hat"], ["a dog"]] * 5)["hat"]
        Traceback (most recent call last):
        KeyError: 'hat'
        >>> shared_phrases([["a red hat"], ["the hat"], ["a dog"]] * 5)["red hat"]
        [0, 3, 6, 9, 12]
    """
    own = [set().union(*map(phrases, texts)) for texts in captions]
    counts = Counter(phrase for item_phrases in own for phrase in item_phrases)
    usual = sorted(
        (phrase for phrase, count in counts.items() if count >= LEAST_ITEMS and 2 * count < len(own)),
        key=lambda phrase: (-counts[phrase], phrase),
    )
    items: dict[str, list[int]] = {phrase: [] for phrase in usual[:MOST_PHRASES]}
    for number, item_phrases in enumerate(own):
        for phrase in sorted(item_phrases & items.keys()):
            items[phrase].append(number)
    return items
