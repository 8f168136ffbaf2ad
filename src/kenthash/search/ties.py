"""Exact order from a server that gives the k nearest but, of those that tie at the last distance, any.

Our order is by distance, then by id. A server such as Milvus cuts a group of equal distances where it likes, and with
codes of 16 or 64 bits such groups are large.
"""

from collections.abc import Callable

Near = list[tuple[int, str]]  # (distance, id)


def settle(top: Near, k: int, width: int, ask_below: Callable[[str], Near]) -> Near:
    """The first k by (distance, id), given the nearest `width` > k, of which the furthest are any of those that tie.

    Let d be the k-th distance. All that is nearer than d is in `top`. If `top` goes beyond d, so are all ties at d.
    Otherwise each wanted tie has an id up to the last of the smallest seen so far: `ask_below` gives the nearest
    `width` again, of the items whose id is less than that. The answer holds more ties than are wanted (width > k),
    so every round ends at a smaller id, until a round has seen all.
    """
    top = sorted(top)
    if len(top) < width or top[-1][0] > top[k - 1][0]:
        return top[:k]
    best, furthest = top[:k], top[k - 1][0]
    nearer = [hit for hit in best if hit[0] < furthest]
    while True:
        last = best[-1]
        more = ask_below(last[1])
        ties = sorted(hit for hit in more if hit[0] == furthest)
        best = [*nearer, *ties, last][:k]
        # Without progress items were added or removed meanwhile: what is known is the answer of some moment between.
        if len(more) < width or max(more)[0] > furthest or best[-1] == last:
            return best
