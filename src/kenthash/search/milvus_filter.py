"""A filter as an expression of Milvus on the JSON field in which metadata are kept."""

from kenthash.search.filters import Among, And, Compare, Filter, Has, IsNull, Literal, Not, Or
from kenthash.search.milvus_rows import FIELD, quoted, safe_key


def expression(term: Filter) -> str:
    """A filter as Milvus's boolean expression.

    Milvus compares JSON values within their kind and takes a missing key as false, but `!=` as true: it is not used.
    """
    match term:
        case Compare(key, "!=", bool(value)):
            return expression(Compare(key, "=", not value))
        case Compare(key, "!=", value):
            return expression(Or((Compare(key, "<", value), Compare(key, ">", value))))
        case Compare(key, op, value):
            return f"{_field(key)} {'==' if op == '=' else op} {_literal(value)}"
        case Among(key, values):
            return expression(Or(tuple(Compare(key, "=", value) for value in values)))
        case Has(key, value):
            return f"json_contains({_field(key)}, {quoted(value)})"
        case IsNull(key):
            return f'not ((exists {_field(key)}) or json_contains({FIELD}["e"], "{safe_key(key)}"))'
        case Not(inner):
            return f"not ({expression(inner)})"
        case And(terms):
            return _joined("and", [expression(one) for one in terms])
        case Or(terms):
            return _joined("or", [expression(one) for one in terms])


def _joined(word: str, terms: list[str]) -> str:
    """A balanced tree: a chain of 256 would nest deeper than Milvus's messages may."""
    if len(terms) == 1:
        return f"({terms[0]})"
    half = len(terms) // 2
    return f"({_joined(word, terms[:half])} {word} {_joined(word, terms[half:])})"


def _field(key: str) -> str:
    return f'{FIELD}["m"]["{safe_key(key)}"]'


def _literal(value: Literal) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    # A whole number is compared as an integer, exactly; the least one of 64 bits has no literal in Milvus.
    if value == int(value) and abs(value) < 2**63:
        return str(int(value))
    return repr(float(value))
