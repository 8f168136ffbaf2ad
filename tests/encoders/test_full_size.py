"""Recipes of the full sets as far as they can be checked without a GPU: 200 pictures for two epochs with a small CLIP,
the memory that chunks save, and the arithmetic of what a run costs."""

from pathlib import Path

import pytest
import torch
from small_clip import CONFIG, make_dataset, write_clip, write_pictures

from kenthash.bench.cost import GPUS, Cost, Gpu, arithmetic, measure, run_cost
from kenthash.encoders import load_encoder
from kenthash.files import read_json
from kenthash.training.evaluate import evaluate_run
from kenthash.training.recipe import find_recipe, make_recipe, read_recipe
from kenthash.training.sources import PictureSource
from kenthash.training.train import train_run

CPU = torch.device("cpu")


def test_a_full_size_recipe_on_200_pictures(tmp_path: Path) -> None:
    write_clip(tmp_path / "clip")
    recipe = make_recipe(
        read_recipe(find_recipe("kdph-coco")),
        {
            "data": str(write_pictures(tmp_path / "pictures", 200)),
            "bits": 16,
            "epochs": 2,
            "batch": 32,
            "split": {"query": 40, "train": 120, "validation": 20},
            "encoder": {"spec": f"openclip:{tmp_path / 'clip'}", "chunk": 8},
        },
    )
    assert recipe.encoder.trainable and recipe.optimizer.weight_decay == 0.2
    train_run(recipe, tmp_path / "run", quiet=True)
    assert len(read_json(tmp_path / "run" / "history.json")) == 2
    assert 0 < evaluate_run(tmp_path / "run", figures=False).metrics["i2t"]["map"] <= 1


def test_chunks_give_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    """And keep nothing of the encoder's inside but the chunk that is on its way back."""
    write_clip(tmp_path / "clip", layers=2)
    dataset = make_dataset(tmp_path / "pictures", 12)
    gradients, memory = [], []
    for chunk in (0, 5):
        encoder = load_encoder(f"openclip:{tmp_path / 'clip'}", device="cpu", trainable=True)
        source = PictureSource(dataset, encoder, CPU, chunk=chunk)
        sizes: list[int] = []

        def note(tensor: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        rows = torch.arange(12).numpy()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            image, text = source.vectors(rows, 0 * rows, train=True)
        memory.append(sum(sizes))
        torch.autograd.backward((image @ text.T).softmax(1).diagonal().sum())  # every pair of the batch counts
        gradients.append({n: p.grad for n, p in encoder.named_parameters() if p.requires_grad})
    assert memory[1] < memory[0] / 10
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-6)


def test_arithmetic_is_what_is_counted(tmp_path: Path) -> None:
    """Work exactly; memory to a quarter, as attention keeps other things on other devices."""
    write_clip(tmp_path / "clip")
    encoder = load_encoder(f"openclip:{tmp_path / 'clip'}", device="cpu", trainable=True)
    counted = measure(encoder)
    expected = arithmetic(CONFIG, counted.weights, quick_gelu=False)
    assert expected.flops == pytest.approx(counted.flops, rel=0.001)
    assert expected.kept_bytes == pytest.approx(counted.kept_bytes, rel=0.25)


def test_what_a_run_costs() -> None:
    cost = Cost(flops=2e9, kept_bytes=1e6, weights=1000)
    recipe = make_recipe({"epochs": 10, "batch": 100, "split": {"query": 100, "train": 1100, "validation": 100}})
    run = run_cost(cost, recipe, 2100)
    assert (run.steps, run.training_pictures) == (100, 10_000)
    # Ten times the 100 validation items and 100 training items, the share that these have of the database; then all.
    assert run.other_pictures == 10 * 200 + 2100
    assert run.flops == pytest.approx(3 * 10_000 * 2e9 + 4100 * 2e9)
    gpu = Gpu("one", teraflops=1.0, gigabytes=1)
    assert run.hours(gpu, 0.5) == pytest.approx(run.flops / 0.5e12 / 3600)
    assert run.hours(gpu, 0.5, pictures_per_second=10) == pytest.approx(14_100 / 10 / 3600)
    assert cost.step_flops(100, 50) == 4 * 100 * 2e9 and cost.step_flops(100, 0) == 3 * 100 * 2e9
    assert cost.memory(100, 50) == 18_000 + 50e6 and len(GPUS) > 2
    assert cost.pairs(gpu) == 999  # of 1 GB, less the weights
