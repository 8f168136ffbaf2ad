"""Pictures that are sent to the service, and those that it shows."""

import asyncio
import signal
import socket
import threading
import time
from contextlib import suppress
from io import BytesIO

import httpx
from small_service import Place, jpeg, name, problem, running, wait_until

from kenthash import Hasher, Index
from kenthash.data.headers import MAX_SCANS
from kenthash.search.models import PICTURES
from kenthash.service.app import make_app
from kenthash.service.settings import ServiceSettings
from kenthash.service.state import make_service
from photos import many_scans, photo


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


def test_pictures_that_take_too_long_hold_up_each_other_only(place: Place) -> None:
    """More of them than there are workers. What others ask for meanwhile comes before those that wait."""
    service = make_service(ServiceSettings(str(place.index), max_pixels=100_000_000, upload_seconds=1.0))
    attack = many_scans(MAX_SCANS, (9900, 9900))
    ended: list[str] = []

    async def run() -> None:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=None) as client:

            async def upload(what: str, content: bytes) -> httpx.Response:
                answer = await client.post("/search", files={"image": ("a", content)})
                ended.append(what)
                return answer

            async def thumbnail() -> httpx.Response:
                answer = await client.get(f"/items/{name(0)}/thumbnail?size=512")
                ended.append("thumbnail")
                return answer

            attacks = [asyncio.create_task(upload("attack", attack + bytes([n]))) for n in range(6)]
            while service.upload_decoders.waiting < 4:
                await asyncio.sleep(0.01)
            good = await asyncio.gather(upload("photo", jpeg(50, (800, 600))), thumbnail())
            assert [answer.status_code for answer in good] == [200, 200]
            assert ended.count("attack") <= 3  # two at work, and the third took its turn after the first photo at most
            for task in attacks:
                assert "takes more than" in problem(await task, 422, "bad-picture")
            assert (await client.get(f"/items/{name(1)}/image")).status_code == 200

    try:
        asyncio.run(run())
    finally:
        service.close()


def test_a_picture_that_cannot_be_shown_is_not_tried_again(place: Place) -> None:
    service = make_service(ServiceSettings(str(place.index), thumbnail_seconds=0.5))
    file = place.photos / "2024" / "7.jpg"
    content = file.read_bytes()
    file.write_bytes(many_scans(MAX_SCANS))

    async def run() -> None:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=None) as client:
            for _ in range(2):
                problem(await client.get(f"/items/{name(7)}/thumbnail"), 404, "not-found")
                service.thumbnail_decoders.close()  # nothing more can be decoded, and nothing has to be

    try:
        asyncio.run(run())
    finally:
        service.close()
        file.write_bytes(content)


def test_the_service_survives_an_attack_and_ends_when_told(place: Place) -> None:
    """Two uploads that would take hours, then two that take as long as any may, and a request that never ends."""
    with running(place, "--timeout", "600") as server, httpx.Client(base_url=server.url, timeout=None) as client:
        for _ in range(2):
            answer = client.post("/search", files={"image": ("a", many_scans(20_000))})
            assert "scans" in problem(answer, 422, "bad-picture")
        assert client.get(f"/items/{name(0)}/thumbnail?size=512").status_code == 200

        slow = many_scans(MAX_SCANS)

        def upload(number: int) -> None:
            with suppress(httpx.HTTPError):
                httpx.post(f"{server.url}/search", files={"image": ("a", slow + bytes([number]))}, timeout=None)

        for number in range(2):
            threading.Thread(target=upload, args=[number], daemon=True).start()
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.sendall(b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            raw.sendall(b"Content-Length: 100\r\n\r\n{")
            wait_until(lambda: "requests_in_flight 1.0" not in client.get("/metrics").text)  # itself, that is
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(120)
            assert time.monotonic() - began < 60  # ten on a machine with nothing else to do; the request has 600
