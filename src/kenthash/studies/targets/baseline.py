"""KDPH against its baseline DSPH with the same head, at every length, with two heads: a test over seeds."""

from typing import Any

from matplotlib.figure import Figure

from kenthash.evaluation import SeedTest, holm, seed_test
from kenthash.methods import METHODS
from kenthash.studies.drawing import MANY, canvas, legend_below, tidy
from kenthash.studies.grid import Job, run_all
from kenthash.studies.outcome import Outcome, Picture, signed
from kenthash.studies.results import SIGNIFICANT, both_directions, by_seed, cells_of
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import BASELINE, METHOD, PAIR, TITLES, Study

HEADS = {"": "the field's head", "-wide": "2,048 hidden units"}  # by what they add to the names of runs

Leads = dict[tuple[str, int], SeedTest]  # of KDPH over DSPH, mean of both directions, by head and length


def layer_of(method: str, head: str) -> dict[str, Any]:
    return {"method": method, "head": METHODS["kaph"].recipe["head"]} if head else {"method": method}


def baseline(study: Study) -> Outcome:
    """Both methods, both heads, all lengths and seeds; seed by seed, so that a stopped study has whole seeds."""
    jobs: dict[tuple[str, str, int], list[Job]] = {}
    for seed in range(study.seeds):
        for bits in study.bits:
            for head in HEADS:
                for name in PAIR:
                    job = study.job(f"{name}{head}", bits, seed, layer_of(name, head), record=not head)
                    jobs.setdefault((name, head, bits), []).append(job)
    run_all([of_seeds[seed] for seed in range(study.seeds) for of_seeds in jobs.values()], "both methods")
    cells = {key: cells_of({key[2]: [job.out for job in of_seeds]}) for key, of_seeds in jobs.items()}
    leads: Leads = {
        (head, bits): seed_test(by_seed(cells[METHOD, head, bits], bits), by_seed(cells[BASELINE, head, bits], bits))
        for head in HEADS
        for bits in study.bits
    }
    corrected = dict(zip(leads, holm([test.p_value for test in leads.values()]), strict=True))
    rows: list[list[Value]] = []
    for (head, bits), test in leads.items():
        maps = [both_directions(cells[name, head, bits], bits) for name in PAIR]
        interval = f"[{signed(test.low)}, {signed(test.high)}]" if study.seeds > 1 else "–"
        rows.append([HEADS[head], bits, *maps, signed(test.difference), interval, test.p_value, corrected[head, bits]])
    ahead = [key for key, test in leads.items() if test.difference > 0 and corrected[key] < SIGNIFICANT]
    return Outcome(
        target="baseline",
        title=f"{TITLES[1]} against {TITLES[0]}, head by head",
        measured="Both methods are trained with the same head on the same splits, one of each for every seed. The lead "
        "is that of the mean of both directions; its interval and its test are over seeds.",
        paper="On MS COCO KDPH is ahead of DSPH by 5.9, 2.5 and 1.5 points (image → text, 16, 32, 64 bits).",
        seen=[
            f"{TITLES[1]} is ahead by the test over seeds, corrected for {len(leads)} cells, in {len(ahead)} of them."
        ],
        sheets=[
            Sheet(
                ["Head", "Bits", *TITLES, "Lead", "95 % interval", "p", "p, Holm"],
                rows,
                "mAP@ALL of signed codes, mean of both directions. Intervals by Student's t, p by the exact sign-flip "
                f"test over {study.seeds} seeds, two-sided; Holm's correction is over all rows. "
                f"{study.basis_of_lengths}",
            )
        ],
        pictures=[Picture("figure", _draw(study, leads), "Lead of KDPH over DSPH with its 95 % interval over seeds.")],
    )


def _draw(study: Study, leads: Leads) -> Figure:
    figure = canvas(5.6, 3.4)
    axes = tidy(figure.add_subplot())
    for i, (head, title) in enumerate(HEADS.items()):
        tests = [leads[head, bits] for bits in study.bits]
        places = [x + (i - 0.5) * 0.2 for x in range(len(tests))]
        reach = [min(test.high - test.difference, 1.0) for test in tests]
        axes.errorbar(places, [t.difference for t in tests], reach, fmt="o", capsize=3, color=MANY[i], label=title)
    axes.axhline(0, color="#333333", linewidth=0.8)
    axes.set_xticks(range(len(study.bits)), [f"{bits} bits" for bits in study.bits])
    axes.set_ylabel("lead in mAP")
    legend_below(figure, axes)
    return figure
