"""Vector stores of LangChain and LlamaIndex, against the libraries themselves."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

from components import need
from kenthash import Hasher, Index, UsageError
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork

if TYPE_CHECKING:
    from kenthash.integrations.langchain import KenthashStore

TEXTS = ["two dogs and a kite", "a boat on the sea", "snow on a hill"]


@pytest.fixture(scope="module")
def hasher(tmp_path_factory: pytest.TempPathFactory) -> Hasher:
    """Untrained, of 64 bits, over the light encoder."""
    folder, head = tmp_path_factory.mktemp("model"), HeadConfig()
    torch.manual_seed(0)
    HashNetwork(HasherConfig(64, 1280, 384, head, head, "light")).save(folder)
    return Hasher.load(folder)


@pytest.fixture
def store(hasher: Hasher, tmp_path: Path) -> "KenthashStore":
    need("langchain_core")
    from kenthash.integrations.langchain import HasherEmbeddings, KenthashStore

    metadatas = [{"year": 2019}, {"year": 2021}, {"year": 2022}]
    return KenthashStore.from_texts(
        TEXTS, HasherEmbeddings(hasher), metadatas, ids=list("abc"), index=tmp_path / "texts.kh"
    )


def test_langchain_finds_what_the_index_finds(store: "KenthashStore", hasher: Hasher) -> None:
    (expected,) = store.index.search(hasher.query_texts("dogs with a kite"))
    documents = store.similarity_search("dogs with a kite", k=3)
    assert [document.id for document in documents] == expected.ids
    assert [document.page_content for document in documents] == [str(entry["text"]) for entry in expected.metadata]
    late = store.similarity_search("dogs with a kite", k=3, filter="year > 2020")
    assert [document.metadata for document in late] == [
        {"year": entry["year"]} for entry in expected.metadata if entry["year"] != 2019
    ]
    ((same, score),) = store.similarity_search_with_relevance_scores(TEXTS[1], k=1)
    assert same.id == "b" and score == 1.0
    assert store.as_retriever(search_kwargs={"k": 2}).invoke(TEXTS[2])[0].id == "c"


def test_langchain_adds_replaces_and_removes(store: "KenthashStore", tmp_path: Path) -> None:
    (new,) = store.add_texts(["a red bus"])
    assert store.get_by_ids([new, "nothing"])[0].page_content == "a red bus"
    store.add_texts(["a green bus"], ids=[new])
    assert store.similarity_search("a green bus", k=1)[0].id == new and len(store.index) == 4
    Image.new("RGB", (60, 40), "red").save(tmp_path / "red.png")
    Image.new("RGB", (60, 40), "blue").save(tmp_path / "blue.png")
    store.add_images([tmp_path / "red.png", tmp_path / "blue.png"])
    (document,) = store.similarity_search_by_image(tmp_path / "blue.png", k=1)
    assert document.metadata == {"picture": str(tmp_path / "blue.png")} and document.page_content == ""
    assert store.delete([new]) and new not in store.index
    with pytest.raises(UsageError, match="1 documents, 2 ids"):
        store.add_texts(["a"], ids=["x", "y"])


@pytest.fixture
def nodes(hasher: Hasher) -> list[Any]:
    need("llama_index.core")
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

    vectors = hasher.query_texts(TEXTS).astype(np.float64)
    return [
        TextNode(
            text=text,
            id_=f"node {number}",
            embedding=vector.tolist(),
            metadata={"year": 2019 + number, "place": "O'Hare"},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"document {number % 2}")},
        )
        for number, (text, vector) in enumerate(zip(TEXTS, vectors, strict=True))
    ]


def test_llama_index_finds_filters_and_deletes(hasher: Hasher, nodes: list[Any], tmp_path: Path) -> None:
    from llama_index.core.vector_stores.types import (
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
    )

    from kenthash.integrations.llama_index import KenthashVectorStore

    with Index.create(tmp_path / "nodes.kh", bits=64) as index:
        store = KenthashVectorStore(index)
        assert store.add(nodes) == ["node 0", "node 1", "node 2"]
        query = [float(value) for value in hasher.query_texts(TEXTS[1])[0]]
        result = store.query(VectorStoreQuery(query, similarity_top_k=3))
        (expected,) = index.search(hasher.query_texts(TEXTS[1]))
        assert result.ids == expected.ids and result.similarities is not None and result.similarities[0] == 1.0
        assert result.nodes is not None and result.nodes[0].get_content() == TEXTS[1]
        assert result.nodes[0].metadata == {"year": 2020, "place": "O'Hare"}
        filters = MetadataFilters(
            filters=[
                MetadataFilter(key="year", value=2020, operator=FilterOperator.GTE),
                MetadataFilter(key="place", value="O'Hare"),
                MetadataFilter(key="year", value=[2021, 2022], operator=FilterOperator.NIN),
            ]
        )
        assert store.query(VectorStoreQuery(query, 3, filters=filters)).ids == ["node 1"]
        assert store.query(VectorStoreQuery(query, 3, doc_ids=["document 1"])).ids == ["node 1"]
        assert [node.node_id for node in store.get_nodes(["node 2", "nothing"])] == ["node 2"]
        with pytest.raises(UsageError, match="mode hybrid"):
            store.query(VectorStoreQuery(query, mode=VectorStoreQueryMode.HYBRID))
        store.delete("document 0")
        assert list(index) == ["node 1"]
        store.delete_nodes(["node 1"])
        assert len(index) == 0


def test_llama_index_retrieves_through_its_own_index(hasher: Hasher, tmp_path: Path) -> None:
    need("llama_index.core")
    from llama_index.core import Document, StorageContext, VectorStoreIndex

    from kenthash.integrations.llama_index import HasherEmbedding, KenthashVectorStore

    embedding = HasherEmbedding.of(hasher)
    Image.new("RGB", (60, 40), "red").save(tmp_path / "red.png")
    expected = hasher.query_pictures(tmp_path / "red.png")[0]
    np.testing.assert_allclose(embedding.get_image_embedding(str(tmp_path / "red.png")), expected)
    with Index.create(tmp_path / "nodes.kh", bits=64) as index:
        context = StorageContext.from_defaults(vector_store=KenthashVectorStore(index))
        documents = [Document(text=text) for text in TEXTS]
        vector_index = VectorStoreIndex.from_documents(documents, context, embed_model=embedding, transformations=[])
        (best,) = vector_index.as_retriever(similarity_top_k=1).retrieve(TEXTS[2])
        assert best.get_content() == TEXTS[2] and best.score == 1.0
