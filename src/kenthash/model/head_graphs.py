"""Hash heads as ONNX graphs, written node by node from a head's configuration and weights.

The exporter of PyTorch could do it, in two seconds for each head and nine for the first; a study trains hundreds of
models. Written out, a graph takes milliseconds, and PyTorch is not needed for it. The formulas are those of `heads`,
and a test holds each kind against its module there.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.errors import KenthashError
from kenthash.files import atomic_write, content_digest
from kenthash.model.config import HasherConfig, HeadConfig

Weights = Mapping[str, NDArray[np.floating[Any]]]  # by the names of the head's state_dict; float16 or float32

OPSET, IR_VERSION = 20, 10
INPUT, OUTPUT = "vectors", "outputs"


def head_graph(config: HeadConfig, weights: Weights, dim: int, bits: int) -> bytes:
    """The graph: vectors [N, dim] to outputs [N, bits] in [-1, 1]."""
    graph = _Nodes(config, weights)
    return graph.model(KINDS[config.kind](graph), dim, bits)


class _Nodes:
    """Nodes and constants of a graph that grows; values are known by name."""

    def __init__(self, config: HeadConfig, weights: Weights) -> None:
        try:
            import onnx
        except ImportError as error:
            raise KenthashError("writing ONNX graphs needs more packages: pip install 'kenthash[onnx]'") from error
        self.onnx: Any = onnx
        self.config, self.weights = config, weights
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def constant(self, name: str, value: NDArray[Any]) -> str:
        self.constants[name] = np.asarray(value, order="C")
        return name

    def weight(self, name: str) -> str:
        """Weights of float16 are stored so, and become float32 when the graph is opened."""
        value = self.weights[name]
        if value.dtype != np.float16:
            return self.constant(name, value.astype(np.float32))
        return self.add("Cast", self.constant(name, value), to=self.onnx.TensorProto.FLOAT)

    def linear(self, value: str, name: str) -> str:
        """x Wᵀ + b, or without b where the layer has none."""
        parts = [f"{name}.weight", *([f"{name}.bias"] if f"{name}.bias" in self.weights else [])]
        return self.add("Gemm", value, *map(self.weight, parts), transB=1)

    def standardised(self, name: str) -> str:
        """The vectors less their mean, over their deviation; as they are where an older model has neither."""
        if f"{name}.mean" not in self.weights:
            return INPUT
        centred = self.add("Sub", INPUT, self.weight(f"{name}.mean"))
        return self.add("Div", centred, self.weight(f"{name}.deviation"))

    def model(self, value: str, dim: int, bits: int) -> bytes:
        helper, numpy_helper = self.onnx.helper, self.onnx.numpy_helper
        self.nodes.append(helper.make_node("Identity", [value], [OUTPUT], OUTPUT))
        kind = self.onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "head",
            [helper.make_tensor_value_info(INPUT, kind, ["items", dim])],
            [helper.make_tensor_value_info(OUTPUT, kind, ["items", bits])],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="kenthash"
        )
        self.onnx.checker.check_model(model)
        content: bytes = model.SerializeToString()
        return content


def _tanh(graph: _Nodes, prefix: str = "") -> str:
    value = graph.linear(graph.standardised(f"{prefix}standardise"), f"{prefix}layers.0")
    if graph.config.hidden:
        value = graph.linear(graph.add("Relu", value), f"{prefix}layers.3")
    return graph.add("Tanh", value)


def _layers(graph: _Nodes) -> str:
    hidden = graph.add("Relu", graph.linear(graph.standardised("layers.0"), "layers.1"))
    return graph.linear(hidden, "layers.4")


def _mlp(graph: _Nodes) -> str:
    value = _layers(graph)
    slope = graph.constant("slope", np.array(graph.config.slope, np.float32))
    return graph.add("Tanh", graph.add("Mul", slope, value))


def _softmax_pair(graph: _Nodes) -> str:
    hidden = graph.add("Relu", graph.linear(graph.standardised("standardise"), "embed.0"))
    shape = graph.constant("shape", np.array([0, -1, 2], np.int64))
    pairs = graph.add("Reshape", graph.linear(hidden, "pairs"), shape)
    zero, one = (graph.add("Gather", pairs, graph.constant(f"unit_{i}", np.array(i)), axis=2) for i in (0, 1))
    two = graph.constant("two", np.array(2, np.float32))
    return graph.add("Tanh", graph.add("Div", graph.add("Sub", one, zero), two))


def _tanh_mlp(graph: _Nodes) -> str:
    value = graph.standardised("standardise")
    for layer in ("layers.0", "layers.2", "layers.5"):
        value = graph.add("Tanh", graph.linear(value, layer))
    return value


def _residual(graph: _Nodes) -> str:
    value = graph.standardised("standardise")
    for block in ("blocks.0", "blocks.1"):
        scale, shift = graph.weight(f"{block}.0.weight"), graph.weight(f"{block}.0.bias")
        inner = graph.add("LayerNormalization", value, scale, shift, axis=-1, epsilon=1e-5)
        inner = graph.linear(graph.add("Gelu", graph.linear(inner, f"{block}.1")), f"{block}.4")
        value = graph.add("Add", value, inner)
    return graph.add("Tanh", graph.linear(value, "hash"))


def _normalised(graph: _Nodes, value: str) -> str:
    axes = graph.constant("axes", np.array([1], np.int64))
    least = graph.constant("least", np.array(1e-12, np.float32))
    return graph.add("Div", value, graph.add("Max", graph.add("ReduceL2", value, axes, keepdims=1), least))


def _unit(graph: _Nodes) -> str:
    scale = np.sqrt(np.float32(len(graph.weights["layers.4.weight"])))
    return graph.add("Mul", _normalised(graph, _layers(graph)), graph.constant("scale", np.array(scale, np.float32)))


def _householder(graph: _Nodes) -> str:
    turn = graph.constant("turn", householder(graph.weights["reflections"]))
    return graph.add("MatMul", _normalised(graph, _tanh(graph, "embed.")), turn)


def householder(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """The product of reflections that `heads.householder` is, worked out in float64."""
    columns = vectors.astype(np.float64)
    gram = columns.T @ columns
    halves = np.triu(gram, 1) + np.diag(np.diag(gram) / 2)
    product = np.eye(len(columns)) - columns @ np.linalg.solve(halves, columns.T)
    return np.asarray(product, np.float32)


KINDS: dict[str, Callable[[_Nodes], str]] = {
    "tanh": _tanh,
    "mlp": _mlp,
    "softmax_pair": _softmax_pair,
    "tanh_mlp": _tanh_mlp,
    "residual": _residual,
    "householder": _householder,
    "unit": _unit,
}


def write_head_graphs(config: HasherConfig, weights: Weights, folder: Path) -> dict[str, str]:
    """Write the graphs of both heads; the digest of each file. The weights have the names of a saved model's."""
    digests = {}
    for tower, head, dim in (
        ("image", config.image_head, config.image_dim),
        ("text", config.text_head, config.text_dim),
    ):
        prefix = f"{tower}_head."
        own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        name = f"{tower}_head.onnx"
        with atomic_write(folder / name) as stream:
            stream.write(head_graph(head, own, dim, config.bits))
        digests[name] = content_digest(folder / name)
    return digests
