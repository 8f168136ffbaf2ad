"""Small stand-ins of the wheels that `clip` is fetched from: graphs of the same inputs and outputs, in real wheels."""

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from kenthash.encoders import clip
from kenthash.encoders.wheels import WheelFile

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(-127, 128, (3 * 7 * 7, 512)).astype(np.int8)  # int8 weights, as the published graph has them
EMBEDDING = RNG.standard_normal((64, 384)).astype(np.float32)


def image_graph() -> bytes:
    """Quantises by the range of the whole batch, as the published graph does, and has a second output as well."""
    nodes = [
        helper.make_node("AveragePool", ["pixel_values"], ["pooled"], kernel_shape=[32, 32], strides=[32, 32]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("DynamicQuantizeLinear", ["flat"], ["rounded", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["rounded", "weights", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "scale"], ["image_embeds"]),
        helper.make_node("Identity", ["flat"], ["hidden"]),
    ]
    inputs = [helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, ["batch", 3, 224, 224])]
    outputs = [
        helper.make_tensor_value_info("image_embeds", TensorProto.FLOAT, ["batch", 512]),
        helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", 147]),
    ]
    return _model(nodes, inputs, outputs, {"weights": PIXELS})


def text_graph() -> bytes:
    """Tokens to their embeddings by the remainder of their number, [batch, sequence, 384]."""
    nodes = [
        helper.make_node("Mod", ["input_ids", "rows"], ["row"]),
        helper.make_node("Add", ["row", "token_type_ids"], ["place"]),
        helper.make_node("Gather", ["embedding", "place"], ["embedded"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["embedded", "column"], ["last_hidden_state"]),
    ]
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in names]
    outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", 384])]
    constants = {"embedding": EMBEDDING, "rows": np.array(64), "last": np.array([-1])}
    return _model(nodes, inputs, outputs, constants)


def _model(nodes: Any, inputs: Any, outputs: Any, constants: Mapping[str, NDArray[Any]]) -> bytes:
    arrays = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content


def write_wheel(file: WheelFile, content: bytes, folder: Path) -> WheelFile:
    """A wheel with this file in it; the description with the digests that it has."""
    name = file.project.replace("-", "_")
    wheel = folder / f"{name}-{file.version}-py3-none-any.whl"
    about = f"{name}-{file.version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(file.member, content)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {file.project}\nVersion: {file.version}\n"
                         "Requires-Python: <3.13\nRequires-Dist: a-package-that-nobody-has\n")  # fmt: skip
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
                         "Tag: py3-none-any\n")  # fmt: skip
        archive.writestr(f"{about}/RECORD", f"{file.member},,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    packed = wheel.read_bytes()
    wheel_sha256, sha256 = (hashlib.sha256(data).hexdigest() for data in (packed, content))
    return replace(file, wheel_sha256=wheel_sha256, wheel_bytes=len(packed), sha256=sha256)


def offer_wheels(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `clip` be what small wheels hold, and let the installers know no index but their folder."""
    folder.mkdir()
    monkeypatch.setattr(clip, "IMAGE", write_wheel(clip.IMAGE, image_graph(), folder))
    monkeypatch.setattr(clip, "TEXT", write_wheel(clip.TEXT, text_graph(), folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_DEFAULT_INDEX", folder.as_uri())  # an index without packages: uv reads no UV_NO_INDEX
    for installer in ("PIP", "UV"):
        monkeypatch.setenv(f"{installer}_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
