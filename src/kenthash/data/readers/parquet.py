"""Parquet files with a picture per row: its bytes, or its path. Needs pyarrow, which the extra `parquet` brings.

| column | meaning |
| --- | --- |
| `image`, `jpg`, `png`, `webp`, or the only one of bytes | the picture: bytes, or Hugging Face's {bytes, path} |
| `file_name`, `image_path`, `path` or `image`, of text | else its path, relative to this file and below its folder |
| `id` | the item's id as it is; `key` (img2dataset) or else the row's number follow the name of the shard |
| `text`, `texts`, `caption`, `captions` | its texts |
| `labels`, `label` | its labels |
| others, of numbers or text | metadata |

Rows without a picture, such as those that img2dataset could not fetch, are left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kenthash.data.readers.samples import Sample, item_id, record_parts
from kenthash.data.readers.shared import inside
from kenthash.errors import DataError, UsageError
from kenthash.storage import display_address, is_address, open_stored

ROWS = 64  # held at once, pictures among them
BYTES = ("image", "jpg", "jpeg", "png", "webp", "picture", "img", "image_bytes")
PATHS = ("file_name", "image_path", "path", "image", "filename", "file")
KEYS = ("key", "__key__")


@dataclass(frozen=True)
class ParquetShard:
    name: str
    state: str
    address: str

    def samples(self) -> Iterator[Sample]:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise UsageError(
                f"{display_address(self.address)}: this needs pyarrow, which is not installed: "
                "pip install 'kenthash[parquet]'"
            ) from error
        with open_stored(self.address) as stream:
            try:
                file = parquet.ParquetFile(stream)
                picture = _picture_column(self.address, file.schema_arrow)
                number = 0
                for batch in file.iter_batches(ROWS):
                    for row in batch.to_pylist():
                        if (sample := self._sample(row, picture, number)) is not None:
                            yield sample
                        number += 1
            except (pyarrow.ArrowException, OSError) as error:
                reason = " ".join(str(error).split())[:200]
                raise DataError(f"{display_address(self.address)}: not a readable Parquet file: {reason}") from error

    def _sample(self, row: dict[str, Any], picture: str, number: int) -> Sample | None:
        value = row.pop(picture)
        if isinstance(value, dict):  # Hugging Face's
            value = value.get("bytes") or value.get("path")
        if not value:
            return None
        own = row.pop("id", None)
        key = next((row.pop(name) for name in KEYS if row.get(name) is not None), number)
        item = item_id(str(own) if own is not None else f"{self.name}/{key}")
        texts, labels, metadata = record_parts(row)
        return Sample(item, value if isinstance(value, bytes) else self._picture(str(value)), texts, labels, metadata)

    def _picture(self, name: str) -> bytes | Path:
        """The picture of this name, which must be below the folder of the Parquet file."""
        folder = self.address.rpartition("/")[0]
        relative = name.removeprefix(folder + "/")
        if is_address(relative) or not inside(relative):
            raise DataError(
                f"{display_address(self.address)}: picture {name[:200]!r} is not below the folder of this file: "
                "write paths relative to it"
            )
        if is_address(folder):
            with open_stored(f"{folder}/{relative}") as stream:
                return stream.read()
        path = Path(folder, relative)
        if not path.resolve().is_relative_to(Path(folder).resolve()):
            raise DataError(
                f"{display_address(self.address)}: picture {name[:200]!r} is a link out of the folder of this file"
            )
        return path


def _picture_column(address: str, schema: Any) -> str:
    from pyarrow import types

    def holds_bytes(kind: Any) -> bool:
        if types.is_struct(kind):
            return any(field.name == "bytes" and holds_bytes(field.type) for field in kind)
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    kinds = {field.name: field.type for field in schema}
    of_bytes = [name for name, kind in kinds.items() if holds_bytes(kind)]
    of_text = [name for name, kind in kinds.items() if types.is_string(kind) or types.is_large_string(kind)]
    named = [name for name in BYTES if name in of_bytes] or (of_bytes if len(of_bytes) == 1 else [])
    named += [name for name in PATHS if name in of_text]
    if not named:
        raise DataError(
            f"{display_address(address)}: no column of pictures among {', '.join(kinds)[:200]}: name the one of their "
            "bytes `image`, or the one of their paths `file_name`"
        )
    return named[0]
