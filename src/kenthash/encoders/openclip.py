"""`openclip:...`: any model of the open_clip library, as CLIP (Radford 2021) and what came after it.

Vectors are the outputs of the two projections, not normalised, which is what the hash heads of the field take.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn import functional as F

from kenthash.encoders.base import Encoder, Tokens
from kenthash.encoders.onnx_encoder import Clean
from kenthash.encoders.openclip_weights import OpenClipSource, fetch, find_source, hub_file, load_weights
from kenthash.encoders.torchvision_shim import import_torchvision
from kenthash.errors import KenthashError

MAX_TOKENS = 32  # of CLIP's byte pairs, with the start and the end: the field's length

# transformers' tokenizers set their padding anew at every call and fail when two threads do so.
_TOKENIZER = Lock()


class OpenClipEncoder(Encoder):
    def __init__(self, spec: str, trainable: bool = False, pretrained: bool = True) -> None:
        super().__init__(trainable)
        import_torchvision()
        import open_clip

        source = find_source(spec, weights=pretrained)
        if pretrained or not (source.model or source.folder):
            source = fetch(source)
        self.spec, self.name = f"openclip:{source.spec}", source.name
        self.weights = source.digest if pretrained else ""
        self.model, config = _build(source)
        if pretrained:
            assert source.file is not None
            load_weights(self.model, source.file, self.name)
        self.image_dim = self.text_dim = config["embed_dim"]
        preprocessing: dict[str, Any] = open_clip.get_model_preprocess_cfg(self.model)
        self.size = preprocessing["size"] if isinstance(preprocessing["size"], int) else preprocessing["size"][0]
        self.mean, self.std = tuple(preprocessing["mean"]), tuple(preprocessing["std"])
        self.resample = "bilinear" if preprocessing["interpolation"] == "bilinear" else "bicubic"
        output = f"{self.name}, projection output, not normalised, {self.image_dim}-d"
        self.towers = {"image": f"{output}, {self.size}x{self.size} squashed", "text": output}
        self._tokenizer = _tokenizer(source, config)
        self._context: int = self.model.context_length  # type: ignore[assignment]
        self._byte_pairs = isinstance(self._tokenizer, open_clip.SimpleTokenizer)
        # In a causal tower that is read at the end token, no token behind that one counts.
        self._causal = (
            self._context > MAX_TOKENS
            and isinstance(self.model, open_clip.CLIP)
            and self.model.text_pool_type == "argmax"
        )
        self.any_length = self._causal = self._causal and self.model.attn_mask is not None and self._byte_pairs
        self.apply_trainable()
        for name, parameter in self.model.named_parameters():
            if name.startswith("logit_"):  # of the contrastive loss: no part of either tower
                parameter.requires_grad_(False)

    def tokenize(self, texts: list[str]) -> Tensor:
        """Token numbers [B, L]: L is the model's own context, or no longer than needed where that gives the same."""
        if not self._byte_pairs:
            with _TOKENIZER:
                own: Tensor = self._tokenizer(texts)
            return own
        tokens: Tensor = self._tokenizer(texts, context_length=min(MAX_TOKENS, self._context))
        if self._causal:
            ends = tokens.argmax(dim=-1)  # the end token has the highest number; 0 is padding, but also "!"
            return tokens[:, : int(ends.max()) + 1] if len(tokens) else tokens
        return F.pad(tokens, (0, self._context - tokens.shape[1]))

    def fast_tokenizer(self) -> tuple[Tokenizer, Clean, int | None]:
        if self._byte_pairs:
            longest = min(MAX_TOKENS, self._context)
            tokenizer = _byte_pair_tokenizer(self._tokenizer, longest, 0 if self.any_length else self._context)
            return tokenizer, _cleaning(self._tokenizer), None
        return _hub_tokenizer(self._tokenizer, self._context, self.name)

    def encode_pictures(self, pictures: Tensor) -> Tensor:
        vectors: Tensor = self.model.encode_image(pictures.to(self.device))  # type: ignore[operator]
        return vectors

    def encode_texts(self, tokens: Tokens) -> Tensor:
        assert isinstance(tokens, Tensor)
        tokens = tokens.to(self.device)
        if self._causal:
            return _encode_causal(self.model, tokens)
        vectors: Tensor = self.model.encode_text(tokens)  # type: ignore[operator]
        return vectors


