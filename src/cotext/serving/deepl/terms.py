"""The glossaries that a request names, as terms of the system that answers it."""

from typing import Final

from cotext.data.languages import Languages
from cotext.serving.deepl.asked import Asked
from cotext.serving.errors import RequestError
from cotext.serving.glossary_store import Entries, entries_together
from cotext.serving.service import Client, Service
from cotext.serving.systems import System

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
    found = service.glossaries.get(client.name, identity)
    if languages not in [each.languages for each in found.dictionaries]:
        raise RequestError(400, f"the glossary has no dictionary for {languages}, as the text is translated")
    return service.glossaries.entries(client.name, identity, languages)
