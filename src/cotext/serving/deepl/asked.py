"""What is asked in DeepL's way: who asks, for which languages, with which glossaries."""

from collections.abc import Collection
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.data.languages import Languages, language_code
from cotext.runtime.errors import CotextError
from cotext.serving.errors import RequestError
from cotext.serving.glossary_store import Entries, entries_together
from cotext.serving.requests import Fields, client_of, read_fields, service_of
from cotext.serving.service import Client, Service
from cotext.serving.systems import System

_SCHEME = "deepl-auth-key "


async def asked(request: Request) -> tuple[Fields, Client]:
    """The fields of a request, and who asks."""
    wanted = await read_fields(request)
    # In a field as it was once sent, and is by old clients.
    return wanted, client_of(request, header_key(request) or wanted.text("auth_key") or None)


def header_key(request: Request) -> str | None:
    """The key in the header of a request."""
    header = request.headers.get("authorization", "")
    return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else None


def systems_for(request: Request, wanted: Fields, name: str | None = None) -> list[System]:
    """The systems for the languages of a request, or that of a name, if it translates them.

    Raises:
        RequestError: 400, a language is missing, or none translates so; 404, there is none of the name.
    """
    target = language_of(wanted.needed("target_lang"), "target_lang")
    source = language_of(wanted.text("source_lang"), "source_lang") if wanted.text("source_lang") else None
    return service_of(request).systems.translating(source, target, name)


def language_of(text: str, name: str) -> str:
    """The code of a language as DeepL's clients write it, such as EN-GB.

    Raises:
        RequestError: 400, it is none.
    """
    try:
        return language_code(text, name)
    except CotextError:
        raise RequestError(400, f"Value for '{name}' not supported.") from None


def refuse_unsupported(wanted: Fields, names: Collection[str]) -> None:
    """Refuse fields that ask for what Cotext cannot do; raises RequestError 400."""
    for name in names:
        if name in wanted:
            raise RequestError(400, f"Parameter '{name}' is not supported by this server; leave it out")


def check_formality(wanted: Fields, system: System) -> None:
    """Refuse a formality that is more than a preference; raises RequestError 400."""
    formality = wanted.one_of("formality", FORMALITIES, "default")
    if formality in ("more", "less"):
        target = system.languages.target.upper()
        raise RequestError(
            400,
            f"Target language {target} does not support formality; leave it out, or ask prefer_{formality}",
        )


FORMALITIES = ("default", "more", "less", "prefer_more", "prefer_less")


# --- The glossaries that a request names, as terms of the system that answers it.

MAX_GLOSSARIES: Final = 5


def glossary_entries(service: Service, wanted: Fields, client: Client, system: System) -> Entries:
    """The entries of `glossary_id` or `glossary_ids` in the languages of a system; none where none is named.

    Raises:
        RequestError: 400, both, too many, no source language, or none in these languages; 404, no such one.
    """
    ids = wanted.names("glossary_ids")
    if "glossary_id" in wanted:
        if ids:
            raise RequestError(400, "Parameters 'glossary_id' and 'glossary_ids' cannot be used together")
        ids = [wanted.text("glossary_id")]
    if not ids:
        return ()
    if len(ids) > MAX_GLOSSARIES:
        raise RequestError(400, f"Parameter 'glossary_ids' may name {MAX_GLOSSARIES} glossaries at most")
    if not wanted.text("source_lang"):
        raise RequestError(400, "Parameter 'source_lang' is needed with a glossary")
    return entries_together([_entries(service, client, each, system.languages) for each in ids])


def _entries(service: Service, client: Client, identity: str, languages: Languages) -> Entries:
    if service.glossaries.get(client.name, identity).languages != languages:
        raise RequestError(400, f"the glossary is not for {languages}, as the text is translated")
    return service.glossaries.entries(client.name, identity)


UNLIMITED: Final = 10**12  # characters, as DeepL says it


async def tell_usage(request: Request) -> Response:
    """`GET /v2/usage`: nothing is counted, and nothing limited."""
    await asked(request)
    return JSONResponse({"character_count": 0, "character_limit": UNLIMITED})
