"""An evaluation in several directions as a table for a terminal of 80 columns."""

from collections.abc import Mapping

from kenthash.evaluation.report import Evaluation

DIRECTIONS = {
    "i2t": "image → text",
    "t2i": "text → image",
    "i2i": "image → image",
    "t2t": "text → text",
}


def render(evaluations: Mapping[str, Evaluation]) -> str:
    """One row a direction (keys "i2t", "t2i", "i2i", "t2t", or any name), then what the numbers rest on."""
    first = next(iter(evaluations.values()))
    ks = list(first.precision_at)
    k = 100 if 100 in ks else (ks[0] if ks else None)
    radius = max(first.precision_within, default=None)

    head = f"{'':<14}{'mAP':>7}  {'95 % interval':^15}"
    head += "" if k is None else f"{f'P@{k}':>9}{f'R@{k}':>9}{f'NDCG@{k}':>11}"
    head += "" if radius is None else f"{f'P(r≤{radius})':>10}"
    lines = [head, "─" * len(head)]
    for name, e in evaluations.items():
        low, high = e.map_interval
        line = f"{DIRECTIONS.get(name, name)[:14]:<14}{e.map:>7.4f}  {f'{low:.4f}–{high:.4f}':^15}"
        line += "" if k is None else f"{e.precision_at[k]:>9.4f}{e.recall_at[k]:>9.4f}{e.ndcg_at[k]:>11.4f}"
        line += "" if radius is None else f"{e.precision_within[radius]:>10.4f}"
        lines.append(line)
    lines += ["", *_notes(evaluations)]
    return "\n".join(lines)


def _notes(evaluations: Mapping[str, Evaluation]) -> list[str]:
    first = next(iter(evaluations.values()))
    sizes = f"{first.bits} bits · {first.queries:,} queries × {first.database:,} items"
    lines = [f"{sizes} · relevant: shares a label · ties: {first.ties}"]
    for name, e in evaluations.items():
        if e.excluded:
            lines.append(
                f"{DIRECTIONS.get(name, name)}: {e.excluded:,} queries without a relevant item left out"
                f" ({e.unlabelled:,} have no label)"
            )
    return lines
