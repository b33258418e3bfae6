"""`cotext serve`: translation for other programs, and a page."""

from pathlib import Path
from typing import Annotated

import typer

from cotext.cli.options import Device


def serve(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or engines; the first of a language pair answers.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen at; the default is this machine alone.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port; 0: any that is free.")] = 5000,
    state: Annotated[
        Path | None, typer.Option(help="Folder of jobs and glossaries, kept when the server stops.")
    ] = None,
    device: Device = None,
) -> None:
    """Serve systems to other programs (DeepL and LibreTranslate dialects), and a page in the browser."""
    import uvicorn

    from cotext.serving.application import app
    from cotext.serving.settings import ServerSettings

    made = app(runs, ServerSettings(state or Path(f"cotext-serve-{port}")), device)
    uvicorn.run(made, host=host, port=port, log_level="warning")
