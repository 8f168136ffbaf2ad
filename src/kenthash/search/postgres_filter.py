"""Filters and metadata in PostgreSQL: metadata as jsonb, a filter as a condition whose values are all parameters."""

import json
from typing import Any

from kenthash.errors import UsageError
from kenthash.search.filters import Among, And, Compare, Filter, Has, IsNull, Literal, Not, Or, kind

JSON_TYPES = {"text": "string", "number": "number", "boolean": "boolean"}


def jsonb(value: object) -> str:
    """A number, true or false, or an item's metadata, as the text of a jsonb.

    jsonb keeps decimal digits: 1e+30 would come back as the integer 10^30, which is not the number that the float is.
    A whole float is written out with its .0 instead, and comes back as itself.
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {jsonb(one)}" for key, one in value.items()) + "}"
    if isinstance(value, float) and value.is_integer():
        return f"{value:.1f}"
    return json.dumps(value)


def condition(term: Filter, parameters: list[Any]) -> str:
    """The condition's SQL, whose placeholders take what is appended to `parameters`; true or false, never null."""
    match term:
        case Compare(key, op, value):
            return f"coalesce({_comparison(key, op, value, parameters)}, false)"
        case Among(key, values):
            return condition(Or(tuple(Compare(key, "=", value) for value in values)), parameters)
        case Has(key, value):
            parameters += [key, key, _sendable(value)]
            return "coalesce(jsonb_typeof(metadata -> %s) = 'array' and (metadata -> %s) ? %s, false)"
        case IsNull(key):
            parameters.append(key)
            return "coalesce(jsonb_typeof(metadata -> %s), 'null') = 'null'"
        case Not(inner):
            return f"not ({condition(inner, parameters)})"
        case And(terms):
            return "(" + " and ".join(condition(one, parameters) for one in terms) + ")"
        case Or(terms):
            return "(" + " or ".join(condition(one, parameters) for one in terms) + ")"


def _comparison(key: str, op: str, value: Literal, parameters: list[Any]) -> str:
    parameters += [key, JSON_TYPES[kind(value)], key]
    operator = "<>" if op == "!=" else op
    if isinstance(value, str):
        # As text in the "C" collation: jsonb itself would order strings by the database's locale.
        parameters.append(_sendable(value))
        return f'jsonb_typeof(metadata -> %s) = %s and (metadata ->> %s) collate "C" {operator} %s'
    parameters.append(jsonb(value))
    return f"jsonb_typeof(metadata -> %s) = %s and (metadata -> %s) {operator} %s::jsonb"


def _sendable(text: str) -> str:
    if "\0" in text:
        raise UsageError("filter: text with a null character matches nothing that an index can hold: leave it out")
    return text
