"""Pictures that are sent to the service, and those that it shows."""

from io import BytesIO

import httpx
from small_service import Place, jpeg, problem, wait_until

from kenthash import Hasher, Index
from kenthash.search.models import PICTURES
from photos import photo


def test_an_upload_has_the_code_of_its_file(client: httpx.Client, place: Place) -> None:
    stream = BytesIO()
    photo(0).save(stream, "JPEG", quality=90)
    content = stream.getvalue()
    (place.folder / "upload.jpg").write_bytes(content)
    code = Hasher.load(place.model).encode_pictures([place.folder / "upload.jpg"])
    answer = client.post("/search", files={"image": ("a", content)}).json()
    assert answer["query"]["code"] == code.tobytes().hex()


def test_codes_of_two_versions_are_not_mixed(client: httpx.Client, place: Place) -> None:
    """Into an index of another version no picture is put; codes and texts still are."""
    form = {"image": ("a", jpeg(77))}
    with Index.open(place.index) as index:
        version = index.notes()[PICTURES]
        index.note(PICTURES, "another")
        wait_until(lambda: client.put("/items/mixed", files=form).status_code == 409)
        assert "index add" in problem(client.put("/items/mixed", files=form), 409, "old-codes")
        assert client.put("/items/by-code", json={"code": "00" * 8}).status_code == 201
        assert client.post("/search", files=form).status_code == 200
        index.note(PICTURES, version)
    wait_until(lambda: client.put("/items/mixed", files=form).status_code != 409)
    assert [client.delete(f"/items/{id}").status_code for id in ("mixed", "by-code")] == [204, 204]
