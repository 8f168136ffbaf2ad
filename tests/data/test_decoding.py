"""Pictures decoded in processes of their own: the same pixels, within limits, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from components import need
from kenthash.data.check import check_dataset
from kenthash.data.decoding import DecoderPool
from kenthash.data.headers import MAX_SCANS, expected_work, format_of, jpeg_work
from kenthash.data.pictures import BadPicture, Square, TooLarge, open_picture, to_square
from kenthash.data.readers import read_dataset
from kenthash.errors import KenthashError
from photos import many_scans, photo

SQUARE = Square(224)


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    stream = BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def workers_of(pool: DecoderPool) -> list[int]:
    return [worker._process.pid for worker in pool._idle]


def test_a_worker_gives_the_pixels_that_this_process_would(tmp_path: Path) -> None:
    photo(1).save(tmp_path / "a photo.jpg", quality=90)
    (tmp_path / "bad.jpg").write_text("no picture")
    tall = photo(2, (300, 900)).convert("RGBA")
    with DecoderPool() as pool:
        for square in (SQUARE, Square(64, "bilinear", crop=True)):
            for source in (tmp_path / "a photo.jpg", encoded(tall, "PNG"), tall):
                assert np.array_equal(pool.square(source, square), to_square(source, square))
        small = Image.open(BytesIO(pool.thumbnail(tmp_path / "a photo.jpg", 128)))
        assert (small.format, small.size) == ("JPEG", (128, 96))
        with pytest.raises(BadPicture) as refused:
            pool.square(tmp_path / "bad.jpg", SQUARE)
        assert str(refused.value) == f"{tmp_path / 'bad.jpg'}: not a picture that can be decoded"
        with pytest.raises(BadPicture, match="No such file"):
            pool.square(tmp_path / "none.jpg", SQUARE)
        with pytest.raises(TooLarge, match="more than the 1 megapixels allowed"):
            pool.square(tmp_path / "a photo.jpg", SQUARE, max_pixels=1_000_000)
        assert len(workers_of(pool)) == 1  # one thread has asked, and no picture has cost it its worker
    with pytest.raises(KenthashError, match="closed"):
        pool.square(tmp_path / "a photo.jpg", SQUARE)


def test_what_takes_too_long_is_ended_and_the_next_picture_served() -> None:
    """A progressive JPEG just below the limit of scans, of a size that takes each of them some time."""
    attack, good = many_scans(MAX_SCANS), encoded(photo(3, (400, 300)), "JPEG")
    with DecoderPool(seconds=0.2, patience=1000) as pool:
        pool.square(good, SQUARE)
        for _ in range(2):
            with pytest.raises(BadPicture, match=r"takes more than 0\.2 s of processor time to decode"):
                pool.square(attack, SQUARE)
            pool.square(good, SQUARE)
    with DecoderPool(seconds=1000, patience=0.2) as pool, pytest.raises(BadPicture, match=r"takes more than 0\.2 s to"):
        pool.square(attack, SQUARE)


def test_memory_is_limited() -> None:
    grey = encoded(Image.new("RGB", (9900, 9900)), "PNG")  # 392 MB
    with DecoderPool(memory=480 << 20) as pool:
        with pytest.raises(BadPicture, match="memory"):
            pool.square(grey, SQUARE)
        pool.square(encoded(Image.new("L", (90, 90)), "PNG"), SQUARE)


def test_a_worker_that_was_ended_by_others_is_replaced(tmp_path: Path) -> None:
    """Whoever is short of memory ends processes: that is not the picture's fault."""
    with DecoderPool() as pool:
        content = encoded(photo(3, (400, 300)), "JPEG")
        before = pool.square(content, SQUARE)
        [worker] = workers_of(pool)
        os.kill(worker, signal.SIGKILL)
        assert np.array_equal(pool.square(content, SQUARE), before) and workers_of(pool) != [worker]


