"""The command `audit`."""

import json as json_format
from typing import Annotated

import typer

from cotext.evaluation.requests import AuditRequest


def audit(
    request: AuditRequest,
    json: Annotated[bool, typer.Option("--json", help="Print all findings as JSON instead of text.")] = False,
) -> None:
    """Audit translations: what is lost, added, out of order, untranslated or changed."""
    from cotext.data.formats.streams import refuse_input
    from cotext.evaluation.studies.audit.measure import audit as measure
    from cotext.runtime.files import write_text

    refuse_input(request.out, [*request.output, request.source, request.reference, request.terms])
    found = measure(request)
    if request.out is not None:
        # File names may contain bytes that are not text.
        write_text(request.out, found.page(), "backslashreplace")
    typer.echo(json_format.dumps(found.as_dict(), indent=1) if json else found.render())
    if any({kind, "all"} & {*request.fail_on} for system in found.systems for kind in system.counts):
        raise typer.Exit(1)


COMMANDS = {"audit": audit}
