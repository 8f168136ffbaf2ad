"""InfoNCE against its formula in loops."""

from math import exp, log

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import cosine_similarity

from kenthash.errors import UsageError
from kenthash.losses.infonce import Temperature, imitation, info_nce, nt_xent


@pytest.mark.parametrize("samples", [1, 2, 7])
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_is_the_formula(samples: int, temperature: float) -> None:
    torch.manual_seed(samples)
    x, t = torch.randn(2, samples, 5, dtype=torch.float64)
    total = 0.0
    for anchors, other in ((x, t), (t, x)):
        for k in range(samples):
            cosines = [cosine_similarity(anchors[k], row, dim=0).item() for row in other]
            total -= log(exp(cosines[k] / temperature) / sum(exp(c / temperature) for c in cosines)) / samples
    assert info_nce(x, t, temperature).item() == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("samples", [1, 2, 6])
def test_nt_xent_is_the_formula_and_has_its_gradient(samples: int) -> None:
    torch.manual_seed(samples)
    x, t = (v.requires_grad_() for v in torch.randn(2, samples, 5, dtype=torch.float64))
    rows, total = [*x, *t], 0.0
    for i, row in enumerate(rows):
        weight = [exp(cosine_similarity(row, other, dim=0).item() / 0.5) for other in rows]
        partner = weight[(i + samples) % (2 * samples)]
        total -= log(partner / (sum(weight) - weight[i])) / (2 * samples)
    assert nt_xent(x, t, 0.5).item() == pytest.approx(total, abs=1e-12)
    assert gradcheck(lambda a, b: nt_xent(a, b, 0.5), (x, t))


@pytest.mark.parametrize("samples", [1, 2, 6])
def test_imitation_is_the_formula_and_has_its_gradient(samples: int) -> None:
    torch.manual_seed(samples)
    x, t = (v.requires_grad_() for v in torch.randn(2, samples, 5, dtype=torch.float64))
    other_x, other_t = torch.randn(2, samples, 8, dtype=torch.float64)

    def chances(anchor: torch.Tensor, rows: torch.Tensor) -> list[float]:
        weights = [exp(cosine_similarity(anchor, row, dim=0).item() / 0.5) for row in rows]
        return [weight / sum(weights) for weight in weights]

    total = 0.0
    for anchors, rows, other_anchors, other_rows in ((x, t, other_x, other_t), (t, x, other_t, other_x)):
        for k in range(samples):
            pairs = zip(chances(other_anchors[k], other_rows), chances(anchors[k], rows), strict=True)
            total += sum(q * log(q / p) for q, p in pairs) / samples
    assert imitation(x, t, other_x, other_t, 0.5).item() == pytest.approx(total, abs=1e-12)
    assert gradcheck(lambda a, b: imitation(a, b, other_x, other_t, 0.5), (x, t))


def test_gradcheck_with_a_learned_temperature() -> None:
    torch.manual_seed(0)
    x, t = (v.requires_grad_() for v in torch.randn(2, 4, 5, dtype=torch.float64))
    assert gradcheck(info_nce, (x, t, torch.tensor(0.3, dtype=torch.float64).requires_grad_()))


def test_temperature_learns_and_stays_in_bounds() -> None:
    temperature = Temperature(0.07)
    assert temperature().item() == pytest.approx(0.07)
    optimizer = torch.optim.SGD(temperature.parameters(), lr=0.1)
    x = torch.eye(8)
    for _ in range(5):
        optimizer.zero_grad()
        torch.autograd.backward(info_nce(x, x, temperature()))
        optimizer.step()
    assert temperature().item() < 0.07  # perfect matches ask for a sharper distribution
    with torch.no_grad():
        temperature.log.fill_(-50)
        assert temperature().item() == pytest.approx(0.01, rel=1e-5)
        temperature.log.fill_(50)
        assert temperature().item() == 1
    temperature.zero_grad()
    torch.autograd.backward(temperature())
    assert temperature.log.grad == 1  # and can leave the bound again


@pytest.mark.parametrize("start", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_is_none_is_refused(start: float) -> None:
    with pytest.raises(UsageError, match=r"temperature: .* above 0"):
        Temperature(start)


def test_float32_survives_the_sharpest_temperature() -> None:
    x = torch.randn(6, 16).requires_grad_()
    value = info_nce(x, -x, 0.01)
    torch.autograd.backward(value)
    assert value.isfinite()
    assert x.grad is not None and x.grad.isfinite().all()
