"""Which model an index belongs to, and which version of the picture pipeline filled it.

The index itself holds codes; these functions keep, in its notes, the folder and the digest of the model that made them.
A distance between codes of two models means nothing, so mixing them is refused. Codes that two versions of the pipeline
made of one picture may differ in a few bits: the next `index add` encodes the pictures of an old index again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kenthash.data.pictures import PIPELINE
from kenthash.errors import DataError, UsageError
from kenthash.search.engine import Metadata
from kenthash.search.index import Index

PICTURES = "pictures"  # a note: the version of the pipeline that filled the index; missing before there were versions
UNFINISHED = f"{PIPELINE}, unfinished"  # its value while the index holds codes of this version and of older ones
PACKED = "of a feature pack that does not tell its version"  # another value
DIGEST_PREFIX = f"{PIPELINE}-"  # of the digest in the metadata of an item that this version encoded
FIRST_BITS = 64  # of the first stage, where a model has nested codes
NO_PACK_VERSION = (
    "the codes in this index come from a feature pack that does not tell its version, so distances to new pictures may "
    "be off by a few bits: make the pack again with `kenthash encode`"
)


def model_folder(run: Path) -> Path:
    """The model of a run folder, or the model folder itself."""
    folder = run / "model" if (run / "model" / "config.json").is_file() else run
    if not (folder / "config.json").is_file():
        raise DataError(f"{run}: no model here: give the folder that `kenthash train` wrote")
    return folder.resolve()


def digest(folder: Path) -> str:
    """The digest of a model's weights and configuration, which decide its codes."""
    total = hashlib.sha256()
    for name in ("config.json", "model.safetensors"):
        try:
            with (folder / name).open("rb") as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            raise DataError(f"{folder / name}: cannot be read: {error.strerror}") from error
    return total.hexdigest()[:32]


def stages(bits: int, nested: Sequence[int]) -> tuple[int, int | None]:
    """`bits` and `rerank_bits` of an index for a model's codes: two stages where their first 64 bits are codes, too."""
    return (FIRST_BITS, bits) if FIRST_BITS in nested and bits > FIRST_BITS else (bits, None)


def assign_model(index: Index, run: Path) -> Path:
    """Note the model in an index that has none yet; refuse another one. Returns the model's folder."""
    folder = model_folder(run)
    _note_model(index, str(run), digest(folder), str(folder))
    if not is_current(index) and not index.list_ids(limit=1):
        index.note(PICTURES, PIPELINE)
    return folder


def assign_codes(index: Index, codes: Path, about: Mapping[str, Any]) -> None:
    """As `assign_model`, for codes that `kenthash hash` made: `about` is the first line of their manifest."""
    version = str(about.get("pictures"))
    assign_version(index, version, "codes")
    _note_model(index, str(codes), str(about.get("model")), str(about.get("model_path")))


def assign_version(index: Index, version: str, what: str) -> None:
    """Note the version of the pictures in an empty index; refuse to mix codes of two versions."""
    if not index.list_ids(limit=1):
        index.note(PICTURES, version)
    elif index.notes().get(PICTURES) != version:
        raise UsageError(
            f"the index and the {what} were made by different versions, whose codes of one picture may differ in some "
            "bits: use another index"
        )


def _note_model(index: Index, where: str, model: str, folder: str) -> None:
    notes = index.notes()
    if "model" in notes and notes["model"] != model:
        recorded = notes.get("model_path")
        raise UsageError(f"{where}: not the model of this index, which is {recorded}: use that one, or another index")
    if "model" not in notes and index.list_ids(limit=1):
        raise UsageError(
            f"{where}: the index holds codes of unknown origin, which cannot be compared with this model's"
        )
    if notes.get("model_path") != folder:
        index.note("model_path", folder)
    if "model" not in notes:
        index.note("model", model)


def is_current(index: Index) -> bool:
    """Whether all pictures in the index have codes of this version of the pipeline."""
    return index.notes().get(PICTURES) == PIPELINE


def check_codes_version(index: Index, metadata: Iterable[Metadata]) -> None:
    """Refuse codes of pictures that another version has encoded, where the index holds codes of this version."""
    if PICTURES in index.notes() and any("digest" in entry and not is_of_this_version(entry) for entry in metadata):
        raise UsageError(
            "these codes are of pictures that another version of kenthash has encoded, and the index holds codes of "
            "this one: add the pictures themselves with `kenthash index add FOLDER`"
        )


def is_of_this_version(metadata: Metadata) -> bool:
    """Whether this version of the pipeline made the code of an item with a picture."""
    return str(metadata.get("digest", "")).startswith(DIGEST_PREFIX)


def pictures_warning(index: Index, of_picture: bool = True) -> str | None:
    """A warning, in one line, for a search by a picture or by words in an index with codes of another version."""
    notes = index.notes()
    if notes.get(PICTURES) == PIPELINE or "model" not in notes or not index.list_ids(limit=1):
        return None
    if notes.get(PICTURES) == PACKED:
        return NO_PACK_VERSION if of_picture else None
    if notes.get(PICTURES) == UNFINISHED:
        return (
            "only a part of the pictures in this index have codes of this version, so distances may be off by a few "
            "bits: run `kenthash index add` again to encode the rest"
        )
    return (
        "the pictures in this index were encoded by another version, so distances to new pictures may be off by a few "
        "bits: run `kenthash index add` to encode them again"
    )


def model_for(index: Index, run: Path | None, known: Iterable[Path] = ()) -> Path:
    """The folder of the model that encodes queries: that of `run`, which must be the index's, or the noted one.

    Where the noted folder is gone, as in an index from another machine, the same model may be among those `known`.
    """
    notes, given = index.notes(), run is not None
    if run is None:
        if "model_path" not in notes:
            raise UsageError("the index does not say which model its codes come from: give it with --model")
        run = Path(notes["model_path"])
        if not run.is_dir():
            for folder in known:
                if digest(folder) == notes.get("model"):
                    return folder
            raise DataError(f"{run}: the model of this index is not there any more: say where it is with --model")
    folder = model_folder(run)
    if "model" in notes and notes["model"] != digest(folder):
        if given:
            recorded = notes.get("model_path")
            raise UsageError(
                f"{run}: not the model that {index.engine.where} was made with, which was {recorded}: use that one, "
                "or another index"
            )
        raise UsageError(
            f"{run}: is another model now than the one that this index was made with: remove {index.engine.where} and "
            "fill it again, or say with --model where the former model is"
        )
    return folder
