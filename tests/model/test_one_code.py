"""A file has one code, whatever encodes it, alone or among others. Tested with pictures as large as a camera's: small
ones pass through none of the reductions in which two ways of reading a file can differ."""

import json
import shutil
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from kenthash.cli import app
from kenthash.data.pack import FeaturePack
from kenthash.encoders import load_encoder
from kenthash.errors import UsageError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.hasher import Hasher
from kenthash.model.network import HashNetwork
from kenthash.search import Index
from kenthash.search.models import PICTURES, is_current
from photos import photo

ITEMS = 9


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of several kinds with a model that has learnt nothing, whose many bits show small differences."""
    folder = tmp_path_factory.mktemp("one-code")
    photos = folder / "photos"
    photos.mkdir()
    turned = Image.Exif()
    turned[0x0112] = 6
    for number in range(ITEMS - 3):
        photo(number).save(photos / f"{number}.jpg", quality=90)
    photo(6).save(photos / "6.jpg", exif=turned)
    photo(7).save(photos / "7.jpg", progressive=True)
    photo(8).save(photos / "8.webp")
    rows = [{"file_name": file.name, "text": file.stem, "labels": ["x"]} for file in sorted(photos.iterdir())]
    (photos / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    torch.manual_seed(0)
    head = HeadConfig()
    weights = load_encoder("light").weights
    HashNetwork(HasherConfig(1024, 1280, 384, head, head, "light", encoder_weights=weights)).save(folder / "model")
    return folder


def invoke(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0
    return result


def run(*arguments: str | Path) -> str:
    return invoke(*arguments).stdout


def test_one_file_has_one_code(place: Path) -> None:
    photos, model, index = place / "photos", place / "model", place / "photos.kh"
    files = sorted(file for file in photos.iterdir() if file.suffix != ".jsonl")
    run("index", "add", photos, "--model", model, "--index", index)
    run("encode", photos, "--out", place / "pack", "--device", "cpu")
    hasher = Hasher.load(model)
    ways = {
        "all at once": hasher.encode_pictures(files),
        "one at a time": np.concatenate([hasher.encode_pictures([file]) for file in files]),
        "by content": hasher.encode_pictures([file.read_bytes() for file in files]),
    }
    pack = FeaturePack.open(place / "pack")
    assert pack.dataset.ids == [file.name for file in files]
    ways["by way of a pack"] = hasher.encode_image_features(pack.image)
    ways["a pack's item alone"] = np.concatenate([hasher.encode_image_features(row[None]) for row in pack.image])
    with Index.open(index) as opened:
        indexed = np.stack([item.code for item in opened.get([f"photos/{file.name}" for file in files]) if item])
    different = {way: [f.name for f, a, b in zip(files, codes, indexed, strict=True) if (a != b).any()]
                 for way, codes in ways.items()}  # fmt: skip
    assert different == {way: [] for way in ways}
    for file in files[:2]:
        [hit] = json.loads(run("search", "--image", file, "--index", index, "-k", "1", "--json"))
        assert (hit["id"], hit["distance"]) == (f"photos/{file.name}", 0)


def test_a_pack_feeds_an_index(place: Path, tmp_path: Path) -> None:
    """By its vectors: the pictures are not there. Only a model of the same encoder takes them."""
    photos, model = tmp_path / "photos", place / "model"
    photos.mkdir()
    for number in range(3):
        photo(number, (600, 400)).save(photos / f"{number}.jpg")
    rows: list[dict[str, object]] = [
        {"file_name": "0.jpg", "text": "one dog", "labels": ["dog"]},
        {"file_name": "1.jpg", "texts": ["a cat", "a kite"], "labels": ["cat", "kite"]},
        {"file_name": "2.jpg", "text": "nobody"},
    ]
    (photos / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("encode", photos, "--out", tmp_path / "pack", "--device", "cpu")
    codes = Hasher.load(model).encode_pictures([photos / f"{number}.jpg" for number in range(3)])
    shutil.rmtree(photos)
    index, add = tmp_path / "x.kh", ("index", "add", tmp_path / "pack", "--model", model, "--index", tmp_path / "x.kh")
    assert json.loads(run(*add, "--texts", "--json")) == {
        "added": 3, "changed": 0, "moved": 0, "unchanged": 0, "removed": 0, "skipped": {}, "texts": 4,
    }  # fmt: skip
    with Index.open(index) as opened:
        items = [item for item in opened.get(["0.jpg", "1.jpg", "2.jpg"]) if item is not None]
        assert [item.metadata for item in items] == [
            {"text": "one dog", "labels": ["dog"]}, {"texts": ["a cat", "a kite"], "labels": ["cat", "kite"]},
            {"text": "nobody", "labels": []},
        ]  # fmt: skip
        assert np.array_equal(np.stack([item.code for item in items]), codes)
        assert is_current(opened)
        assert opened.search_texts(Hasher.load(model).encode_texts("a kite"), k=1)[0].ids == ["1.jpg"]
    assert run(*add) == "0 added, 0 changed, 0 moved, 3 unchanged, 0 removed, 0 texts, 0 skipped\n"

    meta = json.loads((tmp_path / "pack" / "meta.json").read_text())
    for changes, reason in (
        ({"encoder": "openclip:other", "encoder_weights": ""}, "of openclip:other, the model was trained .* of light"),
        ({"encoder_weights": "0" * 64}, "other weights"),
        ({"encoder": ""}, None),  # the weights are the same
        ({"pictures": ""}, "by different versions"),
    ):
        (tmp_path / "pack" / "meta.json").write_text(json.dumps({**meta, **changes}))
        if reason is None:
            run(*add)
            continue
        with pytest.raises(UsageError, match=reason):
            run(*add)
    other = ("index", "add", tmp_path / "pack", "--model", model, "--index", tmp_path / "y.kh")
    assert "does not tell its version" in invoke(*other).stderr  # as packs of earlier versions, in an index of its own
    (tmp_path / "pack" / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UsageError, match="by different versions"):
        run(*other)
    photos.mkdir()
    photo(0, (600, 400)).save(photos / "0.jpg")
    with pytest.raises(UsageError, match="does not tell its version"):
        run("index", "add", photos, "--model", model, "--index", tmp_path / "y.kh")
    assert "does not tell its version" in invoke("search", "--image", photos / "0.jpg", "--index", other[-1]).stderr
    assert invoke("search", "a dog", "--index", other[-1]).stderr == ""


def test_an_index_of_an_earlier_version_says_so_and_is_encoded_again(place: Path, tmp_path: Path) -> None:
    photos, model, index = tmp_path / "photos", place / "model", tmp_path / "photos.kh"
    photos.mkdir()
    photo(1, (600, 400)).save(photos / "a.jpg")
    add = ("index", "add", photos, "--model", model, "--index", index)
    search = ("search", "--image", photos / "a.jpg", "--index", index, "--json")
    assert invoke(*add).stderr.endswith(f"1 picture, by the model {place.name}, into {index}\n")
    assert invoke(*search).stderr == ""
    with Index.open(index) as opened:
        [item] = opened.get(["photos/a.jpg"])
        assert item is not None
        digest = str(item.metadata["digest"]).partition("-")[2]
        opened.upsert([item.id], item.code[None] ^ np.uint8(1), [{**item.metadata, "digest": digest}])
        opened.note(PICTURES, "")
    warned = invoke(*search)
    assert json.loads(warned.stdout)[0]["distance"] == 128 and warned.stderr.count("\n") == 1
    assert "by another version" in warned.stderr
    run("index", "export", "--index", index, "--out", tmp_path / "old codes")
    renewed = invoke(*add)
    assert renewed.stderr.endswith(
        "\nthis index was filled by another version of kenthash: its pictures are encoded again\n"
    )
    assert renewed.stdout == "0 added, 1 changed, 0 moved, 0 unchanged, 0 removed, 0 skipped\n"
    assert invoke(*add).stderr.count("\n") == 1 and json.loads(run(*search))[0]["distance"] == 0
    run("index", "remove", "photos/a.jpg", "--index", index)
    with pytest.raises(UsageError, match="another version"):
        run("index", "add", "--codes", tmp_path / "old codes", "--index", index)


def test_pillow_images_are_turned_and_put_on_white(place: Path) -> None:
    """At full size, for which a lossless file without reductions gives the same code."""
    hasher = Hasher.load(place / "model")
    turned, clear = Image.Exif(), Image.new("RGBA", (300, 200))
    turned[0x0112] = 6
    stream = BytesIO()
    photo(1, (300, 200)).save(stream, "PNG", exif=turned)
    clear.paste(photo(2, (150, 200)))
    other = BytesIO()
    clear.save(other, "PNG")
    for content in (stream.getvalue(), other.getvalue()):
        assert np.array_equal(hasher.encode_pictures([Image.open(BytesIO(content))]), hasher.encode_pictures([content]))
