"""Official MS COCO 2017: photos with five captions each and the 80 object classes (Lin et al. 2014).

    DIR/annotations/captions_train2017.json    captions_val2017.json     from annotations_trainval2017.zip
    DIR/annotations/instances_train2017.json   instances_val2017.json
    DIR/train2017/000000000009.jpg ...          DIR/val2017/...          from train2017.zip and val2017.zip

The field joins train and val and drops photos without an instance label: 117,266 + 4,952 = 122,218 items.
"""

from pathlib import Path
from typing import Any

from kenthash.data.dataset import DataProblem, Dataset
from kenthash.data.readers.jsonstream import stream_object
from kenthash.data.readers.source import file_names, inside, multi_hot, note, without_pictures
from kenthash.errors import DataError

PARTS = ("train2017", "val2017")


def is_coco(path: Path) -> bool:
    return any((path / "annotations" / f"instances_{part}.json").is_file() for part in PARTS)


def read_coco(path: Path) -> Dataset:
    classes: dict[int, str] = {}
    labels: dict[int, set[int]] = {}
    texts: dict[int, list[str]] = {}
    pictures: dict[int, Path] = {}
    unlabelled = 0
    notes: list[str] = []
    problems: list[DataProblem] = []
    for part in PARTS:
        instances, captions = (path / "annotations" / f"{kind}_{part}.json" for kind in ("instances", "captions"))
        if not instances.is_file():
            notes.append(f"{part} is not here: {instances.name} was not found")
            continue
        names = _read_instances(instances, classes, labels)
        unlabelled += sum(image not in labels for image in names)
        present = file_names(path / part)
        problems += _missing_photos(path / part, sorted(names[image] for image in names if image in labels), present)
        pictures |= {image: path / part / name for image, name in names.items() if name in present}
        _read_captions(captions, texts)
    items = sorted(labels.keys() & pictures.keys())
    if not items:
        raise DataError(f"{path}: none of the photos is here: unpack train2017.zip and val2017.zip in this folder")
    if unlabelled:
        notes.append(f"photos left out, no object labelled in them: {unlabelled:,}")
    if silent := [f"{image:012d}" for image in items if image not in texts]:
        notes.append(note("photos without a caption", silent))
    columns = {category: column for column, category in enumerate(sorted(classes))}
    return Dataset(
        name="coco2017",
        ids=[f"{image:012d}" for image in items],
        labels=multi_hot([[columns[category] for category in labels[image]] for image in items], len(columns)),
        classes=[classes[category] for category in sorted(classes)],
        pictures=[pictures[image] for image in items],
        texts=[texts.get(image, [""]) for image in items],
        licence="annotations: CC BY 4.0; photos: the Flickr terms of their owners",
        notes=notes,
        problems=problems,
    )


def _missing_photos(folder: Path, labelled: list[str], present: frozenset[str]) -> list[DataProblem]:
    """Annotations of both parts come in one archive, photos in one each: a part without any photo was not unpacked."""
    remedy = f"unpack {folder.name}.zip in this folder"
    missing = [name for name in labelled if name not in present]
    if missing and len(missing) == len(labelled):
        return [DataProblem("warning", f"no photo of {folder.name} is here: {len(missing):,} left out", remedy)]
    return without_pictures(folder, "photos left out, no file", missing, len(labelled), remedy)


def _read_instances(path: Path, classes: dict[int, str], labels: dict[int, set[int]]) -> dict[int, str]:
    """Add to `classes` and `labels` (image -> category ids) and return image -> file name."""
    names: dict[int, str] = {}
    for key, element in stream_object(path):
        try:
            if key == "annotations":
                labels.setdefault(int(element["image_id"]), set()).add(int(element["category_id"]))
            elif key == "categories":
                classes[int(element["id"])] = str(element["name"])
            elif key == "images":
                names[int(element["id"])] = _file_name(path, element)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{path}: an entry of {key!r} lacks or misspells {error}") from error
    for image, found in labels.items():
        if unknown := found - classes.keys():
            raise DataError(f"{path}: image {image} has category {min(unknown)}, which 'categories' does not list")
    return names


def _read_captions(path: Path, texts: dict[int, list[str]]) -> None:
    for key, element in stream_object(path):
        if key != "annotations":
            continue
        try:
            texts.setdefault(int(element["image_id"]), []).append(" ".join(str(element["caption"]).split()))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{path}: a caption lacks or misspells {error}") from error


def _file_name(path: Path, image: dict[str, Any]) -> str:
    name = str(image["file_name"])
    if not inside(name):
        raise DataError(f"{path}: file_name {name!r} leads out of the folder")
    return name
