"""ONNX towers answer as PyTorch does, for any number of items."""

from pathlib import Path

import numpy as np
import pytest
import torch

from components import need
from kenthash.encoders import load_encoder
from kenthash.errors import KenthashError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.hasher import Hasher
from kenthash.model.network import HashNetwork, export_onnx


def network(encoder: str = "", image_dim: int = 20, text_dim: int = 12) -> HashNetwork:
    head = HeadConfig(hidden=8)
    return HashNetwork(HasherConfig(16, image_dim, text_dim, head, head, encoder))


def test_towers_of_a_vector_model(tmp_path: Path) -> None:
    runtime = need("onnxruntime")
    need("onnxscript")
    model = network()
    for path, difference in export_onnx(model, tmp_path):
        assert difference < 1e-5 and path.is_file()
    vectors = np.random.default_rng(0).standard_normal((7, 20)).astype(np.float32)
    (outputs,) = runtime.InferenceSession(str(tmp_path / "image.onnx")).run(None, {"vectors": vectors})
    with torch.inference_mode():
        assert outputs == pytest.approx(model.image_head(torch.from_numpy(vectors)).numpy(), abs=1e-5)


def test_a_tower_that_does_not_answer_alike_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("onnxruntime")
    need("onnxscript")
    monkeypatch.setattr("kenthash.encoders.export.TOLERANCE", -1.0)
    with pytest.raises(KenthashError, match="was not kept"):
        export_onnx(network(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_towers_with_the_light_encoder(tmp_path: Path) -> None:
    runtime = need("onnxruntime")
    need("onnxscript")
    model = network("light", 1280, 384)
    export_onnx(model, tmp_path)
    texts = ["a red boat", "three elephants behind an old wooden fence", "rain"]
    tokens = load_encoder("light").tokenize(texts)
    assert isinstance(tokens, dict)
    given = {"tokens": tokens["input_ids"].numpy(), "mask": tokens["attention_mask"].numpy()}
    (outputs,) = runtime.InferenceSession(str(tmp_path / "text.onnx")).run(None, given)
    codes = np.packbits(outputs >= 0, axis=1, bitorder="little")
    model.save(tmp_path / "model")
    assert np.array_equal(codes, Hasher.load(tmp_path / "model").encode_texts(texts))
