"""Which model an index belongs to, and which version of the picture pipeline filled it.

Codes of two models have no distance, so mixing them is refused. Codes that two versions of the pipeline made of one
picture may differ in a few bits: the next `index add` encodes the pictures of an old index again.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from kenthash.data.pictures import PIPELINE
from kenthash.errors import DataError, UsageError
from kenthash.search.engine import Metadata
from kenthash.search.index import Index

PICTURES = "pictures"  # a note: the version of the pipeline that filled the index; none before there were versions
UNFINISHED = f"{PIPELINE}, unfinished"  # its value while codes of this version stand beside older ones
PACKED = "of a feature pack that does not tell its version"  # another value
MARK = f"{PIPELINE}-"  # how the digest in the metadata of an item of this version begins


def model_folder(run: Path) -> Path:
    """The model of a run folder, or the model folder itself."""
    folder = run / "model" if (run / "model" / "config.json").is_file() else run
    if not (folder / "config.json").is_file():
        raise DataError(f"{run}: no model here: give the folder that `kenthash train` wrote")
    return folder.resolve()


def digest(folder: Path) -> str:
    """Tells models apart by what decides their codes: weights and configuration."""
    total = hashlib.sha256()
    for name in ("config.json", "model.safetensors"):
        try:
            with (folder / name).open("rb") as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            raise DataError(f"{folder / name}: cannot be read: {error.strerror}") from error
    return total.hexdigest()[:32]


def claim(index: Index, run: Path) -> Path:
    """Note the model in an index that has none yet; refuse another. The model's folder."""
    folder = model_folder(run)
    mine, notes = digest(folder), index.notes()
    if "model" in notes and notes["model"] != mine:
        raise UsageError(f"{run}: not the model of this index, which is {notes.get('model_path')}: use that one")
    if "model" not in notes and index.list_ids(limit=1):
        raise UsageError(f"{run}: the index holds codes from elsewhere, which have no distance to this model's")
    if notes.get("model_path") != str(folder):
        index.note("model_path", str(folder))
    if "model" not in notes:
        index.note("model", mine)
    if not is_current(index) and not index.list_ids(limit=1):
        index.note(PICTURES, PIPELINE)
    return folder


def is_current(index: Index) -> bool:
    """Whether all pictures in the index have codes of this version of the pipeline."""
    return index.notes().get(PICTURES) == PIPELINE


def check_codes(index: Index, metadata: Iterable[Metadata]) -> None:
    """Refuse codes of pictures that another version has encoded, where this version encodes the index's pictures."""
    if PICTURES in index.notes() and any("digest" in entry and not is_marked(entry) for entry in metadata):
        raise UsageError(
            "these codes are of pictures that another version of kenthash has encoded, and the index holds codes of "
            "this one: add the pictures themselves with `kenthash index add FOLDER`"
        )


def is_marked(metadata: Metadata) -> bool:
    """Whether the code of an item with a picture is of this version."""
    return str(metadata.get("digest", "")).startswith(MARK)


def pictures_warning(index: Index, of_picture: bool = True) -> str | None:
    """What whoever searches an index, by a picture or otherwise, should know about the pictures' codes, in one line."""
    notes = index.notes()
    if notes.get(PICTURES) == PIPELINE or "model" not in notes or not index.list_ids(limit=1):
        return None
    if notes.get(PICTURES) == PACKED:
        return (
            None
            if not of_picture
            else (
                "the codes in this index come from a feature pack that does not tell its version, so distances to new "
                "pictures may be off by a few bits: make the pack again with `kenthash encode`"
            )
        )
    if notes.get(PICTURES) == UNFINISHED:
        return (
            "only a part of the pictures in this index have codes of this version, so distances may be off by a few "
            "bits: run `kenthash index add` again to encode the rest"
        )
    return (
        "the pictures in this index were encoded by another version, so distances to new pictures may be off by a few "
        "bits: run `kenthash index add` again to encode them anew"
    )


def model_for(index: Index, run: Path | None) -> Path:
    """The model that a query must be encoded with: the one given, if it is the index's, or the one noted."""
    notes = index.notes()
    if run is None:
        if "model_path" not in notes:
            raise UsageError("the index does not say which model its codes come from: give it with --model")
        run = Path(notes["model_path"])
        if not run.is_dir():
            raise DataError(f"{run}: the model of this index is not there any more: say where it is with --model")
    folder = model_folder(run)
    if "model" in notes and notes["model"] != digest(folder):
        raise UsageError(f"{run}: not the model that this index was made with, which was {notes.get('model_path')}")
    return folder
