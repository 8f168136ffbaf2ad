"""Codes against quantised float vectors at the same number of bytes per item."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from kenthash import __version__
from kenthash.codes import Codes, pack, unpack
from kenthash.data.splits import PARTS, Rows, Split
from kenthash.errors import UsageError
from kenthash.evaluation import instance_scores, map_of
from kenthash.evaluation.inputs import Labels
from kenthash.evaluation.instances import CodesOrReals
from kenthash.evaluation.real_valued import real_valued_map
from kenthash.files import content_digest, read_json, write_json
from kenthash.progress import track
from kenthash.studies.controls import Side, in_one_space, side_of
from kenthash.studies.drawing import MANY, canvas, legend_below, tidy
from kenthash.studies.grid import Job, run_all
from kenthash.studies.outcome import Outcome, Plot
from kenthash.studies.quantisers import QUANTISERS, Matrix, Vectors, sign_real
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import Study
from kenthash.studies.targets.conditions import map_left_out
from kenthash.training.run_folder import Run
from kenthash.training.supervision import measured as measured_rows

METHOD = "kcph"
FLOATS = 512  # dimensions of the float embedding that is learned with the same head
STAGE = 8  # bytes of the first stage
CANDIDATES = 100  # that the second stage ranks
CODES = ("codes", "codes, real query", f"codes, {STAGE} bytes then all")
MARKERS = ".xvsdp*hPD+"  # of quantisers, which share some colours
KINDS = {"ridge": "ridge-aligned", "learned": "learned floats"}

Pair = tuple[CodesOrReals, CodesOrReals]  # queries, database
RowsOf = dict[str, Rows]  # by the part of the split


@dataclass(frozen=True)
class Figures:
    recall: float  # R@10 of own captions, text → image
    map: float  # of shared labels, mean of both directions; NaN where labels are of no use


Measurements = list[tuple[str, int, Figures]]  # contender and bytes
Measured = dict[tuple[str, int], list[Figures]]  # by contender and bytes: one per seed
Measure = Callable[[str, int], Figures | None]  # of a contender and bytes; None where these are too few for it


def bytes_per_item(study: Study) -> Outcome:
    """One nested model and one float embedding per seed, with labels, where they are of use, and without."""
    sizes = _sizes(study)
    sheets: list[Sheet] = []
    plots: list[Plot] = []
    seen = map_left_out(study)
    parts = {"recall": "own-caption R@10, text → image, in per cent"}
    parts |= {} if study.label_fault else {"map": "mAP, both directions"}
    for labelled in (False,) if study.label_fault else (False, True):
        measured = _measure(study, labelled)
        name = "with labels" if labelled else "without labels"
        for part, title in parts.items():
            rows: list[list[Value]] = []
            for contender in dict.fromkeys(contender for contender, _ in measured):
                values = [_mean(measured.get((contender, size)), part) for size in sizes]
                rows.append(
                    [contender, *(f"{100 * v:.1f}" if part == "recall" and v is not None else v for v in values)]
                )
            caption = f"Learned {name}: {title}, by bytes per item. {study.basis_of_lengths}"
            stem = f"{part}-{'labels' if labelled else 'captions'}"
            head = ["contender", *(f"{size} B" for size in sizes)]
            sheets.append(Sheet(head, rows, caption, name=stem if sheets else "table"))
        plots.append(
            Plot(
                f"figure-{'labels' if labelled else 'captions'}",
                _draw(measured, sizes, list(parts)),
                f"Learned {name}, by bytes per item.",
            )
        )
        seen += _seen(measured, sizes, "map" if labelled else "recall", name)
    return Outcome(
        target="bytes",
        title="What a byte buys",
        measured="How well a caption finds its own photo, and pictures and texts find what shares a label with "
        "them, by bytes per item. Codes are compared with quantised float vectors of two kinds: the encoder's own, "
        "aligned by a ridge map, and an embedding learned from the same items with the same head and loss but no "
        "hashing.",
        paper="The paper compares hashing methods with each other only.",
        seen=seen,
        sheets=sheets,
        plots=plots,
    )


def _sizes(study: Study) -> list[int]:
    """Bytes per item, of each length of codes."""
    return [bits // 8 for bits in sorted(study.bits)]


def _measure(study: Study, labelled: bool) -> Measured:
    data = study.features.path if labelled else _without_labels(study)
    layer = {"method": METHOD, "data": str(data)}
    stem = "bytes-labels" if labelled else "bytes-captions"
    *shorter, longest = sorted(study.bits)
    jobs: dict[tuple[str, int], Job] = {}
    for seed in range(study.seeds):
        nested = {"nested": shorter}
        floats = {"head": {"kind": "unit", "slope": 1.0}}
        for kind, bits, more in (("codes", longest, nested), ("floats", FLOATS, floats)):
            job = study.job(f"{stem}-{kind}", bits, seed, {**layer, **more})
            jobs[kind, seed] = replace(job, layer=job.layer | {"data": str(data)}, evaluate=False)
    run_all(list(jobs.values()), f"runs of bytes ({stem})")
    measured: Measured = {}
    for seed in track(range(study.seeds), "contenders"):
        folders = jobs["codes", seed].out, jobs["floats", seed].out
        for contender, size, figures in _of_seed(study, *folders, seed, labelled):
            measured.setdefault((contender, size), []).append(figures)
    return measured


def _without_labels(study: Study) -> Path:
    """The pack with no class at all, so that no label has any part in training, nor in the choice of an epoch."""
    out = study.out / "packs" / "without-labels"
    vectors = ("image.npy", "text.npy", "text_offsets.npy")
    if (out / "meta.json").is_file():
        own, kept = (content_digest(*(folder / name for name in vectors)) for folder in (study.features.path, out))
        if own != kept:
            raise UsageError(f"{out}: holds the vectors of other data: choose another --out, or remove it")
    else:
        out.mkdir(parents=True, exist_ok=True)
        for path in study.features.path.iterdir():
            if path.is_file() and path.name not in ("labels.npy", "meta.json", "groups.json"):
                shutil.copyfile(path, out / path.name)
        np.save(out / "labels.npy", np.zeros((len(study.labels), 0), np.uint8))
        # With the name of its encoder, so that short texts are trained on as with labels.
        write_json(out / "meta.json", read_json(study.features.path / "meta.json") | {"classes": []})
    return out


def _of_seed(study: Study, codes: Path, floats: Path, seed: int, labelled: bool) -> Measurements:
    """Figures of learned vectors are kept beside their models, those of aligned ones, which no label and no training
    changes, once for both."""
    run = Run.open(codes, "cpu")
    rows = _rows(study, run.split)
    aligned = study.out / "bytes" / f"ridge-{seed}.json"
    return [
        *_kept(codes / "contenders.json", CODES, study, lambda: _measure_codes(run, rows, study)),
        *_kept(aligned, QUANTISERS, study, lambda: _measure_aligned(rows, study, seed), KINDS["ridge"]),
        *_kept(
            floats / "contenders.json",
            QUANTISERS,
            study,
            lambda: _measure_floats(floats, rows, study, seed, labelled),
            KINDS["learned"],
        ),
    ]


def _kept(
    path: Path, names: Iterable[str], study: Study, prepare: Callable[[], Measure], kind: str = ""
) -> Measurements:
    """The figures of these contenders at all sizes, measured where `path` does not have them. Each is written as soon
    as it is known, since together they take longer than the training: what is interrupted goes on where it stopped."""
    stored = read_json(path) if path.is_file() else {}
    if stored.get("version") != __version__ or "known" not in stored:
        stored = {"version": __version__, "known": {}}
    known: dict[str, list[float | None] | None] = stored["known"]  # None: too few bytes
    wanted = {f"{name}, {size} bytes": (name, size) for name in names for size in _sizes(study)}
    if missing := {key: about for key, about in wanted.items() if key not in known}:
        measure = prepare()
        for key, (name, size) in missing.items():
            known[key] = None
            if (figures := measure(name, size)) is not None:
                known[key] = [figures.recall, None if np.isnan(figures.map) else figures.map]
            write_json(path, stored)
    return [
        (f"{name} ({kind})" if kind else name, size, Figures(*(np.nan if v is None else v for v in values)))
        for key, (name, size) in wanted.items()
        if (values := known[key]) is not None
    ]


def _measure_codes(run: Run, rows: RowsOf, study: Study) -> Measure:
    parts = {name: run.outputs(study.source, rows[name]) for name in ("query", "database")}

    def measure(name: str, size: int) -> Figures | None:
        query, database = (parts[part].first_bits(8 * size) for part in ("query", "database"))
        if name == CODES[2]:
            if size <= STAGE:
                return None
            return Figures(_two_stage_recall(query.text, pack(query.image)), float("nan"))
        image, text = (query.image, query.text) if name == CODES[1] else (pack(query.image), pack(query.text))
        pairs = (text, pack(query.image)), (image, pack(database.text)), (text, pack(database.image))
        return _figures(*pairs, rows, study)

    return measure


def _measure_aligned(rows: RowsOf, study: Study, seed: int) -> Measure:
    own = {name: side_of(study.features, part) for name, part in rows.items()}
    aligned = in_one_space(own["train"])
    sides = {name: aligned(side) for name, side in own.items()}
    return _measure_quantised(_centred(sides, seed), rows, study, seed)


def _measure_floats(floats: Path, rows: RowsOf, study: Study, seed: int, labelled: bool) -> Measure:
    rival = Run.open(floats, "cpu")
    outputs = {name: rival.outputs(study.source, part) for name, part in rows.items()}
    sides = {name: Side(side.image, side.text) for name, side in outputs.items()}
    # As they are where labels were learned from: about their mean, OPQ has 5 points less mAP and no more recall.
    units = {name: Side(_unit(side.image), _unit(side.text)) for name, side in sides.items()}
    return _measure_quantised(units if labelled else _centred(sides, seed), rows, study, seed)


def _rows(study: Study, split: Split) -> RowsOf:
    """The parts of a split without items that have no caption and, where figures are by shared labels, the database
    without those that have no label."""
    captions = study.source.captions
    rows = {name: part[captions[part] > 0] for name, part in vars(split).items() if name in PARTS}
    if not study.label_fault:
        rows["query"], rows["database"] = measured_rows(study.labels, captions, split)
    return rows


def _centred(sides: dict[str, Side], seed: int) -> dict[str, Side]:
    """Unit vectors about the mean of the training items: one mean of pictures and texts together, or one of each. The
    validation items choose, by R@10 of signs with a real-valued query."""
    fit = sides["train"]
    shared_mean = np.concatenate([fit.image, fit.text]).mean(axis=0)
    options = []
    for image_mean, text_mean in ((shared_mean, shared_mean), (fit.image.mean(axis=0), fit.text.mean(axis=0))):
        centred = {
            name: Side(_unit(side.image - image_mean), _unit(side.text - text_mean)) for name, side in sides.items()
        }
        own = centred["validation"]
        vectors = Vectors(np.concatenate([centred["train"].image, centred["train"].text]), own.text, own.image, seed)
        compressed, items = sign_real(vectors, STAGE), np.arange(len(own.text))
        assert compressed is not None
        options.append((instance_scores(*compressed, items, items).recall[10], centred))
    return max(options, key=lambda option: option[0])[1]


def _unit(vectors: Matrix) -> Matrix:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def _measure_quantised(sides: dict[str, Side], rows: RowsOf, study: Study, seed: int) -> Measure:
    """Each quantiser is fitted on pictures and texts of training items."""
    fit, query, database = sides["train"], sides["query"], sides["database"]
    both = np.concatenate([fit.image, fit.text])
    # All at once, so that each quantiser is fitted once.
    queries, items = (query.text, query.image), (query.image, database.text, database.image)
    vectors = Vectors(both, np.concatenate(queries), np.concatenate(items), seed)
    ends = np.cumsum([len(part) for part in items])[:-1]

    def measure(name: str, size: int) -> Figures | None:
        if (compressed := QUANTISERS[name](vectors, size)) is None:
            return None
        text, image = np.split(compressed[0], 2)
        own, texts, images = np.split(compressed[1], ends)
        return _figures((text, own), (image, texts), (text, images), rows, study)

    return measure


def _figures(own: Pair, i2t: Pair, t2i: Pair, rows: RowsOf, study: Study) -> Figures:
    items = np.arange(len(rows["query"]))
    recall = instance_scores(*own, items, items).recall[10]
    if study.label_fault:
        return Figures(recall, float("nan"))
    relevant = study.labels[rows["query"]], study.labels[rows["database"]]
    return Figures(recall, float(np.mean([_map(*pair, *relevant) for pair in (i2t, t2i)])))


def _map(query: CodesOrReals, database: CodesOrReals, query_labels: Labels, database_labels: Labels) -> float:
    """By Hamming distance; of real-valued queries by the weighted one, which is the cosine with signs; or by cosine."""
    if query.dtype == np.uint8:
        return map_of(query, database, query_labels, database_labels)
    vectors = unpack(database).astype(np.float32) if database.dtype == np.uint8 else database
    return real_valued_map(query, vectors, query_labels, database_labels)


def _two_stage_recall(queries: Matrix, codes: Codes) -> float:
    """R@10 where the nearest items by the first bytes are ranked by all of them; equal distances count half before."""
    signs = unpack(codes).astype(np.float32)
    first, all_bits = (-queries[:, :bits] @ signs[:, :bits].T for bits in (8 * STAGE, signs.shape[1]))
    hits = 0.0
    for row, (near, last) in enumerate(zip(first, all_bits, strict=True)):
        candidates = np.argsort(near, kind="stable")[:CANDIDATES]
        if row in candidates:
            others = last[candidates]
            ahead, tied = (others < last[row]).sum(), (others == last[row]).sum()
            hits += float(np.clip((10 - ahead) / tied, 0, 1))
    return hits / len(queries)


def _mean(figures: list[Figures] | None, part: str) -> float | None:
    values = [getattr(f, part) for f in figures or []]
    return float(np.mean(values)) if values else None


def _seen(measured: Measured, sizes: Sequence[int], part: str, name: str) -> list[str]:
    """The lead of codes with a real-valued query over the best contender of each kind, at each size."""
    lines = []
    for size in sizes:
        own = _mean(measured[CODES[1], size], part)
        assert own is not None
        leads = []
        for kind in KINDS.values():
            rivals = {c: _mean(f, part) for (c, s), f in measured.items() if s == size and c.endswith(f"({kind})")}
            best = max(rivals, key=lambda c: rivals[c] or 0.0)
            leads.append(f"{best} {100 * (rivals[best] or 0.0):.1f}")
        what = "R@10" if part == "recall" else "mAP"
        lines.append(
            f"{size} bytes, {name}: {what} of codes with a real query {100 * own:.1f}; best rivals {', '.join(leads)}."
        )
    return lines


def _draw(measured: Measured, all_sizes: Sequence[int], parts: Sequence[str]) -> Figure:
    figure = canvas(10, 4.8)
    contenders = list(dict.fromkeys(contender for contender, _ in measured))
    rivals = [c for c in contenders if c not in CODES]
    for axes, part in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
        for contender in contenders:
            sizes = [s for s in all_sizes if (contender, s) in measured]
            values = [_mean(measured[contender, s], part) for s in sizes]
            if contender in CODES:
                place = CODES.index(contender)
                style = {
                    "color": "#0072B2",
                    "linestyle": ("-", "--", ":")[place],
                    "linewidth": 2.2,
                    "marker": "os^"[place],
                }
            else:
                place = rivals.index(contender) % len(QUANTISERS)
                style = {
                    "color": MANY[1 + place % (len(MANY) - 1)],
                    "linestyle": "-" if "learned" in contender else "--",
                    "linewidth": 0.9,
                    "marker": MARKERS[place],
                    "markersize": 4,
                }
            axes.plot(sizes, values, label=contender, **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(all_sizes, [str(size) for size in all_sizes])
        tidy(axes, "both").set(xlabel="bytes per item", title="own-caption R@10" if part == "recall" else "mAP")
    legend_below(figure, figure.axes[0], ncols=4, fontsize="x-small")
    return figure
