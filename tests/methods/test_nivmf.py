"""The non-isotropic von Mises-Fisher density against loops, and as a density."""

import math

import numpy as np
import pytest
import torch
from loss_cases import tensor
from numpy.typing import NDArray
from scipy.special import iv
from torch.autograd import gradcheck

from kenthash.proxies.nivmf import LEAST, NivmfProxies, nivmf_log_density


def unit(rows: int, dim: int, seed: int) -> NDArray[np.float64]:
    values = np.random.default_rng(seed).standard_normal((rows, dim))
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True))


def log_normaliser(kappa: float, dim: int) -> float:
    return (dim / 2 - 1) * math.log(kappa) - dim / 2 * math.log(2 * math.pi) - math.log(iv(dim / 2 - 1, kappa))


def test_log_density_against_loops() -> None:
    z, mu = unit(5, 8, 0), unit(3, 8, 1)
    kappa = np.random.default_rng(2).uniform(0.5, 9, (3, 8))
    fast = nivmf_log_density(tensor(z), tensor(mu), tensor(kappa)).numpy()
    for i in range(5):
        for c in range(3):
            stretched = [kappa[c, d] * z[i, d] for d in range(8)]
            length = math.sqrt(sum(v * v for v in stretched))
            size = math.sqrt(sum((kappa[c, d] * mu[c, d]) ** 2 for d in range(8)))
            slow = sum(stretched[d] / length * kappa[c, d] * mu[c, d] for d in range(8))
            slow += log_normaliser(size, 8) + sum(math.log(k) for k in kappa[c]) - math.log(size)
            assert fast[i, c] == pytest.approx(slow, rel=1e-10)


def test_equal_concentrations_are_a_von_mises_fisher_density() -> None:
    """Then it is log C_K(κ) + κμᵀz but for what depends on κ alone, (K−1) log κ."""
    z, mu, kappa = unit(4, 16, 0), unit(2, 16, 1), 7.0
    fast = nivmf_log_density(tensor(z), tensor(mu), torch.full((2, 16), kappa, dtype=torch.float64)).numpy()
    expected = kappa * z @ mu.T + log_normaliser(kappa, 16) + 15 * math.log(kappa)
    np.testing.assert_allclose(fast, expected, rtol=1e-10)


def test_gradcheck() -> None:
    z = tensor(unit(3, 8, 0), grad=True)
    mu = tensor(unit(2, 8, 1), grad=True)
    kappa = tensor(np.random.default_rng(2).uniform(1, 5, (2, 8)), grad=True)
    assert gradcheck(nivmf_log_density, (z, mu, kappa))


def test_concentrations_have_a_floor() -> None:
    proxies = NivmfProxies(classes=3, bits=8, concentration=10.0)
    assert set(proxies.kappa().flatten().tolist()) == {10.0}
    with torch.no_grad():
        proxies.factors.fill_(-1)
    assert proxies.kappa().min().item() == pytest.approx(LEAST)
    assert proxies.scores(torch.from_numpy(unit(4, 8, 0)).float()).isfinite().all()
