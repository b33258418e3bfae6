"""The ASGI application: the dialects as routes of one service."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.serving.errors import RequestError
from cotext.serving.service import Service
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import open_systems

# Modules with `routes()`: a dialect each.
DIALECTS: Final[tuple[str, ...]] = (
    "own_api",
    "file_routes",
    "deepl",
    "libretranslate",
    "opus_cat",
    "fake_mt",
    "page_routes",
)


def app(
    runs: Sequence[str | Path], settings: ServerSettings | None = None, device: str | None = None
) -> Starlette:
    """The server of these runs as an ASGI application.

    Raises:
        CotextError: a run that cannot be opened, or settings that do not go together.
    """
    chosen = settings or ServerSettings(Path("cotext-serve"))
    systems = open_systems([Path(run) for run in runs], device)
    return application(Service(systems, chosen))


def application(service: Service) -> Starlette:
    """The ASGI application of a service."""
    routes = [route for name in DIALECTS for route in import_module(f"cotext.serving.{name}").routes()]
    made = Starlette(routes=routes, exception_handlers={RequestError: _refused})
    made.state.service = service
    return made


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse({"message": error.message}, error.status)
