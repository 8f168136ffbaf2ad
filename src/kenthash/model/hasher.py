"""A trained hasher: pictures and texts to packed codes, on onnxruntime.

    from kenthash import Hasher
    hasher = Hasher.load("runs/scenes-64")
    codes = hasher.encode_texts(["two dogs and a kite", "a boat"])  # uint8 [2, bits / 8]
    code = hasher.encode_texts("two dogs and a kite")  # uint8 [1, bits / 8], as `Index.search` takes it

It holds the graphs of two heads and of the encoder before them, and neither proxies nor losses nor PyTorch: encoding
costs the encoder and a head, whatever the method (the paper's "zero overhead at inference").

An item has the same code in any batch and for any number of threads (see `encoders.graph`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, check_bits, pack
from kenthash.data.decoding import DecoderPool
from kenthash.data.pack import FeaturePack, bad_rows
from kenthash.data.pictures import BadPicture, PictureInput
from kenthash.encoders import open_encoder
from kenthash.encoders.graph import Graph, check_file, check_runtime_device
from kenthash.encoders.onnx_encoder import ABOUT, OnnxEncoder
from kenthash.encoders.stream import BATCH, EncodeBatch, encode_stream
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.files import alone, cache_folder, content_digest, read_json, write_json
from kenthash.model.config import HasherConfig, model_folder, read_config

log = logging.getLogger(__name__)

GRAPHS = "graphs.json"  # of a folder in the cache: the digests of its files


class Hasher:
    """Two heads, and the encoder before them: `load` opens what `kenthash train` has made.

    One that has learnt nothing, for vectors of 5 and 3 dimensions:

        >>> from tempfile import TemporaryDirectory
        >>> from kenthash.model.config import HeadConfig
        >>> from kenthash.model.network import HashNetwork
        >>> head = HeadConfig()
        >>> config = HasherConfig(16, image_dim=5, text_dim=3, image_head=head, text_head=head, encoder="")
        >>> with TemporaryDirectory() as folder:
        ...     HashNetwork(config).save(folder)
        ...     Hasher.load(folder).encode_text_features(np.ones((4, 3))).shape  # four codes of two bytes
        (4, 2)
    """

    def __init__(self, config: HasherConfig, folder: Path, graphs: dict[str, str], device: str = "cpu") -> None:
        """`folder` holds the files that `graphs` names, with their digests. `load` knows both."""
        self.config, self.device = config, device
        self._folder, self._graphs = folder, graphs
        self._image_head = self._head("image_head.onnx", config.image_dim)
        self._text_head = self._head("text_head.onnx", config.text_dim)
        self._encoder: OnnxEncoder | None = None

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> "Hasher":
        """Load a model folder, or the model of a run folder, onto a device: `cpu`, `cuda`, `cuda:1` ..., where `auto`
        is a GPU if onnxruntime has one."""
        device = check_runtime_device(device)
        folder = model_folder(Path(folder))
        config = read_config(folder / "config.json")
        check_bits(config.bits)
        if config.graphs:
            return cls(config, folder, config.graphs, device)
        cached = _exported(folder, config)
        return cls(config, cached, read_json(cached / GRAPHS), device)

    @property
    def bits(self) -> int:
        return self.config.bits

    @property
    def encoder(self) -> OnnxEncoder:
        """Opened when first asked for: a model of feature vectors never needs one."""
        if self._encoder is None:
            self._encoder = self._open_encoder()
        return self._encoder

    def encode_image_features(self, features: NDArray[np.floating[Any]]) -> Codes:
        return pack(self.image_outputs(features))

    def encode_text_features(self, features: NDArray[np.floating[Any]]) -> Codes:
        return pack(self.text_outputs(features))

    def image_outputs(self, features: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Outputs before signing, in [-1, 1]: for study only. Codes come from the `encode_` methods."""
        return self._outputs(self._image_head, features, self.config.image_dim)

    def text_outputs(self, features: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        return self._outputs(self._text_head, features, self.config.text_dim)

    def encode_pictures(self, pictures: PictureInput | str | Sequence[PictureInput | str]) -> Codes:
        """Codes [n, bits / 8] of pictures: paths, file contents or Pillow images. One alone gives [1, bits / 8].

        A picture that cannot be used is a `BadPicture`.
        """
        given = [pictures] if isinstance(pictures, PictureInput | str) else pictures
        sources = [Path(picture) if isinstance(picture, str) else picture for picture in given]
        batches = (EncodeBatch(sources[start : start + BATCH], []) for start in range(0, len(sources), BATCH))
        parts = [np.empty((0, self.bits // 8), np.uint8)]
        for number, encoded in enumerate(encode_stream(self.encoder, batches)):
            for place, reason in encoded.bad.items():
                source = sources[number * BATCH + place]
                raise BadPicture(str(source) if isinstance(source, Path) else "picture", reason)
            parts.append(self.encode_image_features(encoded.image))
        return np.concatenate(parts)

    def encode_pack(self, pack: FeaturePack) -> Codes:
        """Codes of the pictures of a feature pack, from its vectors. Those of another encoder than the model's are
        refused: their codes would mean nothing."""
        if (reason := self._why_not(pack)) is not None:
            raise UsageError(f"{pack.path}: cannot be used with this model: {reason}")
        for part, rows in bad_rows(pack).items():
            if rows:
                raise DataError(f"{pack.path / part}: row {rows[0]} holds NaN or infinity: encode that item again")
        return self.encode_image_features(pack.image)

    def text_encoder(self, pack: FeaturePack) -> Callable[[Sequence[str]], Codes]:
        """What encodes the texts of a feature pack: by its vectors; texts that it does not have are encoded."""
        texts = [text for item_texts in pack.dataset.texts or [] for text in item_texts]
        codes = dict(zip(texts, self.encode_text_features(pack.text), strict=True)) if texts else {}

        def encode(wanted: Sequence[str]) -> Codes:
            missing = [text for text in dict.fromkeys(wanted) if text not in codes]
            codes.update(zip(missing, self.encode_texts(missing), strict=True) if missing else ())
            return np.stack([codes[text] for text in wanted])

        return encode

    def _why_not(self, pack: FeaturePack) -> str | None:
        """Weights tell whether two encoders are one; where either side does not know them, the encoder's name does."""
        config = self.config
        if config.encoder_trained:
            return "its encoder was trained with it, so that other vectors are needed: add the pictures themselves"
        if pack.encoder_weights and config.encoder_weights:
            if pack.encoder_weights != config.encoder_weights:
                return f"the pack's vectors are of {pack.encoder} with other weights than the model was trained on"
        elif pack.encoder != config.encoder:
            encoders = [name or "an encoder without a name" for name in (pack.encoder, config.encoder)]
            return f"the pack's vectors are of {encoders[0]}, the model was trained on those of {encoders[1]}"
        dims, wanted = (pack.image.shape[1], pack.text.shape[1]), (config.image_dim, config.text_dim)
        if dims != wanted:
            return f"the pack's vectors have {dims} dimensions (of pictures, of texts), the model takes {wanted}"
        return None

    def encode_files(self, batches: Iterable[Sequence[Path]]) -> Iterator[tuple[Codes, dict[int, str]]]:
        """Codes of batches of files in order, a few batches worked on at a time; of each batch also which of its
        pictures could not be used, and why. Their codes mean nothing. Pictures are decoded in processes of their own,
        where one that takes too long can be ended."""
        files, decoders = (EncodeBatch(paths, []) for paths in batches), DecoderPool()
        with closing(encode_stream(self.encoder, files, decoders.square)) as stream, decoders:
            for encoded in stream:
                yield self.encode_image_features(encoded.image), encoded.bad

    def encode_texts(self, texts: str | Sequence[str]) -> Codes:
        """Codes [n, bits / 8] of texts. One string alone gives [1, bits / 8]."""
        given = [texts] if isinstance(texts, str) else list(texts)
        if len(given) == 1:  # not worth the threads of a stream
            return self.encode_text_features(self.encoder.text_vectors(given))
        parts = [np.empty((0, self.bits // 8), np.uint8)]
        batches = (EncodeBatch([], given[start : start + BATCH]) for start in range(0, len(given), BATCH))
        with closing(encode_stream(self.encoder, batches)) as stream:
            parts += [self.encode_text_features(encoded.text) for encoded in stream]
        return np.concatenate(parts)

    def _outputs(self, head: Graph, features: NDArray[np.floating[Any]], dim: int) -> NDArray[np.float32]:
        if features.ndim != 2 or features.shape[1] != dim:
            raise UsageError(f"features of shape {features.shape} given to a head that takes [items, {dim}]")
        outputs = np.empty((len(features), self.bits), np.float32)
        for row in range(len(features)):
            outputs[row] = head.run({head.inputs[0]: np.asarray(features[row : row + 1], np.float32)})
        return outputs

    def _head(self, name: str, dim: int) -> Graph:
        if name not in self._graphs:
            raise DataError(f"{self._folder}: its configuration names no {name}: copy the model again")
        head = Graph(self._folder / name, self._graphs[name], self.device)
        if head.widths != (dim, self.bits):
            raise DataError(
                f"{self._folder / name}: takes {head.widths[0]} values and gives {head.widths[1]}, "
                f"but config.json says {dim} and {self.bits}"
            )
        return head

    def _open_encoder(self) -> OnnxEncoder:
        config = self.config
        if not config.encoder:
            raise UsageError(
                "this model was trained on vectors from elsewhere and cannot read pictures or texts itself: "
                "encode your data with `kenthash encode` and train on that pack"
            )
        if not config.encoder_trained:
            if not config.encoder_weights:
                log.info("%s: the model does not say which weights its encoder had in training", config.encoder)
            return open_encoder(config.encoder, self.device, config.encoder_weights)
        about = self._folder / "encoder" / ABOUT
        check_file(about, self._graphs.get(f"encoder/{ABOUT}"))
        return OnnxEncoder(about.parent, self.device)


def _exported(folder: Path, config: HasherConfig) -> Path:
    """The graphs, in the user's cache, of a model that was saved without any: by an older version of kenthash."""
    digest = content_digest(folder / "config.json", folder / "model.safetensors")
    cached = cache_folder() / "models" / digest[:32]
    if (cached / GRAPHS).is_file():
        return cached
    try:
        from kenthash.model.network import HashNetwork
    except ImportError as error:
        raise KenthashError(
            f"{folder}: saved without ONNX graphs, by an older version: PyTorch makes them, once: "
            "pip install 'kenthash[train]'"
        ) from error
    with alone(cached):
        if not (cached / GRAPHS).is_file():
            write_json(cached / GRAPHS, HashNetwork.load(folder, "cpu").write_graphs(cached))
    return cached
