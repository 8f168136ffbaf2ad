"""ONNX graphs on onnxruntime: checked by digest when opened, and given one item at a time.

One item at a time, on one thread: onnxruntime multiplies a single row by other instructions than several, so that the
last bits of a text's vector depend on how many texts share its batch. Alone, an item has the same vector in any batch
and for any number of threads. It costs little: on one core, a picture of the light encoder takes as long alone as in a
batch, a text 15 % longer. Several items are shared out among the cores instead (`stream`).
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

# Before it is imported: otherwise onnxruntime 1.31 gives the device an id and keeps a database of what is to be sent to
# its makers, both in the user's cache. Pictures and words of our users are nobody else's business.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime
from numpy.typing import NDArray

from kenthash.errors import DataError, UsageError
from kenthash.files import cache_folder, content_digest

Vectors = NDArray[np.float32]
Inputs = Mapping[str, NDArray[Any]]  # by name


class Graph:
    """A graph of which the first output is wanted; `run` may be called from several threads."""

    def __init__(self, path: Path, digest: str, device: str = "cpu") -> None:
        check_file(path, digest)
        providers, options = _providers(device), onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors only, which are raised as well
        if not _has_vnni():
            # Products of int8 graphs overflow on processors that have AVX2 but no VNNI: another code there. With VNNI
            # the result is the same to the last bit, and twice as fast.
            options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # onnxruntime has a dozen kinds, which share no base but this
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"{path}: onnxruntime cannot use this graph: {reason}") from error
        self.inputs = [value.name for value in self._session.get_inputs()]
        self._output = self._session.get_outputs()[0].name
        self.widths = (self._session.get_inputs()[0].shape[-1], self._session.get_outputs()[0].shape[-1])

    def run(self, inputs: Inputs) -> Vectors:
        """The output for one item, without its first dimension."""
        vector: Vectors = self.run_batch(inputs)[0]
        return vector

    def run_batch(self, inputs: Inputs) -> Vectors:
        """Outputs of several items at once, whose last bits depend on how many they are: not for codes."""
        (outputs,) = self._session.run([self._output], dict(inputs))
        vectors: Vectors = outputs
        return vectors


@cache
def _has_vnni() -> bool:
    """Whether the processor is known to add products of bytes without overflow. Where nothing says so, it is not."""
    try:
        flags = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(flags)


def check_file(path: Path, digest: str | None) -> None:
    """Refuse a file that is not as it was written."""
    if not path.is_file():
        raise DataError(f"{path}: not there any more: {remedy(path)}")
    if content_digest(path) != digest:
        raise DataError(f"{path}: damaged: {remedy(path)}")


def remedy(path: Path) -> str:
    """What to do about a damaged file of an encoder or a model."""
    return "remove its folder, and it is made again" if cache_folder() in path.parents else "copy the model again"


def check_runtime_device(device: str) -> str:
    """A device that onnxruntime has here: `cpu`, `cuda` or `cuda:N`; `auto` is a GPU where there is one."""
    gpu = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if device == "auto":
        return "cuda" if gpu else "cpu"
    kind, _, number = device.partition(":")
    if device == "cpu" or (kind == "cuda" and gpu and (number.isdecimal() or device == "cuda")):
        return device
    raise UsageError(
        f"device {device!r} cannot be used here: choose cpu, or cuda where there is a GPU and onnxruntime-gpu"
    )


def _providers(device: str) -> list[Any]:
    kind, _, number = check_runtime_device(device).partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    return [("CUDAExecutionProvider", {"device_id": int(number or 0)}), "CPUExecutionProvider"]
