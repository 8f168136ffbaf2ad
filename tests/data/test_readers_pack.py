"""Feature packs: whole ones, and each part in turn damaged or at odds with the others."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from layouts import write_pack, write_text

from kenthash.data.pack import FeaturePack, bad_rows
from kenthash.data.readers import read_dataset
from kenthash.errors import DataError


def test_table_of_a_pack(tmp_path: Path) -> None:
    data = read_dataset(write_pack(tmp_path))
    assert (data.name, data.licence, data.classes) == ("small", "CC0", ["cat", "dog", "kite"])
    assert data.ids == ["item0", "item1", "item2", "item3"]
    assert data.texts == [["text 0"], ["text 1", "text 2"], ["text 3"], ["text 4", "text 5"]]
    assert data.labels.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert data.pictures is None and data.labels.flags.writeable


def test_the_old_place_of_a_pack_works_and_warns() -> None:
    from kenthash.encoders import features

    with pytest.warns(DeprecationWarning, match=r"kenthash\.data\.pack\.FeaturePack"):
        assert features.FeaturePack is FeaturePack


def test_texts_are_optional_and_may_hold_any_character(tmp_path: Path) -> None:
    write_pack(tmp_path, texts=False)
    assert read_dataset(tmp_path).texts is None
    write_text(tmp_path / "texts.jsonl", '"a\u2028b\\n"\r\n' + '"x"\n' * 5)
    texts = read_dataset(tmp_path).texts
    assert texts is not None and texts[0] == ["a\u2028b\n"]
    write_text(tmp_path / "ids.txt", "\ufeffa\r\nb\r\nc\u2028\r\nd")  # as an editor may leave it
    assert read_dataset(tmp_path).ids == ["a", "b", "c\u2028", "d"]


def test_pack_opens_with_its_vectors(tmp_path: Path) -> None:
    pack = FeaturePack.open(write_pack(tmp_path))
    assert pack.image.shape == (4, 5) and pack.text.shape == (6, 7) and pack.encoders == {"image": "a", "text": "b"}
    assert pack.text_offsets.tolist() == [0, 1, 3, 4, 6] and len(pack) == 4
    write_text(
        tmp_path / "meta.json", '{"classes": ["a", "b", "c"], "encoders": null, "encoder": null, "licence": null}'
    )
    bare = FeaturePack.open(tmp_path)  # as other programs write what they do not know
    assert (bare.encoders, bare.encoder, bare.dataset.licence) == ({}, "", "")


def test_items_and_whole_packs_may_be_without_texts_and_labels(tmp_path: Path) -> None:
    write_pack(tmp_path)
    np.save(tmp_path / "text_offsets.npy", np.array([0, 1, 1, 4, 6]))
    texts = FeaturePack.open(tmp_path).dataset.texts
    assert texts is not None and texts[:3] == [["text 0"], [], ["text 1", "text 2", "text 3"]]
    np.save(tmp_path / "text_offsets.npy", np.zeros(5, np.int64))
    np.save(tmp_path / "text.npy", np.zeros((0, 7), np.float16))
    np.save(tmp_path / "labels.npy", np.zeros((4, 0), np.uint8))
    write_text(tmp_path / "texts.jsonl", "")
    write_text(tmp_path / "meta.json", '{"name": "small", "classes": []}')
    bare = FeaturePack.open(tmp_path)
    assert bare.dataset.texts == [[]] * 4 and bare.dataset.labels.shape == (4, 0)


def change(name: str, edit: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    return lambda root: np.save(root / name, edit(np.load(root / name)))


def shifted(offsets: np.ndarray) -> np.ndarray:
    return np.array([0, 2, 1, 4, 6])  # item 1 would own less than nothing


DAMAGE: list[tuple[str, Callable[[Path], object]]] = [
    ("meta.json", lambda root: (root / "meta.json").write_text("[]")),
    ("meta.json", lambda root: (root / "meta.json").write_text('{"name": "small"}')),
    ("meta.json", lambda root: (root / "meta.json").write_text('{"classes": [1, 2, 3]}')),
    ("meta.json", lambda root: (root / "meta.json").write_text('{"classes": ["a", ')),
    ("ids.txt", lambda root: (root / "ids.txt").unlink()),
    ("ids.txt", lambda root: (root / "ids.txt").write_text("a\n\nb\nc\n")),
    ("ids.txt", lambda root: (root / "ids.txt").write_bytes(b"a\nb\xff\nc\nd\n")),
    ("labels.npy", lambda root: (root / "ids.txt").write_text("a\nb\nc\n")),
    ("labels.npy", change("labels.npy", lambda labels: labels[:, :2])),
    ("labels.npy", change("labels.npy", lambda labels: 3 * labels)),
    ("labels.npy", change("labels.npy", lambda labels: labels.astype(np.float32))),
    ("labels.npy", lambda root: (root / "labels.npy").write_bytes(b"\x93NUMPY")),
    ("labels.npy", lambda root: np.savez((root / "labels.npy").open("wb"), np.load(root / "image.npy"))),
    ("meta.json", lambda root: (root / "meta.json").write_text("[" * 100_000)),
    ("texts.jsonl", lambda root: (root / "texts.jsonl").write_text('"a"\n"b\n')),
    ("texts.jsonl", lambda root: (root / "texts.jsonl").write_text('"a"\n7\n')),
    ("text_offsets.npy", lambda root: (root / "texts.jsonl").write_text('"a"\n"b"\n')),
    ("text_offsets.npy", change("text_offsets.npy", lambda offsets: offsets[:-1])),
    ("text_offsets.npy", change("text_offsets.npy", lambda offsets: offsets.astype(np.int32))),
    ("text_offsets.npy", change("text_offsets.npy", shifted)),
    ("text_offsets.npy", lambda root: (root / "text_offsets.npy").unlink()),
]


@pytest.mark.parametrize(("part", "damage"), DAMAGE)
def test_part_that_is_damaged_or_disagrees_is_named(
    tmp_path: Path, part: str, damage: Callable[[Path], object]
) -> None:
    damage(write_pack(tmp_path))
    with pytest.raises(DataError) as refused:
        read_dataset(tmp_path)
    assert str(refused.value).startswith(str(tmp_path / part)) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ("image.npy", change("image.npy", lambda vectors: vectors[:3])),
        ("image.npy", change("image.npy", lambda vectors: vectors.astype(np.float64))),
        ("text.npy", lambda root: (root / "text.npy").unlink()),
        ("text_offsets.npy", change("text.npy", lambda vectors: vectors[:5])),
        ("image.npy", lambda root: np.save(root / "image.npy", np.array([{}], dtype=object), allow_pickle=True)),
        ("meta.json", lambda root: (root / "meta.json").write_text('{"classes": ["a", "b", "c"], "encoders": "x"}')),
    ],
)
def test_vectors_that_disagree_are_named(tmp_path: Path, part: str, damage: Callable[[Path], object]) -> None:
    damage(write_pack(tmp_path))
    with pytest.raises(DataError) as refused:
        FeaturePack.open(tmp_path)
    assert str(refused.value).startswith(str(tmp_path / part))


def test_bad_rows_finds_nan_and_infinity_in_every_block(tmp_path: Path) -> None:
    write_pack(tmp_path, items=9000)
    image = np.load(tmp_path / "image.npy")
    image[3, 1], image[8192, 4], image[8999, 0] = np.nan, np.inf, -np.inf
    np.save(tmp_path / "image.npy", image)
    assert bad_rows(FeaturePack.open(tmp_path)) == {"image.npy": [3, 8192, 8999], "text.npy": []}
