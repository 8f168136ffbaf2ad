"""Cayley frames: both forms under the same tests, against the definition written out with numpy's inverse."""

from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from kenthash.proxies import KentProxies
from kenthash.proxies.frames import embed, full_frames, inverse, lower_entries, skew, thin_frames

both_forms = pytest.mark.parametrize("frame", ["thin", "full"])


def numbers(classes: int, bits: int, columns: int, scale: float, seed: int) -> tuple[Tensor, Tensor]:
    """S's lower entries and B, normal with deviation `scale`."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (classes, columns * (columns - 1) // 2), (classes, bits - columns, columns)
    lower, b = (torch.randn(shape, generator=generator, dtype=torch.float64) * scale for shape in shapes)
    return lower, b


def orthonormality_error(frames: Tensor) -> float:
    eye = torch.eye(frames.shape[-1], dtype=frames.dtype)
    return (frames.mT @ frames - eye).abs().max().item()


@settings(max_examples=40)
@given(
    st.integers(1, 40), st.integers(1, 24), st.integers(1, 24), st.sampled_from([0.01, 0.3, 2.0]), st.integers(0, 99)
)
def test_thin_and_full_are_the_cayley_transform(classes: int, bits: int, columns: int, scale: float, seed: int) -> None:
    columns = min(bits, columns)
    lower, b = numbers(classes, bits, columns, scale, seed)
    a = embed(lower, b)
    eye = np.eye(bits)
    expected = torch.from_numpy(np.linalg.inv(eye + a.numpy()) @ (eye - a.numpy()))[..., :columns]

    assert torch.equal(a, -a.mT)
    full = full_frames(a, columns)
    thin = thin_frames(lower, b)
    assert thin.shape == full.shape == (classes, bits, columns)
    torch.testing.assert_close(full, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(thin, full, rtol=0, atol=1e-10)
    assert orthonormality_error(thin) < 1e-12
    assert orthonormality_error(full) < 1e-12


def test_skew_by_hand() -> None:
    lower = torch.tensor([[1.0, 2.0, 3.0]])
    expected = torch.tensor([[[0.0, -1.0, -2.0], [1.0, 0.0, -3.0], [2.0, 3.0, 0.0]]])
    assert torch.equal(skew(lower, 3), expected)
    assert torch.equal(lower_entries(expected), lower)


def test_gradients_of_both_forms() -> None:
    lower, b = (n.requires_grad_() for n in numbers(3, 7, 3, 0.5, seed=1))
    assert gradcheck(thin_frames, (lower, b))
    assert gradcheck(lambda n: full_frames(skew(n, 5), 2), (torch.randn(2, 10, dtype=torch.float64).requires_grad_(),))

    def through_full(lower: Tensor, b: Tensor) -> Tensor:
        return full_frames(embed(lower, b), 3)

    out = torch.randn(3, 7, 3, dtype=torch.float64)
    thin = torch.autograd.grad(thin_frames(lower, b), (lower, b), out)
    full = torch.autograd.grad(through_full(lower, b), (lower, b), out)
    for one, other in zip(thin, full, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@both_forms
def test_orthonormal_after_ten_thousand_steps(frame: Literal["thin", "full"]) -> None:
    torch.manual_seed(0)
    proxies = KentProxies(2, 6, axes=2, frame=frame).double()
    optimizer = torch.optim.AdamW(proxies.parameters(), lr=0.02, weight_decay=5e-4, fused=True)
    start = proxies.frames().detach()
    goal = torch.randn_like(start)
    for step in range(10_000):
        optimizer.zero_grad()
        # A goal that keeps turning, so that the parameters never come to rest.
        torch.autograd.backward(proxies.frames(), goal if step // 50 % 2 else goal.flip(1))
        optimizer.step()
    frames = proxies.frames().detach()
    assert (frames - start).abs().max() > 0.1, "the frames were not trained"
    assert orthonormality_error(frames) < 1e-12


@both_forms
@pytest.mark.parametrize(("bits", "axes"), [(16, 2), (64, 8), (64, 40)])
def test_classes_start_spread_over_the_sphere(frame: Literal["thin", "full"], bits: int, axes: int) -> None:
    torch.manual_seed(0)
    frames = KentProxies(100, bits, axes, frame=frame).frames().detach()
    mu = frames[..., 0]
    cosines = lower_entries(mu @ mu.mT)
    # Of independent uniform directions: cosines of mean 0 and deviation 1/√K, and no coordinate that all share.
    assert abs(cosines.mean()) < 0.05
    assert cosines.std() == pytest.approx(bits**-0.5, rel=0.1)
    assert cosines.max() < 0.95
    assert frames.diagonal(dim1=1, dim2=2).mean().abs() < 1.5 / bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 31, 32, 33, 100])
def test_inverse_of_small_matrices(count: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    lower, b = numbers(count, 12, 5, 1.0, seed=count)
    matrices = (torch.eye(5) + skew(lower, 5) + b.mT @ b).to(dtype)
    unchanged = matrices.clone()
    expected = torch.linalg.inv(matrices.double())
    torch.testing.assert_close(inverse(matrices).double(), expected, rtol=0, atol=100 * torch.finfo(dtype).eps)
    torch.testing.assert_close(inverse(matrices.mT).double(), expected.mT, rtol=0, atol=100 * torch.finfo(dtype).eps)
    assert torch.equal(matrices, unchanged)
