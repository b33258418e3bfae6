"""Errors of requests; each dialect (API) returns them in its own form."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
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
REASONS: Final = {404: "this address does not exist", 405: "this address does not support this method"}
Endpoint = Callable[[Request], Awaitable[Response]]


class Dialects:
    """The routes of all dialects; an unknown address has the dialect of its first part."""

    def __init__(self, names: Sequence[str]) -> None:
        modules = [import_module(f"cotext.serving.{name}") for name in names]
        self.routes: list[tuple[ModuleType, Route]] = [(m, route) for m in modules for route in m.routes()]
        self._exact: dict[str, list[tuple[ModuleType, Route]]] = {}
        for module, route in self.routes:
            self._exact.setdefault(route.path, []).append((module, route))
        # Starlette matches the regular expressions of all routes in turn, for every request.
        self._templates = [(module, route) for module, route in self.routes if route.param_convertors]

    def find(self, scope: Scope) -> tuple[str, ModuleType | None, Endpoint]:
        """Return the template of the route of a request, its dialect (or None), and the endpoint.

        The parameters in the path are stored in the scope. The endpoint of an unknown address or method
        raises RequestError 404 or 405.
        """
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        found = self._exact.get(path)
        if found is None:
            found = [(m, route) for m, route in self._templates if route.path_regex.match(path)]
        for module, route in found:
            if scope["method"] in (route.methods or ()):
                match = route.path_regex.match(path)
                scope["path_params"] = match.groupdict() if match else {}
                return route.path, module, route.endpoint
        if found:
            module, route = found[0]
            return route.path, module, partial(_refuse, 405)
        first = _first_part(path)
        known = (module for module, route in self.routes if _first_part(route.path) == first)
        return NO_ROUTE, next(known, None), partial(_refuse, 404)


async def _refuse(status: int, request: Request) -> Response:
    raise RequestError(status, REASONS[status])


def _first_part(path: str) -> str:
    """Return the first part of a path, after a session prefix."""
    parts = path.split("/")[1:]
    return "".join(parts[2:3] if parts[:1] == ["session"] else parts[:1])


def plain_refusal(error: RequestError) -> Response:
    """Return an error in the form of Cotext's own API."""
    return JSONResponse({"message": error.message}, error.status)
