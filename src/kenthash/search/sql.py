"""A filter as a condition of SQLite on the column `metadata`, a JSON object. Values are parameters, never text."""

from kenthash.search.filters import Among, And, Compare, Filter, Has, IsNull, Literal, Not, Or, kind

TYPES = {"text": "'text'", "number": "'integer', 'real'", "boolean": "'true', 'false'"}
SIGNS = frozenset({"=", "!=", "<", "<=", ">", ">="})


def condition(term: Filter) -> tuple[str, list[Literal]]:
    """SQL that is 1 or 0, never NULL, and its parameters."""
    match term:
        case Compare(key, op, value) if op in SIGNS:
            text = f"ifnull(json_type(metadata, ?) IN ({TYPES[kind(value)]}) AND json_extract(metadata, ?) {op} ?, 0)"
            return text, [_path(key), _path(key), value]
        case Among(key, values):
            return condition(Or(tuple(Compare(key, "=", value) for value in values)))
        case Has(key, value):
            text = "EXISTS (SELECT 1 FROM json_each(metadata, ?) AS held WHERE held.type = 'text' AND held.value = ?)"
            return f"(json_type(metadata, ?) IS 'array' AND {text})", [_path(key), _path(key), value]
        case IsNull(key):
            return "ifnull(json_type(metadata, ?), 'null') = 'null'", [_path(key)]
        case Not(inner):
            text, parameters = condition(inner)
            return f"NOT {text}", parameters
        case And(terms) | Or(terms):
            parts = [condition(one) for one in terms]
            joined = (" AND " if isinstance(term, And) else " OR ").join(text for text, _ in parts)
            return f"({joined})", [value for _, values in parts for value in values]
        case _:
            raise AssertionError(f"no such filter: {term}")


def _path(key: str) -> str:
    return f'$."{key}"'  # keys hold neither quotes nor backslashes
