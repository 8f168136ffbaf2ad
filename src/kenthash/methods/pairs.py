"""A loss over pairs of items, taken across the modalities and within each: the frame of DCHMT, DDBH and DNpH."""

from collections.abc import Callable

from torch import Tensor


def across_and_within(loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, t: Tensor) -> dict[str, Tensor]:
    """`inter` over (x, t), and `intra` over (x, x) and (t, t); `loss` takes the outputs on either side of the pairs."""
    return {"inter": loss(x, t), "intra": loss(x, x) + loss(t, t)}
