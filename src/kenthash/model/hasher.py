"""A trained hasher: pictures and texts to packed codes.

    from kenthash import Hasher
    hasher = Hasher.load("runs/scenes-64")
    codes = hasher.encode_texts(["two dogs and a kite", "a boat"])  # uint8 [2, bits / 8]
    code = hasher.encode_texts("two dogs and a kite")  # uint8 [1, bits / 8], as `Index.search` takes it

It holds two heads and, where the encoder was trained too, the encoder's weights. Proxies, losses and optimisers stay
behind: encoding costs the encoder and a head, whatever the method (the paper's "zero overhead at inference").
"""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from kenthash.codes import Codes, check_bits, pack
from kenthash.data.decoding import DecoderPool
from kenthash.data.pictures import BadPicture, PictureInput
from kenthash.encoders import Encoder, check_device, load_encoder
from kenthash.encoders.features import FeaturePack, bad_rows
from kenthash.encoders.stream import BATCH, Batch, encode_stream
from kenthash.errors import DataError, UsageError
from kenthash.files import atomic_write, read_json, write_json
from kenthash.model.card import write_card
from kenthash.model.heads import HeadConfig, make_head

FORMAT = 1
LEAST = 8  # rows of a product: with fewer, other sums are made in another order and the last digits differ

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HasherConfig:
    bits: int
    image_dim: int
    text_dim: int
    image_head: HeadConfig
    text_head: HeadConfig
    encoder: str  # the spec that `load_encoder` takes; "" where vectors came from elsewhere
    encoder_trained: bool = False  # then the encoder's weights are saved with the heads
    encoder_weights: str = ""  # `Encoder.weights` in training; "" where that is not known, or where they are saved here
    about: dict[str, Any] = field(default_factory=dict)  # for the card: method, data, seed, epoch


