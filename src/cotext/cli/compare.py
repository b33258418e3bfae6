"""The command that puts runs side by side: `compare`."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from cotext.cli.options import Decode, Device, Format, Json, as_json, decode_settings


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; differences are taken from the first.")],
    out: Annotated[Path, typer.Option(help="Page to write.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder made by `prepare`: its test set and, if there are any, its suites."),
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Test set, source side (or both sides).")] = None,
    reference: Annotated[Path | None, typer.Option(help="Test set, target side.")] = None,
    suite: Annotated[list[Path] | None, typer.Option(help="Contrastive suite; may be repeated.")] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(help="Named protocol (docs/metrics.md); may be repeated.")
    ] = None,
    target_language: Annotated[str | None, typer.Option(help="Code such as zh, for the tokenizer.")] = None,
    samples: Annotated[int, typer.Option(help="Of paired tests and intervals.")] = 10_000,
    use: Annotated[bool, typer.Option(help="Score the test set with and without context.")] = True,
    controls: Annotated[
        bool, typer.Option(help="Decide the suites without context and in foreign context, too.")
    ] = True,
    attention: Annotated[bool, typer.Option(help="Draw the attention on a document of the test set.")] = True,
    csv: Annotated[Path | None, typer.Option(help="Write all figures here.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Write tables for a paper here.")] = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    json: Json = False,
) -> None:
    """Systems side by side: who uses context, where, how much, is it real, and what papers say."""
    decode: dict[str, Any] = decode_settings(set)
    from cotext.reports.compare.job import Outputs, Request, compare_folders
    from cotext.reports.compare.tables import as_dict, as_text
    from cotext.runtime.progress import meter

    outputs = Outputs(out, csv, latex)
    with ExitStack() as shown:

        def watch(what: str, total: int) -> Callable[[int], None]:
            shown.close()
            return shown.enter_context(meter(what, total)).advance

        found = compare_folders(
            Request(
                runs=tuple(runs),
                data=data,
                source=source,
                reference=reference,
                suites=tuple(suite or ()),
                protocols=tuple(protocol or ()),
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
