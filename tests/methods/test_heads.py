"""The kinds of heads: their range, what makes each its kind, and that a saved one encodes the same."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kenthash.errors import UsageError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.heads import (
    HEADS,
    HouseholderHead,
    MlpHead,
    SoftmaxPairHead,
    Standardise,
    householder,
    make_head,
)
from kenthash.model.network import HashNetwork

WIDTHS = {"mlp": 32, "unit": 32, "softmax_pair": 32, "tanh_mlp": 32}


def config(kind: str) -> HeadConfig:
    return HeadConfig(kind, WIDTHS.get(kind, 0), 0.1)


@pytest.mark.parametrize("kind", HEADS)
def test_outputs_lie_in_their_range_and_all_parameters_learn(kind: str) -> None:
    torch.manual_seed(0)
    head = make_head(24, 16, config(kind))
    outputs = head(10 * torch.randn(50, 24))
    assert outputs.shape == (50, 16)
    if kind == "unit":  # floats, of length √K
        torch.testing.assert_close(outputs.norm(dim=1), torch.full((50,), 4.0))
    else:
        assert outputs.abs().max() <= 1 + 1e-6
    torch.autograd.backward(outputs.square().mul(torch.rand(16)).sum())
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in head.parameters())


@pytest.mark.parametrize("kind", HEADS)
def test_a_saved_head_encodes_the_same(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = HashNetwork(HasherConfig(16, 24, 12, config(kind), config(kind), encoder=""))
    with torch.no_grad():
        for parameter in network.modules().parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    network.save(tmp_path)
    loaded = HashNetwork.load(tmp_path)
    vectors = torch.randn(20, 24)
    with torch.inference_mode():
        assert torch.equal(network.image_head.eval()(vectors), loaded.image_head(vectors))


def test_softmax_pairs_come_back_from_the_output() -> None:
    torch.manual_seed(0)
    head = SoftmaxPairHead(24, 16, HeadConfig("softmax_pair", 32, 0.0))
    vectors = torch.randn(10, 24)
    pairs = head.pairs(head.embed(head.standardise(vectors))).view(10, 16, 2).softmax(2)
    output = head(vectors)
    torch.testing.assert_close((1 - output) / 2, pairs[:, :, 0])
    torch.testing.assert_close((1 + output) / 2, pairs[:, :, 1])
    assert torch.equal(output >= 0, pairs.argmax(2).bool())


def test_householder_is_the_product_of_its_reflections() -> None:
    vectors = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    product = torch.eye(6, dtype=torch.float64)
    for v in vectors.T:
        product = product @ (torch.eye(6, dtype=torch.float64) - 2 * torch.outer(v, v) / (v @ v))
    torch.testing.assert_close(householder(vectors), product)
    torch.testing.assert_close(product @ product.T, torch.eye(6, dtype=torch.float64))
    assert torch.autograd.gradcheck(householder, vectors.requires_grad_())


def test_the_turn_of_a_householder_head_leaves_cosines_alone_and_is_fixed_by_eval() -> None:
    torch.manual_seed(0)
    head = HouseholderHead(24, 16, HeadConfig("householder", 0, 0.0))
    with torch.no_grad():
        head.reflections.add_(torch.randn(16, 16))
    vectors = torch.randn(10, 24)
    turned, plain = head(vectors), torch.nn.functional.normalize(head.embed(vectors))
    torch.testing.assert_close(turned @ turned.T, plain @ plain.T)
    assert not torch.allclose(turned, plain, atol=0.1)
    torch.testing.assert_close(head.eval()(vectors), turned)


def test_encoding_with_a_householder_head_costs_one_product_more(tmp_path: Path) -> None:
    kind = config("householder")
    HashNetwork(HasherConfig(16, 24, 12, kind, kind, encoder="")).save(tmp_path)
    loaded = HashNetwork.load(tmp_path)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        loaded.image_head(torch.ones(10, 24))
    assert counter.get_total_flops() == 2 * 10 * (24 * 16 + 16 * 16)


@pytest.mark.parametrize("kind", WIDTHS)
def test_a_kind_without_its_hidden_units_is_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=r"head\.hidden"):
        HeadConfig(kind, 0, 0.0)


def test_standardise_takes_mean_and_deviation_and_leaves_a_constant_alone() -> None:
    features = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([5.0, 0.1, 0.0]) + 7
    layer = Standardise(3)
    assert torch.equal(layer(features), features)  # before it was told anything
    layer.fit(features)
    deviation, mean = torch.std_mean(layer(features), 0, correction=0)
    torch.testing.assert_close(mean, torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(deviation, torch.tensor([1.0, 1.0, 0.0]), atol=1e-4, rtol=0)


def test_what_rounding_leaves_of_a_dead_dimension_does_not_count() -> None:
    """As in MiniLM: one dimension is 1e-8, of which float16 keeps nothing, or the smallest number that it knows."""
    features = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([0.05, 0.03, 1e-8])
    features[0, 2] = 6e-8
    rounded = features.half().float()
    assert 0 < int((rounded[:, 2] != 0).sum()) < 10  # so that it has a deviation
    layer = Standardise(3)
    layer.fit(rounded)
    torch.testing.assert_close(layer(features), layer(rounded), atol=0.01, rtol=0)


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_standardises_and_so_does_not_see_the_scale_of_its_vectors(kind: str) -> None:
    features = torch.randn(200, 24, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    head = make_head(24, 16, config(kind)).eval()
    outputs = []
    for scaled in (features, 10 * features + 3):
        for layer in (m for m in head.modules() if isinstance(m, Standardise)):
            layer.fit(scaled)
        outputs.append(head(scaled))
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-4, rtol=0)
    assert any(name.endswith(".mean") for name in head.state_dict())  # saved with the model


@pytest.mark.parametrize("kind", [kind for kind in HEADS if kind not in ("mlp", "unit")])
def test_weights_from_before_heads_standardised_take_vectors_as_they_are(kind: str) -> None:
    """Models and checkpoints of that time hold no statistics; a file that has lost one of the two is damaged."""
    head = make_head(24, 16, config(kind)).eval()
    features = torch.randn(20, 24, generator=torch.Generator().manual_seed(0))
    before = head(features)
    old = {name: value for name, value in head.state_dict().items() if "standardise." not in name}
    for layer in (m for m in head.modules() if isinstance(m, Standardise)):
        layer.fit(10 * features + 3)
    damaged = {name: value for name, value in head.state_dict().items() if not name.endswith(".mean")}
    head.load_state_dict(old)
    torch.testing.assert_close(head(features), before)
    with pytest.raises(RuntimeError, match="mean"):
        head.load_state_dict(damaged)


def test_the_slope_grows_in_training_and_stands_at_its_end_in_a_loaded_head() -> None:
    head = make_head(6, 16, HeadConfig("mlp", 8, 0.0, slope=3.0)).eval()
    assert isinstance(head, MlpHead)
    features = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    before = torch.atanh(head(features))
    head.steepen(0.0)
    torch.testing.assert_close(torch.atanh(head(features)) * 3, before)
    head.steepen(0.5)
    torch.testing.assert_close(torch.atanh(head(features)) * 1.5, before)


@pytest.mark.parametrize(("kind", "slope"), [("tanh", 2.0), ("mlp", 0.5), ("mlp", float("nan"))])
def test_a_slope_that_means_nothing_is_refused(kind: str, slope: float) -> None:
    with pytest.raises(UsageError, match=r"head\.slope"):
        HeadConfig(kind, 8, 0.0, slope)
