"""The command `evaluate`: metrics of translations, and comparison of contrastive decisions."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.cli.options import (
    Abbreviations,
    Format,
    Json,
    Protocols,
    SplitBy,
    Words,
    as_json,
    splitting,
)
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.language_models.kept_reports import KeptReport


def evaluate(
    hypothesis: Annotated[
        list[Path] | None, typer.Option(help="Translations by a system; repeat for each system.")
    ] = None,
    reference: Annotated[
        list[Path] | None, typer.Option(help="Reference translations; repeat for several references.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="Source documents, to check the number of sentences, and for COMET.")
    ] = None,
    protocol: Protocols = None,
    target_language: Annotated[
        str | None, typer.Option(help="Language code such as zh, for the metric's tokenizer.")
    ] = None,
    paragraphs: Annotated[
        bool,
        typer.Option(
            "--paragraphs",
            help="Lines hold several sentences: for sentence scores, split those lines in which all sides "
            "have the same number.",
        ),
    ] = False,
    realign: Annotated[
        bool,
        typer.Option(
            "--realign",
            help="Realign documents whose number of sentences differs from the reference's, with as few "
            "edits as possible; report omissions and additions.",
        ),
    ] = False,
    realign_all: Annotated[
        bool,
        typer.Option("--realign-all", help="Like --realign, but realign all documents."),
    ] = False,
    abbreviations: Abbreviations = None,
    splitter: SplitBy = None,
    words: Words = None,
    discourse: Annotated[
        Path | None,
        typer.Option(
            help="File of marked reference words; adds the discourse metrics TC, CP, PT and TCP "
            "(docs/metrics.md)."
        ),
    ] = None,
    entities: Annotated[
        Path | None,
        typer.Option(
            help="List of entities and their forms, by document; adds their accuracy, F1 and consistency."
        ),
    ] = None,
    comet: Annotated[
        str | None, typer.Option(help="COMET model, by path or name (docs/metrics.md); adds its score.")
    ] = None,
    comet_context: Annotated[
        int | None,
        typer.Option(
            help="Also compute document-level COMET with this many previous sentences as context (2 in its "
            "paper)."
        ),
    ] = None,
    comet_slide: Annotated[
        int | None,
        typer.Option(
            help="Also compute SLIDE, the mean over windows of this many sentences; needs a quality "
            "estimation model."
        ),
    ] = None,
    comet_stride: Annotated[
        int | None,
        typer.Option(help="With --comet-slide: step from one window to the next, in sentences. Default: 1."),
    ] = None,
    comet_python: Annotated[
        Path | None,
        typer.Option(
            help="Python interpreter or environment in which COMET is installed. Default: "
            "$COTEXT_COMET_PYTHON."
        ),
    ] = None,
    ctxpro: Annotated[
        Path | None,
        typer.Option(help="Score the hypotheses on this ctxPro suite (its JSON file) instead of references."),
    ] = None,
    decisions: Annotated[
        list[Path] | None,
        typer.Option(
            help="Instead of translations, compare the output files of `contrastive --out` by McNemar's "
            "test; repeat for each."
        ),
    ] = None,
    paired: Annotated[
        bool, typer.Option("--paired", help="Test the differences between systems for significance.")
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(help="With --paired: file name of the baseline system. Default: compare all pairs."),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(help="With --paired: the test, which is randomisation (default), bootstrap or koehn."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="With --paired: resample documents (default) or sentences: document or sentence."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="With --paired: number of samples, 10000 by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --paired: seed, 12345 by default.")] = None,
    format: Format = None,
    json: Json = False,
) -> None:
    """Evaluate translations: BLEU, chrF, TER, COMET and more, with signatures and significance tests."""
    realign = realign or realign_all
    drawing = {"test": test, "unit": unit, "samples": samples, "seed": seed}
    given = {name: value for name, value in drawing.items() if value is not None}
    if given and not paired:
        raise CotextError(f"--{next(iter(given))} needs --paired")
    needing = {"--comet-context": comet_context, "--comet-slide": comet_slide, "--comet-python": comet_python}
    if comet is None and (alone := [name for name, value in needing.items() if value is not None]):
        raise CotextError(f"{alone[0]} needs --comet MODEL")
    if comet_stride is not None and comet_slide is None:
        raise CotextError("--comet-stride needs --comet-slide SENTENCES")
    of_texts = [reference, source, protocol, discourse, entities, words, comet, paragraphs, realign]
    if decisions:
        if hypothesis or any(of_texts) or ctxpro or given:
            raise CotextError(
                "--decisions excludes --hypothesis and other options of translations; leave them out"
            )
        _compare_decisions(decisions, baseline, json)
        return
    if baseline is not None and not paired:
        raise CotextError("--baseline needs --paired")
    from cotext.evaluation.statistics.significance import Resampling

    choices: dict[str, Any] = given
    resampling = Resampling(**choices) if paired else None
    if ctxpro is not None:
        if any(of_texts) or abbreviations or not hypothesis:
            raise CotextError("--ctxpro goes with --hypothesis and --paired alone; leave the rest out")
        from cotext.evaluation.studies.evaluate.evaluate_ctxpro import evaluate_ctxpro

        forms = evaluate_ctxpro(
            ctxpro,
            hypothesis,
            target_language=target_language,
            last_by=splitter,
            format=format,
            resampling=resampling,
            baseline=baseline,
        )
        typer.echo(as_json(forms.as_dict()) if json else forms.render())
        return
    if not hypothesis or not reference:
        raise CotextError("--hypothesis and --reference are needed (or --decisions, twice)")
    chosen = splitting(abbreviations, splitter, paragraphs, "add --paragraphs")
    from cotext.evaluation.metrics.comet import Comet, find_python
    from cotext.evaluation.studies.evaluate.evaluate_files import evaluate_files
    from cotext.runtime.progress import meter

    with meter("COMET", 0) if comet is not None else nullcontext() as progress:

        def on_comet(done: int, total: int) -> None:
            if progress is not None:
                progress.restart(total)
                progress.advance_to(done)

        evaluation = evaluate_files(
            hypothesis,
            reference,
            source,
            protocols=protocol,
            target_language=target_language,
            format=format,
            paragraphs=chosen if paragraphs else None,
            discourse=discourse,
            entities=entities,
            words=words,
            comet=None
            if comet is None
            else Comet(
                comet,
                find_python(comet_python),
                comet_context or 0,
                _windows(comet_slide),
                1 if comet_stride is None else comet_stride,
            ),
            on_comet=on_comet,
            resampling=resampling,
            baseline=baseline,
            realign=("all" if realign_all else "unequal") if realign else None,
        )
    figures, blocks = evaluation.as_dict(), [evaluation.render()]
    if reports := _reports_beside(evaluation.hypotheses):
        from cotext.language_models.kept_reports import render_reports

        blocks.append(render_reports(reports))
        for name, report in reports.items():
            figures["systems"][name]["language_model"] = report.as_dict()
    typer.echo(as_json(figures) if json else "\n\n".join(blocks))


def _reports_beside(hypotheses: Mapping[str, Path]) -> "dict[str, KeptReport]":
    """What translations by language models took, as far as it stands beside them."""
    from cotext.language_models.kept_reports import report_beside

    found = {name: report_beside(path) for name, path in hypotheses.items()}
    return {name: report for name, report in found.items() if report is not None}


def _windows(sentences: int | None) -> int:
    if sentences is None:
        return 0
    if sentences < 1:
        raise CotextError(f"--comet-slide {sentences}: a window has at least one sentence")
    return sentences


def _compare_decisions(paths: list[Path], baseline: str | None, json: bool) -> None:
    from cotext.evaluation.metrics.aligned_files import name_systems
    from cotext.evaluation.studies.contrastive.decisions import compare_decisions, read_decisions
    from cotext.runtime.tables import render_p, render_rows

    systems = {name: read_decisions(path) for name, path in name_systems(paths).items()}
    found = compare_decisions(systems, baseline)
    if json:
        typer.echo(as_json({comparison.suite: comparison.as_dict() for comparison in found}))
        return
    for comparison in found:
        rows = [(name, f"{value:.2f}") for name, value in comparison.accuracies.items()]
        share = (
            "" if comparison.documents == comparison.examples else f" of {comparison.documents:,} documents"
        )
        typer.echo(
            f"{comparison.suite}, {comparison.examples:,} examples{share}\n{render_rows(rows, left=1)}"
        )
        table = [("", "difference", "95 % interval", "lost", "won", "p exact", "p mid", "corrected")]
        for each in comparison.tests:
            low, high = each.test.interval_95
            table.append(
                (
                    f"{each.system} - {each.baseline}",
                    f"{each.test.difference:+.2f}",
                    f"[{low:+.2f}, {high:+.2f}]",
                    f"{each.test.only_baseline}",
                    f"{each.test.only_system}",
                    render_p(each.test.p_exact),
                    render_p(each.test.p_mid),
                    render_p(each.p_corrected),
                )
            )
        few = f"\n{comparison.documents} documents are too few for any significant difference"
        signature = comparison.as_dict()["signature"]
        typer.echo(f"{render_rows(table, left=1)}{few if comparison.too_few else ''}\n{signature}\n")
    left_out = sorted({suite for each in systems.values() for suite in each} - {c.suite for c in found})
    if left_out:
        typer.echo(f"not scored by all systems: {', '.join(left_out)}")
