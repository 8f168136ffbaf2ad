"""Official MS COCO 2017: photos with five captions each and the 80 object classes (Lin et al. 2014).

    DIR/annotations/captions_train2017.json    captions_val2017.json     from annotations_trainval2017.zip
    DIR/annotations/instances_train2017.json   instances_val2017.json
    DIR/train2017/000000000009.jpg ...          DIR/val2017/...          from train2017.zip and val2017.zip

The field joins train and val and drops photos without an instance label: 117,266 + 4,952 = 122,218 items.

The instance annotations are one JSON object of 450 MB whose polygons would need several gigabytes as Python objects.
They are read as a stream of events, of which only the few values that are used are kept.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from kenthash.data.dataset import DataProblem, Dataset
from kenthash.data.readers.shared import file_names, inside, multi_hot, note, without_pictures
from kenthash.errors import DataError
from kenthash.files import reading
from kenthash.progress import bar

PARTS = ("train2017", "val2017")
INSTANCES = {"images": ("id", "file_name"), "annotations": ("image_id", "category_id"), "categories": ("id", "name")}
CAPTIONS = {"annotations": ("image_id", "caption")}

CHUNK = 1 << 13  # bytes read at once: larger ones are slower, as the events of a chunk are held together
MAX_STRING = 1 << 26  # bytes
MAX_DEPTH = 100
_EXPECTED = {1: ("map_key", "start_array", "end_map"), 2: ("start_map", "end_array")}  # events by depth


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
    if without_caption := [f"{image:012d}" for image in items if image not in texts]:
        notes.append(note("photos without a caption", without_caption))
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
    for key, element in read_elements(path, INSTANCES):
        try:
            if key == "annotations":
                labels.setdefault(int(element["image_id"]), set()).add(int(element["category_id"]))
            elif key == "categories":
                classes[int(element["id"])] = str(element["name"])
            else:
                names[int(element["id"])] = _file_name(path, element)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{path}: an entry of {key!r} lacks or misspells {error}") from error
    for image, categories in labels.items():
        if unknown := categories - classes.keys():
            raise DataError(f"{path}: image {image} has category {min(unknown)}, which 'categories' does not list")
    return names


def _read_captions(path: Path, texts: dict[int, list[str]]) -> None:
    for _, element in read_elements(path, CAPTIONS):
        try:
            texts.setdefault(int(element["image_id"]), []).append(" ".join(str(element["caption"]).split()))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{path}: a caption lacks or misspells {error}") from error


def _file_name(path: Path, image: dict[str, Any]) -> str:
    name = str(image["file_name"])
    if not inside(name):
        raise DataError(f"{path}: file_name {name!r} leads out of the folder")
    return name


def read_elements(path: Path, wanted: Mapping[str, Collection[str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key, element) for each element of those arrays of a JSON object that `wanted` names.

    An element has those of its keys that are wanted, where their value is a string, a number, true, false or null.
    """
    depth, array, key = 0, "", ""
    element: dict[str, Any] = {}
    for event, value in _events(path):
        if depth > 3 and event == "number":  # nearly all events are these, of polygons
            continue
        if depth == 0 and event != "start_map":
            raise DataError(f"{path}: must be a JSON object with {', '.join(wanted)}")
        if depth in (1, 2) and array in wanted and event not in _EXPECTED[depth]:
            raise DataError(f"{path}: {array!r} must be an array of objects")
        if event in ("start_map", "start_array"):
            depth += 1
            if depth == 3:
                element = {}
            elif depth > MAX_DEPTH:
                raise DataError(f"{path}: nested too deep")
        elif event in ("end_map", "end_array"):
            if depth == 3 and array in wanted:
                yield array, element
            depth -= 1
        elif event == "map_key":
            if depth == 1:
                array = value
            elif depth == 3:
                key = value
        elif depth == 3 and key in wanted.get(array, ()):
            element[key] = value


def _events(path: Path) -> Iterator[tuple[str, Any]]:
    """The events of a JSON file as ijson names them: ("start_map", None), ("map_key", "images"), ("number", 1) ..."""
    import ijson  # not above: the other readers do without it

    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events, use_float=True)
    with reading(path), path.open("rb") as stream, bar(path.stat().st_size, path.name, "bytes") as progress:
        if stream.read(3) != b"\xef\xbb\xbf":  # a byte order mark
            stream.seek(0)
        unfinished = 0  # bytes read since the last event
        try:
            while chunk := stream.read(CHUNK):
                parser.send(chunk)
                unfinished = 0 if events else unfinished + len(chunk)
                if unfinished > MAX_STRING:
                    raise DataError(f"{path}: a string of more than {MAX_STRING:,} bytes")
                yield from events
                events.clear()
                progress.update(len(chunk))
            parser.close()
            yield from events
        except ijson.JSONError as error:
            raise DataError(f"{path}: not valid JSON: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """The first line of the parser's message, and the text near the place, which it shows in the second line."""
    message = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
    reason, _, excerpt = message.partition("\n")
    near = excerpt.partition("\n")[0].strip()
    reason = reason.removeprefix("parse error: ").removeprefix("lexical error: ").rstrip(".")
    return f"{reason}, near {near!r}" if near else reason
