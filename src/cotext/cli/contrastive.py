"""The command `contrastive`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.cli.messages import tell_slow_precision
from cotext.cli.options import (
    Checkpoint,
    Decode,
    Device,
    Json,
    ShardOption,
    as_json,
    check_shard_output,
    decode_settings,
    output,
    scoring_settings,
    shard_of,
    tell_shard,
    write_figures,
)
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.analysis.contrastive import SuiteRules
    from cotext.analysis.contrastive_rows import ContextWindow
    from cotext.data.contrastive_suites import ContrastiveSuite
    from cotext.decoding.open import OpenedRun
    from cotext.metrics.contrastive import ContrastiveReport
    from cotext.metrics.evidence import Evidence
    from cotext.metrics.generative import GenerativeReport
    from cotext.runtime.shards import Shard

    Suites = Sequence[tuple[Path, ContrastiveSuite]]
    # On the candidates of a suite, and on its translations: one of them, or both.
    Found = tuple[ContrastiveReport | None, GenerativeReport | None]

Tell = Callable[[str], None]  # what a person reads of the figures


def contrastive(
    run: Annotated[
        Path, typer.Argument(help="Run folder, or endpoint.yaml of a language model behind an API.")
    ],
    suites: Annotated[
        list[Path], typer.Argument(help="Contrastive suites (JSON, ContraPro, consistency sets).")
    ],
    tie: Annotated[
        str, typer.Option(help="wrong: a tie counts as an error; first: the first candidate wins.")
    ] = "wrong",
    score: Annotated[
        str, typer.Option(help="Candidate score: sum or mean of the token log-probabilities.")
    ] = "sum",
    generate: Annotated[
        bool, typer.Option("--generate", help="Also translate the sources and check for the correct form.")
    ] = False,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            help="Also score without context and with context of other documents, to test context use; up to "
            "3 times slower.",
        ),
    ] = False,
    context: Annotated[
        str,
        typer.Option(
            help="Context that candidates are scored in: true; none; shuffled; foreign, of other documents; "
            "or global, foreign but for the own window of a system whose rows see each other."
        ),
    ] = "true",
    out: Annotated[Path | None, typer.Option(help="JSON file for all figures and decisions.")] = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    shard: ShardOption = None,
    json: Json = False,
) -> None:
    """Score contrastive suites: accuracy by phenomenon and distance of the antecedent."""
    from cotext.data.suite_files import read_suite
    from cotext.endpoints.config import is_endpoint

    _check_rules(tie, score)
    _check_context(context, controls, generate)
    if is_endpoint(run):
        from cotext.analysis.contrastive import SuiteRules
        from cotext.cli.endpoint_scores import contrastive_by_endpoint

        contrastive_by_endpoint(
            run,
            [(path, read_suite(path)) for path in suites],
            decode_settings(set),
            SuiteRules(tie, score, controls, context),
            generate=generate,
            out=out,
            json=json,
            others={"--device": device, "--checkpoint": checkpoint is not None, "--shard": shard},
        )
        return
    decode = decode_settings(set) if generate else scoring_settings(set)
    part = shard_of(shard, out)
    loaded = [(path, read_suite(path)) for path in suites]
    from cotext.analysis.contrastive import SuiteRules, context_window_of, suite_recipe

    if part is not None and out is not None:
        check_shard_output(out, suites)
    with output(None if part is not None else out, suites):
        opened = _opened(run, generate, device, decode, checkpoint)
        _check_languages(opened, loaded)
        window = context_window_of(opened.translator)
        if controls and not window.has_context:
            typer.echo(f"{run} reads single sentences: --controls has no context to remove\n", err=json)
        rules = SuiteRules(tie, score, controls and window.has_context, context)
        if part is not None and out is not None:
            _score_shard(opened, loaded, out, part, rules, generate, json)
            return
        tell = tell_of(json)
        found = _scored(opened, loaded, rules, generate, suite_recipe(opened))
        write_reports(out, loaded, found, rules, window, tell, json)


def _check_languages(opened: "OpenedRun", suites: "Suites") -> None:
    from cotext.data.languages import check_pair

    for path, suite in suites:
        check_pair(opened.languages, suite.languages, f"{path}", f"{opened.folder} translates")


def _score_shard(
    opened: "OpenedRun",
    suites: "Suites",
    out: Path,
    shard: "Shard",
    rules: "SuiteRules",
    generate: bool,
    json: bool,
) -> None:
    from cotext.analysis.contrastive_shards import COMMAND, contrastive_shard
    from cotext.runtime.progress import meter

    with meter("scoring", 0) as progress:
        report = contrastive_shard(
            opened,
            suites,
            out,
            shard,
            rules,
            generate,
            on_start=progress.restart,
            on_candidates=progress.advance,
        )
    tell_shard(COMMAND, out, report, json)


def _scored(
    opened: "OpenedRun", suites: "Suites", rules: "SuiteRules", generate: bool, recipe: dict[str, str]
) -> "Iterator[Found]":
    """The report on each suite, and that on its translations where they are asked for."""
    from cotext.analysis.contrastive import run_suite
    from cotext.runtime.progress import meter

    for _, suite in suites:
        with meter(suite.name, sum(len(e.candidates) for e in suite.examples)) as progress:
            report = run_suite(
                opened.translator, suite, **asdict(rules), recipe=recipe, on_candidates=progress.advance
            )
        yield report, _generated(opened, suite) if generate else None


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
    from cotext.analysis.contrastive import evidence_of
    from cotext.metrics.contrastive import render_table
    from cotext.metrics.generative import render_forms
    from cotext.metrics.pooled import ALL_SUITES, pool, to_pool

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


def _check_rules(tie: str, score: str) -> None:
    for option, value, known in (("tie", tie, ("wrong", "first")), ("score", score, ("sum", "mean"))):
        if value not in known:
            raise CotextError(f"--{option} {value}: choose one of {', '.join(known)}")


def _check_context(context: str, controls: bool, generate: bool) -> None:
    known = ("true", "none", "shuffled", "foreign", "global")
    if context not in known:
        raise CotextError(f"--context {context}: choose one of {', '.join(known)}")
    if context != "true" and (controls or generate):
        option = "--controls" if controls else "--generate"
        raise CotextError(f"--context {context} is another question than {option}: ask them one at a time")


def _opened(
    run: Path, generate: bool, device: str | None, decode: dict[str, Any], checkpoint: int | None
) -> "OpenedRun":
    from cotext.decoding.open import open_run, open_scorer

    if not generate:
        opened = open_scorer(run, device, decode, checkpoint)
        tell_slow_precision(opened)
        return opened
    opened = open_run(run, device, decode, checkpoint)
    tell_slow_precision(opened)
    opened.translator.plan.check_passes()
    return opened


def _conclude(found: "dict[str, list[Evidence]]", reports: dict[str, Any], tell: Tell) -> None:
    """What the controls of all suites together show, told and with the figures of each suite."""
    from cotext.metrics.evidence import corrected
    from cotext.metrics.evidence_words import conclusion, legend, render_evidence

    evidence = corrected([each for of_suite in found.values() for each in of_suite])
    if evidence:
        tell(f"{render_evidence(evidence)}\n{legend(evidence)}")
    tell(f"{conclusion(evidence)}\n")
    rest = iter(evidence)
    for key, of_suite in found.items():
        reports[key]["use_of_context"] = [next(rest).as_dict() for _ in of_suite]


def _generated(opened: "OpenedRun", suite: "ContrastiveSuite") -> "GenerativeReport":
    """The generative reading of a suite."""
    from cotext.analysis.contrastive import write_suite_forms
    from cotext.decoding.signature import translation_entries
    from cotext.runtime.progress import meter

    sources = dict.fromkeys(example.source for example in suite.examples)
    with meter(f"{suite.name}, translating", sum(map(len, sources))) as progress:
        recipe = translation_entries(opened)
        return write_suite_forms(opened.translator, suite, recipe=recipe, on_sentences=progress.advance)
