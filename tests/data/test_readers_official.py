"""The official COCO, MIRFLICKR-25K and NUS-WIDE layouts, in copies small enough to count by hand."""

from pathlib import Path

import numpy as np
import pytest
from layouts import write_coco, write_mirflickr, write_nuswide, write_picture, write_text

from kenthash.data.readers import read_dataset
from kenthash.data.readers.mirflickr import LABELS
from kenthash.errors import DataError

CATEGORIES = {1: "person", 18: "dog", 38: "kite"}  # COCO's ids have gaps
CAPTIONS = [f"A dog\nnumber {i}. " for i in range(5)]


def small_coco(root: Path) -> Path:
    train = {25: ([18, 1, 18], CAPTIONS), 9: ([38], CAPTIONS), 30: ([], CAPTIONS)}
    write_coco(root, {"train2017": train, "val2017": {139: ([1], ["One."]), 7: ([], ["Nothing."])}}, CATEGORIES)
    return root


def test_coco_joins_train_and_val_and_drops_what_has_no_label(tmp_path: Path) -> None:
    data = read_dataset(small_coco(tmp_path))
    assert data.ids == ["000000000009", "000000000025", "000000000139"]
    assert data.classes == ["person", "dog", "kite"]
    assert data.labels.tolist() == [[0, 0, 1], [1, 1, 0], [1, 0, 0]]
    assert data.texts is not None and data.pictures is not None
    assert data.texts[1] == [f"A dog number {i}." for i in range(5)] and data.texts[2] == ["One."]
    assert data.pictures[2] == tmp_path / "val2017" / "000000000139.jpg"
    assert data.notes == ["photos left out, no object labelled in them: 2"]


def test_coco_leaves_out_missing_photos_and_says_so(tmp_path: Path) -> None:
    small_coco(tmp_path)
    (tmp_path / "train2017" / "000000000009.jpg").unlink()
    (tmp_path / "annotations" / "instances_val2017.json").unlink()
    data = read_dataset(tmp_path)
    assert data.ids == ["000000000025"]
    assert [problem.what for problem in data.problems] == ["photos left out, no file: 1 of 2"]
    assert any("val2017 is not here" in note for note in data.notes)


def test_coco_without_one_of_its_archives_is_used_and_without_most_photos_refused(tmp_path: Path) -> None:
    small_coco(tmp_path)
    for photo in (tmp_path / "train2017").iterdir():
        photo.unlink()
    data = read_dataset(tmp_path)
    assert data.ids == ["000000000139"]
    assert [problem.what for problem in data.problems] == ["no photo of train2017 is here: 2 left out"]
    write_coco(tmp_path, {"train2017": {i: ([1], ["One."]) for i in range(200, 210)}}, CATEGORIES)
    for i in range(200, 206):
        (tmp_path / "train2017" / f"{i:012d}.jpg").unlink()
    with pytest.raises(DataError, match=r"train2017: 6 of 10 pictures are not here, such as 000000000200\.jpg: unpack"):
        read_dataset(tmp_path)


def test_coco_refuses_damage_in_one_line(tmp_path: Path) -> None:
    small_coco(tmp_path)
    instances = tmp_path / "annotations" / "instances_train2017.json"
    whole = instances.read_text()
    instances.write_text(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"instances_train2017\.json: not valid JSON: premature EOF"):
        read_dataset(tmp_path)
    instances.write_text(whole.replace('"category_id": 38', '"category_id": 39'))
    with pytest.raises(DataError, match="image 9 has category 39"):
        read_dataset(tmp_path)
    instances.write_text(whole.replace('"image_id": 9,', '"image_id": "nine",'))
    with pytest.raises(DataError, match="an entry of 'annotations' lacks or misspells"):
        read_dataset(tmp_path)
    instances.write_text(whole.replace('"image_id": 9,', '"image": 9,'))
    with pytest.raises(DataError, match="an entry of 'annotations' lacks or misspells 'image_id'"):
        read_dataset(tmp_path)
    instances.write_text(whole.replace('"image_id": 9,', '"image_id": 1e999,'))
    with pytest.raises(DataError, match=r"instances_train2017\.json: not valid JSON: numeric .* overflow, near"):
        read_dataset(tmp_path)
    instances.write_text(whole.replace("000000000009.jpg", "../../x.jpg"))
    with pytest.raises(DataError, match="leads out of the folder"):
        read_dataset(tmp_path)


