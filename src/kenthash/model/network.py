"""The part of a model that PyTorch trains: two heads and, where it is trained with them, the encoder.

`save` writes the model folder that `Hasher` opens without PyTorch, with a card; `export_onnx` writes both towers for
other runtimes.
"""

import shutil
import warnings
from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from kenthash.codes import check_bits
from kenthash.encoders import check_device, load_encoder
from kenthash.encoders.base import Encoder
from kenthash.encoders.export import export_encoder, export_graph, export_towers
from kenthash.encoders.graph import Graph
from kenthash.encoders.onnx_encoder import ABOUT
from kenthash.errors import DataError, KenthashError
from kenthash.files import atomic_write, content_digest, write_json
from kenthash.model.config import FORMAT, HasherConfig, model_folder, read_config
from kenthash.model.head_graphs import write_head_graphs
from kenthash.model.heads import make_head

TOLERANCE = 1e-4  # of a head's outputs, which lie in [-1, 1]
USE = """\
```python
from kenthash import Hasher

hasher = Hasher.load("{folder}")
codes = {call}
```
"""


class HashNetwork:
    """Untrained, for vectors of 5 and 3 dimensions:

    >>> from kenthash.model.config import HeadConfig
    >>> head = HeadConfig()
    >>> network = HashNetwork(HasherConfig(16, image_dim=5, text_dim=3, image_head=head, text_head=head, encoder=""))
    >>> network.text_head(torch.ones(4, 3)).shape
    torch.Size([4, 16])
    """

    def __init__(self, config: HasherConfig, encoder: Encoder | None = None) -> None:
        """`encoder` is the one that is trained, if any: it is saved with the heads where the configuration says so."""
        check_bits(config.bits)
        self.config = config
        self.image_head = make_head(config.image_dim, config.bits, config.image_head)
        self.text_head = make_head(config.text_dim, config.bits, config.text_head)
        self.encoder = encoder

    @property
    def bits(self) -> int:
        return self.config.bits

    @property
    def device(self) -> torch.device:
        return next(self.image_head.parameters()).device

    def start_from(self, other: "HashNetwork") -> None:
        """Take the MLP heads of `other`, which have at most as many hidden units and at least as many bits: this then
        gives its first bits. What is wider keeps its random weights towards the further units, and begins with zeros
        from them, so that they change nothing until they have learned (Net2Net, Chen et al., ICLR 2016)."""
        for own, head in ((self.image_head, other.image_head), (self.text_head, other.text_head)):
            weights = own.state_dict()
            last = next(reversed([name for name in weights if name.endswith("weight")]))
            weights[last].zero_()
            for name, value in head.state_dict().items():
                part = tuple(slice(min(sizes)) for sizes in zip(weights[name].shape, value.shape, strict=True))
                weights[name][part] = value[part].to(weights[name])

    def modules(self) -> nn.ModuleDict:
        """What is saved: the heads, and the encoder where it was trained."""
        parts: dict[str, nn.Module] = {"image_head": self.image_head, "text_head": self.text_head}
        if self.config.encoder_trained:
            assert self.encoder is not None
            parts["encoder"] = self.encoder
        return nn.ModuleDict(parts)

    def save(self, folder: Path | str, half: bool = False) -> None:
        """Write `model.safetensors`, the ONNX graphs, a card (README.md) and `config.json`: that last, so that a folder
        with one is whole. `half` rounds the heads to float16, in which the files have half the size."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: value.detach().cpu().contiguous() for name, value in self.modules().state_dict().items()}
        if half:
            weights = {name: value if name.startswith("encoder.") else value.half() for name, value in weights.items()}
        with atomic_write(folder / "model.safetensors") as stream:
            stream.write(save(weights))
        config = replace(self.config, graphs=self.write_graphs(folder, half))
        _write_card(folder / "README.md", config)
        write_json(folder / "config.json", {"format": FORMAT, **asdict(config)})

    def write_graphs(self, folder: Path, half: bool = False) -> dict[str, str]:
        """Write the ONNX graphs of what is saved; the digest of each file."""
        heads = HashNetwork(replace(self.config, encoder_trained=False))  # as they will be loaded: training is over
        kind = torch.float16 if half else torch.float32
        for own, copy in ((self.image_head, heads.image_head), (self.text_head, heads.text_head)):
            copy.load_state_dict({name: value.to(kind) for name, value in own.state_dict().items()})
        weights = {name: value.to(kind).numpy() for name, value in heads.modules().state_dict().items()}
        digests = write_head_graphs(self.config, weights, folder)
        for name, head in heads.modules().eval().items():
            _check(head, folder / f"{name}.onnx", digests[f"{name}.onnx"])
        if self.config.encoder_trained:
            encoder = deepcopy(self.encoder)
            assert encoder is not None
            shutil.rmtree(folder / "encoder", ignore_errors=True)  # of the model that was here before
            export_encoder(encoder.cpu().eval(), folder / "encoder")
            digests[f"encoder/{ABOUT}"] = content_digest(folder / "encoder" / ABOUT)
        return digests

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> "HashNetwork":
        """Load a model folder, or the model of a run folder, onto a device of PyTorch's, in evaluation mode."""
        device = check_device(device)
        folder = model_folder(Path(folder))
        config = read_config(folder / "config.json")
        encoder = load_encoder(config.encoder, pretrained=False) if config.encoder_trained else None
        try:
            weights = load_file(folder / "model.safetensors")
            _check_sizes(config, weights)
            network = cls(config, encoder)
            network.modules().load_state_dict(weights)
        except (OSError, SafetensorError, RuntimeError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"{folder / 'model.safetensors'}: not the weights of config.json: {reason}") from error
        network.modules().to(device).eval()
        return network


