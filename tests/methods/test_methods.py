"""Every method in METHODS, also one that is added later: what the loop relies on, and faults seen in public code."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from loss_cases import LABELS
from numpy.typing import NDArray
from torch import Tensor

from kenthash.errors import UsageError
from kenthash.losses.average_precision import average_precision_loss
from kenthash.losses.infonce import info_nce
from kenthash.methods import METHODS, Batch, ClosedForm, Method, Shapes, ShortQueries, settings_of
from kenthash.methods.kdph import Kdph
from kenthash.methods.pairs import shares_label
from kenthash.training.recipe import make_recipe

BITS, IMAGE, TEXT, ITEMS = 16, 12, 10, 30

TRAINED = [key for key, method in METHODS.items() if not issubclass(method, ClosedForm)]  # by steps down a loss
every_method = pytest.mark.parametrize("key", TRAINED)


def build(key: str, classes: int = 4) -> Method:
    torch.manual_seed(0)
    return METHODS[key](Shapes(classes, BITS, IMAGE, TEXT, ITEMS), settings_of(METHODS[key], {}))


def make_batch(labels: Tensor, seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    n = len(labels)
    x, t = (torch.rand(n, BITS, generator=generator).mul(1.8).sub(0.9).requires_grad_() for _ in range(2))
    features = (torch.randn(n, IMAGE, generator=generator), torch.randn(n, TEXT, generator=generator))
    return Batch(x, t, labels, *features, torch.arange(seed, seed + n), torch.ones(n, dtype=torch.bool))


def loss_of(method: Method, batch: Batch) -> Tensor:
    weights = method.weights()
    return torch.stack([weights[name] * term for name, term in method.terms(batch).items()]).sum()


def mixed(seed: int = 0) -> Tensor:
    labels = (torch.rand(20, 4, generator=torch.Generator().manual_seed(seed)) < 0.3).float()
    labels[torch.arange(20), torch.arange(20) % 4] = 1
    return labels


@pytest.mark.parametrize("key", METHODS)
def test_says_what_it_is(key: str) -> None:
    method = METHODS[key]
    assert method.key == key
    assert method.fidelity in ("own", "paper", "code", "reconstruction", "control")
    assert method.title
    assert any(str(year) in method.citation for year in range(2002, 2027)), "a citation has its year"
    assert make_recipe({"method": key}).method == key  # its recipe fits the loop's


@every_method
def test_gradients_reach_both_heads_and_all_that_the_method_learns(key: str) -> None:
    """Against: a proxy loss on detached codes, and proxies that no step can move."""
    method, batch = build(key), make_batch(mixed())
    torch.autograd.backward(loss_of(method, batch))
    for outputs in (batch.x, batch.t):
        assert outputs.grad is not None and outputs.grad.isfinite().all()
        assert (outputs.grad.abs().sum(1) > 0).all(), "a sample without a gradient"
    for name, parameter in method.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), f"{name} cannot learn"


@every_method
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
def test_odd_batches_give_no_nan(key: str, labels: NDArray[np.int64]) -> None:
    rows = torch.tensor(labels, dtype=torch.float32)
    method, batch = build(key, rows.shape[1]), make_batch(rows)
    loss = loss_of(method, batch)
    torch.autograd.backward(loss)
    assert loss.isfinite()
    gradients = [batch.x.grad, batch.t.grad, *(p.grad for p in method.parameters())]
    assert all(g is None or g.isfinite().all() for g in gradients)


@every_method
def test_is_determined_by_its_state_and_the_random_state(key: str) -> None:
    """A copy made from the state after one batch gives the same second loss: memories and codes are part of it."""
    method = build(key)
    loss_of(method, make_batch(mixed(), seed=1))
    copy = build(key)
    copy.load_state_dict(method.state_dict())
    losses = []
    for each in (method, copy):
        torch.manual_seed(5)
        losses.append(loss_of(each, make_batch(mixed(2), seed=4)).item())
    assert losses[0] == losses[1]


@every_method
def test_one_step_of_its_optimiser_moves_all_that_it_learns(key: str) -> None:
    method = build(key)
    before = {name: p.detach().clone() for name, p in method.named_parameters()}
    if not before:
        return
    rate = make_recipe({"method": key}).proxy_optimizer.lr
    optimizer = torch.optim.SGD(method.parameters(), lr=rate)
    torch.autograd.backward(loss_of(method, make_batch(mixed())))
    optimizer.step()
    assert all(not torch.equal(p, before[name]) for name, p in method.named_parameters())


def test_dnph_classifiers_learn_every_label_of_a_sample() -> None:
    """Public code trains them on the first label only: then the other labels' scores would be pushed down."""
    method = build("dnph")
    batch = make_batch(torch.tensor([[0.0, 1, 1, 0]] * 6))
    torch.autograd.backward(method.terms(batch)["classification"])
    slope = method.get_parameter("classify_image.bias").grad
    assert slope is not None
    assert (slope[[1, 2]] < 0).all() and (slope[[0, 3]] > 0).all()