PHOTO_TAGS = {1: ["sunset", "evening sea"], 2: [], 3: ["dog"], 10: ["caf\u00e9"]}
PHOTO_LABELS: dict[str, list[int]] = {label: [] for label in LABELS} | {
    "sky": [1, 10],
    "sea": [1],
    "plant_life": [2, 10, 77],
}


@pytest.mark.parametrize(
    ("photos", "annotations", "given"),
    [
        ("mirflickr", "mirflickr25k_annotations_v080", ""),  # both archives unpacked side by side
        ("mirflickr", "mirflickr25k_annotations_v080", "mirflickr"),  # the same, but the photos' folder is given
        ("mirflickr", "mirflickr/annotations", "mirflickr"),  # the annotations inside the photos' folder
        ("", "annotations_v080", ""),
        ("mirflickr", "", ""),  # an annotation archive without a folder of its own
    ],
)
def test_mirflickr_wherever_it_was_unpacked(tmp_path: Path, photos: str, annotations: str, given: str) -> None:
    root = tmp_path / "data"
    write_mirflickr(root / photos, root / annotations, PHOTO_LABELS, PHOTO_TAGS)
    data = read_dataset(root / given)
    assert data.ids == ["im1", "im2", "im10"]
    assert data.classes == list(LABELS) and len(LABELS) == 24
    names = [[data.classes[column] for column in np.flatnonzero(row)] for row in data.labels]
    assert names == [["sea", "sky"], ["plant_life"], ["plant_life", "sky"]]
    assert data.texts == [["sunset evening sea"], [""], ["caf\u00e9"]]
    assert data.pictures is not None and all(picture.is_file() for picture in data.pictures)
    assert data.notes == [
        "photos left out, none of the 24 labels: 1 (im3)",
        "photos without tags: 1 (im2)",
    ]
    assert [problem.what for problem in data.problems] == ["photos left out, no file: 1 of 4"]


def test_mirflickr_says_what_is_missing(tmp_path: Path) -> None:
    write_mirflickr(tmp_path / "a" / "mirflickr", tmp_path / "elsewhere" / "deep", PHOTO_LABELS, PHOTO_TAGS)
    with pytest.raises(DataError, match=r"unpack mirflickr25k_annotations_v080\.zip"):
        read_dataset(tmp_path / "a")
    with pytest.raises(DataError, match=r"unpack mirflickr25k\.zip here"):
        read_dataset(tmp_path / "elsewhere" / "deep")
    annotations = tmp_path / "a" / "annotations"
    (tmp_path / "elsewhere" / "deep").rename(annotations)
    write_text(annotations / "sea.txt", "1\nim7\n")
    with pytest.raises(DataError, match=r"sea\.txt:2: 'im7' is not the number of a photo"):
        read_dataset(tmp_path / "a")
    (annotations / "sea.txt").unlink()
    with pytest.raises(DataError, match=r"sea\.txt: cannot be read: No such file"):
        read_dataset(tmp_path / "a")


def test_mirflickr_and_nuswide_without_most_photos_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "mirflickr"
    write_mirflickr(root, root / "annotations", PHOTO_LABELS | {"tree": [20, 21, 22, 23]}, PHOTO_TAGS)
    with pytest.raises(DataError, match=r"5 of 8 pictures are not here, such as im20\.jpg: unpack mirflickr25k\.zip"):
        read_dataset(root)
    names, _ = small_nuswide(tmp_path / "nus")
    for name in names[5:]:
        (tmp_path / "nus" / "Flickr" / name.replace("\\", "/")).unlink()
    with pytest.raises(DataError, match=r"\d\d of \d\d pictures are not here, such as folder"):
        read_dataset(tmp_path / "nus")


