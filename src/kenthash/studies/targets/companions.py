"""Does the Kent shape help where it is known which labels come together, and how they look?

Generated vectors of two towers, of classes of two kinds: hubs, and companions, each of which belongs to one hub. The
companions of a hub look alike up to a sign: one direction is common to them, half of them lie along it and half against
it. An item has one or two companions, and each of them brings a hub in half of the cases: with a probability of
`strength` its own hub, otherwise any. So every class is as frequent at every strength, and co-occurrence alone differs.

If the shape absorbs conflicts, as the paper says, it should help with strength 1 and hubs without a look of their own:
the items of a hub then lie at two ends of a line, no single direction stands for them, and a Kent distribution whose
axis is that line does. In two control conditions it should be of no use: labels are independent, or a hub has a
direction of its own, so that one mean direction is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kenthash.analysis.gtsd import gtsd
from kenthash.analysis.precision import subordinate_precision
from kenthash.analysis.shape_use import shape_use
from kenthash.analysis.subject import Subject
from kenthash.data.dataset import Dataset
from kenthash.data.pack import write_pack
from kenthash.evaluation import Labels, SeedTest, holm, seed_test
from kenthash.files import read_json
from kenthash.methods.kdph import Settings
from kenthash.studies.drawing import MANY, canvas, legend_below, tidy
from kenthash.studies.grid import Job, run_all
from kenthash.studies.outcome import Outcome, Plot, signed
from kenthash.studies.results import DIRECTIONS, SIGNIFICANT
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import Study
from kenthash.training.run_folder import Run

ITEMS, DIMS = 3_000, 64
HUBS, COMPANIONS = 5, 10  # the latter of each hub
MOST = 2  # companions of an item
WITH_HUB = 0.5  # how often a companion brings a hub
COMMON = 0.9  # the part of a companion's squared length that lies along the line of its hub
NOISE = 0.5  # its length, beside 1 of a companion
NDCG_K = 100


@dataclass(frozen=True)
class Condition:
    name: str  # of its sets and runs
    title: str
    strength: float  # how often a hub is the companion's own
    own_look: float  # the length of a hub's own direction; that of a companion is 1


CONDITIONS = (
    Condition("hidden", "together, hubs without a look of their own", 1.0, 0.0),
    Condition("seen", "together, hubs with a look of their own", 1.0, 1.0),
    Condition("independent", "independent labels", 0.0, 0.0),
)
KINDS = {"kent": "Kent, β₀ = κ₀", "default": "Kent, β₀ = 0.1", "vmf": "vMF", "matched": "point, scale 2κ₀"}
MEASURES = {
    "map": "mAP@ALL",
    "ndcg": f"NDCG@{NDCG_K} by the number of shared labels",
    "rarest": "share of the first 50 with the rarest label",
}
LEADS = {"Kent − vMF": ("kent", "vmf"), "vMF − point": ("vmf", "matched"), "Kent − point": ("kent", "matched")}

Measured = dict[str, float]
Figures = dict[tuple[str, str], list[Measured]]  # of each seed, by kind of proxy and condition
Key = tuple[str, str, str]  # condition, measure and difference
Leads = dict[Key, SeedTest]


def with_companions(study: Study) -> Outcome:
    """KDPH with Kent, vMF and point proxies on the sets of every condition, a new set for every seed."""
    bits = min(study.bits)
    sets = {(c.name, seed): _study_of(study, c, bits, seed) for c in CONDITIONS for seed in range(study.seeds)}
    jobs = {
        (kind, c.name): [_job(sets[c.name, seed], kind, c, bits, seed) for seed in range(study.seeds)]
        for c in CONDITIONS
        for kind in KINDS
    }
    run_all([of_seeds[seed] for seed in range(study.seeds) for of_seeds in jobs.values()], "companions")
    figures: Figures = {
        (kind, name): [_measure(job, sets[name, seed]) for seed, job in enumerate(of_seeds)]
        for (kind, name), of_seeds in jobs.items()
    }
    leads: Leads = {
        (c.name, measure, title): seed_test(*([m[measure] for m in figures[kind, c.name]] for kind in pair))
        for title, pair in LEADS.items()
        for c in CONDITIONS
        for measure in MEASURES
    }
    corrected: dict[Key, float] = {}
    for title in LEADS:
        keys = [key for key in leads if key[2] == title]
        corrected |= zip(keys, holm([leads[key].p_value for key in keys]), strict=True)
    basis = sets[CONDITIONS[0].name, 0].basis
    return Outcome(
        target="companions",
        title="Does the Kent shape help where labels come together?",
        measured="KDPH is trained with Kent, vMF and point proxies on generated vectors, in which five hub classes "
        "have ten companions each, half of which lie along one direction and half against it. In the first condition "
        "a hub can only be known by its companions, which is where a shape should help; in the two others it should "
        "not. vMF is the Kent proxy with β held at 0, so that nothing but the shape differs.",
        paper="Kent proxies absorb the conflicting gradients of labels that come together, by stretching along them.",
        seen=[_sentence(title, leads, corrected) for title in LEADS],
        sheets=[
            _sheet(study, figures, leads, corrected, basis),
            _proxy_sheet(figures, basis),
        ],
        plots=[Plot("figure", _draw(leads), "Kent − vMF, with 95 % intervals over seeds.")],
    )


def make_labels(condition: Condition, rng: np.random.Generator) -> Labels:
    """[N, C]: the hubs first, then the companions of the first hub, those of the second ..."""
    labels = np.zeros((ITEMS, HUBS * (1 + COMPANIONS)), np.uint8)
    chosen = rng.random((ITEMS, HUBS * COMPANIONS)).argsort(axis=1)[:, :MOST]
    hubs = np.where(
        rng.random(chosen.shape) < condition.strength, chosen // COMPANIONS, rng.integers(HUBS, size=chosen.shape)
    )
    present = np.arange(MOST) < rng.integers(1, MOST + 1, (ITEMS, 1))
    with_hub = present & (rng.random(chosen.shape) < WITH_HUB)
    items = np.broadcast_to(np.arange(ITEMS)[:, None], chosen.shape)
    labels[items[present], HUBS + chosen[present]] = 1
    labels[items[with_hub], hubs[with_hub]] = 1
    return labels


def make_vectors(
    condition: Condition, labels: Labels, rng: np.random.Generator
) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """(image, text): the sum of the looks of an item's classes, by √number, and noise; each through a random map."""
    hubs, lines = _directions(HUBS, rng), _directions(HUBS, rng)
    own = _directions(HUBS * COMPANIONS, rng)
    signs = np.where(np.arange(HUBS * COMPANIONS) % 2, -1.0, 1.0)[:, None]
    of_companions = np.sqrt(1 - COMMON) * own + np.sqrt(COMMON) * signs * lines.repeat(COMPANIONS, axis=0)
    looks = np.concatenate([condition.own_look * hubs, of_companions])
    meant = labels @ looks / np.sqrt(labels.sum(axis=1, keepdims=True))

    def tower() -> NDArray[np.float16]:
        noisy = meant + NOISE * rng.standard_normal(meant.shape) / np.sqrt(DIMS)
        return np.asarray(noisy @ rng.standard_normal((DIMS, DIMS)), np.float16)

    return tower(), tower()


