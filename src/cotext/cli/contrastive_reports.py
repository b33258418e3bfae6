"""What `contrastive` tells and writes of suites that are judged."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cotext.cli.options import as_json, write_figures

if TYPE_CHECKING:
    from cotext.data.contrastive_suites import ContrastiveSuite
    from cotext.evaluation.metrics.contrastive import ContrastiveReport
    from cotext.evaluation.metrics.generative import GenerativeReport
    from cotext.evaluation.studies.contrastive.contrastive import SuiteRules
    from cotext.evaluation.studies.contrastive.contrastive_rows import ContextWindow
    from cotext.evaluation.studies.contrastive.evidence import Evidence

    Suites = Sequence[tuple[Path, ContrastiveSuite]]
    # On the candidates of a suite, and on its translations: one of them, or both.
    Found = tuple[ContrastiveReport | None, GenerativeReport | None]

Tell = Callable[[str], None]  # what a person reads of the figures


def write_reports(
    out: Path | None,
    suites: "Suites",
    found: "Iterable[Found]",
    rules: "SuiteRules",
    window: "ContextWindow",
    tell: Tell,
    json: bool,
) -> None:
    """Tell what was found of each suite and of all together, and write the figures."""
    from cotext.evaluation.metrics.contrastive import render_table
    from cotext.evaluation.metrics.generative import render_forms
    from cotext.evaluation.studies.contrastive.contrastive import evidence_of
    from cotext.evaluation.studies.contrastive.decisions import ALL_SUITES, pool, to_pool

    evidence: dict[str, list[Evidence]] = {}
    reports: dict[str, Any] = {}
    judged: dict[str, ContrastiveReport] = {}
    named: dict[str, ContrastiveSuite] = {}
    for (path, suite), (report, forms) in zip(suites, found, strict=True):
        figures = {} if report is None else report.as_dict()
        tell(suite.name if report is None else f"{suite.name}\n{render_table(report)}\n")
        if forms is not None:
            tell(f"{render_forms(forms)}\n")
            figures["generative"] = forms.as_dict()
        key = f"{suite.name} ({path})" if suite.name in reports else suite.name
        reports[key] = figures
        if report is None:
            continue
        judged[key], named[key] = report, suite
        if report.readings is not None:
            evidence[key] = evidence_of(suite, report.readings, window)
    if together := to_pool(named):
        pooled = pool(together, judged)
        tell(f"{ALL_SUITES}, clues in other sentences\n{render_table(pooled)}\n")
        reports[ALL_SUITES] = pooled.as_dict()
    if evidence:
        _conclude(evidence, reports, tell)
    elif judged and window.has_context and rules.context == "true":
        tell("Accuracy alone does not show that context is used: add --controls to test it.\n")
    if json:
        typer.echo(as_json(reports))
    write_figures(out, reports)


def tell_of(json: bool) -> Tell:
    """What prints for a person: nothing where figures are printed as JSON."""
    return _silent if json else typer.echo


def _silent(text: str) -> None:
    pass


def _conclude(found: "dict[str, list[Evidence]]", reports: dict[str, Any], tell: Tell) -> None:
    """What the controls of all suites together show, told and with the figures of each suite."""
    from cotext.evaluation.studies.contrastive.evidence import conclusion, corrected, legend, render_evidence

    evidence = corrected([each for of_suite in found.values() for each in of_suite])
    if evidence:
        tell(f"{render_evidence(evidence)}\n{legend(evidence)}")
    tell(f"{conclusion(evidence)}\n")
    rest = iter(evidence)
    for key, of_suite in found.items():
        reports[key]["use_of_context"] = [next(rest).as_dict() for _ in of_suite]
