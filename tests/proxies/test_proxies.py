"""Point, vMF and Kent proxies: scores against their formulas in loops, and what every form must share."""

from math import log, sqrt
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.nn.functional import normalize

from kenthash.errors import UsageError
from kenthash.proxies import KentProxies, PointProxies, VmfProxies
from kenthash.proxies.energy import energy
from kenthash.proxies.frames import embed, lower_entries
from kenthash.proxies.kent import FreeKentProxies
from kenthash.proxies.vmf import inverse_softplus

both_forms = pytest.mark.parametrize("frame", ["thin", "full"])


def unit_rows(count: int, bits: int) -> Tensor:
    return normalize(torch.randn(count, bits, dtype=torch.float64), dim=-1)


def dot(u: Tensor, v: Tensor) -> float:
    return float(sum(a * b for a, b in zip(u.tolist(), v.tolist(), strict=True)))


def kent_score(z: Tensor, frame: Tensor, kappa: float, beta: list[float]) -> float:
    """The paper's formula for one sample and one class, in loops."""
    score = kappa * dot(frame[:, 0], z)
    for i, b in enumerate(beta):
        score += b * dot(frame[:, 1 + i], z) ** 2
    return score - log(kappa + sum(beta))


@both_forms
@pytest.mark.parametrize(("classes", "bits", "axes"), [(1, 2, 1), (3, 8, 0), (5, 8, 3), (4, 8, 7)])
def test_kent_scores_are_the_formula(frame: Literal["thin", "full"], classes: int, bits: int, axes: int) -> None:
    torch.manual_seed(classes)
    proxies = KentProxies(classes, bits, axes, frame=frame).double()
    with torch.no_grad():  # all values different
        proxies.raw_concentration.normal_()
        proxies.raw_shape.normal_()
    z = unit_rows(4, bits)
    frames, kappa, beta = proxies.frames(), proxies.concentration(), proxies.shape()
    assert frames.shape == (classes, bits, 1 + axes)
    assert kappa.shape == (classes,)
    assert beta.shape == (classes, axes)
    assert (kappa > 0).all()
    assert (beta > 0).all()
    scores = proxies.scores(z)
    expected = [[kent_score(s, frames[c], kappa[c].item(), beta[c].tolist()) for c in range(classes)] for s in z]
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(proxies.mean_directions(), frames[..., 0])


def test_energy_does_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    frames = torch.linalg.qr(torch.randn(7, 5, 3, dtype=torch.float64)).Q.requires_grad_()
    z = unit_rows(3, 5).requires_grad_()
    kappa, beta = (torch.rand(shape, dtype=torch.float64).add(0.1).requires_grad_() for shape in [(7,), (7, 2)])
    whole = energy(z, frames, kappa, beta)
    assert gradcheck(energy, (z, frames, kappa, beta))
    for size in (1, 9 * 2, 9 * 3 + 1):  # 1, 2 and 3 classes a block
        monkeypatch.setattr("kenthash.proxies.energy.BLOCK", size)
        torch.testing.assert_close(energy(z, frames, kappa, beta), whole, rtol=0, atol=1e-12)
        assert gradcheck(energy, (z, frames, kappa, beta))


