"""The uniform constraint, against all permutations."""

from itertools import permutations

import pytest
import torch
from torch.autograd import gradcheck

from kenthash.losses.uniform import exact_targets, fair_codes, sinkhorn_targets, uniform


def fair_bits(rows: int, bits: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, (rows, bits), generator=generator).double() * 2 - 1


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_uniform_is_the_least_over_all_permutations(rows: int) -> None:
    h = torch.randn(rows, 6, dtype=torch.float64).tanh()
    a = fair_bits(rows, 6, seed=rows)
    least = min(
        -sum(sum(h[i, k].item() * a[p[i], k].item() for k in range(6)) for i in range(rows)) / rows
        for p in permutations(range(rows))
    )
    assert uniform(h, a).item() == pytest.approx(least, abs=1e-12)
    assert uniform(h.float(), a.float()).dtype == torch.float32


def test_uniform_gradient_draws_each_output_to_its_code() -> None:
    h = torch.randn(6, 4, dtype=torch.float64).tanh().requires_grad_()
    a = fair_bits(6, 4, seed=0)
    (gradient,) = torch.autograd.grad(uniform(h, a), h)
    assert sorted(map(tuple, (-6 * gradient).round().tolist())) == sorted(map(tuple, a.tolist()))
    assert gradcheck(lambda h: uniform(h, a), (h,))


def test_sinkhorn_is_near_the_exact_transport() -> None:
    torch.manual_seed(0)
    h, a = torch.randn(200, 32).tanh(), fair_bits(200, 32, seed=0).float()
    costs = -(h @ a.mT)
    exact, entropic = (-(h * f(costs, a)).sum(-1).mean().item() for f in (exact_targets, sinkhorn_targets))
    at_random = -(h * a).sum(-1).mean().item()
    assert exact <= entropic + 1e-5
    assert entropic < exact + 0.05 * (at_random - exact)
    assert sinkhorn_targets(torch.zeros(5, 5), a[:5]).isfinite().all()


def test_large_batches_take_sinkhorn() -> None:
    torch.manual_seed(0)
    h, a = torch.randn(1100, 8).tanh().requires_grad_(), fair_bits(1100, 8, seed=0).float()
    value = uniform(h, a)
    torch.autograd.backward(value)
    expected = sinkhorn_targets(-(h.detach() @ a.mT), a)
    torch.testing.assert_close(value, -(h * expected).sum(-1).mean())
    torch.testing.assert_close(h.grad, -expected / 1100)


def test_diverged_outputs_give_a_diverged_loss() -> None:
    h = torch.full((4, 3), torch.nan)
    assert uniform(h, torch.ones(4, 3)).isnan()


def test_codes_are_fair() -> None:
    torch.manual_seed(0)
    codes = fair_codes(torch.zeros(4000, 8, dtype=torch.float64))
    assert codes.dtype == torch.float64 and set(codes.flatten().tolist()) == {-1, 1}
    assert codes.mean(0).abs().max() < 0.06  # four standard errors
