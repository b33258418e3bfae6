"""The DeepL API, version 2: texts, documents, glossaries, languages and usage.

Unsupported options (formality, styles, instructions, translation memories, other output formats) raise error
400 with the name of the option.
"""

from starlette.routing import Route

from cotext.serving.deepl import documents, glossaries
from cotext.serving.deepl.translate import list_languages, tell_usage, translate
from cotext.serving.sessions import also_in_sessions


def routes() -> list[Route]:
    return also_in_sessions(
        [
            Route("/v2/translate", translate, methods=["POST"]),
            Route("/v2/document", documents.send, methods=["POST"]),
            Route("/v2/document/{id}", documents.tell_status, methods=["POST"]),
            Route("/v2/document/{id}/result", documents.fetch, methods=["POST"]),
            Route("/v2/languages", list_languages, methods=["GET"]),
            Route("/v2/usage", tell_usage, methods=["GET"]),
            Route("/v2/glossary-language-pairs", glossaries.list_pairs, methods=["GET"]),
            Route("/v2/glossaries", glossaries.create, methods=["POST"]),
            Route("/v2/glossaries", glossaries.list_all, methods=["GET"]),
            Route("/v2/glossaries/{id}", glossaries.get, methods=["GET"]),
            Route("/v2/glossaries/{id}", glossaries.delete, methods=["DELETE"]),
            Route("/v2/glossaries/{id}/entries", glossaries.get_entries, methods=["GET"]),
        ]
    )
