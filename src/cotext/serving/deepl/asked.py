"""What is asked in DeepL's way: who asks, and fields that come as JSON, as a form or in the address."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.data.languages import Languages, language_code
from cotext.runtime.errors import CotextError, shown
from cotext.serving.errors import RequestError
from cotext.serving.glossary_store import Entries, entries_together
from cotext.serving.requests import client_of, fields, service_of
from cotext.serving.service import Client, Service
from cotext.serving.systems import System

_SCHEME = "deepl-auth-key "


class Asked:
    """The fields of a request; a field of a form is there several times, one of JSON has a list instead.

    Every method raises RequestError 400 where a field is not of the type that it is asked for.
    """

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = {name: value for name, value in found.items() if value is not None and value != []}

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def value(self, name: str) -> Any:
        """A field as it came, of a form the first; None where it is not there."""
        found = self._found.get(name)
        return found[0] if isinstance(found, list) and len(found) == 1 else found

    def text(self, name: str, default: str = "") -> str:
        """A field that is a text."""
        found = default if (value := self.value(name)) is None else value
        if not isinstance(found, str):
            raise _bad_type(name, "a text")
        return found

    def needed(self, name: str) -> str:
        """A field that is a text, without which there is no answer."""
        found = self.text(name)
        if not found.strip():
            raise RequestError(400, f"Parameter '{name}' not specified.")
        return found

    def several(self, name: str) -> list[Any]:
        """A field that is a list; anything else is a list of it alone."""
        found = self._found.get(name, [])
        return found if isinstance(found, list) else [found]

    def texts(self, name: str) -> list[str]:
        """A field that is a list of texts; a text alone is one of one."""
        found = self.several(name)
        if not all(isinstance(each, str) for each in found):
            raise _bad_type(name, "a list of texts")
        return found

    def names(self, name: str) -> list[str]:
        """A list of names, which a form has with commas between them."""
        return [part.strip() for each in self.texts(name) for part in each.split(",") if part.strip()]

    def flag(self, name: str, default: bool = False) -> bool:
        """A field that is true or false; 1 or 0 in a form."""
        found = self.value(name)
        if found is None:
            return default
        if found in (True, False):
            return bool(found)
        if isinstance(found, str) and found.lower() in ("0", "1", "false", "true"):
            return found.lower() in ("1", "true")
        raise _bad_type(name, "true or false")

    def one_of(self, name: str, allowed: Collection[str], default: str = "") -> str:
        """A field that has one of some values, in capitals or not."""
        found = self.text(name, default).lower()
        if found not in allowed and found != default:
            raise RequestError(
                400, f"Value for '{name}' not supported: {shown(found)}; choose {', '.join(allowed)}"
            )
        return found


async def asked(request: Request) -> tuple[Asked, Client]:
    """The fields of a request, those of its address among them, and who asks."""
    found = await fields(request)
    in_address = {name: request.query_params.getlist(name) for name in request.query_params}
    wanted = Asked(in_address | found)
    # In a field as it was once sent, and is by old clients.
    return wanted, client_of(request, header_key(request) or wanted.text("auth_key") or None)


def header_key(request: Request) -> str | None:
    """The key in the header of a request."""
    header = request.headers.get("authorization", "")
    return header[len(_SCHEME) :].strip() if header.lower().startswith(_SCHEME) else None


def systems_for(request: Request, wanted: Asked, name: str | None = None) -> list[System]:
    """The systems for the languages of a request, or that of a name, if it translates them.

    Raises:
        RequestError: 400, a language is missing, or none translates so; 404, there is none of the name.
    """
    systems = service_of(request).systems
    target = language_of(wanted.needed("target_lang"), "target_lang")
    source = language_of(wanted.text("source_lang"), "source_lang") if wanted.text("source_lang") else None
    candidates = list(systems) if name is None else [systems.named(name)]
    pairs = ", ".join(dict.fromkeys(str(each.languages) for each in candidates))
    known = [each for each in candidates if each.languages.target == target]
    if not known:
        raise RequestError(400, f"Value for 'target_lang' not supported; there are {pairs}")
    known = [each for each in known if source in (None, each.languages.source)]
    if not known:
        raise RequestError(400, f"Value for 'source_lang' not supported; there are {pairs}")
    return known


def language_of(text: str, name: str) -> str:
    """The code of a language as DeepL's clients write it, such as EN-GB.

    Raises:
        RequestError: 400, it is none.
    """
    try:
        return language_code(text, name)
    except CotextError:
        raise RequestError(400, f"Value for '{name}' not supported.") from None


def refuse_unsupported(wanted: Asked, names: Collection[str]) -> None:
    """Refuse fields that ask for what Cotext cannot do; raises RequestError 400."""
    for name in names:
        if name in wanted:
            raise RequestError(400, f"Parameter '{name}' is not supported by this server; leave it out")


def check_formality(wanted: Asked, system: System) -> None:
    """Refuse a formality that is more than a preference; raises RequestError 400."""
    formality = wanted.one_of("formality", FORMALITIES, "default")
    if formality in ("more", "less"):
        target = system.languages.target.upper()
        raise RequestError(
            400,
            f"Target language {target} does not support formality; leave it out, or ask prefer_{formality}",
        )


FORMALITIES = ("default", "more", "less", "prefer_more", "prefer_less")


def _bad_type(name: str, wanted: str) -> RequestError:
    return RequestError(400, f"Parameter '{name}' has to be {wanted}")


# --- The glossaries that a request names, as terms of the system that answers it.

MAX_GLOSSARIES: Final = 5


def glossary_entries(service: Service, wanted: Asked, client: Client, system: System) -> Entries:
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
