"""Where the softplus or exp that keeps κ and β positive must start from to give a wanted value."""

from math import expm1, isfinite, log

from kenthash.errors import UsageError


def inverse_softplus(value: float) -> float:
    """The x with log(1 + eˣ) = value, for value > 0."""
    _check(value)
    return value + log(-expm1(-value))


def positive_log(value: float) -> float:
    """The x with eˣ = value, for value > 0."""
    _check(value)
    return log(value)


def _check(value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise UsageError(f"{value}: a concentration or shape must be a number above 0")