class Hasher:
    """Two heads, and the encoder before them. `load` brings one back that `kenthash train` has made.

    One of its own making, untrained, for vectors of 5 and 3 dimensions:

        >>> head = HeadConfig()
        >>> hasher = Hasher(HasherConfig(16, image_dim=5, text_dim=3, image_head=head, text_head=head, encoder=""))
        >>> hasher.encode_text_features(np.ones((4, 3))).shape  # four codes of two bytes
        (4, 2)
    """

    def __init__(self, config: HasherConfig, encoder: Encoder | None = None) -> None:
        check_bits(config.bits)
        self.config = config
        self.image_head = make_head(config.image_dim, config.bits, config.image_head)
        self.text_head = make_head(config.text_dim, config.bits, config.text_head)
        self._encoder = encoder

    @property
    def bits(self) -> int:
        return self.config.bits

    @property
    def device(self) -> torch.device:
        return next(self.image_head.parameters()).device

    @property
    def encoder(self) -> Encoder:
        """Loaded when first asked for: a model of feature vectors never needs one."""
        if self._encoder is None:
            if not self.config.encoder:
                raise UsageError(
                    "this model was trained on vectors from elsewhere and cannot read pictures or texts itself: "
                    "encode your data with `kenthash encode` and train on that pack"
                )
            self._encoder = self._load_encoder()
        return self._encoder

    def _load_encoder(self) -> Encoder:
        """The encoder with the weights that it had in training: codes by others would have no distance to them."""
        spec, wanted = self.config.encoder, self.config.encoder_weights
        encoder = load_encoder(spec, str(self.device))
        if not wanted:
            log.info("%s: the model does not say which weights its encoder had in training", spec)
        elif encoder.weights != wanted:
            raise DataError(
                f"{spec}: has other weights now than those that the model was trained with (digest "
                f"{encoder.weights[:12]}, not {wanted[:12]}): put these back, or train a new model"
            )
        return encoder

    def encode_image_features(self, features: NDArray[np.floating[Any]]) -> Codes:
        return pack(self.image_outputs(features))

    def encode_text_features(self, features: NDArray[np.floating[Any]]) -> Codes:
        return pack(self.text_outputs(features))

    def image_outputs(self, features: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Outputs before signing, in [-1, 1]: for study only. Codes come from the `encode_` methods."""
        return self._outputs(self.image_head, features, self.config.image_dim)

    def text_outputs(self, features: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        return self._outputs(self.text_head, features, self.config.text_dim)

    def _outputs(self, head: nn.Module, features: NDArray[np.floating[Any]], dim: int) -> NDArray[np.float32]:
        if features.ndim != 2 or features.shape[1] != dim:
            raise UsageError(f"features of shape {features.shape} given to a head that takes [items, {dim}]")
        if head.training:  # not every time: a head may have to prepare itself, and a server asks from several threads
            head.eval()
        outputs: list[Tensor] = []
        with torch.inference_mode():
            for part in _chunks(features):
                rows = np.zeros((max(len(part), LEAST), dim), np.float32)
                rows[: len(part)] = part
                outputs.append(head(torch.from_numpy(rows).to(self.device))[: len(part)].cpu())
        return torch.cat(outputs).numpy()

    def encode_pictures(self, pictures: PictureInput | str | Sequence[PictureInput | str]) -> Codes:
        """Codes [n, bits / 8] of pictures: paths, file contents or Pillow images. One alone gives [1, bits / 8].
        `BadPicture` where one cannot be used."""
        given = [pictures] if isinstance(pictures, PictureInput | str) else pictures
        sources = [Path(picture) if isinstance(picture, str) else picture for picture in given]
        batches = (Batch(sources[start : start + BATCH], []) for start in range(0, len(sources), BATCH))
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
        files, decoders = (Batch(paths, []) for paths in batches), DecoderPool()
        with closing(encode_stream(self.encoder, files, decoders.square)) as stream, decoders:
            for encoded in stream:
                yield self.encode_image_features(encoded.image), encoded.bad

    def encode_texts(self, texts: str | Sequence[str]) -> Codes:
        """Codes [n, bits / 8] of texts. One string alone gives [1, bits / 8]."""
        if isinstance(texts, str):
            texts = [texts]

        def features(part: Sequence[str]) -> Tensor:
            return self.encoder.encode_texts(self.encoder.tokenize(list(part)))

        return self._in_batches(texts, self.encoder.text_chunk, features, self.encode_text_features)

    def _in_batches(
        self,
        items: Sequence[Any],
        size: int,
        features: Callable[[Sequence[Any]], Tensor],
        encode: Callable[[NDArray[np.floating[Any]]], Codes],
    ) -> Codes:
        if not len(items):
            return np.empty((0, self.bits // 8), np.uint8)
        with torch.inference_mode():
            parts = [features(items[i : i + size]).float().cpu().numpy() for i in range(0, len(items), size)]
        return encode(np.concatenate(parts))

    def modules(self) -> nn.ModuleDict:
        """What is saved: the heads, and the encoder where it was trained."""
        parts: dict[str, nn.Module] = {"image_head": self.image_head, "text_head": self.text_head}
        if self.config.encoder_trained:
            parts["encoder"] = self.encoder
        return nn.ModuleDict(parts)

    def save(self, folder: Path | str) -> None:
        """Write `config.json`, `model.safetensors` and a card (README.md); the configuration last, so that a folder
        with one is whole."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: value.detach().cpu().contiguous() for name, value in self.modules().state_dict().items()}
        with atomic_write(folder / "model.safetensors") as stream:
            stream.write(save(weights))
        write_card(folder / "README.md", self.config)
        write_json(folder / "config.json", {"format": FORMAT, **asdict(self.config)})

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> "Hasher":
        """Load a model folder, or the model of a run folder.

        The device is `cpu`, `cuda`, `cuda:1` ..., or `auto`: a GPU where there is one.
        """
        device = check_device(device)
        folder = Path(folder)
        if (folder / "model" / "config.json").is_file():
            folder = folder / "model"
        if not (folder / "config.json").is_file():
            raise DataError(f"{folder}: no config.json here, so not a saved model: `kenthash train` makes one")
        config = _read_config(folder / "config.json")
        encoder = load_encoder(config.encoder, pretrained=False) if config.encoder_trained else None
        try:
            weights = load_file(folder / "model.safetensors")
            _check_sizes(config, weights)
            hasher = cls(config, encoder)
            hasher.modules().load_state_dict(weights)
        except (OSError, SafetensorError, RuntimeError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"{folder / 'model.safetensors'}: not the weights of config.json: {reason}") from error
        hasher.modules().to(device)
        hasher.image_head.eval()
        hasher.text_head.eval()
        return hasher


def _read_config(path: Path) -> HasherConfig:
    values = read_json(path)
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise DataError(f"{path}: not a model of format {FORMAT}: it was written by another version of kenthash")
    try:
        for head in ("image_head", "text_head"):
            values[head] = HeadConfig(**values[head])
        config = HasherConfig(**values)
    except (TypeError, KeyError, UsageError) as error:
        raise DataError(f"{path}: not a model configuration: {error}") from error
    kinds = {"bits": int, "image_dim": int, "text_dim": int, "encoder": str, "encoder_weights": str, "about": dict}
    for name, kind in kinds.items():
        value = getattr(config, name)
        if not isinstance(value, kind) or (isinstance(value, int) and value < 1):
            raise DataError(f"{path}: not a model configuration: {name} is {value!r}")
    return config


def _check_sizes(config: HasherConfig, weights: dict[str, Tensor]) -> None:
    """Whether the weights have the sizes of the configuration, before memory is taken for these."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch remarks that nothing is copied to `meta`
        for name, dim in (("image_head", config.image_dim), ("text_head", config.text_dim)):
            head = nn.ModuleDict({name: make_head(dim, config.bits, getattr(config, name))})
            head.load_state_dict({key: value for key, value in weights.items() if key.startswith(f"{name}.")})


def _chunks(features: NDArray[np.floating[Any]], size: int = 4096) -> list[NDArray[np.floating[Any]]]:
    return [features[i : i + size] for i in range(0, max(len(features), 1), size)]
