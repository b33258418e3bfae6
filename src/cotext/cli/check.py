"""The command `check`."""

from pathlib import Path
from typing import Annotated

import typer

from cotext.cli.messages import printable
from cotext.cli.options import Json, as_json


def check(
    submission: Annotated[Path, typer.Argument(help="Submission to the general task of WMT: JSON lines.")],
    source: Annotated[Path, typer.Option(help="The task (JSON lines) that the submission answers.")],
    target_language: Annotated[
        str | None, typer.Option(help="Check only documents of this target language, as in de_DE.")
    ] = None,
    json: Json = False,
) -> None:
    """Check a submission to WMT before you send it; exit code 1 if something is wrong."""
    from cotext.files.wmt_check import check_submission

    found = check_submission(submission, source, target_language or "")
    typer.echo(as_json(found.as_dict()) if json else printable(found.render()))
    if found.errors:
        raise typer.Exit(1)
