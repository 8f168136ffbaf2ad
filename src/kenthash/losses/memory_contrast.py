"""Contrast with the codes of items (UCCH, section "Contrastive Hashing Learning")."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize


def code_contrast(outputs: Tensor, own: Tensor, temperature: float, others: Tensor | None = None) -> Tensor:
    """Each output finds the code of its own item among those of other items:

        −1/B Σ_i log [ e^{⟨z_i, b_i⟩/T} / (e^{⟨z_i, b_i⟩/T} + Σ_j e^{⟨z_i, b_j⟩/T}) ],  T = τ √K,

    z_i of unit length along the outputs [B, K], and b codes of ±1: `own` [B, K] of the items themselves, b_j those of
    `others` [M, K] or, without them, of the other items of the batch. √K is the length of a code, so that τ is a
    temperature of cosines.

    Example:

        >>> codes = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
        >>> code_contrast(codes, codes, 1.0)  # log(1 + 1/e): cosines 1 and 0
        tensor(0.3133)
    """
    z = normalize(outputs) / (temperature * math.sqrt(outputs.shape[1]))
    rows = torch.arange(len(z), device=z.device)
    if others is None:
        return cross_entropy(z @ own.T, rows)
    logits = torch.cat([(z * own).sum(1, keepdim=True), z @ others.T], dim=1)
    return cross_entropy(logits, torch.zeros_like(rows))