@both_forms
def test_kent_gradient_reaches_every_parameter(frame: Literal["thin", "full"]) -> None:
    torch.manual_seed(0)
    proxies = KentProxies(3, 6, axes=2, frame=frame).double()
    names = [name for name, _ in proxies.named_parameters()]

    def scores(z: Tensor, *values: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(
            _Scores(proxies), {f"p.{n}": v for n, v in zip(names, values, strict=True)}, z
        )
        return result

    values = [p.detach().clone().requires_grad_() for p in proxies.parameters()]
    assert gradcheck(scores, (unit_rows(4, 6).requires_grad_(), *values))


class _Scores(torch.nn.Module):
    def __init__(self, proxies: KentProxies) -> None:
        super().__init__()
        self.p = proxies

    def forward(self, z: Tensor) -> Tensor:
        return self.p.scores(z)


def test_both_forms_from_the_same_matrix_agree() -> None:
    torch.manual_seed(0)
    thin, full = (KentProxies(4, 10, 3, frame=f).double() for f in ("thin", "full"))
    with torch.no_grad():
        full.skew.copy_(lower_entries(embed(thin.skew, thin.below.mT)))
    z = unit_rows(6, 10)
    torch.testing.assert_close(thin.scores(z), full.scores(z), rtol=0, atol=1e-10)
    assert sum(p.numel() for p in thin.parameters()) < sum(p.numel() for p in full.parameters())


def test_point_scores_are_cosines() -> None:
    torch.manual_seed(0)
    proxies = PointProxies(3, 5).double()
    z = unit_rows(4, 5)
    scores = proxies.scores(z)
    for i in range(4):
        for c in range(3):
            p = proxies.points[c].detach()
            assert scores[i, c].item() == pytest.approx(dot(z[i], p) / sqrt(dot(p, p)), abs=1e-12)
    torch.testing.assert_close(proxies.mean_directions().norm(dim=-1), torch.ones(3, dtype=torch.float64))


def test_vmf_is_kent_without_axes() -> None:
    torch.manual_seed(0)
    proxies = VmfProxies(3, 5, concentration=4.0).double()
    z = unit_rows(4, 5)
    scores, mu, kappa = proxies.scores(z), proxies.mean_directions(), proxies.concentration()
    torch.testing.assert_close(kappa, torch.full((3,), 4.0, dtype=torch.float64))
    for i in range(4):
        for c in range(3):
            expected = kent_score(z[i], mu[c, :, None], kappa[c].item(), [])
            assert scores[i, c].item() == pytest.approx(expected, abs=1e-12)


def test_free_kent_scores_are_those_of_the_authors_code() -> None:
    torch.manual_seed(0)
    proxies = FreeKentProxies(3, 5, concentration=4.0, shape=0.5).double()
    with torch.no_grad():
        proxies.log_shape.normal_()
    z = unit_rows(4, 5)
    scores, mu, kappa, beta = proxies.scores(z), proxies.mean_directions(), proxies.concentration(), proxies.shape()
    torch.testing.assert_close(kappa, torch.full((3,), 4.0, dtype=torch.float64))
    for i in range(4):
        for c in range(3):
            squares = [(dot(z[i], a) / sqrt(dot(a, a))) ** 2 for a in proxies.axes[:, c].detach()]
            b = beta[:, c].tolist()
            k = kappa[c].item()
            expected = k * dot(z[i], mu[c]) + b[0] * squares[0] - b[1] * squares[1] - (k + sum(b)) / 2
            assert scores[i, c].item() == pytest.approx(expected, abs=1e-12)
    torch.autograd.backward(scores.sum())
    assert all(p.grad is not None and p.grad.any() for p in proxies.parameters())


def test_starting_values() -> None:
    proxies = KentProxies(2, 8, 3, concentration=12.5, shape=0.25)
    torch.testing.assert_close(proxies.concentration(), torch.full((2,), 12.5))
    torch.testing.assert_close(proxies.shape(), torch.full((2, 3), 0.25))
    for value in (1e-3, 1.0, 500.0):
        assert torch.nn.functional.softplus(torch.tensor(inverse_softplus(value))).item() == pytest.approx(value)
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError):
            inverse_softplus(value)
    with pytest.raises(UsageError):
        KentProxies(2, 8, 8)


def test_float32_and_repeatable() -> None:
    for proxies in (KentProxies(40, 16, 2), VmfProxies(40, 16), PointProxies(40, 16)):
        z = unit_rows(9, 16).float()
        scores = proxies.scores(z)
        assert scores.dtype == torch.float32
        assert torch.equal(scores, proxies.scores(z))
        torch.testing.assert_close(scores.double(), proxies.double().scores(z.double()), rtol=1e-5, atol=1e-5)


def test_first_use_without_gradient_does_not_spoil_training() -> None:
    proxies = KentProxies(2, 11, 4, frame="full")
    with torch.inference_mode():
        proxies.frames()
    torch.autograd.backward(proxies.frames().sum())
    assert proxies.skew.grad is not None
