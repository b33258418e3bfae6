"""`cotext serve`: translation for other programs, and a page; `cotext serve-key`: who may ask."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.cli.options import Device
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.data.languages import Languages
    from cotext.serving.systems import Systems

KeysFile = Annotated[
    Path | None,
    typer.Option("--keys", help="File of clients' keys, made by serve-key; without it, this machine alone."),
]


def serve(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run folders, or engines, as FOLDER or NAME=FOLDER; the first of a language pair answers."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen at; the default is this machine alone.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port; 0: any that is free.")] = 5000,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder of files and glossaries, kept when the server stops; default: "
            "$XDG_STATE_HOME/cotext/serve-PORT, in ~/.local/state if that is not set."
        ),
    ] = None,
    keys: KeysFile = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="Origin whose pages may ask, as in https://example.org; may be repeated."),
    ] = None,
    languages: Annotated[
        str | None, typer.Option(help="Language pair of runs that do not know theirs, as in en-de.")
    ] = None,
    batch_tokens: Annotated[
        int, typer.Option(help="Tokens of a batch, which all clients share.", min=1)
    ] = 4096,
    max_text_bytes: Annotated[int, typer.Option(help="Of the texts of a request.", min=1)] = 128 * 1024,
    max_file_bytes: Annotated[int, typer.Option(help="Of a file.", min=1)] = 32 * 1024 * 1024,
    max_sentences: Annotated[int, typer.Option(help="Of a request; files have any number.", min=1)] = 2_000,
    max_waiting: Annotated[int, typer.Option(help="Requests at once.", min=1)] = 256,
    max_waiting_of_client: Annotated[int, typer.Option(help="Requests of a client at once.", min=1)] = 64,
    requests_per_minute: Annotated[int, typer.Option(help="Of a client; 0: any number.", min=0)] = 0,
    keep_files_hours: Annotated[
        float, typer.Option(help="How long a translated file can be fetched.", min=0.01)
    ] = 24.0,
    max_files_bytes: Annotated[
        int, typer.Option(help="Of all files that are kept together; the oldest are deleted first.", min=1)
    ] = 4 << 30,
    files_at_once: Annotated[int, typer.Option(help="Files that are translated at once.", min=1)] = 4,
    threads: Annotated[int | None, typer.Option(help="Threads of the CPU.", min=1)] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Serve the page for people.")] = True,
    device: Device = None,
) -> None:
    """Serve systems to other programs (DeepL and LibreTranslate dialects), and a page in the browser."""
    from cotext.serving import require_packages

    require_packages()
    from cotext.serving.application import application
    from cotext.serving.logs import log_to_standard_error
    from cotext.serving.server import address_of, listening_socket, serve_until_stopped
    from cotext.serving.service import Service
    from cotext.serving.settings import ServerSettings
    from cotext.serving.systems import open_systems

    limits: dict[str, Any] = {
        "batch_tokens": batch_tokens,
        "max_text_bytes": max_text_bytes,
        "max_file_bytes": max_file_bytes,
        "max_sentences": max_sentences,
        "max_waiting": max_waiting,
        "max_waiting_of_client": max_waiting_of_client,
        "requests_per_minute": requests_per_minute,
        "keep_jobs_seconds": keep_files_hours * 3600.0,
        "max_jobs_bytes": max_files_bytes,
        "files_at_once": files_at_once,
    }
    pair = _pair(languages)
    # What can be refused at once is, before models are loaded.
    with listening_socket(host, port, keys is not None) as listening:
        os.umask(0o077)  # what clients send and get is nobody else's, whatever file of it is written
        folder = state or _state_folder(listening.getsockname()[1])
        settings = ServerSettings(folder, keys, _origins(cors), page=page, **limits)
        service = Service(open_systems(runs, device, threads, pair), settings)
        service.jobs.start()
        made = application(service)
        log_to_standard_error()
        address = address_of(listening)
        serve_until_stopped(
            made, listening, lambda: typer.echo(_greeting(address, service.systems, settings.keys))
        )


def serve_key(
    action: Annotated[str, typer.Argument(help="add, list or revoke.")],
    name: Annotated[str | None, typer.Argument(help="Name of the client, as it stands in logs.")] = None,
    keys: KeysFile = None,
    requests_per_minute: Annotated[
        int, typer.Option(help="Of this client; 0: what the server allows.", min=0)
    ] = 0,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="It may read the figures of the whole server, too.")
    ] = False,
) -> None:
    """Add, list or revoke keys of clients of a server; a key is shown once, when it is made."""
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
        typer.echo(f"the key of {name}, shown this once; {keys} holds its hash", err=True)
    else:
        revoke_key(keys, str(name))
        typer.echo(f"{keys}: the key of {name} is revoked, for servers that run, too", err=True)


def _state_folder(port: int) -> Path:
    home = os.environ.get("XDG_STATE_HOME", "")
    # By its specification, what is not absolute is ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return base / "cotext" / f"serve-{port}"


def _pair(languages: str | None) -> "Languages | None":
    from cotext.data.languages import Languages, language_code

    if languages is None:
        return None
    source, _, target = languages.partition("-")
    return Languages(language_code(source, "--languages"), language_code(target, "--languages"))


def _origins(cors: list[str] | None) -> tuple[str, ...]:
    for origin in cors or ():
        scheme, _, rest = origin.partition("://")
        if not scheme or not rest or "/" in rest or "*" in rest:
            raise CotextError(f"--cors {origin}: give an origin, as in https://example.org, without a path")
    return tuple(origin.lower() for origin in cors or ())


def _greeting(address: str, systems: "Systems", keys: Path | None) -> str:
    """What stands on the screen of whoever started the server; its last line works as it is."""
    listed = [f"  {system.name}  {system.languages}" for system in systems]
    target = next(iter(systems)).languages.target.upper()
    key = "any" if keys is None else "$KEY"
    curl = f"curl {address}/v2/translate -H 'Authorization: DeepL-Auth-Key {key}'".replace("'", '"')
    return "\n".join(
        [address, *listed, f"{curl} --data-urlencode text='Hello, world.' -d target_lang={target}"]
    )
