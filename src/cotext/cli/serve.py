"""`cotext serve`: translation for other programs, and a page; `cotext serve-key`: who may ask."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotext.runtime.errors import CotextError
from cotext.serving.settings import ServeRequest

if TYPE_CHECKING:
    from cotext.serving.systems import Systems


def serve(request: ServeRequest) -> None:
    """Start a server: the HTTP APIs of DeepL and LibreTranslate, and a page for the browser."""
    from cotext.serving import require_packages

    require_packages()
    from cotext.serving.application import application
    from cotext.serving.record import log_to_standard_error
    from cotext.serving.server import address_of, listening_socket, serve_until_stopped
    from cotext.serving.service import Service
    from cotext.serving.systems import open_systems

    pair = request.pair()
    # What can be refused at once is, before models are loaded.
    with listening_socket(request.host, request.port, request.keys is not None) as listening:
        os.umask(0o077)  # what clients send and get is nobody else's, whatever file of it is written
        settings = replace(request, state=request.folder_at(listening.getsockname()[1]))
        service = Service(open_systems(request.runs, request.device, request.threads, pair), settings)
        service.jobs.start()
        made = application(service)
        log_to_standard_error()
        address = address_of(listening)
        serve_until_stopped(
            made,
            listening,
            lambda: typer.echo(_greeting(address, service.systems, settings.keys)),
            lambda: typer.echo("stopping: requests in flight are finished; a second Ctrl-C ends it at once"),
        )


def serve_key(
    action: Annotated[str, typer.Argument(help="add, list or revoke.")],
    name: Annotated[str | None, typer.Argument(help="Name of the client, as it appears in the logs.")] = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys; made if it is not there.")] = None,
    requests_per_minute: Annotated[
        int, typer.Option(help="Most requests per minute of this client; 0: the server's own limit.", min=0)
    ] = 0,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Allow this key to read /metrics, the figures of the whole server."),
    ] = False,
) -> None:
    """Add, list or revoke the API keys of a server; a key is shown once, when it is made."""
    from cotext.runtime.progress import say
    from cotext.serving.keys import add_key, read_keys, revoke_key

    if keys is None:
        raise CotextError("serve-key: name the file of keys with --keys FILE")
    if (action == "list") != (name is None) or action not in ("add", "list", "revoke"):
        raise CotextError("serve-key: write `add NAME`, `revoke NAME` or `list`, and --keys FILE")
    if action == "list":
        for key in read_keys(keys):
            rate = f"{key.requests_per_minute} requests a minute" if key.requests_per_minute else ""
            notes = ", ".join(filter(None, (rate, "metrics" if key.metrics else "")))
            typer.echo(f"{key.name}\t{key.made}\t{notes}")
    elif action == "add":
        typer.echo(add_key(keys, str(name), requests_per_minute, metrics))
        say(f"the key of {name}, shown this once; {keys} holds its hash")
    else:
        revoke_key(keys, str(name))
        say(f"{keys}: the key of {name} is revoked, for servers that run, too")


def _greeting(address: str, systems: "Systems", keys: Path | None) -> str:
    """What stands on the screen of whoever started the server; its last line works as it is."""
    listed = [f"  {system.name}  {system.languages}" for system in systems]
    target = next(iter(systems)).languages.target.upper()
    key = "any" if keys is None else "$KEY"
    curl = f"curl {address}/v2/translate -H 'Authorization: DeepL-Auth-Key {key}'".replace("'", '"')
    return "\n".join(
        [
            f"open {address} in a browser",
            *listed,
            f"{curl} --data-urlencode text='Hello, world.' -d target_lang={target}",
        ]
    )
