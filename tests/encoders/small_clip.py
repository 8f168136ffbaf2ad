"""A small random CLIP as a folder that the openclip encoder reads, and pictures for it.

Tests take `open_clip` from here: torchvision is imported first, the way the encoders do.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from kenthash.data.dataset import Dataset
from kenthash.encoders.torchvision_shim import import_torchvision
from kenthash.files import cache_folder

import_torchvision()
import open_clip as open_clip  # noqa: E402 (as itself: tests import it from here)

CONFIG: dict[str, Any] = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 60), "blue": (40, 60, 230)}


def with_layers(layers: int) -> dict[str, Any]:
    return CONFIG | {tower: CONFIG[tower] | {"layers": layers} for tower in ("vision_cfg", "text_cfg")}


def make_clip(quick_gelu: bool = False, seed: int = 0, layers: int = 1) -> torch.nn.Module:
    torch.manual_seed(seed)
    model: torch.nn.Module = open_clip.CLIP(**with_layers(layers), quick_gelu=quick_gelu).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:  # the library's own start is so small that every text looks alike
            torch.nn.init.normal_(parameter.data, std=0.2)
    return model


def write_clip(folder: Path, seed: int = 0, layers: int = 1) -> torch.nn.Module:
    folder.mkdir(parents=True, exist_ok=True)
    model = make_clip(seed=seed, layers=layers)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": with_layers(layers), "preprocess_cfg": {}}))
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return model


def link_encoders(cache: Path) -> Path:
    """Make `cache` a user's cache that is empty but for the encoders, each of which the tests export only once."""
    encoders = cache_folder() / "encoders"
    encoders.mkdir(parents=True, exist_ok=True)
    (cache / "kenthash").mkdir(parents=True)
    (cache / "kenthash" / "encoders").symlink_to(encoders)
    return cache


def make_pictures(folder: Path, items: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(items)
    files = [folder / f"{row}.png" for row in range(items)]
    for file in files:
        height, width = rng.integers(20, 60, 2)
        Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(file)
    return files


def make_dataset(folder: Path, items: int) -> Dataset:
    """Items with one to three texts and a class by turns."""
    texts = [[f"text {n} of item {row}" + " and more" * (row % 4) for n in range(1 + row % 3)] for row in range(items)]
    labels = np.eye(3, dtype=np.uint8)[np.arange(items) % 3]
    ids = [f"item-{row}" for row in range(items)]
    return Dataset("small", ids, labels, ["a", "b", "c"], make_pictures(folder, items), texts, licence="CC0")


def write_pictures(folder: Path, items: int = 120) -> Path:
    """Pictures of one colour and noise; the text names it."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows = []
    for i in range(items):
        name = list(COLOURS)[i % 3]
        pixels = np.clip(np.array(COLOURS[name]) + rng.normal(0, 25, (40, 40, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
        rows.append({"file_name": f"{i}.png", "text": f"something {name} number {i}", "labels": [name]})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
