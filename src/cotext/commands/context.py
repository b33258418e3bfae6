"""Commands about the use of context: `context`, `cxmi` and `profile`."""

from pathlib import Path
from typing import Annotated

import typer

from cotext.commands.options import Checkpoint, Decode, Device, Format, decode_settings


def context(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    document: Annotated[Path, typer.Argument(help="File with the document, in any format.")],
    out: Annotated[Path, typer.Option(help="Page to write; its figures stand beside it, in .json.")],
    target: Annotated[Path | None, typer.Option(help="Its translation; the run's own if not given.")] = None,
    id: Annotated[
        str | None, typer.Option("--document", help="Id of the document; the first of the file.")
    ] = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
) -> None:
    """Which context sentence of a document, when taken away, changes which word of its translation."""
    decode = decode_settings(set)
    from cotext.context_report import report_context

    report = report_context(
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
    typer.echo(f"{report.signature}\n{report.render()}\n{out}, {out.with_suffix('.json').name}")
