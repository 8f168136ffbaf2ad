"""Which model an index belongs to: codes of two models have no distance, so mixing them is refused."""

import hashlib
from pathlib import Path

from kenthash.errors import DataError, UsageError
from kenthash.search.index import Index


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
    return folder


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
