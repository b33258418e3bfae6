"""`translate RUN -`: standard input to standard output."""

import sys
from pathlib import Path
from typing import Any

import typer

from cotext.cli.options import CUT_OFF, LONG, counted

STANDARD_INPUT = Path("/dev/stdin")


def translate_standard_input(
    run: Path, device: str | None, decode: dict[str, Any], checkpoint: int | None
) -> None:
    """Translate what comes in line for line; what there is to say of it goes to standard error."""
    from cotext.data.formats.streams import numbered_lines
    from cotext.decoding.open import open_run
    from cotext.decoding.translate_stream import translate_stream

    opened = open_run(run, device, decode, checkpoint)
    translator = opened.translator

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    report = translate_stream(translator, numbered_lines(STANDARD_INPUT), write)
    sentences, documents = counted(report.sentences, "sentence"), counted(report.documents, "document")
    typer.echo(f"{sentences} in {documents}", err=True)
    for count, what in ((report.truncated, CUT_OFF), (report.long, LONG)):
        if count:
            typer.echo(f"  {counted(count, 'sentence')} {what}", err=True)
    typer.echo(opened.signature, err=True)
