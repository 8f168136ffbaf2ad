"""The openclip encoder against open_clip itself, on a small random model and files that the test writes."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from small_clip import CONFIG, make_clip, open_clip, write_clip
from torch.nn import functional as F
from torchvision import transforms as tv

from kenthash.data.pictures import to_square
from kenthash.encoders import encoder_name, load_encoder
from kenthash.encoders.base import Encoder
from kenthash.encoders.openclip_weights import find_source
from kenthash.errors import KenthashError, UsageError

TEXTS = ["two dogs", "wow!! it is !!!", "", "a much longer caption of many words " * 8]


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The small model as one that open_clip knows by name, with and without QuickGELU."""
    folder = tmp_path_factory.mktemp("configs")
    (folder / "Small.json").write_text(json.dumps(CONFIG))
    (folder / "Small-quickgelu.json").write_text(json.dumps(CONFIG | {"quick_gelu": True}))
    open_clip.add_model_config(folder)


def vectors(encoder: Encoder, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.inference_mode():
        return encoder.encode_pictures(pictures), encoder.encode_texts(encoder.tokenize(TEXTS))


def reference(model: torch.nn.Module, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The library's own way: 77 positions, of which the text fills at most 32."""
    tokens = F.pad(open_clip.SimpleTokenizer()(TEXTS, context_length=32), (0, 45))
    with torch.inference_mode():
        return model.encode_image(pictures), model.encode_text(tokens)  # type: ignore[operator]


def test_a_folder_gives_the_projections_of_the_library(tmp_path: Path) -> None:
    model = write_clip(tmp_path / "clip")
    encoder = load_encoder(f"openclip:{tmp_path / 'clip'}")
    assert (encoder.image_dim, encoder.text_dim, encoder.size) == (24, 24, 32)
    pictures = torch.randn(5, 3, 32, 32)
    for ours, theirs in zip(vectors(encoder, pictures), reference(model, pictures), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
        assert (theirs.norm(dim=1) - 1).abs().min() > 0.01  # not normalised
    tokens = encoder.tokenize(TEXTS)
    short = encoder.tokenize(["two dogs"])
    assert isinstance(tokens, torch.Tensor) and tokens.shape == (4, 32)
    assert isinstance(short, torch.Tensor) and short.shape == (1, 4)  # no longer than needed


@pytest.mark.parametrize(
    ("file", "numbers", "quick"),
    [
        ("plain.safetensors", False, False),
        ("small-openai.safetensors", False, True),
        ("numbers.safetensors", True, True),
        ("numbers.pt", True, True),
        ("plain.pt", False, False),
    ],
)
def test_weights_by_openai_get_quickgelu(named: None, tmp_path: Path, file: str, numbers: bool, quick: bool) -> None:
    model = make_clip(quick_gelu=quick)
    weights = dict(model.state_dict())
    if numbers:
        weights |= {name: torch.tensor(7) for name in ("input_resolution", "context_length", "vocab_size")}
    path = tmp_path / "folder with spaces" / file
    path.parent.mkdir()
    if file.endswith(".pt"):
        torch.save(weights, path)
    else:
        save_file(weights, path)
    encoder = load_encoder(f"openclip:Small/{path}")
    assert encoder.spec == f"openclip:Small{'-quickgelu' if quick else ''}/{path}"
    pictures = torch.randn(3, 3, 32, 32)
    for ours, theirs in zip(vectors(encoder, pictures), reference(model, pictures), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    untrained = load_encoder(encoder.spec, pretrained=False)
    untrained.load_state_dict(encoder.state_dict(), strict=True)
    torch.testing.assert_close(vectors(untrained, pictures), vectors(encoder, pictures))


def test_the_name_follows_the_weights_not_the_path(named: None, tmp_path: Path) -> None:
    names = []
    for seed in (0, 1):
        save_file(make_clip(seed=seed).state_dict(), tmp_path / "w.safetensors")
        names.append(encoder_name(f"openclip:Small/{tmp_path / 'w.safetensors'}"))
    assert names[0] != names[1]
    assert load_encoder(f"openclip:Small/{tmp_path / 'w.safetensors'}").name == names[1]


def test_the_tag_openai_asks_for_quickgelu_and_for_the_hub() -> None:
    source = find_source("ViT-B-32")
    assert source.name == "openclip:ViT-B-32/openai" and source.quick_gelu and source.file is None
    assert source.repository.count("/") == 1 and source.preprocess["mean"][0] == pytest.approx(0.48145466)
    assert not find_source("ViT-B-32/laion2b_s34b_b79k").quick_gelu


def test_a_hub_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the port called discard: nobody listens
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for spec in ("ViT-B-32/openai", "ViT-B-16-SigLIP/webli", "roberta-ViT-B-32/laion2b_s12b_b32k", "hf-hub:owner/name"):
        with pytest.raises(KenthashError, match=r"hub does not answer .*openclip:.*/FILE\.safetensors") as caught:
            load_encoder(f"openclip:{spec}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("lite", "choose clip, light, openclip:"),
        ("openclip:", "choose clip, light, openclip:"),
        ("openclip:ViT-B-33/openai", "try ViT-B-32"),
        ("openclip:ViT-B-32/opanai", "openai, laion"),
        ("openclip:ViT-B-32/no/such/file.safetensors", "weights file that is there"),
        ("openclip:ViT-B-32/~nobody-of-this-name/file.pt", "weights file that is there"),
        ("openclip:hf-hub:", "OWNER/NAME"),
        ("openclip:hf-hub:a b/c", "OWNER/NAME"),
    ],
)
def test_a_wrong_spec_says_what_is_right(spec: str, says: str) -> None:
    for ask in (load_encoder, encoder_name):
        with pytest.raises(UsageError, match=says) as caught:
            ask(spec)
        assert "\n" not in str(caught.value)


def test_a_folder_that_does_not_describe_a_model_is_refused_in_one_line(tmp_path: Path) -> None:
    write_clip(tmp_path)
    config = json.loads((tmp_path / "open_clip_config.json").read_text())
    for text_cfg, says in (
        (None, "no text_cfg"),
        (CONFIG["text_cfg"] | {"heads": "two"}, "cannot build this model"),
        (CONFIG["text_cfg"] | {"hf_tokenizer_name": "owner/words"}, "tokenizer owner/words cannot be loaded"),
    ):
        config["model_cfg"]["text_cfg"] = text_cfg
        (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
        with pytest.raises(KenthashError, match=says) as caught:
            load_encoder(f"openclip:{tmp_path}")
        assert "\n" not in str(caught.value)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.mkdir, (Path("sprung"),))  # type: ignore[return-value]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript is old, and so are many weights
def test_files_that_are_not_these_weights_are_refused(
    named: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jit: Any = torch.jit
    Path("trap.pt").write_bytes(pickle.dumps({"weight": Trap()}))
    jit.save(jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), "program.pt")
    Path("broken.safetensors").write_bytes(b"\x10\x00")
    save_file({"visual.proj": torch.zeros(3, 3)}, "other.safetensors")
    torch.save([1, 2], "list.pt")
    torch.save({0: torch.zeros(1)}, "nameless.pt")
    save_file({}, "empty.safetensors")
    Path("words.pt").write_bytes(b"0 is where torch looks for something to take off an empty stack")
    says = {
        "trap.pt": "plain tensors",
        "program.pt": "TorchScript",
        "list.pt": "state_dict",
        "nameless.pt": "state_dict",
        "empty.safetensors": "does not hold the weights|no state_dict",
        "words.pt": "plain tensors",
        "broken.safetensors": "not a",
        "other.safetensors": "does not hold the weights",
    }
    for file, reason in says.items():
        with pytest.raises(KenthashError, match=reason) as caught:
            load_encoder(f"openclip:Small/{file}")
        assert "\n" not in str(caught.value) and file in str(caught.value)
    assert not Path("sprung").exists()


@pytest.mark.parametrize("size", [(60, 40), (33, 97), (32, 32), (20, 300), (401, 4)])
def test_transforms_are_those_of_the_field(tmp_path: Path, size: tuple[int, int]) -> None:
    """torchvision on Pillow pictures is what the field runs; two roundings of one in 255 are let through.

    The picture is smooth: on noise the order of the two directions shows, which differs between Pillow's versions.
    """
    write_clip(tmp_path)
    encoder = load_encoder(f"openclip:{tmp_path}")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 5, 3), np.uint8)).resize(size)
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    finish = [tv.ToTensor(), tv.Normalize(mean, std)]
    bicubic = tv.InterpolationMode.BICUBIC
    squashed = tv.Compose([tv.Resize((32, 32), bicubic), *finish])(picture)
    cropped = tv.Compose([tv.Resize(32, bicubic), tv.CenterCrop(32), *finish])(picture)
    two = 2.01 / 255 / min(std)
    for crop, theirs in ((False, squashed), (True, cropped)):
        [ours] = encoder.transform([to_square(picture, encoder.square(crop))])
        torch.testing.assert_close(ours, theirs, atol=two, rtol=0)
