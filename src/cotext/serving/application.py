"""The ASGI application: all APIs, with one service."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from cotext.serving import deepl, libretranslate, own_api
from cotext.serving.gate import Gate, Routes
from cotext.serving.keys import Admission
from cotext.serving.service import Service
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import open_systems


def app(
    runs: Sequence[str | Path], settings: ServerSettings | None = None, device: str | None = None
) -> Starlette:
    """Return a server for these runs: an ASGI application, which may be mounted under a prefix.

    Raises:
        CotextError: a run cannot be loaded, or settings contradict each other.
    """
    return application(Service(open_systems(runs, device), settings or ServerSettings()))


def application(service: Service) -> Starlette:
    """Return the ASGI application of a service; raise CotextError if the file of keys cannot be read."""
    settings, admission = service.settings, Admission(service.settings)
    routes = Routes([*own_api.routes(), *deepl.routes(), *libretranslate.routes()])
    cross_origin = Middleware(
        CORSMiddleware,  # allows pages of the configured origins to read responses
        allow_origins=settings.origins,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=("*",),
        expose_headers=("x-request-id", "retry-after"),
    )
    gate = Middleware(Gate, service=service, routes=routes, admission=admission)
    middleware = [cross_origin, gate] if settings.origins else [gate]
    made = Starlette(middleware=middleware, lifespan=_lifespan)
    made.state.service, made.state.admission = service, admission
    return made


@asynccontextmanager
async def _lifespan(made: Starlette) -> AsyncIterator[None]:
    service: Service = made.state.service
    await service.start()
    try:
        yield
    finally:
        made.state.admission.stopping = True
        await service.stop()
