"""Commands that analyse a trained model: `probe`, `attention` and `windows`."""

from pathlib import Path
from typing import Annotated

import typer

from cotext.cli.options import (
    Checkpoint,
    Decode,
    Device,
    DocumentId,
    Format,
    Json,
    OneDocument,
    Protocols,
    TranslationFile,
    Words,
    as_json,
    decode_settings,
    require_translations,
)


def probe(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are compared.")],
    task: Annotated[
        list[str] | None,
        typer.Option(help="Probing task: absolute, relative, order or all; may be repeated. Default: all."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder made by `prepare`. Default: the training data of the run.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for figures and plots. Default: `probing` in the first run.")
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(
            min=1, help="Number of source tokens to train the classifiers on; testing uses at most as many."
        ),
    ] = 50_000,
    seeds: Annotated[
        int,
        typer.Option(min=1, help="Number of seeds; with more than one, the standard deviation is reported."),
    ] = 1,
    device: Device = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """Probe each encoder layer for token positions with a linear classifier."""
    from cotext.evaluation.studies.probing.report import as_dict, parse_tasks, probe_runs, render
    from cotext.runtime.progress import meter

    tasks = parse_tasks(task or [])
    folder = out or runs[0] / "probing"
    with meter("probing", 0) as progress:
        found = probe_runs(
            runs,
            tasks,
            folder,
            data=data,
            max_tokens=tokens,
            seeds=seeds,
            device=device,
            update=checkpoint,
            on_start=progress.restart,
            on_classifier=lambda: progress.advance(1),
        )
    if json:
        typer.echo(as_json(as_dict(found, tokens, seeds)))
        return
    for summary in found:
        typer.echo(f"{render(summary)}\n")
    typer.echo(f"{folder}: probing.json, {', '.join(f'{name}.png' for name in tasks)}")


def attention(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    document: OneDocument,
    out: Annotated[Path, typer.Option(help="Folder for figures and plots.")],
    target: TranslationFile = None,
    id: DocumentId = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """Draw sentence-to-sentence attention maps of a document, for every attention module."""
    decode = decode_settings(set)
    from cotext.evaluation.studies.attention.report import report_attention

    report = report_attention(
        run,
        document,
        out,
        target=target,
        document=id,
        format=format,
        device=device,
        decode=decode,
        update=checkpoint,
    )
    if json:
        typer.echo(as_json(report.as_dict()))
        return
    typer.echo(f"{report.signature}\n{report.render()}\n{out}: attention.json, {', '.join(report.pictures)}")


def windows(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are compared.")],
    source: Annotated[Path, typer.Option(help="Source documents (or a file with both sides).")],
    out: Annotated[Path, typer.Option(help="Folder for figures and plots.")],
    target: Annotated[Path | None, typer.Option(help="Their reference translations.")] = None,
    before: Annotated[
        list[int] | None,
        typer.Option(
            min=0, help="Number of context sentences in the window; may be repeated. Default: as in training."
        ),
    ] = None,
    translate: Annotated[
        bool, typer.Option("--translate", help="Also translate with windows of each size, and evaluate.")
    ] = False,
    protocol: Protocols = None,
    words: Words = None,
    samples: Annotated[
        int, typer.Option(help="Number of samples for the randomisation test between runs.")
    ] = 10_000,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """Measure loss and attention in windows of sentences, of the trained size and of others."""
    decode = decode_settings(set)
    require_translations(protocol, translate, words)
    from cotext.evaluation.metrics.interface import DEFAULT_PROTOCOLS
    from cotext.evaluation.statistics.significance import Resampling
    from cotext.evaluation.studies.windows.report import WindowsRequest, report_windows
    from cotext.runtime.progress import meter

    request = WindowsRequest(
        runs=runs,
        source=source,
        target=target,
        before=list(dict.fromkeys(before or [])),
        protocols=(protocol or DEFAULT_PROTOCOLS) if translate else None,
        words=words,
        format=format,
        device=device,
        decode=decode,
        update=checkpoint,
        resampling=Resampling(samples=samples),
    )
    with meter("measuring", 0) as progress:
        report = report_windows(request, out, progress.restart, progress.advance)
    typer.echo(as_json(report.as_dict()) if json else f"{report.render()}\n{out}: windows.json and plots")