def test_dcph_codes_are_binary_learned_first_and_then_fixed() -> None:
    method = METHODS["dcph"](Shapes(6, BITS, IMAGE, TEXT, ITEMS), settings_of(METHODS["dcph"], {"code_steps": 40}))
    optimizer = torch.optim.SGD(method.parameters(), lr=0.01)
    labels = torch.eye(6).repeat(3, 1)
    history = []
    for _ in range(45):
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(method, make_batch(labels)))
        optimizer.step()
        history.append(method.get_buffer("codes").clone())
    codes = history[-1]
    assert torch.equal(codes.abs(), torch.ones(6, BITS))
    assert torch.equal(history[39], codes)
    cosines = (codes @ codes.T / BITS).masked_fill(torch.eye(6, dtype=torch.bool), -1)
    assert cosines.max() <= 0.5, "classes with nearly the same code"
    assert "code_separation" not in method.terms(make_batch(labels))


def test_memories_hold_the_latest_outputs_and_nothing_of_the_unseen() -> None:
    method = build("mith")
    batch = make_batch(mixed(), seed=3)
    method.terms(batch)
    images = method.get_buffer("memory.image")
    assert torch.equal(images[batch.items], batch.x)
    unseen = torch.ones(ITEMS, dtype=torch.bool)
    unseen[batch.items] = False
    assert not images[unseen].any()


def kdph(**settings: object) -> Method:
    torch.manual_seed(0)
    return METHODS["kdph"](Shapes(4, BITS, IMAGE, TEXT, ITEMS), settings_of(METHODS["kdph"], settings))


def test_kdphs_margin_is_relative_to_the_first_concentration() -> None:
    """The hinge sees differences of scores: twice κ₀ is twice the differences and needs twice the margin. By default κ₀
    is K/2, where a bit is 1, and the margin 32 bits."""
    default = kdph()
    assert isinstance(default, Kdph) and (default.concentration, default.margin) == (8.0, 32.0)
    batch = make_batch(mixed())
    alone = {"epsilon": 0.0, "zeta": 0.0, "eta": 0.0, "proxy": "point"}
    values = [kdph(**alone, concentration=kappa).terms(batch)["proxy"] for kappa in (5.0, 10.0)]
    torch.testing.assert_close(values[1], 2 * values[0])
    given = kdph(**alone, concentration=5.0, margin=20.0).terms(batch)["proxy"]  # 32 · 2 · 5 / 16
    torch.testing.assert_close(given, values[0])


