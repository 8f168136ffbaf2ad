"""How mAP moves with KDPH's own settings: the weights ε, η, ζ, the number of axes, the margin and the first κ."""

from typing import Any

from matplotlib.figure import Figure

from kenthash.methods.kdph import Settings
from kenthash.studies.drawing import I2T, QUIET, T2I, canvas, legend_below, tidy
from kenthash.studies.grid import Job, run_all
from kenthash.studies.outcome import Outcome, Plot
from kenthash.studies.results import DIRECTIONS, Cells, both_directions, cells_of
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import Study

# In the order of the paper's panels, then what the paper leaves open.
SYMBOLS = {"epsilon": "ε", "eta": "η", "zeta": "ζ", "axes": "N_axes", "margin_bits": "m", "concentration": "κ₀"}
NAMES = {
    "epsilon": "irrelevance",
    "eta": "uniform constraint",
    "zeta": "alignment",
    "axes": "principal axes",
    "margin_bits": "margin in bits",
    "concentration": "first concentration",
}
WEIGHTS = {"epsilon": (1.0, 10.0, 40.0, 100.0), "eta": (0.01, 0.1, 0.5, 1.0), "zeta": (0.1, 0.3, 0.6, 1.0)}
MARGINS = (1.0, 8.0, 16.0, 32.0, 64.0)  # in bits
PARTS_OF_K = (16, 4, 2, 1)  # κ₀ is K over one of these

Curves = dict[str, dict[float, Cells]]  # setting → value → cells


def sensitivity(study: Study) -> Outcome:
    """One setting at a time, the others at their defaults."""
    bits = study.length
    jobs: dict[str, dict[float, list[Job]]] = {}
    for setting, values in grid(bits).items():
        jobs[setting] = {v: [_job(study, setting, v, seed) for seed in range(study.seeds)] for v in values}
    run_all([job for by in jobs.values() for of_seeds in by.values() for job in of_seeds], "sensitivity")
    curves: Curves = {
        setting: {v: cells_of({bits: [job.out for job in of_seeds]}) for v, of_seeds in by.items()}
        for setting, by in jobs.items()
    }
    rows: list[list[Value]] = []
    seen = []
    for setting, by in curves.items():
        default = _default(setting, bits)
        for v, cells in by.items():
            mark = "default" if v == default else ""
            rows.append([SYMBOLS[setting], f"{v:g}", mark, *(cells[d, bits].mean for d in DIRECTIONS)])
        both = {v: both_directions(cells, bits) for v, cells in by.items()}
        best, worst = max(both, key=both.__getitem__), min(both, key=both.__getitem__)
        seen.append(
            f"{SYMBOLS[setting]}: best at {best:g} ({both[best]:.4f}, mean of both directions), worst at {worst:g} "
            f"({both[worst]:.4f}), {both[default]:.4f} at the default {default:g}."
        )
    return Outcome(
        target="sensitivity",
        title="Sensitivity to the settings",
        measured="Each of KDPH's three loss weights, its number of principal axes, its margin and its first "
        "concentration is varied alone, the others at their defaults. A flat curve means that the value hardly "
        "matters, a peak away from the default that another value would serve this data better.",
        paper="On MS COCO at 64 bits the best values are ε = 40, η = 0.1, ζ = 0.3 and N_axes = 8, with a sharp fall at "
        "ε = 100 and beyond 16 axes.",
        seen=seen,
        sheets=[Sheet(["Setting", "Value", "", "I → T", "T → I"], rows, f"mAP@ALL of signed codes. {study.basis}")],
        plots=[Plot("figure", _draw(curves, bits), "mAP by each setting; the dashed line is the default.")],
    )


def grid(bits: int) -> dict[str, tuple[float, ...]]:
    """The values of every setting. The paper's 4 to 63 axes at 64 bits are K/16 to K/2, and all."""
    axes = sorted({*(max(1, bits // part) for part in (16, 8, 4, 2)), bits - 1})
    first = tuple(bits / part for part in PARTS_OF_K)
    return {**WEIGHTS, "axes": tuple(axes), "margin_bits": MARGINS, "concentration": first}


def _default(setting: str, bits: int) -> float:
    if setting == "axes":
        return bits // 8
    if setting == "concentration":
        return bits / 2
    return float(getattr(Settings(), setting))


def _job(study: Study, setting: str, value: float, seed: int) -> Job:
    if value == _default(setting, study.length):
        return study.job("kdph", study.length, seed, {"method": "kdph"}, record=True)
    changed: Any = int(value) if setting == "axes" else value
    layer = {"method": "kdph", "settings": {setting: changed}}
    return study.job(f"kdph-{setting}-{value:g}", study.length, seed, layer)


def _draw(curves: Curves, bits: int) -> Figure:
    figure = canvas(7.6, 8.0)
    panels = figure.subplots(3, 2, sharey=True)  # so that a flat curve looks flat
    for axes, (setting, by) in zip(panels.flat, curves.items(), strict=True):
        places = range(len(by))  # evenly: the values are neither linear nor of one ratio
        for (direction, title), colour, marker in zip(DIRECTIONS.items(), (I2T, T2I), "os", strict=True):
            curve = [cells[direction, bits] for cells in by.values()]
            means, deviations = [c.mean for c in curve], [c.deviation for c in curve]
            axes.errorbar(places, means, deviations, color=colour, marker=marker, capsize=2, label=title)
        axes.axvline(list(by).index(_default(setting, bits)), color=QUIET, linewidth=1, linestyle="--", zorder=0)
        axes.set_xticks(places, [f"{v:g}" for v in by])
        tidy(axes).set(title=f"{SYMBOLS[setting]}, {NAMES[setting]}")
    for axes in panels[:, 0]:
        axes.set_ylabel("mAP")
    legend_below(figure, panels[0, 0])
    return figure
