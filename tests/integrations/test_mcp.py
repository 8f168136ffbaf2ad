"""`kenthash mcp` as an assistant uses it: started as a command, and spoken to by the protocol's own client."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from components import need
from kenthash import Hasher, Index
from kenthash.model.config import HasherConfig, HeadConfig
from kenthash.model.network import HashNetwork


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `photos`, a `model` of the light encoder, and the index `photos.kh`."""
    folder, head = tmp_path_factory.mktemp("mcp"), HeadConfig()
    (folder / "photos").mkdir()
    for number, name in enumerate(("a", "b", "c")):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).resize((900, 600)).save(folder / "photos" / f"{name}.jpg")
    torch.manual_seed(0)
    HashNetwork(HasherConfig(64, 1280, 384, head, head, "light")).save(folder / "model")
    with Index.create(folder / "photos.kh", bits=64) as index:
        index.add_folder(folder / "photos", Hasher.load(folder / "model"))
    return folder


def test_an_assistant_searches_and_looks(place: Path) -> None:
    need("mcp")
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    words = ["-m", "kenthash", "mcp", "--index", str(place / "photos.kh")]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search_by_words", {"words": "two dogs", "k": 2}),
        ("search_by_picture", {"path": str(place / "photos" / "b.jpg"), "filter": "width = 900"}),
        ("search_by_words", {"words": "the C photos", "k": 2}),
        ("search_by_words", {"words": "two dogs", "plus": ["a kite"], "without": ["snow"]}),
        ("show", {"id": "photos/c.jpg"}),
        ("show", {"id": "photos/d.jpg"}),
        ("search_by_words", {"words": "two dogs", "k": 0}),
        ("search_by_picture", {"path": str(place / "nothing.jpg")}),
        ("search_by_words", {"words": "two dogs", "filter": "not path < '/m'"}),
        ("search_by_picture", {"path": str(place / "photos" / "b.jpg"), "filter": "digest > 'a'"}),
    ]

    async def talk() -> tuple[list[str], list[Any]]:
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            return tools, [await session.call_tool(name, arguments) for name, arguments in calls]

    tools, (by_words, by_picture, by_name, combined, shown, *wrong) = asyncio.run(talk())
    assert tools == ["search_by_words", "search_by_picture", "show"]
    with Index.open(place / "photos.kh") as index:
        (expected,) = index.search(Hasher.load(place / "model").query_texts("two dogs"), k=2)
    hits = by_words.structured_content["result"]
    assert [hit["id"] for hit in hits] == expected.ids
    assert hits[0]["path"] == str(place / expected.ids[0]) and "digest" not in hits[0]["metadata"]
    nearest = json.loads(by_picture.content[0].text)
    nearest = nearest[0] if isinstance(nearest, list) else nearest
    assert (nearest["id"], nearest["distance"]) == ("photos/b.jpg", 0)
    named = by_name.structured_content["result"]
    assert [(hit["id"], hit["by_words"]) for hit in named][:1] == [("photos/c.jpg", True)] and len(named) == 2
    assert len(combined.structured_content["result"]) == 3
    picture, described = shown.content
    assert picture.type == "image" and json.loads(described.text)["metadata"]["width"] == 900
    assert len(picture.data) < 60_000  # it is made small
    reasons = ["no such id in the index", "k = 0: must be from 1 to 100", "nothing.jpg"]
    reasons += ["filter: path describes a file", "filter: digest describes a file"]
    for answer, reason in zip(wrong, reasons, strict=True):
        assert answer.is_error and reason in answer.content[0].text
