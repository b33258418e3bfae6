"""What the simple dialects have in common: texts in, texts out, in a session or not.

A text is a document, whose lines and sentences share context; texts of one request are documents of their
own, or one document if the client says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from starlette.requests import Request

from cotext.data.languages import language_code
from cotext.runtime.errors import CotextError
from cotext.serving.errors import RequestError
from cotext.serving.fragments import Fragment, TagHandling, fragment
from cotext.serving.requests import check_size, service_of, unless_gone
from cotext.serving.service import Client, TextRequest
from cotext.serving.sessions import SessionPlace, refuse_confirmed_tags, translate
from cotext.serving.systems import System


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts of a request; `together`: they are one document. `place`: in a session, each text a segment."""

    texts: Sequence[str]
    html: bool = False
    together: bool = False
    place: SessionPlace | None = None


def code_of(text: str) -> str:
    """The code of a language as programs write it, such as `de-AT` or `DE`.

    Raises:
        RequestError: 400, it is none.
    """
    try:
        return language_code(text, "language")
    except CotextError:
        raise RequestError(400, "a language is given by its code, as in en, de or zh") from None


async def translated(request: Request, client: Client, system: System, asked: Texts) -> list[str]:
    """The translations of texts, in their order.

    Raises:
        RequestError: 413, too much text; else as `Service.translate`.
    """
    service = service_of(request)
    check_size(service.settings, asked.texts)
    if asked.html:
        refuse_confirmed_tags(asked.place)
    parts = await to_thread.run_sync(_fragments, asked)
    documents = tuple(tuple(part.blocks) for part in parts)
    if asked.together:
        documents = (tuple(block for blocks in documents for block in blocks),)
    text_request = TextRequest(system, documents)
    answer = await unless_gone(request, translate(service, text_request, client, asked.place))
    blocks = [block for document in answer.documents for block in document]
    return await to_thread.run_sync(lambda: [_written(part, blocks) for part in parts])


def _fragments(asked: Texts) -> list[Fragment]:
    tags = TagHandling("html") if asked.html else None
    return [
        fragment(text, "nonewlines" if asked.html else "1", tags, f"text {number}")
        for number, text in enumerate(asked.texts, 1)
    ]


def _written(part: Fragment, blocks: list[Any]) -> str:
    """The text with the first of these blocks, which are taken away."""
    own = blocks[: len(part.blocks)]
    del blocks[: len(part.blocks)]
    return part.written(own)
