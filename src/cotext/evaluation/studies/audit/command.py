"""The command `audit`."""

import json as json_format
from typing import Annotated

import typer

from cotext.evaluation.studies.audit.requests import AuditRequest


def audit(
    request: AuditRequest,
    json: Annotated[bool, typer.Option("--json", help="Print all findings as JSON instead of text.")] = False,
) -> None:
    """Audit translations: what is lost, added, out of order, untranslated or changed."""
    from cotext.evaluation.studies.audit.measure import audit as measure

    found = measure(request)
    if json:
        typer.echo(json_format.dumps(found.as_dict(), indent=1, ensure_ascii=False))
    else:
        typer.echo("\n".join(f"{system.name}: {system.summary}" for system in found.systems))


COMMANDS = {"audit": audit}
