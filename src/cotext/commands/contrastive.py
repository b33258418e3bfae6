"""The command `contrastive`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.commands.options import Checkpoint, Decode, Device, decode_settings, output, write_figures
from cotext.errors import CotextError

if TYPE_CHECKING:
    from cotext.checkpoint import LoadedModel
    from cotext.data.suites import ContrastiveSuite
    from cotext.translate import DocumentTranslator


def contrastive(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    suites: Annotated[
        list[Path], typer.Argument(help="Contrastive suites (JSON, ContraPro, consistency sets).")
    ],
    tie: Annotated[
        str, typer.Option(help="wrong: a tie is an error; first: the first candidate wins.")
    ] = "wrong",
    score: Annotated[str, typer.Option(help="sum or mean of the log-probabilities of the tokens.")] = "sum",
    generate: Annotated[
        bool, typer.Option("--generate", help="Is the right form in its own translation, too?")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write all figures and decisions here as JSON.")] = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
) -> None:
    """How often a system prefers the right translation to wrong ones, by phenomenon and distance."""
    from cotext.data.suites import read_suite

    for option, value, known in (("tie", tie, ("wrong", "first")), ("score", score, ("sum", "mean"))):
        if value not in known:
            raise CotextError(f"--{option} {value}: choose one of {', '.join(known)}")
    decode = decode_settings(set)
    if decode and not generate:
        raise CotextError("--set is for translations: add --generate, or leave it out")
    loaded_suites = [read_suite(path) for path in suites]
    from cotext.jobs import open_scorer, open_translator
    from cotext.metrics.contrastive import render_table
    from cotext.progress import meter
    from cotext.suite_jobs import run_suite, suite_recipe

    with output(out, suites):
        if generate:
            translator, loaded = open_translator(run, device, decode, checkpoint)
            translator.check_passes()
        else:
            translator, loaded = open_scorer(run, device, update=checkpoint)
        recipe = suite_recipe(translator, loaded)
        reports: dict[str, Any] = {}
        for path, suite in zip(suites, loaded_suites, strict=True):
            with meter(suite.name, sum(len(e.candidates) for e in suite.examples)) as progress:
                report = run_suite(
                    translator, suite, tie=tie, score=score, recipe=recipe, on_candidates=progress.advance
                )
            figures = report.as_dict()
            typer.echo(f"{suite.name}\n{render_table(report)}\n")
            if generate:
                figures["generative"] = _generated(translator, loaded, suite)
            reports[f"{suite.name} ({path})" if suite.name in reports else suite.name] = figures
        write_figures(out, reports)


def _generated(
    translator: "DocumentTranslator", loaded: "LoadedModel", suite: "ContrastiveSuite"
) -> dict[str, Any]:
    """The generative reading of a suite, shown and as figures."""
    from cotext.metrics.generative import render_forms
    from cotext.progress import meter
    from cotext.suite_jobs import forms_recipe, write_suite_forms

    sources = dict.fromkeys(example.source for example in suite.examples)
    with meter(f"{suite.name}, translating", sum(map(len, sources))) as progress:
        recipe = forms_recipe(translator, loaded)
        forms = write_suite_forms(translator, suite, recipe=recipe, on_sentences=progress.advance)
    typer.echo(f"{render_forms(forms)}\n")
    return forms.as_dict()
