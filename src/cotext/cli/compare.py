"""The command `compare`."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from cotext.cli.options import (
    Decode,
    Device,
    Format,
    Json,
    Protocols,
    Words,
    as_json,
    decode_settings,
)


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run or engine folders, folders made by `train --seeds`, endpoint.yaml files of language "
            "models, or files with translations. Differences are relative to the first."
        ),
    ],
    out: Annotated[Path, typer.Option(help="HTML page to write.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder made by `prepare`, whose test set and contrastive suites are used."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="Test set, source side (or a file with both sides).")
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="Test set, target side.")] = None,
    suite: Annotated[list[Path] | None, typer.Option(help="Contrastive suite; may be repeated.")] = None,
    protocol: Protocols = None,
    words: Words = None,
    target_language: Annotated[
        str | None, typer.Option(help="Language code such as zh, for the metric's tokenizer.")
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Number of samples for paired tests and confidence intervals.")
    ] = 10_000,
    use: Annotated[bool, typer.Option(help="Compute CXMI on the test set.")] = True,
    controls: Annotated[
        bool,
        typer.Option(help="Also score the suites without context and with context from other documents."),
    ] = True,
    attention: Annotated[
        bool, typer.Option(help="Draw attention maps of a document of the test set.")
    ] = True,
    csv: Annotated[Path | None, typer.Option(help="Also write all figures to this CSV file.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Also write LaTeX tables to this file.")] = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    json: Json = False,
) -> None:
    """Compare runs: quality, contrastive accuracy, context use, significance tests, published values."""
    decode: dict[str, Any] = decode_settings(set)
    from cotext.evaluation.studies.compare.figures import as_dict
    from cotext.evaluation.studies.compare.job import ComparisonFiles, ComparisonRequest, compare_folders
    from cotext.evaluation.studies.compare.report import as_text
    from cotext.runtime.progress import meter

    outputs = ComparisonFiles(out, csv, latex)
    with ExitStack() as shown:

        def watch(what: str, total: int) -> Callable[[int], None]:
            shown.close()
            return shown.enter_context(meter(what, total)).advance

        found = compare_folders(
            ComparisonRequest(
                runs=tuple(runs),
                data=data,
                source=source,
                reference=reference,
                suites=tuple(suite or ()),
                protocols=tuple(protocol or ()),
                words=words,
                target_language=target_language,
                samples=samples,
                use=use,
                attention=attention,
                controls=controls,
                format=format,
                device=device,
                decode=decode,
            ),
            outputs,
            watch,
        )
    if json:
        typer.echo(as_json(as_dict(found)))
        return
    typer.echo(f"{as_text(found)}\n\n{', '.join(map(str, outputs.all))}")
