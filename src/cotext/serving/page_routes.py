"""The web page: HTML, style, scripts and icon, all from the package."""

from functools import cache
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cotext.serving.errors import RequestError
from cotext.serving.requests import service_of

INDEX: Final = "index.html"
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Pages load only content from this server: no inline scripts or styles, no frames.
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
# In addition to `gate.SECURITY`.
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # an update of the server is an update of the page
}


def routes() -> list[Route]:
    return [Route("/", page, methods=["GET"]), Route("/page/{file}", page, methods=["GET"])]


@cache
def parts() -> dict[str, tuple[bytes, str]]:
    """Return content and type of every file of the page."""
    folder = files("cotext.serving").joinpath("page")
    kinds = [(file, TYPES.get(file.name.rpartition(".")[2])) for file in folder.iterdir()]
    return {file.name: (file.read_bytes(), kind) for file, kind in kinds if kind is not None}


async def page(request: Request) -> Response:
    """Return a file of the page; raise RequestError 404 if it does not exist, or the page is disabled."""
    name = request.path_params.get("file", INDEX)
    if not service_of(request).settings.page or name not in parts():
        raise RequestError(404, "there is no such page")
    content, kind = parts()[name]
    return Response(content, media_type=kind, headers=HEADERS)
