"""`kenthash demo`: the main job with default settings, end to end, in one folder.

Scenes are made. A folder of some of them, without labels and captions, is indexed and searched at once with a
pretrained model. Then all are encoded with the light encoder, and two methods learn 64-bit codes of them: the default
one, and DSPH, whose proxies are points. They are compared with what needs no learning: the vectors themselves, and
their signs. The codes go into a local index, which answers five queries. A second run uses what is finished.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kenthash.api import hasher_of, index_folder, search_index
from kenthash.data.contact_sheet import contact_sheet
from kenthash.data.dataset import Dataset
from kenthash.data.pack import FeaturePack
from kenthash.data.readers import read_dataset
from kenthash.data.scenes import make_scenes
from kenthash.data.splits import Split
from kenthash.encoders import vector_encoder
from kenthash.encoders.pipeline import encode_dataset
from kenthash.evaluation.real_valued import real_valued_map
from kenthash.files import read_json
from kenthash.methods import METHODS
from kenthash.methods.closed_form import Sign
from kenthash.model import Hasher
from kenthash.search import Index, add_texts
from kenthash.search.answer import ScoredHit
from kenthash.search.folders.roots import OWN_INDEX
from kenthash.search.models import assign_model
from kenthash.studies.controls import CONTROLS, side_of
from kenthash.training.evaluate import evaluate_run
from kenthash.training.recipe import Recipe, make_recipe
from kenthash.training.train import calibrate_run, train_run

BITS = 64
Row = tuple[str, float, float, int]  # name, mAP image → text, text → image, bytes per item
SHOWN = 12  # pictures on the contact sheet
FOLDER_PICTURES = 300  # of the folder that is searched without labels, captions and training
FOLDER_QUERIES = ["an elephant", "a boat on the water", "an electric guitar"]
QUERIES = [
    "two dogs in the park",
    "boats on the water",
    "knives and forks on a table",
    "a computer and a cup at work",
    "an elephant in the zoo",
]
UNFINISHED = {"pictures", "LICENCE.txt", "metadata.jsonl.partial"}  # what `make_scenes` has made before its last step
CONTESTANTS = (Recipe.method, "dsph")  # the first is indexed


def run_demo(out: Path, items: int, echo: Callable[[str], object]) -> None:
    """Make what is missing below `out`; `echo` prints a line."""
    scenes = _scenes(out / "scenes", items, echo)
    dataset = read_dataset(scenes)
    assert dataset.pictures is not None and dataset.texts is not None
    folder = out / "folder"
    echo(f"2. search a folder of pictures, {folder}: no labels, no captions, no training")
    search_plain_folder(folder, dataset.pictures[:FOLDER_PICTURES], echo)

    echo(f"3. encode {len(dataset):,} pictures and their captions with the light encoder")
    pack = encode_dataset(dataset, vector_encoder("light"), out / "pack").pack
    sheet = out / "scenes.png"
    contact_sheet(dataset.pictures[:SHOWN], [texts[0] for texts in dataset.texts[:SHOWN]], sheet)
    echo(f"   {pack}: the feature pack; {sheet}: the first pictures with their captions")

    echo(f"4. learn codes of {BITS // 8} bytes per item, with the default method and with point proxies")
    runs = {name: out / "runs" / name for name in CONTESTANTS}
    metrics = {name: _trained(run, pack, name) for name, run in runs.items()}
    run = runs[CONTESTANTS[0]]
    calibrate_run(run)
    rows = [(METHODS[name].title, m["i2t"]["map"], m["t2i"]["map"], BITS // 8) for name, m in metrics.items()]
    features, split = FeaturePack.open(pack), Split.load(run / "split.npz")
    bits = Sign.fixed_bits(features.text.shape[1])
    signs = _trained(out / "runs" / "sign", pack, "sign", bits)
    rows += [_floats(features, split), ("their signs", signs["i2t"]["map"], signs["t2i"]["map"], bits // 8)]
    echo("")
    echo(_table(rows, metrics[CONTESTANTS[0]]))
    echo(f"figure: {run / 'figures' / 'precision_recall.png'}\n")

    index = out / "scenes.kh"
    echo(f"5. put the codes into an index, {index}, and search it")
    _index(index, run, pack, dataset)
    answers = _answer_queries(index, run, out / "answers.png")
    echo("\n".join(f"   {query:<30} → {nearest}" for query, nearest in answers.items()))
    echo(f"   {out / 'answers.png'}: the four nearest pictures of each\n")
    echo(
        "What next, after `. .venv/bin/activate`:\n"
        f'  cd YOUR-PICTURES && kenthash index add .          then: kenthash search "two dogs and a kite"\n'
        f'  kenthash search "a cat on a sofa" --index {index}\n'
        f"  kenthash serve --index {index} --open             the page to search with\n"
        f"  kenthash compare --data {out / 'pack'} --out {out / 'compare'}   every method side by side\n"
        "  codes learned from your own pictures: see README.md"
    )


def search_plain_folder(folder: Path, pictures: Sequence[Path], echo: Callable[[str], object]) -> None:
    """Put copies of some pictures into a folder by themselves, index it as `kenthash index add` does, with the best
    pretrained model that can be had, and search it in words."""
    folder.mkdir(exist_ok=True)
    for picture in pictures:
        if not (folder / picture.name).exists():
            shutil.copyfile(picture, folder / picture.name)
    target = folder / OWN_INDEX
    index_folder(folder, target, notify=lambda line: echo(f"   {line}"))
    with Index.open(target) as index:
        hasher = hasher_of(index)
        for query in FOLDER_QUERIES:
            answer = search_index(index, query, k=3, model=hasher)
            names = [f"{Path(hit.id).name} ({_score(hit, index.code_bits)})" for hit in answer]
            far = "nothing here is close; nearest: " if answer.nothing_is_close else ""
            echo(f"   {query:<30} → {far}{', '.join(names)}")
    echo(f'   in {folder}: kenthash search "a cat"\n')


def _score(hit: ScoredHit, bits: int) -> str:
    if hit.by_words:
        return "words"
    return f"{hit.distance} of {bits} bits differ" if hit.relevance is None else f"{100 * hit.relevance:.0f} %"


def _scenes(folder: Path, items: int, echo: Callable[[str], object]) -> Path:
    if (folder / "metadata.jsonl").is_file():
        echo(f"1. scenes: {folder} is there already")
        return folder
    echo(f"1. make {items:,} scenes: drawn pictures with captions and labels, in {folder}")
    if folder.is_dir() and {entry.name for entry in folder.iterdir()} <= UNFINISHED:
        shutil.rmtree(folder)  # a run that was stopped half-way; anything else is not ours to remove
    make_scenes(folder, items, seed=0)
    return folder


def _trained(run: Path, pack: Path, name: str, bits: int = BITS) -> dict[str, Any]:
    if not (run / "metrics.json").is_file():
        train_run(make_recipe({"data": str(pack), "bits": bits, "method": name}), run, resume=True)
        evaluate_run(run)
    metrics: dict[str, Any] = read_json(run / "metrics.json")
    return metrics


def _floats(features: FeaturePack, split: Split) -> Row:
    """The encoder's own vectors on the same split."""
    apply = CONTROLS["cosine"](side_of(features, split.train), BITS, split.seed)
    query, database = (apply(side_of(features, rows)).items for rows in (split.query, split.database))
    labels = features.dataset.labels[split.query], features.dataset.labels[split.database]
    i2t = real_valued_map(query.image, database.text, *labels)
    return "float vectors", i2t, real_valued_map(query.text, database.image, *labels), 4 * database.image.shape[1]


