"""The page for people: HTML, style, scripts and icon of the package, and nothing from anywhere else."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from cotext.serving.errors import RequestError, plain_refusal
from cotext.serving.requests import service_of

INDEX: Final = "index.html"
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Everything from this server alone, no script or style inside the HTML, in nobody's frame.
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
# Beside those that every answer has (`gate.SECURITY`).
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for again, and answered by 304 as long as it is the same
}


def routes() -> list[BaseRoute]:
    """The page and its parts."""
    return [
        Route("/", page, methods=["GET"]),
        Route("/page/{file}", page, methods=["GET"]),
    ]


refusal = plain_refusal


@cache
def parts() -> dict[str, tuple[bytes, str, str]]:
    """Content, type and tag of every file of the page."""
    found = {}
    for file in files("cotext.serving").joinpath("page").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            found[file.name] = content, kind, f'"{sha256(content).hexdigest()[:32]}"'
    return found


async def page(request: Request) -> Response:
    """A file of the page.

    Raises:
        RequestError: 404, there is none of this name, or no page at all.
    """
    name = request.path_params.get("file", INDEX)
    if not service_of(request).settings.page or name not in parts():
        raise RequestError(404, "there is no such page")
    content, kind, tag = parts()[name]
    headers = {**HEADERS, "ETag": tag}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
