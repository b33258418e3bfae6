"""Results of a comparison for programs: CSV and JSON."""

import csv
import io
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from cotext.evaluation.statistics.seeds import Difference
from cotext.evaluation.studies.compare.comparison import RunComparison
from cotext.evaluation.studies.compare.verdict import uses_context, verdict

# `difference` and the columns after it are relative to `baseline`: the title of the first system, or a value.
CSV_COLUMNS: Final = (
    "system", "recipe", "kind", "name", "group", "value", "low", "high", "baseline", "difference",
    "difference_low", "difference_high", "p", "p_corrected", "n", "signature",
)  # fmt: skip


def as_csv(result: RunComparison) -> str:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(figures(result))
    return sink.getvalue()


def as_dict(result: RunComparison) -> dict[str, Any]:
    """Return the verdict, the evidence of context use by run, and the same values as the CSV file."""
    return {
        "format": "cotext-compare",
        "version": 1,
        "verdict": verdict(result),
        "notes": result.notes,
        "systems": [
            {
                "system": run.title,
                "recipe": run.first.recipe.title,
                "languages": str(run.first.languages),
                "seeds": list(run.seeds),
                "not_learned": run.not_learned,
                "has_context": run.first.window.has_context,
                "uses_context": uses_context(result, number),
                "use_of_context": [
                    {"title": each.group.title, **each.as_dict()} for each in result.evidence[number]
                ],
                "over_seeds": [
                    {
                        "name": each.name,
                        "group": each.group,
                        **each.by_seed.as_dict(),
                        "against_first": each.against_first and each.against_first.as_dict(),
                    }
                    for each in result.over_seeds(number)
                ],
            }
            for number, run in enumerate(result.runs)
        ],
        "figures": list(figures(result)),
    }


def figures(result: RunComparison) -> Iterator[dict[str, Any]]:
    """Yield every value as a line of the CSV file, system by system; values by seed are left out."""
    first = result.runs[0].title
    for number, run in enumerate(result.runs):
        make = partial(_line, system=run.title, recipe=run.first.recipe.title)
        for name, count in (("parameters", run.first.parameters), ("updates", run.updates[1])):
            yield make(kind="run", name=name, value=count, signature=run.first.signature)
        if run.first_loss is not None:
            own, there = run.first_loss
            yield make(kind="run", name="first loss", value=own)
            yield make(kind="run", name="loss of the run it starts from", value=there)
        for each in result.quality.scores[number]:
            low, high = each.interval_95 or (None, None)
            yield make(kind="score", name=each.score.title, value=each.score.value, low=low, high=high,
                       n=each.score.documents, signature=each.score.signature,
                       **_against(each.against_first, first))  # fmt: skip
        for row in result.rows:
            cell = row.cells[number]
            yield make(kind="accuracy", name=row.group.title, group=row.group.distance, value=cell.percent,
                       low=cell.low, high=cell.high, n=cell.total)  # fmt: skip
        for test in result.contrastive_tests:
            if test.run == number:
                yield make(kind="contrastive test", name=test.group.title, group=test.group.distance,
                           value=test.own, n=len(test.group.examples), signature=result.signature,
                           **_against(test.test, first))  # fmt: skip
        for evidence in result.evidence[number]:
            for name, condition in evidence.conditions.items():
                yield make(kind=f"use of context: {name}", name=evidence.group.title,
                           group=evidence.group.distance, value=condition.own, baseline=condition.other,
                           difference=condition.own - condition.other, p=condition.p,
                           p_corrected=condition.p_corrected, n=evidence.documents)  # fmt: skip
        for use in result.gains[number]:
            yield make(kind="context", name=f"{use.condition} context, nats per token", value=use.nats,
                       low=use.interval_95[0], high=use.interval_95[1], p=use.p, n=use.tokens)  # fmt: skip
        for compared in result.published:
            value, measure, data = compared.published, compared.published.measure, compared.published.test
            if compared.run == number and value.value is not None:
                yield make(kind="published", name=f"{value.table_title}, {value.row}", group=value.column,
                           value=value.value,
                           difference=difference_of(value.value, compared.first_published),
                           signature="|".join((measure.title, data.direction, data.corpus,
                                               measure.protocol)))  # fmt: skip


def _line(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _against(test: Difference | None, first: str) -> dict[str, Any]:
    if test is None:
        return {}
    low, high = test.interval_95
    return {
        "baseline": first, "difference": test.difference, "difference_low": low, "difference_high": high,
        "p": test.p, "p_corrected": test.p_corrected,
    }  # fmt: skip


def difference_of(value: float | None, first: float | None) -> float | None:
    """Return a value minus the value of the first system; None if either is missing."""
    return None if value is None or first is None else value - first
