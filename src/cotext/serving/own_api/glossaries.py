"""Glossaries of a client in the own API, as an editor needs them."""

from functools import partial
from typing import Any

from anyio import to_thread
from pydantic import StrictStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from cotext.data.languages import Languages
from cotext.serving.glossary_store import GlossaryStore, StoredGlossary
from cotext.serving.requests import Body, asking, body_of, service_of


class GlossaryBody(Body):
    """A glossary with the entries of one language pair."""

    name: StrictStr
    source: StrictStr
    target: StrictStr
    entries: list[tuple[StrictStr, StrictStr]]

    @property
    def languages(self) -> Languages:
        """Its language pair."""
        return Languages(self.source, self.target)


def routes() -> list[BaseRoute]:
    """The routes below `/api/glossaries`."""
    one = "/api/glossaries/{id}"
    return [
        Route("/api/glossaries", show_all, methods=["GET"]),
        Route("/api/glossaries", create, methods=["POST"]),
        Route(one, show, methods=["GET"]),
        Route(one, replace, methods=["PUT"]),
        Route(one, delete, methods=["DELETE"]),
    ]


async def show_all(request: Request) -> Response:
    """All glossaries of the client, without their entries."""
    store, client = service_of(request).glossaries, asking(request).name
    found = await to_thread.run_sync(store.all_of, client)
    return JSONResponse({"glossaries": [_described(glossary) for glossary in found]})


async def create(request: Request) -> Response:
    """A new glossary."""
    store, client = service_of(request).glossaries, asking(request).name
    body = await body_of(request, GlossaryBody)
    made = await to_thread.run_sync(store.create, client, body.name, {body.languages: body.entries})
    return JSONResponse(_described(made), 201, headers={"Location": f"/api/glossaries/{made.id}"})


async def show(request: Request) -> Response:
    """A glossary with its entries."""
    store, client = service_of(request).glossaries, asking(request).name
    return JSONResponse(await to_thread.run_sync(_with_entries, store, client, request.path_params["id"]))


async def replace(request: Request) -> Response:
    """Give a glossary another name, and other entries for a language pair."""
    store, client = service_of(request).glossaries, asking(request).name
    body, identity = await body_of(request, GlossaryBody), request.path_params["id"]
    put = partial(store.put, client, identity, body.languages, body.entries, name=body.name)
    await to_thread.run_sync(put)
    return JSONResponse(await to_thread.run_sync(_with_entries, store, client, identity))


async def delete(request: Request) -> Response:
    """Delete a glossary."""
    store, client = service_of(request).glossaries, asking(request).name
    await to_thread.run_sync(store.delete, client, request.path_params["id"])
    return Response(status_code=204)


def _described(glossary: StoredGlossary) -> dict[str, Any]:
    dictionaries = [
        {"source": each.languages.source, "target": each.languages.target, "entries": each.entries}
        for each in glossary.dictionaries
    ]
    return {
        "id": glossary.id, "name": glossary.name, "created": glossary.created, "dictionaries": dictionaries
    }  # fmt: skip


def _with_entries(store: GlossaryStore, client: str, identity: str) -> dict[str, Any]:
    glossary = store.get(client, identity)
    entries = [store.entries(client, identity, each.languages) for each in glossary.dictionaries]
    described = _described(glossary)
    for dictionary, pairs in zip(described["dictionaries"], entries, strict=True):
        dictionary["entries"] = [list(pair) for pair in pairs]
    return described
