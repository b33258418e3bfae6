"""Errors of requests; each dialect (API) returns them in its own form."""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

STOPPED_SECONDS: Final = 10.0
# At least two parts: "and/or" and "/v2" are not paths of this machine.
_ABSOLUTE_PATH: Final = re.compile(r"(?<![\w/:<.])/(?:[^\s/:'\"(),;<>]+/)+([^\s/:'\"(),;<>]*)")


class RequestError(Exception):
    """An error response: an HTTP status, and a message for the client.

    The message never contains a path of this machine or text of another client. `retry_after`: seconds.
    """

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


def stopping() -> RequestError:
    """Return the error for work that is cancelled or not started because the server stops."""
    return RequestError(503, "the server is being stopped; try again later", STOPPED_SECONDS)


def without_paths(message: str, names: Mapping[Path, str]) -> str:
    """Return a message with paths of this machine reduced to their last part.

    `names`: replacements of known paths, which may contain spaces or be relative.
    """
    forms = {form: name for path, name in names.items() for form in (str(path), str(path.absolute()))}
    for form in sorted(forms, key=len, reverse=True):
        if form not in (".", "/"):
            message = message.replace(form, forms[form])
    return _ABSOLUTE_PATH.sub(lambda match: match[1] or "...", message)


# --- The dialects of a server: modules with `routes()`, and `refusal(error)` if errors have a special form.

NO_ROUTE: Final = "none"


class Dialects:
    """The routes of all dialects, in order; an unknown address has the dialect of its first part."""

    def __init__(self, names: Sequence[str]) -> None:
        modules = [import_module(f"cotext.serving.{name}") for name in names]
        self._routes = [(module, route) for module in modules for route in module.routes()]

    @property
    def routes(self) -> list[BaseRoute]:
        return [route for _, route in self._routes]

    def of(self, scope: Scope) -> tuple[str, ModuleType | None]:
        """Return the template of the route of a request, and its dialect, or None."""
        for match in (Match.FULL, Match.PARTIAL):
            for module, route in self._routes:
                if route.matches(scope)[0] == match:
                    return route.path if isinstance(route, Route) else NO_ROUTE, module
        first = _first_part(scope["path"].removeprefix(scope.get("root_path", "")))
        paths = ((module, route.path) for module, route in self._routes if isinstance(route, Route))
        return NO_ROUTE, next((module for module, path in paths if _first_part(path) == first), None)


def _first_part(path: str) -> str:
    """Return the first part of a path, after a session prefix."""
    parts = path.split("/")[1:]
    return "".join(parts[2:3] if parts[:1] == ["session"] else parts[:1])


def plain_refusal(error: RequestError) -> Response:
    """Return an error in the form of Cotext's own API."""
    return JSONResponse({"message": error.message}, error.status)
