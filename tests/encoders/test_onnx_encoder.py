"""Encoders as ONNX graphs: the bits that PyTorch gives, in any company, from files that are whole."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from small_clip import write_clip

from kenthash.data.pictures import Pixels
from kenthash.encoders import load_encoder, open_encoder
from kenthash.encoders.export import exported_folder
from kenthash.encoders.onnx_encoder import OnnxEncoder, cleaned
from kenthash.encoders.stream import EncodeBatch, encode_stream
from kenthash.errors import DataError, UsageError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork, export_onnx
from processes import PATIENCE

TEXTS = [
    "two dogs and a kite",
    "Rain",
    "a man in a café doesn\u2019t see the 3 tram cars &amp; a bus",
    "naïve 日本語 🙂 ﬁsh",
    "a street at night " * 40,
    "x",
    "",
    "the third of nine children runs after a red ball in the garden of an old house",
]


def squares(size: int, items: int = 12) -> list[Pixels]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (size // 8, size // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1) for _ in range(items)]


@pytest.fixture(scope="module", params=["light", "openclip"])
def spec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "light":
        return "light"
    folder = tmp_path_factory.mktemp("encoder") / "clip"
    write_clip(folder)
    return f"openclip:{folder}"


def test_bits_are_those_of_pytorch(spec: str) -> None:
    exported, trained = open_encoder(spec), load_encoder(spec)
    pixels = squares(exported.size)
    ours = (exported.picture_vectors(pixels), exported.text_vectors(TEXTS))
    theirs = (trained.picture_vectors(pixels), trained.text_vectors(TEXTS))
    torch.manual_seed(0)
    for mine, expected in zip(ours, theirs, strict=True):
        assert np.abs(mine - expected).max() < 1e-4 * np.abs(expected).max()
        planes = torch.randn(mine.shape[1], 1024).numpy()  # 1,024 bits of every item
        centred = expected.mean(axis=0)
        assert (((mine - centred) @ planes >= 0) == ((expected - centred) @ planes >= 0)).mean() >= 0.999


def test_an_item_has_the_same_vector_in_any_batch_and_on_any_number_of_threads(spec: str) -> None:
    encoder = open_encoder(spec)
    pixels = squares(encoder.size)
    pictures, texts = encoder.picture_vectors(pixels), encoder.text_vectors(TEXTS)
    for size in (1, 3, 8):
        parts = [encoder.picture_vectors(pixels[at : at + size]) for at in range(0, len(pixels), size)]
        assert np.array_equal(np.concatenate(parts), pictures)
        parts = [encoder.text_vectors(TEXTS[at : at + size]) for at in range(0, len(TEXTS), size)]
        assert np.array_equal(np.concatenate(parts), texts)
    with ThreadPoolExecutor(4) as pool:  # more than there may be cores
        together = list(pool.map(lambda text: encoder.text_vectors([text])[0], TEXTS * 4))
    assert np.array_equal(np.stack(together), np.tile(texts, (4, 1)))
    (encoded,) = encode_stream(encoder, [EncodeBatch([], TEXTS)])
    assert np.array_equal(encoded.text, texts)


def test_graphs_are_made_once_by_the_digest_of_the_weights(tmp_path: Path) -> None:
    write_clip(tmp_path / "clip")
    spec = f"openclip:{tmp_path / 'clip'}"
    first = open_encoder(spec)
    assert open_encoder(spec, weights=first.weights).folder == first.folder
    write_clip(tmp_path / "clip", seed=2)
    second = exported_folder(load_encoder(spec))
    assert second != first.folder
    # Whoever names the old weights still has them; whoever names none has those that were exported last.
    for path in (spec, "openclip:/elsewhere"):
        assert open_encoder(path, weights=first.weights).folder == first.folder
    assert open_encoder(spec).folder == second
    with pytest.raises(DataError, match="other weights now"):
        open_encoder(spec, weights="0" * 64)


def test_a_damaged_graph_or_tokenizer_is_refused(spec: str, tmp_path: Path) -> None:
    folder = shutil.copytree(open_encoder(spec).folder, tmp_path / "copy")
    for name in ("text.onnx", "tokenizer.json"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-9] + b"x" + content[-8:])
        with pytest.raises(DataError, match=rf"{name}: damaged: ") as error:
            OnnxEncoder(folder).text_vectors(["a"])
        assert "\n" not in str(error.value)
        (folder / name).write_bytes(content)
    assert len(OnnxEncoder(folder).text_vectors(["a"])) == 1


def test_a_device_that_the_runtime_does_not_have_is_one_line() -> None:
    for device in ("cuda:77", "meta", "gpu"):
        with pytest.raises(UsageError, match=f"device '{device}' cannot be used here"):
            open_encoder("light", device).text_vectors(["a"])


def test_exported_towers_of_open_clip_take_any_number_of_texts(tmp_path: Path) -> None:
    write_clip(tmp_path / "clip")
    head = HeadConfig()
    network = HashNetwork(HasherConfig(16, 24, 24, head, head, f"openclip:{tmp_path / 'clip'}"))
    for _, difference in export_onnx(network, tmp_path / "exported"):
        assert difference < 1e-4


def test_texts_are_cleaned_as_open_clip_does(spec: str) -> None:
    if spec == "light":
        return
    import open_clip

    for text in [*TEXTS, "A_b-c!  D\t\n", "&amp;lt; x"]:
        for how in ("whitespace", "lower", "canonicalize"):
            assert cleaned(text, how) == open_clip.tokenizer.get_clean_fn(how)(text)


def test_the_runtime_keeps_no_record_of_its_use(tmp_path: Path) -> None:
    """onnxruntime 1.31 writes an id of the device and a database into the user's cache, unless told not to."""
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    env.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run([sys.executable, "-c", "import kenthash.encoders.graph"], env=env, check=True, timeout=PATIENCE)
    assert not list(tmp_path.rglob("*onnxruntime*"))
