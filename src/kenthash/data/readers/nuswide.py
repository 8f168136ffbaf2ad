r"""Official NUS-WIDE: 269,648 Flickr photos with tags and 81 annotated concepts (Chua et al. 2009).

    DIR/ImageList/Imagelist.txt                 one photo per line: actor\0001_2124494179.jpg (folder, number_FlickrId)
    DIR/Groundtruth/AllLabels/Labels_actor.txt  ... 81 files, 0 or 1 per line in the order of the image list
    DIR/NUS_WID_Tags/All_Tags.txt               one photo per line: its Flickr id, spaces, its tags
    DIR/Flickr/actor/0001_2124494179.jpg        ... 704 folders; or all photos flat in DIR/images/

Any of the four may also lie one folder deeper, as archives unpack in different ways.

The field keeps the 21 concepts with the most photos and the photos with at least one of them: 195,834. Public counts
arrive there from the labels alone: photos without tags are among them, and works that purge those have fewer.
Six Flickr ids are listed twice, so an item's id here is its entry in the image list and not its Flickr id. Tags are
found by Flickr id and not by line, so that a blank line cannot shift them.
"""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kenthash.data.dataset import Dataset
from kenthash.data.readers.shared import file_names, inside, note, read_lines, subfolders, without_pictures
from kenthash.errors import DataError
from kenthash.files import reading

CONCEPTS = 81
KEPT = 21
IMAGE_LIST, GROUND_TRUTH, TAGS = "ImageList/Imagelist.txt", "Groundtruth/AllLabels", "NUS_WID_Tags/All_Tags.txt"


def is_nuswide(path: Path) -> bool:
    return _find(path, IMAGE_LIST) is not None or _find(path, GROUND_TRUTH) is not None


def read_nuswide(path: Path) -> Dataset:
    images, truth, tags = (_need(path, part) for part in (IMAGE_LIST, GROUND_TRUTH, TAGS))
    names = _read_image_list(images)
    concepts = _read_labels(truth, len(names))
    # Most photos first, names in order where numbers are equal.
    classes = sorted(sorted(concepts, key=lambda concept: (-int(concepts[concept].sum()), concept))[:KEPT])
    labels = np.stack([concepts[concept] for concept in classes], axis=1)
    labelled = np.flatnonzero(labels.any(axis=1))

    photos = _PhotoFiles(path)
    photo_of_row = {row: photo for row in labelled.tolist() if (photo := photos.find(names[row]))}
    missing = [names[row] for row in labelled.tolist() if row not in photo_of_row]
    problems = without_pictures(
        path, "photos left out, no file", missing, len(labelled), "put the photos into Flickr/ or images/"
    )
    rows = list(photo_of_row)
    texts = _read_tags(tags)
    notes = [f"photos left out, none of the {KEPT} most frequent concepts: {len(names) - len(labelled):,}"]
    if untagged := [names[row] for row in rows if not texts.get(_flickr_id(names[row]))]:
        notes.append(note("photos without tags", untagged))
    return Dataset(
        name="nuswide",
        ids=[names[row].removesuffix(".jpg") for row in rows],
        labels=labels[rows],
        classes=classes,
        pictures=list(photo_of_row.values()),
        texts=[[texts.get(_flickr_id(names[row]), "")] for row in rows],
        licence="for research; photos: the Flickr terms of their owners",
        notes=notes,
        problems=problems,
    )


def _find(path: Path, part: str) -> Path | None:
    return next((folder / part for folder in (path, *subfolders(path)) if (folder / part).exists()), None)


def _need(path: Path, part: str) -> Path:
    file = _find(path, part)
    if file is None:
        raise DataError(f"{path}: this looks like NUS-WIDE, but {part} is missing: unpack its archive here")
    return file


def _read_image_list(path: Path) -> list[str]:
    names = []
    for number, line in enumerate(read_lines(path), start=1):
        name = line.strip().replace("\\", "/")
        if not inside(name):
            raise DataError(f"{path}:{number}: {line[:60]!r} is not a photo inside the folder")
        names.append(name)
    return names


def _read_labels(folder: Path, photos: int) -> dict[str, NDArray[np.uint8]]:
    """Concept -> 0 or 1 for each photo."""
    files = sorted(folder.glob("Labels_*.txt"))
    if len(files) != CONCEPTS:
        raise DataError(f"{folder}: {len(files)} files Labels_*.txt, not {CONCEPTS}: unpack Groundtruth.zip again")
    concepts = {}
    for file in files:
        with reading(file):
            text = np.frombuffer(file.read_bytes(), dtype=np.uint8)
        digits = (text == ord("0")) | (text == ord("1"))
        other = ~digits & ~np.isin(text, np.frombuffer(b" \t\r\n", dtype=np.uint8))
        if other.any() or (digits[1:] & digits[:-1]).any():
            line = int((text[: int(other.argmax())] == ord("\n")).sum()) + 1 if other.any() else 0
            raise DataError(f"{file}{f':{line}' if line else ''}: every line must be 0 or 1")
        if digits.sum() != photos:
            raise DataError(f"{file}: {digits.sum():,} lines, but the image list has {photos:,}")
        concepts[file.stem.removeprefix("Labels_")] = text[digits] - np.uint8(ord("0"))
    return concepts


def _read_tags(path: Path) -> dict[str, str]:
    tags = {}
    for line in read_lines(path):
        if words := line.split():
            tags[words[0]] = " ".join(words[1:])
    return tags


def _flickr_id(name: str) -> str:
    return name.rpartition("_")[2].removesuffix(".jpg")


class _PhotoFiles:
    """Where the photos are; every folder is listed once."""

    def __init__(self, path: Path) -> None:
        self.homes = [home for part in ("Flickr", "images") if (home := _find(path, part))]
        self.names = cache(file_names)
        self.listings: dict[str, list[tuple[Path, frozenset[str]]]] = {}

    def find(self, name: str) -> Path | None:
        folder, _, file = name.rpartition("/")
        if folder not in self.listings:
            places = [place for home in self.homes for place in (home / folder, home)]
            self.listings[folder] = [(place, self.names(place)) for place in places]
        return next((place / file for place, files in self.listings[folder] if file in files), None)
