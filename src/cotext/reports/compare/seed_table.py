"""The part of the page of `cotext compare` on systems trained with several seeds."""

from html import escape

from cotext.analysis.runs.comparison import RunComparison
from cotext.analysis.runs.system import MeasuredSystem
from cotext.metrics.evidence_words import away
from cotext.metrics.flips import SIGNIFICANT
from cotext.models.run_folder import listed_seeds
from cotext.reports.html import table
from cotext.runtime.tables import render_p

SEEDS = """Every figure of a system that was trained with several seeds is a mean over them. A difference is
said to be significant where it is over documents, for the models that were trained, and over seeds and
documents together, for models of other seeds. Deviation: the standard deviation of single seeds. A difference
that is no larger than the deviation of one of the two systems is marked ≈: two single runs may well differ
the other way round."""


def titled(run: MeasuredSystem) -> str:
    """A title, with the seeds below it where there are several."""
    seeds = f'<span class="interval">seeds {escape(listed_seeds(run.seeds))}</span>' if run.seeds else ""
    return f"{escape(run.title)} {seeds}".rstrip()


def seed_table(found: RunComparison) -> list[str]:
    """Words on seeds, and every figure by seed with its tests."""
    rows = []
    for number, run in enumerate(found.runs):
        for each in found.over_seeds(number):
            deviation, test = each.by_seed.deviation, each.against_first
            over = None if test is None else test.over_seeds
            rows.append(
                (
                    titled(run),
                    f"{escape(each.name)} "
                    f'<span class="interval">{away([each.group]) if each.group else ""}</span>',
                    f"{each.by_seed.mean:.2f}",
                    "" if deviation is None else f"{deviation:.2f}",
                    " ".join(f"{value:.1f}" for value in each.by_seed.values),
                    "" if test is None else f"{test.difference:+.2f}{' ≈' if each.lost_in_seeds else ''}",
                    "" if test is None else escape(render_p(test.p_documents)),
                    "" if over is None else escape(render_p(over.p)),
                    "" if test is None else _bold(render_p(test.p_corrected), test.p_corrected < SIGNIFICANT),
                )
            )
    header = (
        "system", "figure", "mean", "deviation", "by seed", "difference", "p, documents", "p, seeds",
        "p, corrected",
    )  # fmt: skip
    first = escape(found.runs[0].title)
    return [f"<p>{SEEDS}</p>", table(f"Differences from {first}.", header, rows, left=2, heads=2)]


def _bold(figure: str, is_bold: bool) -> str:
    return f"<b>{escape(figure)}</b>" if is_bold else escape(figure)
