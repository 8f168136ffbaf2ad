"""The compiled checksums of blocks; `blocks` says what they are."""

import numpy as np
from numpy.typing import NDArray

from kenthash.jit import compiled
from kenthash.search.blocks import BLOCK, MULTIPLIER
from kenthash.search.scan import Words


@compiled
def _mix(h: np.uint64) -> np.uint64:
    h *= MULTIPLIER
    return h ^ h >> np.uint64(32)


@compiled
def checksum(data: Words, block: int) -> np.uint64:
    a, b, c, d = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    start = block * (BLOCK // 8)
    for i in range(start, start + BLOCK // 8, 4):
        a, b, c, d = _mix(a ^ data[i]), _mix(b ^ data[i + 1]), _mix(c ^ data[i + 2]), _mix(d ^ data[i + 3])
    return _mix(_mix(_mix(_mix(a) ^ b) ^ c) ^ d)


@compiled
def intact(data: Words, sums: Words, seen: NDArray[np.uint8], start: int, stop: int) -> bool:
    """Whether the bytes from start to stop are as they were written. Blocks that were seen to be are not read again;
    two threads may both read one, which does no harm."""
    for block in range(start // BLOCK, (stop + BLOCK - 1) // BLOCK):
        if seen[block] == 0:
            if checksum(data, block) != sums[block]:
                return False
            seen[block] = 1
    return True


@compiled
def fill(data: Words, sums: Words, first: int, last: int) -> None:
    for block in range(first, last):
        sums[block] = checksum(data, block)
