"""The streaming JSON reader against the standard library's, whatever the size of its chunks."""

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kenthash.data.readers import jsonstream
from kenthash.errors import DataError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(
    value=st.dictionaries(st.text(max_size=4), VALUES, max_size=5),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
    ascii_only=st.booleans(),
)
def test_streams_what_json_loads(tmp_path_factory: pytest.TempPathFactory, value, chunk, indent, ascii_only) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=ascii_only), encoding="utf-8", newline="")
    expected = [
        (key, element) for key, inner in value.items() for element in (inner if isinstance(inner, list) else [inner])
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonstream, "CHUNK", chunk)
        assert list(jsonstream.stream_object(path)) == expected


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"a": [1, 2', '{"a": [1 2]}', '{"a": 1,}', '{"a" 1}', "{1: 2}", '{"a": [}', '{"a": [tru]}']
)
def test_broken_json_is_an_error_that_names_the_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"broken\.json: not valid JSON: .* at character \d+$"):
        list(jsonstream.stream_object(path))


def test_memory_stays_small_on_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonstream, "CHUNK", 1 << 16)
    path = tmp_path / "large.json"
    element = json.dumps({"segmentation": [[1.5] * 400], "image_id": 1})
    path.write_text('{"annotations": [' + ", ".join([element] * 1000) + "]}")  # 2 MB, 10 MB as objects
    tracemalloc.start()
    seen = sum(value["image_id"] for _, value in jsonstream.stream_object(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 1000
    assert peak < 800_000
