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
    typer.Option(
        "--keys",
        help="File of API keys, made by `cotext serve-key`; without it, only this machine may use the "
        "server.",
    ),
]


def serve(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run or engine folders, as FOLDER or NAME=FOLDER. The first of each language pair answers "
            "requests that name no system."
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default accepts requests from this machine only.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free port.")] = 5000,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder for files and glossaries, kept when the server stops. Default: "
            "$XDG_STATE_HOME/cotext/serve-PORT, with ~/.local/state if that variable is not set."
        ),
    ] = None,
    keys: KeysFile = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            help="Web origin whose pages may send requests, as in https://example.org; may be repeated."
        ),
    ] = None,
    languages: Annotated[
        str | None, typer.Option(help="Language pair, as in en-de, of runs that have none recorded.")
    ] = None,
    batch_tokens: Annotated[
        int, typer.Option(help="Largest batch, in tokens; all clients share batches.", min=1)
    ] = 4096,
    max_text_bytes: Annotated[
        int, typer.Option(help="Largest total size of the texts in one request, in bytes.", min=1)
    ] = 128 * 1024,
    max_file_bytes: Annotated[int, typer.Option(help="Largest file, in bytes.", min=1)] = 32 * 1024 * 1024,
    max_sentences: Annotated[
        int, typer.Option(help="Most sentences in one request; files have no such limit.", min=1)
    ] = 2_000,
    max_waiting: Annotated[
        int, typer.Option(help="Most requests at a time, of all clients together.", min=1)
    ] = 256,
    max_waiting_of_client: Annotated[
        int, typer.Option(help="Most requests of one client at a time.", min=1)
    ] = 64,
    requests_per_minute: Annotated[
        int, typer.Option(help="Most requests per minute of one client; 0: no limit.", min=0)
    ] = 0,
    keep_files_hours: Annotated[
        float, typer.Option(help="Hours for which a translated file can be downloaded.", min=0.01)
    ] = 24.0,
    max_files_bytes: Annotated[
        int,
        typer.Option(
            help="Largest total size of all files, in bytes; one client may use an eighth of it.", min=1
        ),
    ] = 4 << 30,
    files_at_once: Annotated[int, typer.Option(help="Files translated at the same time.", min=1)] = 4,
    threads: Annotated[int | None, typer.Option(help="CPU threads to use.", min=1)] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Serve the page for the browser.")] = True,
    device: Device = None,
) -> None:
    """Start a server: the HTTP APIs of DeepL and LibreTranslate, and a page for the browser."""
    from cotext.serving import require_packages

    require_packages()
    from cotext.serving.application import application
    from cotext.serving.record import log_to_standard_error
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
    name: Annotated[str | None, typer.Argument(help="Name of the client, as it appears in the logs.")] = None,
    keys: KeysFile = None,
    requests_per_minute: Annotated[
        int, typer.Option(help="Most requests per minute of this client; 0: the server's own limit.", min=0)
    ] = 0,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Allow this key to read /metrics, the figures of the whole server."),
    ] = False,
) -> None:
    """Add, list or revoke the API keys of a server; a key is shown once, when it is made."""
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
