"""The streaming reader of COCO's annotations against the standard library's, whatever the size of its chunks."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kenthash.data.readers import coco
from kenthash.errors import DataError

INTEGERS = st.integers(-(2**62), 2**62)  # the parser has 64 bits
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)
ELEMENTS = st.lists(st.dictionaries(st.sampled_from(["id", "name", "polygon"]), VALUES, max_size=3), max_size=4)
WANTED = {"images": ("id", "name"), "annotations": ("id",)}


@given(
    value=st.dictionaries(st.text(max_size=4), VALUES, max_size=3),
    images=ELEMENTS,
    annotations=ELEMENTS,
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
    ascii_only=st.booleans(),
)
def test_reads_what_json_loads(
    tmp_path_factory: pytest.TempPathFactory,
    value: dict[str, Any],
    images: Any,
    annotations: Any,
    chunk: int,
    indent: int | None,
    ascii_only: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    whole = {"annotations": annotations, **value, "images": images}
    path.write_text(json.dumps(whole, indent=indent, ensure_ascii=ascii_only), encoding="utf-8-sig", newline="")
    expected = [
        (array, {key: inner for key, inner in element.items() if key in WANTED[array] and is_scalar(inner)})
        for array in ("annotations", "images")
        for element in whole[array]
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coco, "CHUNK", chunk)
        assert list(coco.read_elements(path, WANTED)) == expected


def is_scalar(value: object) -> bool:
    return not isinstance(value, (list, dict))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON: premature EOF"),
        ('{"images": [{"id": 1}, ', "not valid JSON: premature EOF"),
        ('{"images": [1 2]}', 'not valid JSON: after array element, .* near \'{"images": '),
        ('{"images": 1,}', "not valid JSON: invalid object key .* near"),
        ('{"images": [tru]}', "not valid JSON: invalid string in json text, near"),
        ('{"images": "\udcff"}', "not valid JSON: invalid bytes in UTF8 string, near"),
        ('{"other": ' + "[" * 10_000, "nested too deep"),
        ('{"other": "' + "x" * 1000, "a string of more than 100 bytes"),
        ("[1]", "must be a JSON object"),
        ("7", "must be a JSON object"),
        ('{"images": {"id": 1}}', "'images' must be an array of objects"),
        ('{"images": 7}', "'images' must be an array of objects"),
        ('{"images": [7]}', "'images' must be an array of objects"),
        ('{"images": [[7]]}', "'images' must be an array of objects"),
    ],
)
def test_broken_json_is_an_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setattr(coco, "CHUNK", 32)
    monkeypatch.setattr(coco, "MAX_STRING", 100)
    path = tmp_path / "broken.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=rf"broken\.json: {says}") as refused:
        list(coco.read_elements(path, WANTED))
    assert "\n" not in str(refused.value)


def test_memory_stays_small_on_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    element = json.dumps({"polygon": [[1.5] * 400], "id": 1})
    path.write_text('{"images": [' + ", ".join([element] * 1000) + "]}")  # 2 MB, 10 MB as objects
    tracemalloc.start()
    seen = sum(value["id"] for _, value in coco.read_elements(path, WANTED))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 1000
    assert peak < 1_600_000
