"""Pictures are decoded and indexed without what Windows lacks."""

import os
import subprocess
import sys
from pathlib import Path

from PIL import Image

from kenthash.data.headers import MAX_SCANS
from photos import many_scans
from processes import PATIENCE
from windows import path_that_lacks

SCRIPT = """
import sys
from pathlib import Path

import numpy as np

import kenthash
from kenthash.data.decoding import DecoderPool
from kenthash.data.pictures import BadPicture, Square, square_with_facts
from kenthash.files import alone, write_json
from kenthash.model.hasher import EncodedFiles
from kenthash.search import Index
from kenthash.search.folders.folder import sync_folder
from kenthash.search.folders.walk import walk_folder

photos, square = Path("photos"), Square(64)
with DecoderPool(one_large=True) as pool:

    def encode(batches):
        for batch in batches:
            facts, codes, bad = [{} for _ in batch], np.zeros((len(batch), 8), np.uint8), {}
            for number, picture in enumerate(batch):
                try:
                    pixels, facts[number] = pool.square_with_facts(picture, square)
                except BadPicture as error:
                    bad[number] = error.reason
                else:
                    assert np.array_equal(pixels, square_with_facts(picture, square)[0])
                    codes[number] = pixels[:8, 0, 0]
            yield EncodedFiles(codes, facts, bad)

    with Index.create("photos.kh", bits=64) as index:
        report = sync_folder(index, walk_folder(photos), encode)
        assert (report.added, list(report.skipped)) == (1, ["photos/bad.jpg"]), report
        (hits,) = index.search(index["photos/good.jpg"].code[None], k=1)
        assert hits.ids == ["photos/good.jpg"] and hits.distances[0] == 0
with DecoderPool(patience=-0.9) as hurried:  # a worker has a second more than this before its owner ends it
    try:
        hurried.square(Path("slow.jpg"), square)
    except BadPicture as error:
        assert "to decode" in str(error), error
    else:
        sys.exit("was not ended")
with alone(Path("work")):  # whose lock is held by another at first
    write_json(Path("work/a.json"), [1])
print("done")
"""


def test_pictures_are_indexed_without_what_windows_lacks(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    Image.linear_gradient("L").convert("RGB").save(tmp_path / "photos" / "good.jpg")
    (tmp_path / "photos" / "bad.jpg").write_text("no picture")
    (tmp_path / "slow.jpg").write_bytes(many_scans(MAX_SCANS))
    environment = os.environ | {"PYTHONPATH": path_that_lacks(tmp_path / "site")}
    command = [sys.executable, "-c", SCRIPT]
    completed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert (completed.returncode, completed.stdout) == (0, "done\n"), completed.stderr
    assert "another process is writing there" in completed.stderr
