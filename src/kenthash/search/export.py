"""Exporting an index for numpy, faiss or Parquet, and reading such files, to add their codes to another index.

- `npy`: a folder of `codes.npy` (uint8 [N, K/8]), `ids.txt` (one per line) and `metadata.jsonl` (one object per line)
- `faiss`: the same folder with `codes.faiss`, an IndexBinaryFlat whose item i has line i of `ids.txt`
- `parquet`: one file with the columns `id` (string), `code` (fixed-size binary) and `metadata` (JSON text)

Items are in the order of their ids. Of an index with two stages, `nested.json` in a folder, or the key `nested` of the
schema of a Parquet file, is a list with the number of bits of the first. Files of other tools are read as well;
`metadata` may be missing.
"""

import importlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from kenthash.codes import Codes, check_bits
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.files import atomic_write, load_array, reading, sync_folder
from kenthash.search.engine import Item, Metadata
from kenthash.search.index import Index
from kenthash.search.metadata import parse_metadata

KINDS = ("faiss", "parquet", "npy")
PAGE = 10_000  # items held at once
CODES, FAISS, IDS, METADATA = "codes.npy", "codes.faiss", "ids.txt", "metadata.jsonl"
NESTED = "nested"  # a key of a schema; of a folder, the name of a file of JSON


def export_index(index: Index, out: str | Path, kind: str) -> int:
    """Write all items of the index to `out`, which must not exist yet. Returns the number of items."""
    out = Path(out)
    if kind not in KINDS:
        raise UsageError(f"export to {kind!r}: choose one of {', '.join(KINDS)}")
    if out.exists():
        raise DataError(f"{out}: exists already: remove it or choose another name")
    try:
        return _export_parquet(index, out) if kind == "parquet" else _export_folder(index, out, kind)
    except OSError as error:
        raise KenthashError(f"{out}: cannot be written: {error.strerror or error}") from error


def _export_folder(index: Index, out: Path, kind: str) -> int:
    faiss = _import("faiss", "faiss-cpu") if kind == "faiss" else None
    partial = out.with_name(out.name + ".partial")  # renamed once it is complete
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        codes = _write_items(index, partial)
        if nested := _nested(index):
            (partial / f"{NESTED}.json").write_text(json.dumps(nested), encoding="utf-8")
        if faiss is None:
            np.save(partial / CODES, codes)
        else:
            flat = faiss.IndexBinaryFlat(index.code_bits)
            flat.add(codes)
            faiss.write_index_binary(flat, str(partial / FAISS))
        for file in partial.iterdir():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    partial.rename(out)
    sync_folder(out.parent)
    return len(codes)


