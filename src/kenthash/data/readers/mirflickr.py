"""Official MIRFLICKR-25K: Flickr photos with their tags and 24 annotated labels (Huiskes and Lew 2008).

mirflickr25k.zip unpacks to `mirflickr/` with im1.jpg ... im25000.jpg and `meta/tags/tags1.txt` ... (one tag per line).
mirflickr25k_annotations_v080.zip holds one text file per label with the numbers of its photos, one per line: the 24
potential labels (`sky.txt`), 14 of them again in a strict sense (`sky_r1.txt`, subsets that add no photo and are not
used), and a README. The annotations may lie below, in or beside the photos' folder.

The field keeps the photos with at least one of the 24 labels, 24,581 of 25,000, and joins the tags by spaces. Photos
without tags stay among them.
"""

import re
from pathlib import Path

from kenthash.data.dataset import Dataset
from kenthash.data.readers.shared import file_names, multi_hot, note, read_lines, without_pictures
from kenthash.errors import DataError

LABELS = (
    "animals", "baby", "bird", "car", "clouds", "dog", "female", "flower", "food", "indoor", "lake", "male", "night",
    "people", "plant_life", "portrait", "river", "sea", "sky", "structures", "sunset", "transport", "tree", "water",
)  # fmt: skip

ANNOTATIONS = ("mirflickr25k_annotations_v080", "annotations_v080", "annotations")
PHOTOS = ("", "mirflickr", "mirflickr25k", "mirflickr25k/mirflickr", "images")
_PHOTO = re.compile(r"im([1-9]\d*)\.jpg")


def is_mirflickr(path: Path) -> bool:
    photos = _photos(path)
    return _annotations(path, photos) is not None or (photos is not None and _tags(path, photos) is not None)


def read_mirflickr(path: Path) -> Dataset:
    photos = _photos(path)
    if photos is None:
        raise DataError(f"{path}: no photos im1.jpg, im2.jpg, ... here or in mirflickr/: unpack mirflickr25k.zip here")
    annotations = _annotations(path, photos)
    if annotations is None:
        raise DataError(f"{path}: no annotations: unpack mirflickr25k_annotations_v080.zip to {ANNOTATIONS[0]}/ here")
    tags = _tags(path, photos)
    if tags is None:
        raise DataError(f"{path}: no meta/tags with the photos: unpack mirflickr25k.zip whole")

    present = {int(match[1]) for name in file_names(photos) if (match := _PHOTO.fullmatch(name))}
    labels = _read_annotations(annotations)
    items = sorted(labels.keys() & present)
    missing = [f"im{item}.jpg" for item in sorted(labels.keys() - present)]
    problems = without_pictures(
        photos, "photos left out, no file", missing, len(labels), "unpack mirflickr25k.zip whole"
    )
    texts = {item: _read_tags(tags / f"tags{item}.txt") for item in items}
    notes = []
    if unlabelled := sorted(present - labels.keys()):
        notes.append(note("photos left out, none of the 24 labels", [f"im{item}" for item in unlabelled]))
    if untagged := [f"im{item}" for item in items if not texts[item]]:
        notes.append(note("photos without tags", untagged))
    return Dataset(
        name="mirflickr25k",
        ids=[f"im{item}" for item in items],
        labels=multi_hot([labels[item] for item in items], len(LABELS)),
        classes=list(LABELS),
        pictures=[photos / f"im{item}.jpg" for item in items],
        texts=[[texts[item]] for item in items],
        licence="photos: Creative Commons licences of their owners, listed in meta/license",
        notes=notes,
        problems=problems,
    )


def _photos(path: Path) -> Path | None:
    for name in PHOTOS:
        if any(_PHOTO.fullmatch(file) for file in file_names(path / name)):
            return path / name
    return None


def _annotations(path: Path, photos: Path | None) -> Path | None:
    homes = [path, *([] if photos is None else [photos, photos.parent])]
    named = [home / name for home in homes for name in ANNOTATIONS]
    for folder in [*named, *homes]:
        # Two of three labels are asked for: another folder may hold a file called sky.txt by chance.
        if sum((folder / f"{label}.txt").is_file() for label in ("clouds", "plant_life", "sky")) >= 2:
            return folder
    return None


def _tags(path: Path, photos: Path) -> Path | None:
    return next((folder for home in (photos, path) if (folder := home / "meta" / "tags").is_dir()), None)


def _read_annotations(folder: Path) -> dict[int, list[int]]:
    """Photo number -> columns of its labels."""
    labels: dict[int, list[int]] = {}
    for column, label in enumerate(LABELS):
        path = folder / f"{label}.txt"
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip():
                continue
            try:
                labels.setdefault(int(line), []).append(column)
            except ValueError as error:
                raise DataError(f"{path}:{number}: {line.strip()[:40]!r} is not the number of a photo") from error
    return labels


def _read_tags(path: Path) -> str:
    return " ".join(" ".join(read_lines(path)).split()) if path.is_file() else ""
