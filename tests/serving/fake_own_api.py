"""A small server with the answers of the own API, whose translations, pauses and failures a test decides."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from cotext.serving.own_api import Event, page
from cotext.serving.record import RequestError
from cotext.serving.settings import ServerSettings

WORDS = {
    "lamp": "Lampe", "ring": "Ring", "There": "Da", "was": "war", "a": "ein", "old": "alt",
    "The": "Die", "nights": "Nächte", "were": "waren", "cold": "kalt",
}  # fmt: skip
PRONOUNS = {"Lampe": "Sie", "Ring": "Er"}
SUFFIXES = [".txt", ".docx", ".md"]


@dataclass(slots=True)
class Told:
    """What the fake does, and what it was asked."""

    pause: float = 0.0  # seconds before each sentence
    backwards: bool = False  # sentences come last first
    fail: dict[str, tuple[int, str]] = field(default_factory=dict)  # by path: status and message
    break_at: int | None = None  # an error event before that sentence
    hang_up_at: int | None = None  # no more events before that sentence
    key: str | None = None
    asked: list[tuple[str, Any]] = field(default_factory=list)
    stopped: int = 0  # translations whose client went away
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    languages: tuple[str, str] = ("en", "de")


def described(told: Told, name: str, view: str, explains: bool) -> dict[str, Any]:
    names = {"en": "English", "de": "German", "zh": "Chinese", "ar": "Arabic"}
    source, target = ({"code": code, "name": names[code]} for code in told.languages)
    return {
        "name": name, "source": source, "target": target, "view": view, "context_sentences": None,
        "takes_terms": True, "explains": explains, "controlled": False,
        "signature": f"model:{name}",
    }  # fmt: skip


def sentences_of(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for paragraph, line in enumerate(re.split(r"\r\n|\r|\n", text)):
        for place, sentence in enumerate(re.findall(r"[^.!?。]+[.!?。]*", line)):
            if sentence.strip():
                before = " " if place and "。" not in sentence else ""
                one = {"number": len(found), "paragraph": paragraph, "source": sentence.strip()}
                found.append({**one, "before": before})
    return found


def translated(system: str, sources: list[str], terms: dict[str, str]) -> list[str]:
    """Word by word; a pronoun agrees with the sentence before where the system reads it."""
    targets: list[str] = []
    for source in sources:
        before = targets[-1] if targets and system != "sentence" else ""
        pronoun = next((p for noun, p in PRONOUNS.items() if noun in before), "Es")
        words = {**WORDS, "It": pronoun, **terms}
        targets.append("".join(words.get(part, part) for part in re.split(r"(\w+)", source)))
    return targets


def fake(told: Told) -> Starlette:
    """The application."""

    async def check(request: Request, name: str, content: Any = None) -> None:
        told.asked.append((name, content))
        if told.key and request.headers.get("authorization") != f"Bearer {told.key}":
            raise RequestError(403, "this key is unknown to this server")
        if name in told.fail:
            raise RequestError(*told.fail[name])

    async def systems(request: Request) -> Response:
        made = [
            ("document", "document", True),
            ("sentence", "sentence", False),
            ("parallel", "window", False),
        ]
        return JSONResponse(
            {
                "systems": [described(told, name, view, can) for name, view, can in made],
                "limits": {"text_bytes": 200_000, "file_bytes": 1000, "sentences": 3000},
                "file_suffixes": SUFFIXES,
                "key_required": told.key is not None,
            }
        )

    async def translate(request: Request) -> Response:
        asked = await request.json()
        await check(request, "translate", asked)
        sentences = sentences_of(asked["text"])
        sources = [each["source"] for each in sentences]
        targets = translated(asked["system"], sources, dict(asked["glossary"]))

        async def events() -> AsyncIterator[bytes]:
            try:
                start = {"system": asked["system"], "paragraphs": 1, "sentences": sentences}
                yield b": kept alive\n\n" + Event("start", start).encoded()
                order = range(len(sources))
                for number in reversed(order) if told.backwards else order:
                    if told.pause:
                        await asyncio.sleep(told.pause)
                    if number == told.break_at:
                        yield Event("error", {"message": "the model is gone"}).encoded()
                    if number in (told.break_at, told.hang_up_at):
                        return
                    yield Event("sentence", {"number": number, "target": targets[number]}).encoded()
                done = [
                    {
                        "number": number, "target": target, "low": " old" in sources[number],
                        "confidence": 0.4 if " old" in sources[number] else 0.9,
                        "terms": [], "context": [0, number],
                    }
                    for number, target in enumerate(targets)
                ]  # fmt: skip
                lines: dict[int, list[str]] = {}
                for each, target in zip(sentences, targets, strict=True):
                    lines.setdefault(each["paragraph"], []).append(target)
                whole = "\n".join(" ".join(line) for line in lines.values())
                content = {"sentences": done, "text": whole, "signature": "", "seconds": 0.5}
                yield Event("done", content).encoded()
            except (asyncio.CancelledError, GeneratorExit):
                told.stopped += 1
                raise

        return StreamingResponse(events(), media_type="text/event-stream")

    async def explain(request: Request) -> Response:
        asked = await request.json()
        await check(request, "explain", asked)
        first, stop = asked["characters"]
        text = asked["targets"][asked["sentence"]][first:stop]
        contexts = []
        for number in range(asked["sentence"]):
            change = 3.25 if number == asked["sentence"] - 1 else -0.2
            text_of = asked["sources"][number]
            contexts.append(
                {"number": number, "side": "both", "text": text_of, "change": change, "meant": change > 1}
            )
        return JSONResponse(
            {
                "word": {"text": text, "first": first, "stop": stop},
                "words": [{"text": text, "first": first, "stop": stop, "change": 3.0}],
                "contexts": contexts,
                "decisive": asked["sentence"] - 1 if contexts else None,
                "alternative": "Es war alt." if contexts else None,
                "signature": "model:fake",
            }
        )

    async def files(request: Request) -> Response:
        if request.method == "GET":
            await check(request, "files")
            return JSONResponse({"files": list(reversed(told.jobs.values()))})
        form = await request.form()
        file = form["file"]
        assert not isinstance(file, str)
        await check(request, "submit", {name: form[name] for name in ("system", "glossary")})
        identity = f"j{len(told.jobs)}"
        told.jobs[identity] = {
            "id": identity, "state": "translating", "sentences": 10, "sentences_done": 4,
            "seconds_remaining": 3.0, "billed_characters": 0, "message": "", "messages": [],
            "file_name": file.filename,
        }  # fmt: skip
        return JSONResponse({"id": identity}, 201)

    async def one_file(request: Request) -> Response:
        await check(request, "forget", request.path_params["id"])
        del told.jobs[request.path_params["id"]]
        return Response(status_code=204)

    async def result(request: Request) -> Response:
        await check(request, "result")
        return Response(b"translated", media_type="application/octet-stream")

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestError)
        return JSONResponse({"message": error.message}, error.status)

    made = Starlette(
        routes=[
            Route("/", page),
            Route("/page/{file}", page),
            Route("/api/systems", systems),
            Route("/api/translate", translate, methods=["POST"]),
            Route("/api/explain", explain, methods=["POST"]),
            Route("/api/files", files, methods=["GET", "POST"]),
            Route("/api/files/{id}", one_file, methods=["DELETE"]),
            Route("/api/files/{id}/result", result),
        ],
        exception_handlers={RequestError: refused},
    )
    made.state.service = SimpleNamespace(settings=ServerSettings(state=Path("unused")))
    return made