def small_nuswide(root: Path, photos: int = 60) -> tuple[list[str], dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    names = [f"folder{i % 3}\\{i:04d}_{900 + i}.jpg" for i in range(photos)]
    names[5] = "folder2\\0005_900.jpg"  # a Flickr id that is listed twice
    concepts = [f"concept{i:02d}" for i in rng.permutation(81)]
    labels = {name: (rng.random(photos) < 0.001 + 0.0009 * i).astype(int) for i, name in enumerate(sorted(concepts))}
    tags = {str(900 + i): f"tag{i} sea" for i in range(photos)} | {"901": ""}
    write_nuswide(root, names, labels, tags)
    for i, name in enumerate(names):
        write_picture(root / "Flickr" / name.replace("\\", "/"), i)
    return names, labels


def test_nuswide_keeps_the_21_most_frequent_concepts_and_their_photos(tmp_path: Path) -> None:
    names, labels = small_nuswide(tmp_path)
    # The reference: counts one by one, in plain Python.
    counts = sorted(((-sum(int(v) for v in column), concept) for concept, column in labels.items()))
    top = sorted(concept for _, concept in counts[:21])
    labelled = [i for i in range(len(names)) if any(labels[concept][i] == 1 for concept in top)]
    assert 10 < len(labelled) < len(names)

    data = read_dataset(tmp_path)
    assert data.classes == top
    assert data.ids == [names[i].replace("\\", "/").removesuffix(".jpg") for i in labelled]
    assert data.labels.tolist() == [[int(labels[concept][i]) for concept in top] for i in labelled]
    assert len(set(data.ids)) == len(data.ids)  # though a Flickr id is listed twice
    assert data.notes[0] == f"photos left out, none of the 21 most frequent concepts: {len(names) - len(labelled)}"


def test_nuswide_tags_go_by_flickr_id_and_photos_may_lie_flat(tmp_path: Path) -> None:
    names, labels = small_nuswide(tmp_path)
    labels["concept80"][:] = 1  # every photo is kept
    write_text(tmp_path / "Groundtruth" / "AllLabels" / "Labels_concept80.txt", "1\r\n" * len(names))
    flat = tmp_path / "mirror" / "images"
    for name in names:
        path = tmp_path / "Flickr" / name.replace("\\", "/")
        write_picture(flat / path.name)
        path.unlink()
    (flat / "0007_907.jpg").unlink()
    (tmp_path / "Groundtruth").rename(tmp_path / "mirror" / "Groundtruth")  # an archive unpacked one folder deeper
    data = read_dataset(tmp_path)
    assert len(data) == len(names) - 1 and data.texts is not None
    texts = dict(zip(data.ids, data.texts, strict=True))
    assert texts["folder0/0000_900"] == ["tag0 sea"]
    assert texts["folder2/0005_900"] == ["tag0 sea"]
    assert texts["folder1/0001_901"] == [""]
    assert texts["folder0/0009_909"] == ["tag9 sea"]
    assert [(problem.what, problem.examples) for problem in data.problems] == [
        (f"photos left out, no file: 1 of {len(names)}", ["folder1/0007_907.jpg"])
    ]
    assert "photos without tags: 1 (folder1/0001_901.jpg)" in data.notes


def test_nuswide_refuses_parts_that_disagree(tmp_path: Path) -> None:
    small_nuswide(tmp_path)
    truth = tmp_path / "Groundtruth" / "AllLabels"
    column = (truth / "Labels_concept04.txt").read_text()
    write_text(truth / "Labels_concept04.txt", column + "0\n")
    with pytest.raises(DataError, match=r"Labels_concept04\.txt: 61 lines, but the image list has 60"):
        read_dataset(tmp_path)
    write_text(truth / "Labels_concept04.txt", "0\n-1130179\n" + column[4:])
    with pytest.raises(DataError, match=r"Labels_concept04\.txt:2: every line must be 0 or 1"):
        read_dataset(tmp_path)
    write_text(truth / "Labels_concept04.txt", "01" + column[3:])
    with pytest.raises(DataError, match="every line must be 0 or 1"):
        read_dataset(tmp_path)
    (truth / "Labels_concept04.txt").unlink()
    (truth / "Labels_concept04.txt").mkdir()
    with pytest.raises(DataError, match=r"Labels_concept04\.txt: cannot be read: Is a directory"):
        read_dataset(tmp_path)
    (truth / "Labels_concept04.txt").rmdir()
    with pytest.raises(DataError, match=r"80 files Labels_\*\.txt, not 81"):
        read_dataset(tmp_path)
    write_text(tmp_path / "ImageList" / "Imagelist.txt", "folder0\\0000_900.jpg\n..\\..\\secret.jpg\n")
    with pytest.raises(DataError, match=r"Imagelist\.txt:2: .* is not a photo inside the folder"):
        read_dataset(tmp_path)
    (tmp_path / "NUS_WID_Tags" / "All_Tags.txt").unlink()
    with pytest.raises(DataError, match=r"NUS_WID_Tags/All_Tags\.txt is missing"):
        read_dataset(tmp_path)
