"""The choices of a contrastive suite in the translations of a run.

    python -m benchmarks.study.generated RUN SUITE OUT.json

OUT.json has the per cent of `right`, `wrong`, `both` and `neither`, in all and by distance.
OUT.decisions.json is input for `cotext compare-decisions`; all outcomes but `right` count as wrong.
"""

import sys
from pathlib import Path

from benchmarks.study.choices import write_json
from cotext.data.contrastive_suites import documents_of
from cotext.data.suite_files import read_suite
from cotext.evaluation.metrics.generative import OUTCOMES
from cotext.evaluation.studies.contrastive.contrastive import write_suite_forms
from cotext.translation.open import open_run
from cotext.translation.signature import translation_entries


def measure_generated(run: Path, path: Path, out: Path) -> None:
    """Translate the sources of a suite, judge the translations, and write both files."""
    opened, suite = open_run(run), read_suite(path)
    report = write_suite_forms(opened.translator, suite, recipe=translation_entries(opened))
    groups = {"all": report.overall, **report.by_distance}
    figures = {
        name: {outcome: 100 * getattr(forms, outcome) / forms.total for outcome in OUTCOMES}
        for name, forms in groups.items()
    }
    judged = [
        (e.id, outcome, number)
        for e, outcome, number in zip(
            suite.examples, report.outcomes, documents_of(suite.examples), strict=True
        )
        if outcome is not None
    ]
    decisions = {
        "signature": report.signature,
        "decisions": {id: "right" if outcome == "right" else "wrong" for id, outcome, _ in judged},
        "documents": {id: number for id, _, number in judged},
    }
    write_json(out.with_suffix(".decisions.json"), {suite.name: decisions})
    write_json(out, figures)


def main() -> None:
    """Measure a run on a suite."""
    run, suite, out = map(Path, sys.argv[1:])
    measure_generated(run, suite, out)


if __name__ == "__main__":
    main()
