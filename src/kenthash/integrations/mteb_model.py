"""A hasher as a model of MTEB and MIEB, the benchmarks for embeddings of texts and pictures:

    import mteb
    from kenthash import Hasher
    from kenthash.integrations.mteb_model import HasherModel

    mteb.evaluate(HasherModel(Hasher.from_pretrained("clip", bits=64)), mteb.get_tasks(["Flickr30kT2IRetrieval"]))

What is searched in is embedded as codes (signs, -1 and +1), queries as real-valued outputs: their inner product ranks
as `Index.search` does. With `real_queries=False` queries are codes, too, and the ranking is by Hamming distance.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.types import PromptType
from numpy.typing import NDArray

from kenthash.codes import pack, unpack
from kenthash.encoders.torchvision_shim import import_torchvision
from kenthash.errors import UsageError
from kenthash.model.hasher import Hasher

import_torchvision()  # mteb imports sentence-transformers, and with it torchvision, when it evaluates


class HasherModel(AbsEncoder):  # type: ignore[misc]
    """Encodes texts and pictures; an item that has both is the sum of both outputs, each scaled to length 1."""

    def __init__(self, hasher: Hasher, real_queries: bool = True, name: str | None = None) -> None:
        self.hasher, self.real_queries = hasher, real_queries
        self.mteb_model_meta = ModelMeta.create_empty(
            {
                "name": name or f"kenthash/{hasher.folder.name}-{hasher.bits}",
                "revision": "real-valued queries" if real_queries else "codes",
                "embed_dim": hasher.bits,
                "similarity_fn_name": "dot",
                "modalities": ["text", "image"],
                "framework": ["ONNX"],
            }
        )

    def encode(
        self, inputs: Iterable[dict[str, Any]], *, prompt_type: PromptType | None = None, **kwargs: Any
    ) -> NDArray[np.float32]:
        outputs = np.concatenate([np.empty((0, self.hasher.bits), np.float32), *map(self._outputs, inputs)])
        if prompt_type == PromptType.query and self.real_queries:
            return outputs
        return unpack(pack(outputs)).astype(np.float32)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Inner products [n, m] over the number of bits: 1 of two equal codes."""
        return self._rows(embeddings1) @ self._rows(embeddings2).T / self.hasher.bits

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        return (self._rows(embeddings1) * self._rows(embeddings2)).sum(dim=1) / self.hasher.bits

    def _rows(self, embeddings: Any) -> torch.Tensor:
        return torch.as_tensor(embeddings, dtype=torch.float32).reshape(-1, self.hasher.bits)

    def _outputs(self, batch: dict[str, Any]) -> NDArray[np.float32]:
        texts, pictures = batch.get("text"), batch.get("image")
        parts = [self.hasher.query_texts(list(texts))] if texts is not None else []
        parts += [self.hasher.query_pictures(list(pictures))] if pictures is not None else []
        if not parts:
            raise UsageError(f"a batch with {', '.join(batch)}: this model reads texts and pictures")
        if len(parts) == 1:
            return parts[0]
        scaled = [part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-9) for part in parts]
        return np.asarray(sum(scaled), np.float32)