def test_closing_ends_what_is_being_decoded() -> None:
    pool, ended = DecoderPool(seconds=1000), []

    def decode() -> None:
        try:
            pool.square(many_scans(MAX_SCANS, (9000, 9000)), SQUARE)
        except BadPicture as error:
            ended.append(error)

    pool.start(1)
    [worker] = workers_of(pool)
    thread = threading.Thread(target=decode)
    thread.start()
    while pool._idle:  # until the worker is at it
        pass
    pool.close()
    thread.join()
    assert ended
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_workers_do_not_outlive_a_process_that_is_killed(tmp_path: Path) -> None:
    """Idle ones see that nobody asks any more; one at work ends with its picture, or by its limit."""
    (tmp_path / "attack.jpg").write_bytes(many_scans(MAX_SCANS))
    script = f"""
import threading
from pathlib import Path
from kenthash.data.decoding import DecoderPool
from kenthash.data.pictures import Square
pool = DecoderPool(seconds=0.5)
pool.start(2)
print([worker._process.pid for worker in pool._idle], flush=True)
threading.Thread(target=pool.square, args=(Path({str(tmp_path / "attack.jpg")!r}), Square(224))).start()
threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        workers = json.loads(process.stdout.readline())
        process.kill()
    for worker in workers:
        while _is_alive(worker):
            pass


def _is_alive(pid: int) -> bool:
    """Not counting one that has ended, and waits for whoever inherits it to take notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_that_cannot_start_is_no_fault_of_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    for executable, reason in (("/bin/false", "cannot be started"), ("/nowhere/python", "No such file")):
        monkeypatch.setattr(sys, "executable", executable)
        with DecoderPool() as pool, pytest.raises(KenthashError, match=reason) as failed:
            pool.square(encoded(photo(3, (400, 300)), "JPEG"), SQUARE)
        assert not isinstance(failed.value, BadPicture)


def test_workers_do_without_pytorch() -> None:
    script = "import sys, kenthash.data.decoding; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "False False\n"


def test_the_scans_of_a_jpeg_are_counted_before_it_is_decoded() -> None:
    plain, progressive = (encoded(photo(1, (640, 480)), "JPEG", progressive=on) for on in (False, True))
    assert jpeg_work(plain) == 640 * 480 and 5 * 640 * 480 < jpeg_work(progressive) < 20 * 640 * 480
    film = plain + b"\xff\xda\x00\x08" * 1000  # behind the picture's end, as phones keep a short film there
    assert jpeg_work(film) == 640 * 480 * 1
    assert open_picture(film).size == (640, 480)
    thumbnail = Image.Exif()
    thumbnail[0x9286] = (b"\xff\xda" * 1000).decode("latin1")  # inside a segment
    assert jpeg_work(encoded(photo(1, (640, 480)), "JPEG", exif=thumbnail)) == 640 * 480
    for content in (many_scans(MAX_SCANS + 1), many_scans(2736)):
        with pytest.raises(BadPicture, match="a JPEG of more than 100 scans"):
            open_picture(content)
    comments = plain[:2] + b"\xff\xfe\x00\x02" * 20_000 + plain[2:]
    with pytest.raises(BadPicture, match="more than 10,000 segments"):
        open_picture(comments)


@pytest.mark.parametrize("size", [(640, 480), (31, 700)])
def test_work_is_told_by_the_header(size: tuple[int, int]) -> None:
    """Against what Pillow has written; four for each byte are added."""
    picture = photo(1, size)
    forms: list[tuple[str, dict[str, object]]] = [
        ("JPEG", {}), ("PNG", {}), ("GIF", {}), ("BMP", {}), ("WEBP", {}), ("WEBP", {"lossless": True}),
        ("WEBP", {"exif": b"Exif\0\0II*\0\x08\0\0\0\0\0"}),
    ]  # fmt: skip
    for kind, options in forms:
        content = encoded(picture, kind, **options)
        assert format_of(content[:16]) == kind
        assert expected_work(content) - 4 * len(content) == size[0] * size[1], (kind, options)
    assert format_of(b"<svg/>") is None and expected_work(b"GIF89a") == 24


def test_heic_is_known_by_its_first_bytes() -> None:
    need("pillow_heif")
    assert format_of(encoded(photo(1, (640, 480)), "HEIF")) == "HEIF"


def test_the_check_of_a_folder_ends(tmp_path: Path) -> None:
    (tmp_path / "attack.jpg").write_bytes(many_scans(2736))
    photo(1, (400, 300)).save(tmp_path / "good.jpg")
    rows = [{"file_name": name, "text": "a", "labels": ["x"]} for name in ("attack.jpg", "good.jpg")]
    (tmp_path / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    [bad] = [p for p in check_dataset(read_dataset(tmp_path)).problems if "cannot be read" in p.what]
    assert len(bad.examples) == 1 and "scans" in bad.examples[0]