def test_kdphs_pairs_and_trace() -> None:
    """All pairs without a common label count, or only those of items with several; a trace is B times the mean."""
    labels = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]])  # one item only has two labels
    batch = make_batch(labels)
    assert kdph(irrelevance="paper").terms(batch)["irrelevance"] != 0
    assert kdph(irrelevance="paper", pairs="multi-label").terms(batch)["irrelevance"] == 0
    traced = []
    for uniform in ("mean", "trace"):
        torch.manual_seed(3)
        traced.append(kdph(uniform=uniform).terms(batch)["uniform"])
    torch.testing.assert_close(traced[1], 3 * traced[0])


def test_kdphs_temperature_can_be_fixed() -> None:
    fixed = kdph(learned_temperature=False, proxy="free")
    names = [name for name, p in fixed.named_parameters() if p.requires_grad]
    assert names and not any(name.startswith("temperature") for name in names)


def test_kaph_without_any_term_is_refused() -> None:
    settings = settings_of(METHODS["kaph"], {"ranking": 0.0, "proxies": 0.0})
    with pytest.raises(UsageError, match="nothing to learn from"):
        METHODS["kaph"](Shapes(4, BITS, IMAGE, TEXT, ITEMS), settings)


def test_kcph_learns_from_labels_and_captions_each_where_they_are() -> None:
    """What is not there changes nothing: the text of an item without a caption, and in the ranking by labels an item
    that has none."""
    labels = mixed()
    labels[0] = 0
    batch = make_batch(labels)
    batch = replace(batch, captioned=torch.arange(len(labels)) != 1)
    method = build("kcph")
    terms = method.terms(batch)
    torch.autograd.backward(loss_of(method, batch))
    assert batch.x.grad is not None and batch.t.grad is not None
    assert batch.x.grad[1].any() and not batch.t.grad[1].any()
    assert batch.x.grad[0].any() and batch.t.grad[0].any()  # by its caption

    reference = make_batch(labels)
    ranked = torch.arange(len(labels)) > 1  # both are left out of what ranks texts
    pairs = average_precision_loss(reference.x[1:], reference.t[ranked], shares_label(labels[1:], labels[ranked]))
    pairs += average_precision_loss(reference.t[ranked], reference.x[1:], shares_label(labels[ranked], labels[1:]))
    torch.testing.assert_close(terms["across"], pairs)
    captioned = batch.captioned
    torch.testing.assert_close(terms["contrast"], info_nce(reference.x[captioned], reference.t[captioned], 0.07))


def test_kcph_learns_from_a_batch_without_captions_by_its_labels() -> None:
    batch = make_batch(mixed())
    batch = replace(batch, captioned=torch.zeros(len(batch.x), dtype=torch.bool), start=(batch.x, batch.t))
    method = build("kcph")
    assert set(method.terms(batch)) == {"across", "within", "proxies"} and loss_of(method, batch).isfinite()


def test_kcph_without_classes_is_the_contrast_alone() -> None:
    method, batch = build("kcph", classes=0), make_batch(torch.zeros(6, 0))
    assert list(method.terms(batch)) == ["contrast"] and not list(method.parameters())
    assert method.weights()["contrast"] == 1 != build("kcph").weights()["contrast"]
    with pytest.raises(UsageError, match="use --method kaph"):
        METHODS["kcph"](Shapes(4, BITS, IMAGE, TEXT, ITEMS), settings_of(METHODS["kcph"], {"contrast": 0.0}))


def test_kcph_ranks_pictures_by_short_texts() -> None:
    method, batch = build("kcph"), make_batch(mixed())
    short = ShortQueries(
        torch.rand(3, BITS) * 2 - 1, torch.rand(3, len(batch.x)) < 0.4, torch.rand(3, len(batch.x)) < 0.8
    )
    term = method.terms(replace(batch, short=short))["short"]
    expected = average_precision_loss(short.outputs, batch.x, short.relevant, short.counted)
    torch.testing.assert_close(term, expected)
    assert method.uses_short_texts() and not build("kaph").uses_short_texts()
    assert method.weights()["short"] == settings_of(METHODS["kcph"], {}).short
