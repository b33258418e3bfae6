"""`contrastive` with generative suites: a run translates them, and the expected forms are counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from cotext.cli.messages import tell_slow_precision
from cotext.cli.options import as_json, decode_settings, output, write_figures
from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What is asked of suites of ctxPro: see the options of `contrastive`."""

    contexts: Path | None
    splitter: str | None
    controls: bool
    context: str


def check_one_kind(suites: Sequence[Path], contexts: Path | None, splitter: str | None) -> bool:
    """Whether suites are of ctxPro.

    Raises:
        CotextError: some are and some are not; contexts of what has its own, or of several suites; a splitter
            where nothing is to be split.
    """
    from cotext.data.ctxpro import is_ctxpro_file

    kinds = [is_ctxpro_file(path) for path in suites]
    if any(kinds) and not all(kinds):
        odd = suites[kinds.index(False)]
        raise CotextError(f"{odd}: is not of ctxPro as others are; give suites of one kind at a time")
    if (contexts is not None or splitter is not None) and not any(kinds):
        option = "--splitter" if contexts is None else "--contexts"
        raise CotextError(f"{option} is about suites of ctxPro; leave it out")
    if contexts is not None and len(suites) > 1 and not contexts.is_dir():
        raise CotextError(f"--contexts {contexts}: one file for {len(suites)} suites; give their folder")
    return any(kinds)


def contrastive_forms(
    run: Path,
    suites: Sequence[Path],
    given: SuiteOptions,
    out: Path | None,
    device: str | None,
    settings: list[str] | None,
    checkpoint: int | None,
    json: bool,
) -> None:
    """Translate suites of ctxPro and report how often the expected form is in the translation."""
    from cotext.data.ctxpro import read_ctxpro
    from cotext.data.languages import check_pair
    from cotext.evaluation.metrics.ctxpro import WHOLE, LastSentence
    from cotext.evaluation.studies.contrastive.contrastive import context_window_of
    from cotext.evaluation.studies.contrastive.generative_suites import CONTEXTS, write_forms
    from cotext.runtime.progress import meter
    from cotext.translation.open import open_run
    from cotext.translation.signature import translation_entries

    if given.context not in CONTEXTS:
        raise CotextError(f"--context {given.context}: of ctxPro, choose one of {', '.join(CONTEXTS)}")
    if given.controls and given.context != "true":
        raise CotextError(f"--context {given.context} is one of the controls: leave it or --controls out")
    loaded = [(path, read_ctxpro(path, given.contexts)) for path in suites]
    last = [LastSentence.by(given.splitter or WHOLE, suite.languages.target) for _, suite in loaded]
    figures: dict[str, Any] = {}
    with output(out, suites):
        opened = open_run(run, device, decode_settings(settings), checkpoint)
        tell_slow_precision(opened)
        opened.translator.plan.check_passes()
        for path, suite in loaded:
            check_pair(opened.languages, suite.languages, f"{path}", f"{opened.folder} translates")
        chosen = CONTEXTS if given.controls else (given.context,)
        if not context_window_of(opened.translator).has_context:
            # Whatever stands before the tested sentence, it is translated as if it stood alone.
            chosen = ("none",)
            typer.echo(f"{run} reads single sentences: translated without context\n", err=json)
        for (path, suite), of_suite in zip(loaded, last, strict=True):
            with meter(f"{suite.name}, translating", 0) as progress:
                found = write_forms(
                    opened.translator,
                    suite,
                    chosen,
                    of_suite,
                    translation_entries(opened),
                    on_start=progress.restart,
                    on_sentences=progress.advance,
                )
            if not json:
                typer.echo(f"{suite.name}\n{found.render()}\n")
            figures[f"{suite.name} ({path})" if suite.name in figures else suite.name] = found.as_dict()
    if json:
        typer.echo(as_json(figures))
    write_figures(out, figures)
