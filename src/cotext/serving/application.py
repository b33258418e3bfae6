"""The ASGI application: the dialects as routes of one service."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from cotext.serving.errors import Dialects, RequestError
from cotext.serving.gate import Gate
from cotext.serving.keys import Admission
from cotext.serving.metrics import Metrics
from cotext.serving.service import Service
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import open_systems

# Modules with `routes()` and `refusal(error)`: a dialect each.
DIALECTS: Final[tuple[str, ...]] = (
    "metrics",
    "own_api",
    "file_routes",
    "deepl",
    "libretranslate",
    "opus_cat",
    "page_routes",
)
REASONS: Final = {404: "there is nothing at this address", 405: "this address does not take this method"}


def app(
    runs: Sequence[str | Path], settings: ServerSettings | None = None, device: str | None = None
) -> Starlette:
    """The server of these runs as an ASGI application, to be served by itself or mounted under a prefix.

    Raises:
        CotextError: a run that cannot be opened, or settings that do not go together.
    """
    chosen = settings or ServerSettings()
    return application(Service(open_systems(runs, device), chosen))


def application(service: Service) -> Starlette:
    """The ASGI application of a service.

    Raises:
        CotextError: a file of keys that cannot be read.
    """
    settings, dialects = service.settings, Dialects(DIALECTS)
    admission, metrics = Admission(settings), Metrics(service)
    gate = Middleware(Gate, service=service, dialects=dialects, admission=admission, metrics=metrics)
    made = Starlette(
        routes=dialects.routes,
        middleware=[*_cross_origin(settings), gate],
        exception_handlers={HTTPException: _as_refusal},
        lifespan=_lifespan,
    )
    made.router.redirect_slashes = False  # to an address made from what the client says of the host
    made.state.service, made.state.admission, made.state.metrics = service, admission, metrics
    return made


def _cross_origin(settings: ServerSettings) -> list[Middleware]:
    """Answers that browsers give to pages of the origins named, and to no other."""
    if not settings.origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=settings.origins,
            allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
            allow_headers=("*",),
            expose_headers=("x-request-id", "retry-after"),
        )
    ]


@asynccontextmanager
async def _lifespan(made: Starlette) -> AsyncIterator[None]:
    service: Service = made.state.service
    await service.start()
    try:
        yield
    finally:
        made.state.admission.stopping = True
        await service.stop()


async def _as_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    raise RequestError(error.status_code, REASONS.get(error.status_code, error.detail)) from None
