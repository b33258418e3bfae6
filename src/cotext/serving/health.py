"""What a machine asks that looks after a server: whether it lives, whether it is ready, and its figures."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from cotext.serving.dialects import plain_refusal
from cotext.serving.errors import RequestError
from cotext.serving.limits import Admission
from cotext.serving.metrics import CONTENT_TYPE, Metrics


def routes() -> list[BaseRoute]:
    """Health, readiness and metrics."""
    return [Route("/health", _health), Route("/ready", _ready), Route("/metrics", _metrics)]


refusal = plain_refusal


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _ready(request: Request) -> Response:
    """503 while requests would be refused: a server that stops, or is full."""
    admission: Admission = request.app.state.admission
    if admission.stopping:
        raise RequestError(503, "stopping")
    if admission.full:
        raise RequestError(503, "full", 1)
    return JSONResponse({"status": "ready"})


async def _metrics(request: Request) -> Response:
    """Figures of all clients together: with keys, for those alone that were made for it."""
    admission: Admission = request.app.state.admission
    metrics: Metrics = request.app.state.metrics
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if not admission.may_see_metrics(key.strip() if scheme.lower() == "bearer" else None):
        raise RequestError(
            403,
            "figures of the whole server need a key that was made for them, with --metrics",
        )
    return Response(metrics.text(), media_type=CONTENT_TYPE)
