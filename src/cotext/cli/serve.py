"""Commands `cotext serve` (HTTP server and web page) and `cotext serve-key` (API keys)."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cotext.runtime import CotextError
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
    # Check the request and the address before models are loaded, which takes long.
    with listening_socket(request.host, request.port, request.keys is not None) as listening:
        os.umask(0o077)  # only the user who runs the server can read files of clients
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
            lambda: typer.echo("stopping after the current requests; press Ctrl-C again to stop at once"),
        )


def serve_key(
    action: Annotated[Literal["add", "list", "revoke"], typer.Argument(help="What to do.")],
    name: Annotated[str | None, typer.Argument(help="Name of the client, as it appears in the logs.")] = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys; created if it does not exist.")] = None,
    requests_per_minute: Annotated[
        int,
        typer.Option(help="Maximum requests per minute for this client; 0: the limit of the server.", min=0),
    ] = 0,
) -> None:
    """Add, list or revoke the API keys of a server; a key is shown only once, when it is created."""
    from cotext.runtime.progress import say
    from cotext.serving.keys import add_key, read_keys, revoke_key

    if keys is None:
        raise CotextError("serve-key: choose the file of API keys with --keys FILE")
    if (action == "list") != (name is None):
        raise CotextError("serve-key: write `add NAME`, `revoke NAME` or `list`, and --keys FILE")
    if action == "list":
        for key in read_keys(keys):
            rate = f"{key.requests_per_minute} requests a minute" if key.requests_per_minute else ""
            typer.echo(f"{key.name}\t{key.made}\t{rate}")
    elif action == "add":
        typer.echo(add_key(keys, str(name), requests_per_minute))
        say(f"this is the key of {name}; it is shown only now, because {keys} stores only its hash")
    else:
        revoke_key(keys, str(name))
        say(f"{keys}: the key of {name} is revoked, also in running servers")


def _greeting(address: str, systems: "Systems", keys: Path | None) -> str:
    """Return the start message: the address, the systems, and a curl command that can be copied."""
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
