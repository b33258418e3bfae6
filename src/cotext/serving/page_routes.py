"""The web page: HTML, style, scripts and icon, all from the package."""

from functools import cache
from hashlib import sha256
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
# Only content from this server, no inline scripts or styles, no frames.
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
# In addition to `gate.SECURITY`.
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # requested again each time, and answered by 304 if unchanged
}


def routes() -> list[Route]:
    return [Route("/", page, methods=["GET"]), Route("/page/{file}", page, methods=["GET"])]


@cache
def parts() -> dict[str, tuple[bytes, str, str]]:
    """Return content, type and entity tag of every file of the page."""
    pages = {}
    for file in files("cotext.serving").joinpath("page").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            pages[file.name] = content, kind, f'"{sha256(content).hexdigest()[:32]}"'
    return pages


async def page(request: Request) -> Response:
    """Return a file of the page; raise RequestError 404 if it does not exist, or the page is disabled."""
    name = request.path_params.get("file", INDEX)
    if not service_of(request).settings.page or name not in parts():
        raise RequestError(404, "there is no such page")
    content, kind, tag = parts()[name]
    headers = {**HEADERS, "ETag": tag}
    known = [t.strip().removeprefix("W/") for t in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
