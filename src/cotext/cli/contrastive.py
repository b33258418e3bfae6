"""The command `contrastive`."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.cli.contrastive_reports import tell_of, write_reports
from cotext.cli.messages import tell_slow_precision
from cotext.cli.options import (
    Checkpoint,
    Decode,
    Device,
    Json,
    ShardOption,
    check_shard_output,
    decode_settings,
    do_shard,
    output,
    scoring_settings,
    shard_of,
)
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.cli.contrastive_reports import Found, Suites
    from cotext.data.contrastive_suites import ContrastiveSuite
    from cotext.evaluation.metrics.generative import GenerativeReport
    from cotext.evaluation.studies.contrastive.contrastive import SuiteRules
    from cotext.translation.open import OpenedRun


def contrastive(
    run: Annotated[
        Path, typer.Argument(help="Run folder, or endpoint.yaml of a language model behind an API.")
    ],
    suites: Annotated[
        list[Path],
        typer.Argument(
            help="Contrastive suites (docs/contrastive-format.md), ContraPro or consistency sets; ctxPro "
            "with --generate."
        ),
    ],
    tie: Annotated[
        str, typer.Option(help="wrong: a tie counts as an error; first: the first candidate wins.")
    ] = "wrong",
    score: Annotated[
        str,
        typer.Option(
            help="How candidates are scored: by the sum or the mean of their token log-probabilities."
        ),
    ] = "sum",
    generate: Annotated[
        bool,
        typer.Option(
            "--generate",
            help="Also translate the sources, and check whether the translation has the correct form.",
        ),
    ] = False,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls",
            help="Also score without context and with context from other documents, to test whether context "
            "is used; up to 3 times slower.",
        ),
    ] = False,
    context: Annotated[
        str,
        typer.Option(
            help="Context in which candidates are scored: true; none; shuffled; foreign, from other "
            "documents; or global, for systems with batch-level context: own window, other rows "
            "foreign."
        ),
    ] = "true",
    contexts: Annotated[
        Path | None,
        typer.Option(
            help="Contexts of a ctxPro suite: a file or a folder. Default: looked for beside the suite and "
            "in ../inputs."
        ),
    ] = None,
    splitter: Annotated[
        str | None,
        typer.Option(
            help="For ctxPro, take the last sentence of each translation, found by sentence-splitter (as "
            "published), rules or sat:MODEL."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file for all figures and decisions.")] = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    shard: ShardOption = None,
    json: Json = False,
) -> None:
    """Score contrastive suites: how often a system prefers the correct translation to wrong ones."""
    from cotext.cli.generative import SuiteOptions, check_one_kind, contrastive_forms
    from cotext.data.suite_files import read_suite
    from cotext.language_models.config import is_endpoint

    _check_rules(tie, score)
    if check_one_kind(suites, contexts, splitter):
        if not generate or shard is not None or (tie, score) != ("wrong", "sum"):
            raise CotextError(
                "suites of ctxPro have no candidates to score: give --generate, and neither --tie, --score "
                "nor --shard"
            )
        given = SuiteOptions(contexts, splitter, controls, context)
        contrastive_forms(run, suites, given, out, device, set, checkpoint, json)
        return
    _check_context(context, controls, generate)
    if is_endpoint(run):
        from cotext.cli.endpoint_scores import contrastive_by_endpoint
        from cotext.evaluation.studies.contrastive.contrastive import SuiteRules

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
    from cotext.evaluation.studies.contrastive.contrastive import SuiteRules, context_window_of, suite_recipe

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
            from cotext.evaluation.studies.contrastive.contrastive_shards import SuitesJob

            do_shard(SuitesJob(opened, loaded, out, part, rules, generate), json)
            return
        tell = tell_of(json)
        found = _scored(opened, loaded, rules, generate, suite_recipe(opened))
        write_reports(out, loaded, found, rules, window, tell, json)


def _check_languages(opened: "OpenedRun", suites: "Suites") -> None:
    from cotext.data.languages import check_pair

    for path, suite in suites:
        check_pair(opened.languages, suite.languages, f"{path}", f"{opened.folder} translates")


def _scored(
    opened: "OpenedRun", suites: "Suites", rules: "SuiteRules", generate: bool, recipe: dict[str, str]
) -> "Iterator[Found]":
    """The report on each suite, and that on its translations where they are asked for."""
    from cotext.evaluation.studies.contrastive.contrastive import run_suite
    from cotext.runtime.progress import meter

    for _, suite in suites:
        with meter(suite.name, sum(len(e.candidates) for e in suite.examples)) as progress:
            report = run_suite(
                opened.translator, suite, **asdict(rules), recipe=recipe, on_candidates=progress.advance
            )
        yield report, _generated(opened, suite) if generate else None


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
    from cotext.translation.open import open_run, open_scorer

    if not generate:
        opened = open_scorer(run, device, decode, checkpoint)
        tell_slow_precision(opened)
        return opened
    opened = open_run(run, device, decode, checkpoint)
    tell_slow_precision(opened)
    opened.translator.plan.check_passes()
    return opened


def _generated(opened: "OpenedRun", suite: "ContrastiveSuite") -> "GenerativeReport":
    """The generative reading of a suite."""
    from cotext.evaluation.studies.contrastive.contrastive import write_suite_forms
    from cotext.runtime.progress import meter
    from cotext.translation.signature import translation_entries

    sources = dict.fromkeys(example.source for example in suite.examples)
    with meter(f"{suite.name}, translating", sum(map(len, sources))) as progress:
        recipe = translation_entries(opened)
        return write_suite_forms(opened.translator, suite, recipe=recipe, on_sentences=progress.advance)
