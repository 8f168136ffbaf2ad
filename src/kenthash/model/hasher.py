"""A trained hasher: pictures and texts to packed codes, on onnxruntime.

    from kenthash import Hasher
    hasher = Hasher.load("runs/scenes-64")
    codes = hasher.encode(["two dogs and a kite", Path("dog.jpg")])  # uint8 [2, bits / 8]
    query = hasher.query_texts("two dogs and a kite")  # float32 [1, bits], as `Index.search` takes it

It holds the graphs of two heads and of the encoder before them, and neither proxies nor losses nor PyTorch: encoding
costs the encoder and a head, whatever the method (the paper's "zero overhead at inference").

An item has the same code in any batch and for any number of threads (see `encoders.graph`).
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kenthash.codes import Codes, check_bits, pack
from kenthash.data.decoding import DecoderPool
from kenthash.data.pack import FeaturePack, refuse_bad_rows
from kenthash.data.photo_facts import Facts
from kenthash.data.pictures import BadPicture, PictureInput
from kenthash.encoders import open_encoder
from kenthash.encoders.graph import Graph, check_file, check_runtime_device
from kenthash.encoders.onnx_encoder import ABOUT, OnnxEncoder
from kenthash.encoders.shipping import ShippedFolder
from kenthash.encoders.stream import BATCH, EncodeBatch, encode_stream
from kenthash.errors import DataError, KenthashError, UsageError
from kenthash.files import alone, cache_folder, content_digest, read_json, write_json
from kenthash.model.config import FORMAT, HasherConfig, read_config
from kenthash.model.hub import download_model, is_repository, upload_model
from kenthash.model.pretrained import find_model
from kenthash.model.relevance import Relevance
from kenthash.progress import bar

log = logging.getLogger(__name__)

GRAPHS = "graphs.json"  # of a folder in the cache: the digests of its files


class EncodedFiles(NamedTuple):
    """A batch of picture files."""

    codes: Codes
    facts: list[Facts]  # what the files say about the pictures
    bad: dict[int, str]  # which pictures could not be used, and why; their codes mean nothing


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

    def __init__(
        self, config: HasherConfig, folder: Path, graphs: dict[str, str], device: str = "cpu", bits: int | None = None
    ) -> None:
        """`folder` holds the files that `graphs` names, with their digests. `load` knows both."""
        if bits not in (None, config.bits, *config.nested):
            raise UsageError(f"{bits} bits: {config.lengths()}")
        self.config, self.device, self.bits = config, device, bits or config.bits
        self.folder = folder  # the model folder
        self._folder, self._graphs = folder, graphs
        self._image_head = self._head("image_head.onnx", config.image_dim)
        self._text_head = self._head("text_head.onnx", config.text_dim)
        self._encoder: OnnxEncoder | None = None
        self.relevance: Relevance | None = None  # of hits; None where the model was not calibrated

    def __repr__(self) -> str:
        return f"<Hasher {self.name}: {self.bits} bits, encoder {self.config.encoder or 'none'}, on {self.device}>"

    @property
    def name(self) -> str:
        """That of the model folder, or of its run: the model of a run is in a folder `model` below it."""
        return self.folder.parent.name if self.folder.name == "model" else self.folder.name

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto", bits: int | None = None) -> "Hasher":
        """Load a model folder, the model of a run folder, or a pretrained model by its name (`clip`, `light`), onto a
        device: `cpu`, `cuda`, `cuda:1` ..., where `auto` is a GPU if onnxruntime has one.

        A model of nested codes can be loaded with fewer `bits`: its codes are the first bits of the long ones.
        """
        device = check_runtime_device(device)
        folder = find_model(folder)
        config = read_config(folder / "config.json")
        check_bits(config.bits)
        if config.graphs:
            hasher = cls(config, folder, config.graphs, device, bits)
        else:
            cached = _exported(folder, config)
            hasher = cls(config, cached, read_json(cached / GRAPHS), device, bits)
            hasher.folder = folder
        hasher.relevance = Relevance.read(folder)
        return hasher

    @classmethod
    def from_pretrained(
        cls, name: Path | str, device: str = "auto", bits: int | None = None, revision: str | None = None
    ) -> "Hasher":
        """As `load`, and also from a Hugging Face hub: `name` is a folder, a pretrained model (`clip`, `light`), or
        `owner/name` of a repository, of which `revision` is a branch, tag or commit."""
        if not Path(name).is_dir() and is_repository(str(name)):
            return cls.load(download_model(str(name), revision), device, bits)
        if revision is not None:
            raise UsageError(f"revision {revision}: is for a repository owner/name on a hub, not for {name}")
        return cls.load(name, device, bits)

    def push_to_hub(self, repository: str, private: bool = False, message: str = "Add a kenthash model") -> str:
        """Commit the model folder, with its card, to `owner/name` on a Hugging Face hub, which is created where there
        is none. Returns the address of the commit. The encoder is in it only if it was trained with the model."""
        return upload_model(self.folder, repository, private, message)

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
        """Outputs before signing, in [-1, 1], of pictures' vectors."""
        return self._outputs(self._image_head, features, self.config.image_dim)

    def text_outputs(self, features: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        return self._outputs(self._text_head, features, self.config.text_dim)

    def encode(
        self,
        items: str | PictureInput | Sequence[str | PictureInput],
        batch_size: int = BATCH,
        show_progress_bar: bool | None = None,
    ) -> Codes:
        """Codes of texts and pictures: a string is a text; a path, a file's content or a Pillow image is a picture.

        One item has a code [bits / 8]; a list, in which both may be, has codes [n, bits / 8]. Codes do not depend on
        `batch_size`, the number of items worked on at a time. A bar is shown on a terminal, always or never.
        """
        if isinstance(items, PictureInput | str):
            code: Codes = self.encode([items], batch_size, show_progress_bar)[0]
            return code
        inputs = list(items)
        for item in inputs:
            if not isinstance(item, PictureInput | str):
                raise UsageError(
                    f"{type(item).__name__}: neither a text (str) nor a picture (Path, bytes, PIL.Image): "
                    "vectors are for encode_text_features and encode_image_features"
                )
        texts = [row for row, item in enumerate(inputs) if isinstance(item, str)]
        pictures = [row for row, item in enumerate(inputs) if not isinstance(item, str)]
        outputs = np.empty((len(inputs), self.bits), np.float32)
        with bar(len(inputs), "encode", show=show_progress_bar) as progress:
            for rows, part_outputs in ((texts, self._texts), (pictures, self._pictures)):
                start = 0
                for part in part_outputs([inputs[row] for row in rows], batch_size):
                    outputs[rows[start : start + len(part)]] = part
                    start += len(part)
                    progress.update(len(part))
        return pack(outputs)

    def encode_pictures(self, pictures: PictureInput | str | Sequence[PictureInput | str]) -> Codes:
        """Codes [n, bits / 8] of pictures: paths, file contents or Pillow images. One alone gives [1, bits / 8].

        A picture that cannot be used is a `BadPicture`.
        """
        return pack(self.query_pictures(pictures))

    def query_pictures(self, pictures: PictureInput | str | Sequence[PictureInput | str]) -> NDArray[np.float32]:
        """Real-valued outputs [n, bits] of pictures, whose signs are their codes. As queries they rank better than
        codes: `Index.search` takes both, `kenthash.codes.combine` makes one query of several."""
        inputs = [pictures] if isinstance(pictures, PictureInput | str) else pictures
        sources = [Path(picture) if isinstance(picture, str) else picture for picture in inputs]
        return np.concatenate([np.empty((0, self.bits), np.float32), *self._pictures(sources)])

    def _pictures(self, sources: Sequence[Any], batch_size: int = BATCH) -> Iterator[NDArray[np.float32]]:
        if not sources:
            return
        batches = (EncodeBatch(part, []) for part in _parts(sources, batch_size))
        with closing(encode_stream(self.encoder, batches)) as stream:
            for number, encoded in enumerate(stream):
                for place, reason in encoded.bad.items():
                    source = sources[number * batch_size + place]
                    raise BadPicture(str(source) if isinstance(source, Path) else "picture", reason)
                yield self.image_outputs(encoded.image)

    def encode_pack(self, pack: FeaturePack) -> Codes:
        """Codes of the pictures of a feature pack, from its vectors. Those of another encoder than the model's are
        refused: their codes would mean nothing."""
        if (reason := self._why_not(pack)) is not None:
            raise UsageError(f"{pack.path}: cannot be used with this model: {reason}")
        refuse_bad_rows(pack)
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
        pack_dims, model_dims = (pack.image.shape[1], pack.text.shape[1]), (config.image_dim, config.text_dim)
        if pack_dims != model_dims:
            return (
                f"the pack's vectors have {pack_dims} dimensions (of pictures, of texts), the model takes {model_dims}"
            )
        return None

    def encode_files(
        self,
        batches: Iterable[Sequence[PictureInput]],
        threads: int | None = None,
        decoders: DecoderPool | None = None,
    ) -> Iterator["EncodedFiles"]:
        """Codes of batches of files, or of their contents, in order, a few batches worked on at a time. Pictures are
        decoded in processes of their own, where one that takes too long can be ended: those of `decoders`, or some for
        this call, which decode pictures that take much memory one at a time."""
        files, pool = (EncodeBatch(pictures, []) for pictures in batches), decoders or DecoderPool(one_large=True)
        with (
            closing(encode_stream(self.encoder, files, pool.square_with_facts, threads)) as stream,
            pool if decoders is None else nullcontext(),
        ):
            for encoded in stream:
                yield EncodedFiles(self.encode_image_features(encoded.image), encoded.facts, encoded.bad)

    def encode_texts(self, texts: str | Sequence[str]) -> Codes:
        """Codes [n, bits / 8] of texts. One string alone gives [1, bits / 8]."""
        return pack(self.query_texts(texts))

    def query_texts(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """Real-valued outputs [n, bits] of texts, as `query_pictures` gives of pictures."""
        inputs = [texts] if isinstance(texts, str) else list(texts)
        return np.concatenate([np.empty((0, self.bits), np.float32), *self._texts(inputs)])

    def knows(self, text: str) -> bool:
        """Whether the encoder's vocabulary has any part of a text. Where it has none, as of emoji alone, the code of
        the text says nothing about it."""
        return self.encoder.knows(text)

    def _texts(self, texts: Sequence[Any], batch_size: int = BATCH) -> Iterator[NDArray[np.float32]]:
        if len(texts) == 1:  # not worth the threads of a stream
            yield self.text_outputs(self.encoder.text_vectors(list(texts)))
        elif texts:
            batches = (EncodeBatch([], list(part)) for part in _parts(texts, batch_size))
            with closing(encode_stream(self.encoder, batches)) as stream:
                for encoded in stream:
                    yield self.text_outputs(encoded.text)

    def shipped(self) -> tuple[ShippedFolder, ShippedFolder | None]:
        """What another machine needs to load this model: its folder, and that of its encoder unless it is in there."""
        about = [ABOUT, *self.encoder.about.files]
        names = {name for name in self._graphs if not name.startswith("encoder/")}
        if self.config.encoder_trained:
            names |= {f"encoder/{name}" for name in about}
        config = {"format": FORMAT, **asdict(replace(self.config, graphs=self._graphs))}
        added = {"config.json": json.dumps(config).encode()}
        model = ShippedFolder.read(self._folder, names, "models", added=added)
        if self.config.encoder_trained:
            return model, None
        return model, ShippedFolder.read(self.encoder.folder, about, "encoders", self.encoder.folder.name)

    def _outputs(self, head: Graph, features: NDArray[np.floating[Any]], dim: int) -> NDArray[np.float32]:
        if features.ndim != 2 or features.shape[1] != dim:
            raise UsageError(f"features of shape {features.shape} given to a head that takes [items, {dim}]")
        outputs = np.empty((len(features), self.bits), np.float32)
        for row in range(len(features)):
            outputs[row] = head.run({head.inputs[0]: np.asarray(features[row : row + 1], np.float32)})[: self.bits]
        return outputs

    def _head(self, name: str, dim: int) -> Graph:
        if name not in self._graphs:
            raise DataError(f"{self._folder}: its configuration names no {name}: copy the model again")
        head = Graph(self._folder / name, self._graphs[name], self.device)
        if head.widths != (dim, self.config.bits):
            raise DataError(
                f"{self._folder / name}: takes {head.widths[0]} values and gives {head.widths[1]}, "
                f"but config.json says {dim} and {self.config.bits}"
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


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    if size < 1:
        raise UsageError(f"batch_size {size}: must be 1 or more")
    return (items[start : start + size] for start in range(0, len(items), size))


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
