"""How far apart unrelated codes can be: DSPH's threshold from coding theory."""

from kenthash.errors import UsageError

# The largest minimum distance of a binary linear [K, m] code, m = 1 to 10, for the code lengths of the field.
DISTANCES = {
    16: (16, 10, 8, 8, 8, 6, 6, 5, 4, 4),
    32: (32, 21, 18, 16, 16, 16, 14, 13, 12, 12),
    48: (48, 32, 27, 24, 24, 24, 22, 22, 20, 20),
    64: (64, 42, 36, 33, 32, 32, 32, 29, 28, 28),
    128: (128, 85, 72, 68, 64, 64, 64, 64, 60, 60),
}


def code_threshold(bits: int, classes: int) -> float:
    """t = 1 − 2d/K: the cosine of two codes at the distance d that C codewords of K bits can all keep (DSPH).

    d is the largest minimum distance of a binary linear code of length K and dimension ⌈log₂ C⌉.

    Example:

        >>> code_threshold(64, 80), code_threshold(16, 24)
        (0.0, 0.0)
        >>> code_threshold(16, 80)  # 80 codewords of 16 bits cannot all be 8 bits apart
        0.25
    """
    if bits < 1 or classes < 1:
        raise UsageError(f"{bits} bits and {classes} classes: both must be 1 or more")
    return 1 - 2 * code_distance(bits, max(1, (classes - 1).bit_length())) / bits


def code_distance(bits: int, dimension: int) -> int:
    """The table's distance where it has one, else the Griesmer bound."""
    table = DISTANCES.get(bits, ())
    return table[dimension - 1] if dimension <= len(table) else griesmer_distance(bits, dimension)


def griesmer_distance(bits: int, dimension: int) -> int:
    """The largest d with Σ_{i<m} ⌈d/2^i⌉ ≤ K, which no linear code exceeds (Griesmer 1960); 1 where none fits.

    It is reached by every code of the table up to m = 5, and is at most 3 above the table beyond.
    """
    distance = bits
    while distance > 1 and sum(-(-distance // 2**i) for i in range(dimension)) > bits:
        distance -= 1
    return distance