def export_onnx(network: HashNetwork, out: Path) -> list[tuple[Path, float]]:
    """Both towers for other runtimes: write image.onnx and text.onnx; returns each path with its largest difference to
    PyTorch, against which it is checked before it is kept.

    `image.onnx` takes transformed pictures [B, 3, size, size] and `text.onnx` tokens, where the model has an encoder; a
    model of feature vectors takes vectors [B, dim]. Both return outputs [B, K] in [-1, 1]; bit i is 1 where output
    i >= 0.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths, heads = (out / "image.onnx", out / "text.onnx"), (network.image_head, network.text_head)
    if network.config.encoder:
        encoder = network.encoder or load_encoder(network.config.encoder)
        return list(zip(paths, export_towers(encoder, out, heads), strict=True))
    widths = (network.config.image_dim, network.config.text_dim)
    return [
        (path, export_graph(head, (torch.randn(2, width),), ["vectors"], path))
        for path, head, width in zip(paths, heads, widths, strict=True)
    ]


def _write_card(path: Path, config: HasherConfig) -> None:
    nbytes = config.bits // 8
    if config.encoder:
        encoder = f"{config.encoder} ({'trained with the heads' if config.encoder_trained else 'frozen'})"
        call = f'hasher.encode_texts(["two dogs and a kite"])  # uint8 [1, {nbytes}]'
    else:
        encoder = "none: it takes vectors from elsewhere"
        call = f"hasher.encode_text_features(vectors)  # floats [n, {config.text_dim}] to uint8 [n, {nbytes}]"
    lines = [
        f"# kenthash model, {config.bits} bits",
        "",
        f"Turns pictures and texts into codes of {nbytes} bytes that find each other by Hamming distance.",
        "",
        f"- encoder: {encoder}",
        f"- picture vectors: {config.image_dim}-d, text vectors: {config.text_dim}-d",
        *(f"- {key}: {value}" for key, value in config.about.items()),
        "",
        USE.format(folder=path.parent.name, call=call),
    ]
    with atomic_write(path, "w") as stream:
        stream.write("\n".join(lines))


def _check_sizes(config: HasherConfig, weights: dict[str, Tensor]) -> None:
    """Whether the weights have the sizes of the configuration, before memory is taken for these."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch remarks that nothing is copied to `meta`
        for name, dim in (("image_head", config.image_dim), ("text_head", config.text_dim)):
            head = nn.ModuleDict({name: make_head(dim, config.bits, getattr(config, name))})
            head.load_state_dict({key: value for key, value in weights.items() if key.startswith(f"{name}.")})


def _check(head: nn.Module, path: Path, digest: str) -> None:
    """A graph that does not give what PyTorch gives must not be kept: every code would be wrong."""
    graph = Graph(path, digest)
    vectors = np.random.default_rng(0).standard_normal((4, graph.widths[0])).astype(np.float32)
    with torch.inference_mode():
        expected = head(torch.from_numpy(vectors)).numpy()
    difference = float(np.abs(graph.run_batch({graph.inputs[0]: vectors}) - expected).max())
    if not difference <= TOLERANCE:
        path.unlink()
        raise KenthashError(f"{path}: the graph differs from PyTorch by {difference:.2g}; it was not kept")
