"""The dialects of a server: modules with `routes()` and `refusal(error)`, and which of them is asked."""

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Final

from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from cotext.serving.errors import RequestError

NO_ROUTE: Final = "none"


class Dialects:
    """The routes of all dialects, and whose a request is; one that none of them knows, by how it begins."""

    def __init__(self, names: Sequence[str]) -> None:
        self._routes: list[tuple[ModuleType, BaseRoute]] = []
        self._by_first_part: dict[str, ModuleType] = {}
        for name in names:
            module = import_module(f"cotext.serving.{name}")
            for route in module.routes():
                self._routes.append((module, route))
                if isinstance(route, Route):
                    self._by_first_part.setdefault(_first_part(route.path), module)

    @property
    def routes(self) -> list[BaseRoute]:
        """All routes, in order."""
        return [route for _, route in self._routes]

    def of(self, scope: Scope) -> tuple[str, ModuleType | None]:
        """The route of a request as a template, and its dialect."""
        for wanted in (Match.FULL, Match.PARTIAL):
            for module, route in self._routes:
                if route.matches(scope)[0] == wanted:
                    return route.path if isinstance(route, Route) else NO_ROUTE, module
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return NO_ROUTE, self._by_first_part.get(_first_part(path))


def _first_part(path: str) -> str:
    """The first part of a path; behind the name of a session, if it is in one."""
    parts = path.split("/")[1:]
    return "".join(parts[2:3] if parts[:1] == ["session"] else parts[:1])


def plain_refusal(error: RequestError) -> Response:
    """An error in the form of Cotext's own API: of routes that have none of their own."""
    return JSONResponse({"message": error.message}, error.status)