def _directions(number: int, rng: np.random.Generator) -> NDArray[np.float64]:
    vectors = rng.standard_normal((number, DIMS))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _study_of(study: Study, condition: Condition, bits: int, seed: int) -> Study:
    """The study on the set of a condition and a seed, which is made where it is missing."""
    path = study.out / "sets" / f"companions-{condition.name}-{seed}"
    if not path.is_dir():
        rng = np.random.default_rng([seed, CONDITIONS.index(condition)])
        labels = make_labels(condition, rng)
        names = [f"hub {h}" for h in range(HUBS)]
        names += [f"companion {j} of hub {h}" for h in range(HUBS) for j in range(COMPANIONS)]
        ids = [f"item {i}" for i in range(ITEMS)]
        dataset = Dataset("companions", ids, labels, names, texts=[["generated"]] * ITEMS)
        image, text = make_vectors(condition, labels, rng)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_pack(path, path.with_name(f"{path.name}.unfinished"), dataset, [image], [text], {})
    return replace(study, data=path, bits=(bits,))


def _job(of_set: Study, kind: str, condition: Condition, bits: int, seed: int) -> Job:
    first = bits / 2  # κ₀, where a bit of margin is worth 1
    of_kind: dict[str, dict[str, Any]] = {
        "kent": {"shape": first},
        "default": {},
        # So small a β has no gradient to grow by: the score is vMF's, in the coordinates and from the frames of Kent.
        "vmf": {"shape": 1e-12},
        # A concentration learns, and a point's scale does not: twice the scale is nearer to what the others end with.
        "matched": {"proxy": "point", "concentration": 2 * first, "margin": Settings().margin_bits},
    }
    settings = of_kind[kind]
    return of_set.job(f"companions-{condition.name}-{kind}", bits, seed, {"method": "kdph", "settings": settings})


