"""The paper's ablation table: KDPH with a simpler proxy, or without one of its loss terms."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from kenthash.studies.drawing import I2T, QUIET, T2I, canvas, legend_below, tidy
from kenthash.studies.grid import run_all
from kenthash.studies.outcome import Outcome, Plot, signed
from kenthash.studies.published import FULL, ablation_beside_published, published_figures
from kenthash.studies.results import DIRECTIONS, Row, basis_of_test, cells_of, winners
from kenthash.studies.sheet import Sheet, Value
from kenthash.studies.study import Study
from kenthash.training.recipe import find_recipe, read_recipe

YES = "✓"
# Recipe, its name in the figure, and the paper's columns: Kent, L_Reg, L_CM, L_U.
VARIANTS: tuple[tuple[str, str, tuple[str, str, str, str]], ...] = (
    ("kdph-point", "point proxy", ("", YES, YES, YES)),
    ("kdph-vmf", "vMF (β = 0)", ("β = 0", YES, YES, YES)),
    ("kdph-no-irrelevance", "no L_Reg", (YES, "", YES, YES)),
    ("kdph-no-alignment", "no L_CM", (YES, YES, "", YES)),
    ("kdph-no-uniform", "no L_U", (YES, YES, YES, "")),
    ("kdph", FULL, (YES, YES, YES, YES)),
)


def ablation(study: Study) -> Outcome:
    """Six variants at one length, bold where one is ahead of all others by the paired test."""
    bits = study.length
    jobs = {
        (name, seed): study.job(name, bits, seed, layer_of(name), record=name == "kdph")
        for name, _, _ in VARIANTS
        for seed in range(study.seeds)
    }
    run_all(list(jobs.values()), "ablation")
    rows = [
        Row(title, "", "", cells_of({bits: [jobs[name, seed].out for seed in range(study.seeds)]}))
        for name, title, _ in VARIANTS
    ]
    won = winners(rows)
    sheet = Sheet(
        ["Variant", "Kent", "L_Reg", "L_CM", "L_U", "I → T", "T → I", "I → T real", "T → I real"],
        [[row.name, *marks, *_figures(row, bits, won)] for row, (_, _, marks) in zip(rows, VARIANTS, strict=True)],
        f"mAP@ALL of signed codes at {bits} bits; `real` is of the same outputs before signing. {study.basis} "
        f"Bold: {basis_of_test(rows)}.",
    )
    dataset = study.features.dataset
    beside = ablation_beside_published(rows, bits, dataset.name, len(dataset))
    full = rows[-1]
    seen = []
    for row in rows[:-1]:
        gaps = [full.cells[d, bits].mean - row.cells[d, bits].mean for d in DIRECTIONS]
        seen.append(f"Full KDPH minus {row.name}: {signed(gaps[0])} image → text, {signed(gaps[1])} text → image.")
    return Outcome(
        target="ablation",
        title="Ablation of KDPH's parts",
        measured="KDPH is trained with a simpler proxy, and without each of its three further loss terms, all else "
        "equal. The table has the mAP of each variant in both directions.",
        paper=_printed(),
        seen=seen,
        sheets=[sheet, *([beside] if beside else [])],
        plots=[Plot("figure", _draw(rows, bits), "mAP of each variant; whiskers are the deviation over seeds.")],
    )


def _printed() -> str:
    """What the paper says, with its figures."""
    printed = published_figures().ablation
    full, least, vmf, point = (
        " / ".join(f"{printed.map[name][direction]:.4f}" for direction in DIRECTIONS)
        for name in (FULL, "no L_Reg", "vMF (β = 0)", "point proxy")
    )
    return (
        f"On MS COCO at {printed.bits} bits the full model is ahead of every variant ({full}); without L_Reg it loses "
        f"most ({least}), and vMF ({vmf}) lies between points ({point}) and Kent."
    )


def layer_of(name: str) -> dict[str, Any]:
    """The recipe of a variant."""
    return {"method": "kdph"} if name == "kdph" else read_recipe(find_recipe(name))


def _figures(row: Row, bits: int, won: dict[tuple[str, int], str]) -> list[Value]:
    cells = {direction: row.cells[direction, bits] for direction in DIRECTIONS}
    codes = [cell.text(bold=won.get((direction, bits)) == row.name) for direction, cell in cells.items()]
    return [*codes, *(cell.real_mean for cell in cells.values())]


def _draw(rows: Sequence[Row], bits: int) -> Figure:
    figure = canvas(7.6, 3.6)
    axes = tidy(figure.add_subplot())
    for i, ((direction, title), colour) in enumerate(zip(DIRECTIONS.items(), (I2T, T2I), strict=True)):
        cells = [row.cells[direction, bits] for row in rows]
        places = [x + (i - 0.5) * 0.38 for x in range(len(rows))]
        means, deviations = [c.mean for c in cells], [c.deviation for c in cells]
        axes.bar(places, means, 0.36, yerr=deviations, color=colour, label=title, error_kw={"ecolor": "#333333"})
        for place, value in zip(places, means, strict=True):
            axes.annotate(f"{value:.3f}", (place, 0.01), rotation=90, ha="center", va="bottom", color="white", size=8)
    axes.axhline(rows[-1].cells["i2t", bits].mean, color=QUIET, linewidth=1, linestyle="--")
    axes.set_xticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylabel(f"mAP at {bits} bits")
    legend_below(figure, axes)
    return figure