def read_codes(path: str | Path) -> tuple[list[str], Codes, list[Metadata]]:
    """Ids, codes and metadata from a folder or file that `export_index`, or another tool, wrote."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if path.suffix == ".parquet" or _starts_with(path, b"PAR1"):
        return _read_parquet(path)
    folder = path if path.is_dir() else path.parent
    files = [path] if path.is_file() else [folder / name for name in (CODES, FAISS) if (folder / name).exists()]
    if not files or files[0].suffix not in (".npy", ".faiss"):
        raise DataError(f"{path}: holds no codes: give a .parquet file, or a folder with {CODES} or {FAISS}")
    codes = np.asarray(load_array(files[0]) if files[0].suffix == ".npy" else _read_faiss(files[0]))
    if codes.dtype != np.uint8 or codes.ndim != 2:
        raise DataError(f"{files[0]}: {codes.dtype} of shape {codes.shape}: codes are uint8 [items, bits / 8]")
    ids = _lines(folder / IDS)
    metadata_file = folder / METADATA
    texts: list[str | None] = list(_lines(metadata_file)) if metadata_file.exists() else [None] * len(ids)
    if not len(ids) == len(codes) == len(texts):
        raise DataError(
            f"{folder}: {len(codes)} codes, {len(ids)} ids and {len(texts)} metadata: the numbers must be equal"
        )
    _check_width(files[0], codes.shape[1])
    return ids, codes, [_parse_metadata(metadata_file, row, text) for row, text in enumerate(texts)]


def first_bits(path: Path) -> int | None:
    """The bits of the first of two stages of the index from which codes were exported; None where it had one, or where
    the files do not tell."""
    if path.suffix == ".parquet":
        with _parquet_file(path) as file:
            text = (file.schema_arrow.metadata or {}).get(NESTED.encode(), b"[]").decode(errors="replace")
    else:
        file = (path if path.is_dir() else path.parent) / f"{NESTED}.json"
        if not file.is_file():
            return None
        with reading(file):
            text = file.read_text(encoding="utf-8", errors="replace")
    try:
        nested = json.loads(text)
    except (ValueError, RecursionError):
        nested = None
    if not isinstance(nested, list) or not all(type(bits) is int and bits > 0 and bits % 8 == 0 for bits in nested):
        raise DataError(f"{path}: {NESTED} is {text[:100]!r}: it must be a list of numbers of bits")
    return min(nested, default=None)


def _nested(index: Index) -> list[int]:
    return [index.bits] if index.bits < index.code_bits else []


def _items(index: Index) -> Iterator[list[Item]]:
    """All items, page by page; those that are removed meanwhile are left out."""
    last = ""
    while ids := index.list_ids(last, PAGE):
        yield [item for item in index.get(ids) if item is not None]
        last = ids[-1]


def _write_items(index: Index, folder: Path) -> Codes:
    """Write ids and metadata; the codes, which are small, are returned."""
    codes = [np.empty((0, index.code_bits // 8), np.uint8)]
    with (
        (folder / IDS).open("w", encoding="utf-8") as ids,
        (folder / METADATA).open("w", encoding="utf-8") as metadata_lines,
    ):
        for items in _items(index):
            ids.writelines(item.id + "\n" for item in items)
            metadata_lines.writelines(json.dumps(item.metadata, ensure_ascii=False) + "\n" for item in items)
            codes.append(np.stack([item.code for item in items]) if items else codes[0])
    return np.concatenate(codes)


def _export_parquet(index: Index, out: Path) -> int:
    pyarrow, parquet = _import("pyarrow", "'kenthash[parquet]'"), _import("pyarrow.parquet", "'kenthash[parquet]'")
    fields = [("id", pyarrow.string()), ("code", pyarrow.binary(index.code_bits // 8)), ("metadata", pyarrow.string())]
    about = {NESTED: json.dumps(nested)} if (nested := _nested(index)) else None
    schema = pyarrow.schema([pyarrow.field(name, kind, nullable=False) for name, kind in fields], about)
    count = 0
    stream: IO[bytes]
    with atomic_write(out) as stream, parquet.ParquetWriter(stream, schema) as writer:
        for items in _items(index):
            texts = [json.dumps(item.metadata, ensure_ascii=False) for item in items]
            columns = [[item.id for item in items], [item.code.tobytes() for item in items], texts]
            writer.write_table(pyarrow.table(columns, schema=schema))
            count += len(items)
    return count


def _read_parquet(path: Path) -> tuple[list[str], Codes, list[Metadata]]:
    parts = list(parquet_parts([path], PAGE))
    codes = np.concatenate([np.empty((0, parquet_width(path)), np.uint8), *(codes for _, codes, _ in parts)])
    ids, texts = [id for ids, _, _ in parts for id in ids], [text for _, _, texts in parts for text in texts]
    return ids, codes, [_parse_metadata(path, row, text) for row, text in enumerate(texts)]


def parquet_parts(files: Sequence[Path], rows: int) -> Iterator[tuple[list[str], Codes, list[str]]]:
    """Ids, codes and metadata (JSON texts) of Parquet files, in parts of `rows` items; short files share a part."""
    pyarrow = _import("pyarrow", "'kenthash[parquet]'")
    waiting: list[tuple[list[str], Codes, list[str]]] = []
    size = 0
    for path in files:
        width = parquet_width(path)
        with _parquet_file(path) as file:
            try:
                for batch in file.iter_batches(rows):
                    if waiting and size + len(batch) > rows:
                        yield _joined(waiting)
                        waiting, size = [], 0
                    waiting.append(_columns(path, batch, width))
                    size += len(batch)
            except (pyarrow.ArrowException, OSError) as error:
                raise _not_parquet(path, error) from error
    if waiting:
        yield _joined(waiting)


def parquet_width(path: Path) -> int:
    """The bytes of the codes in a Parquet file."""
    types = _import("pyarrow.types", "'kenthash[parquet]'")
    with _parquet_file(path) as file:
        names = file.schema_arrow.names
        if not {"id", "code"} <= set(names):
            raise DataError(f"{path}: has the columns {', '.join(names)[:200]}; `id` and `code` are needed")
        kind = file.schema_arrow.field("code").type
        if types.is_fixed_size_binary(kind):
            return _check_width(path, int(kind.byte_width))
        first = next(file.iter_batches(1, columns=["code"]), None)
        if first is None or not isinstance(code := first.column(0)[0].as_py(), bytes):
            raise DataError(f"{path}: it holds no codes, nor their length")
        return _check_width(path, len(code))


def parquet_rows(path: Path) -> int:
    with _parquet_file(path) as file:
        return int(file.metadata.num_rows)


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    pyarrow, parquet = _import("pyarrow", "'kenthash[parquet]'"), _import("pyarrow.parquet", "'kenthash[parquet]'")
    try:
        file = parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise _not_parquet(path, error) from error
    with file:
        yield file


def _not_parquet(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: not a readable Parquet file: {' '.join(str(error).split())[:200]}")


def _columns(path: Path, batch: Any, width: int) -> tuple[list[str], Codes, list[str]]:
    """Ids, codes and metadata of some rows."""
    ids, column = batch.column("id").to_pylist(), batch.column("code")
    if column.type == _import("pyarrow", "").binary(width) and not column.null_count:
        buffer = np.frombuffer(column.buffers()[1], np.uint8)
        codes = buffer[column.offset * width : (column.offset + len(column)) * width].reshape(-1, width)
    else:
        rows = column.to_pylist()
        if not all(isinstance(row, bytes) and len(row) == width for row in rows):
            raise DataError(f"{path}: `id` must be text and `code` bytes, all of one length, none of them missing")
        codes = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, width)
    texts = batch.column("metadata").to_pylist() if "metadata" in batch.schema.names else [None] * len(ids)
    if not all(isinstance(name, str) for name in ids):
        raise DataError(f"{path}: `id` must be text and `code` bytes, all of one length, none of them missing")
    return ids, codes, ["{}" if text is None else text for text in texts]


def _joined(parts: list[tuple[list[str], Codes, list[str]]]) -> tuple[list[str], Codes, list[str]]:
    if len(parts) == 1:
        return parts[0]
    ids, texts = [id for ids, _, _ in parts for id in ids], [text for _, _, texts in parts for text in texts]
    return ids, np.concatenate([codes for _, codes, _ in parts]), texts


def _read_faiss(path: Path) -> Codes:
    faiss = _import("faiss", "faiss-cpu")
    try:
        flat = faiss.read_index_binary(str(path))
    except RuntimeError as error:
        raise DataError(f"{path}: not a readable faiss index: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(flat, faiss.IndexBinaryFlat):
        raise DataError(f"{path}: a faiss {type(flat).__name__}; codes are read from an IndexBinaryFlat only")
    codes: Codes = faiss.vector_to_array(flat.xb).reshape(flat.ntotal, flat.code_size)
    return codes


def _check_width(path: Path, width: int) -> int:
    try:
        check_bits(8 * width)
    except UsageError as error:
        raise DataError(f"{path}: {error}") from error
    return width


def _starts_with(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with reading(path), path.open("rb") as stream:
        return stream.read(len(magic)) == magic


def _lines(path: Path) -> list[str]:
    with reading(path):
        text = path.read_text(encoding="utf-8")
    return text.removesuffix("\n").split("\n") if text else []


def _parse_metadata(path: Path, row: int, text: Any) -> Metadata:
    return {} if text is None else parse_metadata(f"{path}: metadata of item {row + 1}", text)


def _import(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise KenthashError(f"{module} is missing: pip install {package}") from error