def _measure(job: Job, of_set: Study) -> Measured:
    """Of one run: of its codes on the query set, and of its proxies on all items that it was not trained on."""
    metrics = read_json(job.out / "metrics.json")
    subject = Subject(Run.open(job.out, "cpu"), of_set.source)
    cosines, _, labels = subject.scores(subject.unseen)
    several = (labels != 0).sum(axis=1) > 1
    measured = {
        "map": float(np.mean([metrics[direction]["map"] for direction in DIRECTIONS])),
        "ndcg": float(np.mean([metrics[direction]["ndcg_at"][str(NDCG_K)] for direction in DIRECTIONS])),
        "rarest": float(np.mean([np.nanmean(subordinate_precision(*side)) for side in subject.directions()])),
        "gtsd": float(gtsd(cosines, labels)[several].mean()),
    }
    if (use := shape_use(subject)) is not None:
        measured |= {"kappa": use.concentration, "beta": use.shape, "share": use.share}
    return measured


def _mean(of_seeds: Sequence[Measured], measure: str) -> float:
    return float(np.mean([m.get(measure, np.nan) for m in of_seeds]))


def _sheet(study: Study, figures: Figures, leads: Leads, corrected: dict[Key, float], basis: str) -> Sheet:
    rows: list[list[Value]] = []
    for c in CONDITIONS:
        for measure, what in MEASURES.items():
            row: list[Value] = [c.title, what, *(_mean(figures[kind, c.name], measure) for kind in KINDS)]
            for title in LEADS:
                test = leads[c.name, measure, title]
                interval = f" [{signed(test.low)}, {signed(test.high)}]" if study.seeds > 1 else ""
                row += [signed(test.difference) + interval, corrected[c.name, measure, title]]
            rows.append(row)
    return Sheet(
        ["Condition", "Measure", *KINDS.values(), *(column for title in LEADS for column in (title, f"p {title}"))],
        rows,
        "Signed codes, mean of both directions; in the differences Kent is that of β₀ = κ₀. Differences with 95 % "
        f"intervals over seeds, p of the two-sided sign-flip test over {study.seeds} seeds, each column "
        f"corrected by Holm for all its rows. {basis}",
    )


def _proxy_sheet(figures: Figures, basis: str) -> Sheet:
    parts = ("kappa", "beta", "share", "gtsd")
    rows: list[list[Value]] = [
        [c.title, title, *(_mean(figures[kind, c.name], part) for part in parts)]
        for c in CONDITIONS
        for kind, title in KINDS.items()
    ]
    return Sheet(
        ["Condition", "Proxies", "κ", "β", "share of the shape", "GTSD"],
        rows,
        "After the last epoch. Share of the shape: the deviation of Σ β (γᵀz)² over the classes of an item, by that of "
        "its scores. GTSD: the gap between the best and the worst cosine of the labels of an item that has several. "
        f"{basis}",
        name="proxies",
    )


def _sentence(title: str, leads: Leads, corrected: dict[Key, float]) -> str:
    names = {c.name: c.title for c in CONDITIONS}
    sure = [key for key, p in corrected.items() if key[2] == title and p < SIGNIFICANT]
    above, below = (
        [
            f"{MEASURES[measure]} ({names[name]})"
            for name, measure, _ in sure
            if sign * leads[name, measure, title].difference > 0
        ]
        for sign in (1, -1)
    )
    return f"{title}, corrected: above 0 in {'; '.join(above) or 'none'}, below 0 in {'; '.join(below) or 'none'}."


def _draw(leads: Leads) -> Figure:
    figure = canvas(7.2, 3.6)
    axes = tidy(figure.add_subplot(), "x")
    for i, (measure, what) in enumerate(MEASURES.items()):
        tests = [leads[c.name, measure, "Kent − vMF"] for c in CONDITIONS]
        places = [y + (i - 1) * 0.2 for y in range(len(tests))]
        reach = [min(test.high - test.difference, 1.0) for test in tests]
        axes.errorbar(
            [test.difference for test in tests], places, xerr=reach, fmt="o", capsize=3, color=MANY[i], label=what
        )
    axes.axvline(0, color="#333333", linewidth=0.8)
    axes.set_yticks(range(len(CONDITIONS)), [c.title for c in CONDITIONS])
    axes.invert_yaxis()
    axes.set_xlabel("Kent − vMF")
    legend_below(figure, axes)
    return figure
