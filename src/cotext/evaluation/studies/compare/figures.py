"""A comparison of systems as CSV and JSON: every figure, for programs."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from cotext.evaluation.studies.compare.against_papers import PublishedComparison
from cotext.evaluation.studies.compare.comparison import RunComparison, SeedFigure
from cotext.evaluation.studies.compare.pooled_tables import pooled_lines
from cotext.evaluation.studies.compare.verdict import uses_context, verdict

CSV_COLUMNS = (
    "system", "recipe", "kind", "name", "group", "value", "low", "high", "baseline", "difference",
    "difference_low", "difference_high", "p", "p_corrected", "n", "signature",
)  # fmt: skip


def as_csv(found: RunComparison) -> str:
    """One figure a line, measured and published."""
    sink = io.StringIO()
    writer = csv.DictWriter(sink, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in _lines(found):
        writer.writerow(line)
    return sink.getvalue()


def as_dict(found: RunComparison) -> dict[str, Any]:
    """The words, the evidence of the use of context run by run, and all figures, as CSV has them."""
    return {
        "format": "cotext-compare",
        "version": 1,
        "verdict": {answer.question: answer.lines for answer in verdict(found)},
        "notes": found.notes,
        "systems": [
            {
                "system": run.title,
                "recipe": run.recipe.title,
                "languages": str(run.languages),
                "seeds": list(run.seeds),
                "not_learned": run.not_learned,
                "has_context": run.window.has_context,
                "uses_context": uses_context(found, number),
                "use_of_context": [
                    {"title": each.group.title, **each.as_dict()} for each in found.evidence[number]
                ],
                "over_seeds": [_seed_figure(each) for each in found.over_seeds(number)],
            }
            for number, run in enumerate(found.runs)
        ],
        "figures": list(_lines(found)),
    }


def _seed_figure(each: SeedFigure) -> dict[str, Any]:
    test = each.against_first
    return {
        "name": each.name,
        "group": each.group,
        **each.by_seed.as_dict(),
        "against_first": None if test is None else test.as_dict(),
        "seeds_differ_as_much": each.lost_in_seeds,
    }


def _lines(found: RunComparison) -> Iterator[dict[str, object]]:
    first = found.runs[0].title
    for number, run in enumerate(found.runs):
        base = {"system": run.title, "recipe": run.recipe.title}
        sizes = (("parameters", run.parameters), ("updates", run.updates[1])) if run.has_model else ()
        for what, count in sizes:
            yield {**base, "kind": "run", "name": what, "value": count, "signature": run.runs[0].signature}
        for what, loss in zip(
            ("first loss", "loss of the run it starts from"), run.first_loss or (), strict=False
        ):
            yield {**base, "kind": "run", "name": what, "value": loss}
        for name, curve in (("nll_current", run.curve), ("nll_context", run.context_curve)):
            for update, loss in curve:
                yield {**base, "kind": "curve", "name": name, "group": update, "value": loss}
        yield from ({**base, **line} for line in _score_lines(found, number, first))
        yield from ({**base, **line} for line in _accuracy_lines(found, number, first))
        yield from ({**base, **line} for line in pooled_lines(found, number))
        yield from ({**base, **line} for line in _evidence_lines(found, number))
        yield from ({**base, **line} for line in _seed_lines(found, number))
        for use in found.gains[number]:
            yield {
                **base, "kind": "context", "name": f"{use.condition} context, nats per token",
                "value": use.nats, "low": use.interval_95[0], "high": use.interval_95[1], "p": use.p,
                "n": use.tokens,
            }  # fmt: skip
        for each in found.published:
            if each.run == number and each.published.value is not None:
                yield {**base, **_published_line(each)}


def _score_lines(found: RunComparison, number: int, first: str) -> Iterator[dict[str, object]]:
    for each in found.scores[number]:
        line: dict[str, object] = {
            "kind": "score", "name": each.score.title, "value": each.score.value, "n": each.score.documents,
            "signature": each.score.signature,
        }  # fmt: skip
        if each.interval_95:
            line |= {"low": each.interval_95[0], "high": each.interval_95[1]}
        if each.against_first:
            test = each.against_first
            line |= {
                "baseline": first, "difference": test.difference, "difference_low": test.interval_95[0],
                "difference_high": test.interval_95[1], "p": test.p, "p_corrected": test.p_corrected,
            }  # fmt: skip
        yield line
    for what, buckets in (("length", found.lengths), ("position", found.positions)):
        for bucket in buckets:
            score = bucket.scores[number][0]
            yield {
                "kind": f"by {what}", "name": score.title, "group": bucket.name, "value": score.value,
                "n": bucket.sentences, "signature": score.signature,
            }  # fmt: skip


def _accuracy_lines(found: RunComparison, number: int, first: str) -> Iterator[dict[str, object]]:
    for row in found.rows:
        cell = row.cells[number]
        yield {
            "kind": "accuracy", "name": row.phenomenon, "group": row.distance, "value": cell.percent,
            "low": cell.low, "high": cell.high, "n": cell.total,
        }  # fmt: skip
    for each in found.contrastive_tests:
        if each.run == number:
            yield {
                "kind": "contrastive test", "name": each.phenomenon, "group": each.distance,
                "value": each.own, "baseline": first, "difference": each.test.difference,
                "difference_low": each.test.interval_95[0], "difference_high": each.test.interval_95[1],
                "p": each.test.p, "p_corrected": each.p_corrected, "n": each.total,
                "signature": found.signature,
            }  # fmt: skip


def _evidence_lines(found: RunComparison, number: int) -> Iterator[dict[str, object]]:
    """A line for every condition: what the run has, what it is to exceed, and how sure it is that it does."""
    for each in found.evidence[number]:
        for name, condition in each.conditions.items():
            yield {
                "kind": f"use of context: {name}", "name": each.group.title, "group": each.group.distance,
                "value": condition.own, "baseline": condition.other,
                "difference": condition.own - condition.other, "p": condition.p,
                "p_corrected": condition.p_corrected, "n": each.documents,
            }  # fmt: skip


def _seed_lines(found: RunComparison, number: int) -> Iterator[dict[str, object]]:
    """A line for every figure of every seed, and two for what the tests make of documents and of seeds."""
    run, first = found.runs[number], found.runs[0].title
    for each in found.over_seeds(number):
        about: dict[str, object] = {"name": each.name, "group": each.group}
        for seed, value in zip(run.seeds, each.by_seed.values, strict=bool(run.seeds)):
            yield {**about, "kind": f"seed {seed}", "value": value}
        if run.seeds:
            yield {
                **about, "kind": "deviation of seeds", "value": each.by_seed.deviation,
                "low": min(each.by_seed.values), "high": max(each.by_seed.values), "n": len(run.seeds),
            }  # fmt: skip
        if each.against_first is not None and (over := each.against_first.over_seeds) is not None:
            for kind, error, p in (
                ("documents", over.error_documents, each.against_first.p_documents),
                ("seeds", over.error_seeds, over.p),
            ):
                yield {
                    **about, "kind": f"standard error from {kind}", "value": error, "baseline": first,
                    "difference": each.against_first.difference, "p": p,
                }  # fmt: skip


def _published_line(each: PublishedComparison) -> dict[str, object]:
    published = each.published
    line: dict[str, object] = {
        "kind": "published", "name": f"{published.table_title}, {published.row}", "group": published.column,
        "value": published.value,
        "signature": f"{published.measure.title}|{published.test.direction}|{published.test.corpus}|"
        f"{published.measure.protocol}",
    }  # fmt: skip
    if each.first_published is not None and published.value is not None:
        line["difference"] = published.value - each.first_published
    return line
