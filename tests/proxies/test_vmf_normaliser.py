"""The von Mises-Fisher log-normaliser and its derivative against 40 digits of mpmath."""

import mpmath
import numpy as np
import pytest
import torch

from kenthash.proxies.nivmf import log_vmf_normaliser

mpmath.mp.dps = 40


def exact(dim: int, kappa: float) -> tuple[float, float]:
    order, k = mpmath.mpf(dim) / 2 - 1, mpmath.mpf(kappa)
    bessel = mpmath.besseli(order, k)
    value = order * mpmath.log(k) - mpmath.mpf(dim) / 2 * mpmath.log(2 * mpmath.pi) - mpmath.log(bessel)
    return float(value), float(-mpmath.besseli(order + 1, k) / bessel)


@pytest.mark.parametrize("dim", [16, 24, 32, 48, 64, 96, 128])
def test_value_and_derivative_over_the_range_of_training(dim: int) -> None:
    """The value to 1e-8 absolute (it passes through 0), the derivative, in (−1, 0), to 1e-8 relative."""
    kappas = np.geomspace(0.1, 1e4, 23)
    kappa = torch.tensor(kappas, requires_grad=True)
    value = log_vmf_normaliser(kappa, dim)
    torch.autograd.backward(value.sum())
    expected = np.array([exact(dim, k) for k in kappas])
    assert kappa.grad is not None
    np.testing.assert_allclose(value.detach().numpy(), expected[:, 0], rtol=0, atol=1e-8)
    np.testing.assert_allclose(kappa.grad.numpy(), expected[:, 1], rtol=1e-8)


@pytest.mark.parametrize(("dim", "kappa"), [(256, 0.1), (512, 1.0), (1024, 0.1), (1024, 100.0)])
def test_where_the_bessel_function_leaves_float64(dim: int, kappa: float) -> None:
    k = torch.tensor([kappa], dtype=torch.float64, requires_grad=True)
    torch.autograd.backward(log_vmf_normaliser(k, dim))
    value, slope = exact(dim, kappa)
    assert k.grad is not None
    assert log_vmf_normaliser(k, dim).item() == pytest.approx(value, rel=1e-10)
    assert k.grad.item() == pytest.approx(slope, rel=1e-8)


def test_gradcheck() -> None:
    kappa = torch.tensor([[0.3, 2.0], [40.0, 900.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda k: log_vmf_normaliser(k, 48), kappa)


def test_float32_is_computed_in_float64() -> None:
    kappa = torch.tensor([1000.0])
    value = log_vmf_normaliser(kappa, 64)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(exact(64, 1000.0)[0], rel=1e-6)
