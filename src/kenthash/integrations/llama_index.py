"""A vector store of LlamaIndex that keeps nodes as codes, and a hasher as its embedding model:

    from llama_index.core import StorageContext, VectorStoreIndex
    from kenthash import Hasher, Index
    from kenthash.integrations.llama_index import HasherEmbedding, KenthashVectorStore

    store = KenthashVectorStore(Index.create("notes.kh", bits=256))
    context = StorageContext.from_defaults(vector_store=store)
    nodes = VectorStoreIndex.from_documents(documents, context, embed_model=HasherEmbedding.of(Hasher.load("clip")))

Nodes are kept by the signs of their embeddings; the embedding of a query is compared as it is.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from llama_index.core.base.embeddings.base import Embedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.embeddings import MultiModalEmbedding
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from kenthash.codes import pack
from kenthash.errors import UsageError
from kenthash.model.hasher import Hasher
from kenthash.search import Index

PAGE = 1000  # nodes found at a time, to be deleted

SIGNS = {
    FilterOperator.EQ: "=",
    FilterOperator.NE: "!=",
    FilterOperator.GT: ">",
    FilterOperator.GTE: ">=",
    FilterOperator.LT: "<",
    FilterOperator.LTE: "<=",
}


class HasherEmbedding(MultiModalEmbedding):  # type: ignore[misc]
    """The outputs of a hasher before signing, of texts and pictures."""

    _hasher: Hasher = PrivateAttr()

    @classmethod
    def of(cls, hasher: Hasher) -> Self:
        embedding = cls(model_name=str(hasher.folder))
        embedding._hasher = hasher
        return embedding

    def _get_text_embedding(self, text: str) -> Embedding:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return [list(map(float, row)) for row in self._hasher.query_texts(texts)]

    def _get_query_embedding(self, query: str) -> Embedding:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> Embedding:
        return self._get_text_embedding(query)

    def _get_image_embedding(self, img_file_path: Any) -> Embedding:
        picture = img_file_path.read() if hasattr(img_file_path, "read") else Path(img_file_path)
        return list(map(float, self._hasher.query_pictures(picture)[0]))

    async def _aget_image_embedding(self, img_file_path: Any) -> Embedding:
        return self._get_image_embedding(img_file_path)


class KenthashVectorStore(BasePydanticVectorStore):  # type: ignore[misc]
    """Nodes in an index on any engine, whose number of bits is that of the embeddings."""

    stores_text: bool = True
    _index: Index = PrivateAttr()

    def __init__(self, index: Index) -> None:
        super().__init__(stores_text=True)
        self._index = index

    @property
    def client(self) -> Index:
        return self._index

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes, replacing those whose id exists."""
        if not nodes:
            return []
        outputs = np.array([node.get_embedding() for node in nodes], np.float32)
        metadata = [
            {
                **node_to_metadata_dict(node, remove_text=True, flat_metadata=True),
                "text": node.get_content(MetadataMode.NONE),
            }
            for node in nodes
        ]
        ids = [node.node_id for node in nodes]
        self._index.upsert(ids, pack(outputs), metadata)
        return ids

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Remove the nodes of a document."""
        self._delete_where(f"ref_doc_id = {_literal(ref_doc_id)}")

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        if node_ids is not None and filters is not None:
            raise UsageError("delete_nodes: give either node_ids or filters")
        if filters is not None and (condition := _condition(filters)):
            self._delete_where(condition)
        elif node_ids:
            self._index.remove(node_ids)

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        if node_ids is None or filters is not None:
            raise UsageError("get_nodes: give node_ids; to find nodes by a filter, query the store with it")
        return [_node(item.metadata) for item in self._index.get(node_ids) if item is not None]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nearest nodes. Similarities are 1 for the same code and 0 for the opposite one."""
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise UsageError(f"mode {query.mode.value}: this store finds by embeddings alone: use the mode default")
        if query.query_embedding is None:
            raise UsageError("the query has no embedding")
        conditions = [_condition(query.filters)] if query.filters is not None else []
        if query.doc_ids:
            conditions.append(f"ref_doc_id in ({', '.join(map(_literal, query.doc_ids))})")
        if query.node_ids:
            raise UsageError("node_ids: this store does not search among given nodes")
        condition = " and ".join(f"({part})" for part in conditions if part) or None
        outputs = np.array(query.query_embedding, np.float32)
        (hits,) = self._index.search(outputs, query.similarity_top_k, filter=condition)
        similarities = [1.0 - float(distance) / max(hits.full_distance, 1) for distance in hits.distances]
        return VectorStoreQueryResult([_node(entry) for entry in hits.metadata], similarities, hits.ids)

    def _delete_where(self, condition: str) -> None:
        anything = np.zeros(self._index.code_bits // 8, np.uint8)
        while ids := self._index.search(anything, PAGE, filter=condition)[0].ids:
            self._index.remove(ids)


def _node(metadata: dict[str, Any]) -> BaseNode:
    node: BaseNode = metadata_dict_to_node(metadata, text=str(metadata.get("text", "")))
    return node


def _condition(filters: MetadataFilters) -> str:
    """The same filter in kenthash's language; "" where it is empty."""
    parts = [_condition(part) if isinstance(part, MetadataFilters) else _comparison(part) for part in filters.filters]
    joined = f" {(filters.condition or FilterCondition.AND).value} ".join(f"({part})" for part in parts if part)
    if filters.condition == FilterCondition.NOT:
        joined = " and ".join(f"not ({part})" for part in parts if part)
    return joined


def _comparison(filter: MetadataFilter) -> str:
    key, value, operator = f'"{filter.key}"', filter.value, filter.operator
    if operator in SIGNS and isinstance(value, str | int | float):
        return f"{key} {SIGNS[operator]} {_literal(value)}"
    if operator in (FilterOperator.IN, FilterOperator.NIN) and isinstance(value, list):
        within = f"{key} in ({', '.join(map(_literal, value))})"
        return within if operator == FilterOperator.IN else f"not ({within})"
    if operator in (FilterOperator.ANY, FilterOperator.ALL) and isinstance(value, list):
        join = " or " if operator == FilterOperator.ANY else " and "
        return join.join(f"{key} has {_literal(str(element))}" for element in value)
    if operator in (FilterOperator.CONTAINS, FilterOperator.TEXT_MATCH) and isinstance(value, str):
        return f"{key} has {_literal(value)}"
    if operator == FilterOperator.IS_EMPTY:
        return f"{key} is null"
    raise UsageError(f"filter {filter.key} {operator.value} {value!r}: kenthash has no such comparison")


def _literal(value: str | int | float) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)
