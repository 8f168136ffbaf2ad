"""`kenthash demo`: the main job on the embedded default, end to end, in one folder.

Scenes are made, encoded with the light encoder, and two methods learn 64-bit codes of them: KDPH, and the same with
point proxies. What is finished is kept, so that a second run only reports.
"""

import shutil
from pathlib import Path
from typing import Any

from kenthash.data.contact_sheet import contact_sheet
from kenthash.data.readers import read_dataset
from kenthash.data.scenes import make_scenes
from kenthash.encoders import load_encoder
from kenthash.encoders.pipeline import encode_dataset
from kenthash.files import read_json
from kenthash.runs.evaluate import evaluate_run
from kenthash.runs.train import train_run
from kenthash.training.recipe import find_recipe, make_recipe, read_recipe

BITS = 64
SHOWN = 12  # pictures on the contact sheet
CONTESTANTS = {"kdph": "Kent proxies", "point": "point proxies"}


def run_demo(out: Path, items: int, say: Any) -> None:
    """Make what is missing below `out`; `say` prints a line."""
    scenes = _scenes(out / "scenes", items, say)
    dataset = read_dataset(scenes)
    say(f"2. encode {len(dataset):,} pictures and their captions with the light encoder")
    pack = encode_dataset(dataset, load_encoder("light"), out / "pack").pack
    assert dataset.pictures is not None and dataset.texts is not None
    sheet = out / "scenes.png"
    contact_sheet(dataset.pictures[:SHOWN], [texts[0] for texts in dataset.texts[:SHOWN]], sheet)
    say(f"   {pack}: the feature pack; {sheet}: the first pictures with their captions")

    say(f"3. learn codes of {BITS // 8} bytes an item, with Kent proxies and with point proxies")
    rows = {name: _trained(out / "runs" / name, pack, name) for name in CONTESTANTS}
    say("")
    say(_table(rows))
    figure = out / "runs" / "kdph" / "figures" / "precision_recall.png"
    say(f"\nfigure: {figure}")
    say(
        '\nWhat next: your own pictures (README, "Your own pictures"), every figure of a run with\n'
        f"`kenthash evaluate {out / 'runs' / 'kdph'}`, or all methods side by side with\n"
        f"`kenthash compare --data {pack} --out {out / 'compare'}`."
    )


def _scenes(folder: Path, items: int, say: Any) -> Path:
    if (folder / "metadata.jsonl").is_file():
        say(f"1. scenes: {folder} is there already")
        return folder
    say(f"1. make {items:,} scenes: drawn pictures with captions and labels, in {folder}")
    if folder.exists():
        shutil.rmtree(folder)  # a run that was stopped half-way: without metadata.jsonl it is not a data set
    make_scenes(folder, items, seed=0)
    return folder


def _trained(run: Path, pack: Path, name: str) -> dict[str, Any]:
    if not (run / "metrics.json").is_file():
        layer: dict[str, Any] = {"data": str(pack), "bits": BITS}
        if name == "point":
            layer["settings"] = {"proxy": "point"}
        train_run(make_recipe(read_recipe(find_recipe("kdph-scenes")), layer), run, resume=True)
        evaluate_run(run)
    metrics: dict[str, Any] = read_json(run / "metrics.json")
    return metrics


def _table(rows: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'binary mAP':<16}{'image → text':>14}{'text → image':>14}{'bytes an item':>15}"]
    lines += [
        f"{CONTESTANTS[name]:<16}{m['i2t']['map']:>14.4f}{m['t2i']['map']:>14.4f}{m['bits'] // 8:>15}"
        for name, m in rows.items()
    ]
    m = next(iter(rows.values()))
    lines.append(f"{m['i2t']['queries']:,} queries, {m['i2t']['database']:,} items; relevant: shares a label")
    return "\n".join(lines)