def _encode_causal(model: Any, tokens: Tensor) -> Tensor:
    """CLIP's text tower over the first L positions: the same vectors as over all 77, for less work."""
    length = tokens.shape[1]
    states = model.token_embedding(tokens) + model.positional_embedding[:length]
    states = model.ln_final(model.transformer(states, attn_mask=model.attn_mask[:length, :length]))
    at_end = states[torch.arange(tokens.shape[0], device=tokens.device), tokens.argmax(dim=-1)]
    projection = model.text_projection
    if projection is None:
        vectors: Tensor = at_end
    else:
        vectors = projection(at_end) if isinstance(projection, nn.Linear) else at_end @ projection
    return vectors


def _byte_pair_tokenizer(own: Any, longest: int, padded: int) -> Tokenizer:
    """open_clip's tokenizer of byte pairs as one of the tokenizers library, which needs neither open_clip nor torch."""
    tokenizer = Tokenizer(models.BPE(vocab=own.encoder, merges=list(own.bpe_ranks), end_of_word_suffix="</w>"))
    words = Regex(r"(?i)'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    ends = {own.decoder[number]: number for number in (own.sot_token_id, own.eot_token_id)}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=" $A ".join(ends), special_tokens=list(ends.items())
    )
    tokenizer.enable_truncation(longest)
    if padded:
        tokenizer.enable_padding(length=padded, pad_id=0)
    return tokenizer


def _hub_tokenizer(own: Any, context: int, name: str) -> tuple[Tokenizer, Clean, int | None]:
    """The fast tokenizer inside one from the hub, set as open_clip sets it at every call."""
    inner: Any = getattr(own, "tokenizer", None)
    custom: str = getattr(own, "tokenizer_mode", "")
    if custom or not getattr(inner, "is_fast", False):
        raise KenthashError(f"{name}: its tokenizer has no fast form, so it cannot be exported to ONNX")
    tokenizer = Tokenizer.from_str(inner.backend_tokenizer.to_str())
    tokenizer.enable_truncation(context)
    tokenizer.enable_padding(
        length=context, pad_id=inner.pad_token_id, pad_token=inner.pad_token, direction=inner.padding_side
    )
    return tokenizer, _cleaning(own), inner.sep_token_id if getattr(own, "strip_sep_token", False) else None


def _cleaning(own: Any) -> Clean:
    """Which of open_clip's cleaning functions a tokenizer applies: it keeps the function, not its name."""
    import open_clip

    names: tuple[Clean, ...] = ("whitespace", "lower", "canonicalize")
    return next(name for name in names if own.clean_fn is open_clip.tokenizer.get_clean_fn(name))


def _build(source: OpenClipSource) -> tuple[nn.Module, dict[str, Any]]:
    """The network with random weights, and its configuration."""
    import open_clip

    name = source.model or f"local-dir:{source.folder}"
    config: dict[str, Any] = open_clip.get_model_config(name)
    if not isinstance(config.get("text_cfg"), dict):
        raise KenthashError(f"{name}: its configuration has no text_cfg, so it has no text tower")
    if tower := config["text_cfg"].get("hf_model_name"):
        hub_file(source.spec, tower, ("config.json",))
    try:
        with _quiet():
            model: nn.Module = open_clip.create_model(
                name,
                load_weights=False,
                pretrained_text=False,
                force_quick_gelu=source.quick_gelu,
                force_preprocess_cfg=source.preprocess,
            )
    except (RuntimeError, TypeError, KeyError, ValueError, AssertionError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise KenthashError(f"{name}: open_clip cannot build this model: {reason}") from error
    return model, config


def _tokenizer(source: OpenClipSource, config: dict[str, Any]) -> Any:
    import open_clip

    where = source.model or f"local-dir:{source.folder}"
    if name := config["text_cfg"].get("hf_tokenizer_name"):
        if source.spec.startswith("hf-hub:"):
            where = source.spec  # only configuration and weights were fetched, not what else the repository has
        if not where.startswith("local-dir:"):
            hub_file(source.spec, name, ("tokenizer_config.json",))
    try:
        return open_clip.get_tokenizer(where)
    except Exception as error:  # transformers raises OSError, ValueError, TypeError ... for files that are not there
        reason = str(error).strip().partition("\n")[0]
        raise KenthashError(f"{where}: its tokenizer {name} cannot be loaded: {reason}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """open_clip warns that weights are random when they are yet to be loaded."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