def _index(target: Path, run: Path, pack: Path, dataset: Dataset) -> None:
    """Codes of the pack's vectors: pictures and captions need not be encoded again."""
    with Index.open_or_create(target, BITS) as index:
        assign_model(index, run)
        hasher = Hasher.load(run)
        if index.stats().items:
            add_texts(index, hasher.encode_texts)  # for one that an earlier version made
            return
        features = FeaturePack.open(pack)
        places = {name: number for number, name in enumerate(dataset.ids)}
        rows = [places[name] for name in features.dataset.ids]  # less what could not be read
        assert dataset.pictures is not None and dataset.texts is not None
        metadata: list[dict[str, Any]] = [
            {
                "path": str(dataset.pictures[row].resolve()),
                "text": dataset.texts[row][0],
                "labels": [dataset.classes[c] for c in dataset.labels[row].nonzero()[0]],
            }
            for row in rows
        ]
        index.add(features.dataset.ids, hasher.encode_image_features(features.image), metadata)
        first = features.text[features.text_offsets[:-1]]
        texts = dict(zip([entry["text"] for entry in metadata], hasher.encode_text_features(first), strict=True))
        add_texts(index, lambda few: np.stack([texts[text] for text in few]))


def _answer_queries(target: Path, run: Path, sheet: Path) -> dict[str, str]:
    """Answer the queries, draw their nearest pictures; returns the caption of each query's nearest."""
    with Index.open(target) as index:
        answers = index.search(Hasher.load(run).encode_texts(QUERIES), k=4)
    pictures = [Path(str(entry["path"])) for hits in answers for entry in hits.metadata]
    captions = [
        f"{query if rank == 0 else ''}\n{distance} of {BITS} bits differ"
        for query, hits in zip(QUERIES, answers, strict=True)
        for rank, distance in enumerate(hits.distances)
    ]
    contact_sheet(pictures, captions, sheet, title="Found by words")
    return {query: str(hits.metadata[0]["text"]) for query, hits in zip(QUERIES, answers, strict=True)}


def _table(rows: list[Row], about: dict[str, Any]) -> str:
    lines = [f"{'mAP':<16}{'image → text':>14}{'text → image':>14}{'bytes per item':>16}"]
    lines += [f"{name:<16}{i2t:>14.4f}{t2i:>14.4f}{size:>16,}" for name, i2t, t2i, size in rows]
    lines.append(f"{about['i2t']['queries']:,} queries, {about['i2t']['database']:,} items; relevant: shares a label")
    return "\n".join(lines)
