"""The part of the page of `cotext compare` on systems trained with several seeds."""

from html import escape

from cotext.evaluation.statistics.seeds import Difference
from cotext.evaluation.statistics.significance import SIGNIFICANT
from cotext.evaluation.studies.compare.comparison import RunComparison
from cotext.evaluation.studies.compare.system import MeasuredSystem
from cotext.evaluation.studies.contrastive.evidence import away
from cotext.models.run_folder import listed_seeds
from cotext.runtime.html import table
from cotext.runtime.tables import render_p

SEEDS = """Every figure of a system that was trained with several seeds is a mean over them. A difference is
said to be significant where it is over documents, for the models that were trained, and over seeds and
documents together, for models of other seeds. Deviation: the standard deviation of single seeds. A difference
that is no larger than the deviation of one of the two systems is marked ≈: two single runs may well differ
the other way round."""


def titled(run: MeasuredSystem) -> str:
    """A title, with the seeds below it where there are several."""
    return f"{escape(run.label)} {_small(f'seeds {listed_seeds(run.seeds)}' if run.seeds else '')}".rstrip()


def seed_table(found: RunComparison) -> list[str]:
    """Words on seeds, and every figure by seed with its tests."""
    rows = []
    for number, run in enumerate(found.runs):
        for each in found.over_seeds(number):
            deviation, test = each.by_seed.deviation, each.against_first
            values = " ".join(f"{value:.1f}" for value in each.by_seed.values)
            rows.append(
                (
                    titled(run),
                    f"{escape(each.name)} {_small(away([each.group]) if each.group else '')}",
                    f"{each.by_seed.mean:.2f} {_small(values)}",
                    "" if deviation is None else f"{deviation:.2f}",
                    "" if test is None else f"{test.difference:+.2f}{' ≈' if each.lost_in_seeds else ''}",
                    "" if test is None else _p(test),
                )
            )
    header = ("system", "figure", "mean, by seed", "deviation", "difference", "p")
    first = escape(found.runs[0].title)
    return [
        f"<p>{SEEDS}</p>",
        table(
            f"Differences from {first}; p after correction, below it those of the two tests before it.",
            header,
            rows,
            left=2,
            heads=2,
        ),
    ]


def _p(test: Difference) -> str:
    """p after correction, bold where it is significant; below it, what it is the larger one of."""
    shown = escape(render_p(test.p_corrected))
    parts = [_small(f"documents {render_p(test.p_documents)}")]
    if test.over_seeds is not None:
        parts.append(_small(f"seeds {render_p(test.over_seeds.p)}"))
    return " ".join([f"<b>{shown}</b>" if test.p_corrected < SIGNIFICANT else shown, *parts])


def _small(text: str) -> str:
    return f'<span class="interval">{escape(text)}</span>' if text else ""
