"""Heads as ONNX graphs: what PyTorch gives, and the same bits for an item in any batch."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from kenthash.errors import DataError
from kenthash.model.config import HEAD_KINDS, NEED_HIDDEN, HasherConfig, HeadConfig
from kenthash.model.hasher import Hasher
from kenthash.model.head_graphs import KINDS
from kenthash.model.heads import HEADS
from kenthash.model.network import HashNetwork

ITEMS, BITS = 300, 64
HEADS_TO_TRY = [HeadConfig(kind, 32 if kind in NEED_HIDDEN else 0) for kind in HEAD_KINDS] + [
    HeadConfig("tanh", 32),
    HeadConfig("mlp", 32, slope=8),
]


def network(head: HeadConfig) -> HashNetwork:
    torch.manual_seed(0)
    hash_network = HashNetwork(HasherConfig(BITS, 24, 12, head, head, encoder=""))
    with torch.no_grad():
        for value in hash_network.modules().state_dict().values():
            value.add_(0.1 * torch.randn_like(value).abs())
    return hash_network


def test_every_kind_of_head_has_a_graph() -> None:
    assert set(HEAD_KINDS) == set(HEADS) == set(KINDS)


@pytest.mark.parametrize("head", HEADS_TO_TRY, ids=lambda head: f"{head.kind}-{head.hidden}-{head.slope:g}")
def test_a_graph_gives_what_pytorch_gives(head: HeadConfig, tmp_path: Path) -> None:
    trained = network(head)
    trained.save(tmp_path)
    vectors = np.random.default_rng(0).standard_normal((ITEMS, 24)).astype(np.float32)
    with torch.inference_mode():
        expected = trained.image_head.eval()(torch.from_numpy(vectors)).numpy()
    hasher = Hasher.load(tmp_path, "cpu")
    outputs = hasher.image_outputs(vectors)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert ((outputs >= 0) == (expected >= 0)).mean() >= 0.999
    assert np.array_equal(hasher.encode_image_features(vectors[7:8]), hasher.encode_image_features(vectors)[7:8])
    assert hasher.encode_image_features(vectors[:0]).shape == (0, BITS // 8)


def test_heads_in_half_precision_take_half_the_room(tmp_path: Path) -> None:
    trained = network(HeadConfig("mlp", 256))
    trained.save(tmp_path / "whole")
    trained.save(tmp_path / "half", half=True)
    for name in ("model.safetensors", "image_head.onnx", "text_head.onnx"):
        assert (tmp_path / "half" / name).stat().st_size < 0.6 * (tmp_path / "whole" / name).stat().st_size
    vectors = np.random.default_rng(0).standard_normal((ITEMS, 12)).astype(np.float32)
    rounded = HashNetwork.load(tmp_path / "half").text_head.eval()
    assert all(torch.equal(value, value.half().float()) for value in rounded.state_dict().values())
    with torch.inference_mode():
        expected = rounded(torch.from_numpy(vectors)).numpy()
    np.testing.assert_allclose(Hasher.load(tmp_path / "half").text_outputs(vectors), expected, atol=1e-5)


def test_a_damaged_graph_is_refused_in_one_line(tmp_path: Path) -> None:
    network(HeadConfig()).save(tmp_path)
    path = tmp_path / "text_head.onnx"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=r"text_head\.onnx: damaged"):
        Hasher.load(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"text_head\.onnx: not there any more: copy the model again"):
        Hasher.load(tmp_path)


def test_a_model_saved_without_graphs_has_them_made_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trained = network(HeadConfig())
    trained.save(tmp_path / "new")
    trained.save(tmp_path / "old")
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    del config["graphs"]
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    for path in (tmp_path / "old").glob("*.onnx"):
        path.unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    vectors = np.random.default_rng(0).standard_normal((20, 12))
    expected = Hasher.load(tmp_path / "new").encode_text_features(vectors)
    with ThreadPoolExecutor(8) as pool:  # all at once, as the processes of a server may: one makes them
        for hasher in pool.map(Hasher.load, [tmp_path / "old"] * 8):
            assert np.array_equal(hasher.encode_text_features(vectors), expected)
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before
