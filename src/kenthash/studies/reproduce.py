"""`kenthash reproduce`: one target, or all of them and a report as one HTML page."""

import base64
import html
import sys
from collections.abc import Sequence
from pathlib import Path

from kenthash.errors import DataError, UsageError
from kenthash.files import atomic_write
from kenthash.methods import METHODS
from kenthash.studies.outcome import LeftOut, Outcome
from kenthash.studies.sheet import html_page, prose
from kenthash.studies.study import Study
from kenthash.studies.targets import OF_OWN_PAIRS, PRACTICE, TARGETS
from kenthash.training.recipe import Recipe
from kenthash.training.short_texts import unlearned_short_texts

ALL = "all"
LAST = "table1"  # the first of the report, but by far the longest to make


def reproduce(study: Study, target: str) -> list[Outcome]:
    """Make the missing runs of `target` (or of all), write its tables and figures into OUT/TARGET, return them.

    With `all`, OUT/report.html is written too, and again after every target, so that it can be read while the rest is
    being made; a target that this data has nothing for is left out with a line on standard error.
    """
    if target not in (*TARGETS, *PRACTICE, ALL):
        raise UsageError(f"there is no target '{target}': choose from {', '.join((*TARGETS, *PRACTICE))}, or {ALL}")
    if study.label_fault and target not in OF_OWN_PAIRS:
        raise DataError(
            f"{study.data}: {study.label_fault}: what {target} measures is of shared labels; without them there are "
            f"{', '.join(OF_OWN_PAIRS)}"
        )
    if study.epochs < 2:
        raise UsageError(f"--epochs {study.epochs}: at least 2 are needed to see a proxy move")
    default = METHODS[Recipe.method]  # which these targets train
    if target in PRACTICE and (note := unlearned_short_texts([default], study.features, None)):
        print(note, file=sys.stderr)
    if target != ALL:
        return [_make_target(study, target)]
    _ = study.groups  # a group file that is wrong is refused before the first run
    outcomes: dict[str, Outcome] = {}
    ordered: list[Outcome] = []
    for name in [*(name for name in TARGETS if name != LAST), LAST]:
        print(f"{name} ...", file=sys.stderr)
        try:
            outcomes[name] = _make_target(study, name)
        except LeftOut as reason:
            print(f"{name} is left out: {reason}", file=sys.stderr)
            continue
        ordered = [outcomes[name] for name in TARGETS if name in outcomes]
        with atomic_write(study.out / "report.html", "w") as stream:
            stream.write(_report_page(study, ordered))
    return ordered


def _make_target(study: Study, name: str) -> Outcome:
    outcome = (TARGETS | PRACTICE)[name](study)
    outcome.write(study.out / name)
    return outcome


def _report_page(study: Study, outcomes: Sequence[Outcome]) -> str:
    """The study as one HTML page that opens offline: every figure is inside, and nothing is loaded. Pictures are
    read from OUT/TARGET, where the outcomes were written."""
    dataset = study.features.dataset.name
    contents = "".join(f'<li><a href="#{o.target}">{prose(o.title)}</a></li>' for o in outcomes)
    sections = "\n".join(_section(study, outcome, number) for number, outcome in enumerate(outcomes, 1))
    header = f"""<h1>Kent proxies on {html.escape(dataset)}</h1>
<p class="lead">The tables and figures of “Absorbing Gradient Conflicts: Modeling Semantic Variance via Kent
Distributions for Cross-Modal Hashing”, measured again on this data. Baseline of the analyses is DSPH, whose proxies are
points; against it stands KDPH, whose proxies are Kent distributions.</p>
<p class="basis">{html.escape(study.basis)}</p>"""
    body = f"""<nav aria-label="Contents"><h2>Contents</h2><ol>{contents}</ol></nav>
<main>
{sections}
</main>
<footer><p>All of it again, what is finished being kept:</p>{_code(study.command("all"))}</footer>"""
    return html_page(f"Kent proxies on {dataset}: the paper's study, measured again", header, body)


def _section(study: Study, outcome: Outcome, number: int) -> str:
    folder = study.out / outcome.target
    figures = [_figure(folder / f"{plot.name}.svg", plot.caption) for plot in outcome.plots]
    seen = "".join(f"<li>{prose(line)}</li>" for line in outcome.seen)
    tables = "".join(f'<div class="scroll" tabindex="0">{sheet.html()}</div>' for sheet in outcome.sheets)
    return f"""<section id="{outcome.target}">
<h2><span class="number">{number}</span>{prose(outcome.title)}</h2>
<p>{prose(outcome.measured)}</p>
<p class="paper"><b>In the paper.</b> {prose(outcome.paper)}</p>
{"".join(figures)}
<h3>What is seen here</h3>
<ul>{seen}</ul>
{tables}
<p class="again">Again:</p>{_code(study.command(outcome.target))}
</section>"""


def _figure(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    text = html.escape(caption, quote=True)
    source = f"data:image/svg+xml;base64,{data}"
    return f'<figure><img src="{source}" alt="{text}"><figcaption>{prose(caption)}</figcaption></figure>'


def _code(command: str) -> str:
    return f"<pre><code>{html.escape(command)}</code></pre>"
