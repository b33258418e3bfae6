"""A fake server with the API of OpenAI, on this machine alone: translates by a dictionary, errs on command.

    with Fake({"A cat.": "Eine Katze."}) as fake:
        fake.misbehave("429", times=2)          # the next two requests
        fake.misbehave("merge", when=lambda request: "cat" in request.text)
        ... fake.url, fake.requests

`POST /v1/chat/completions` translates the sentences that the prompt asks for.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

NUMBERED = re.compile(r"\[(\d+)\]\s*(.*)")

# What goes wrong on the way, whatever was asked.
STATUS = ("400", "401", "403", "404", "429", "500", "503")
TRANSPORT = (*STATUS, "timeout", "drip", "disconnect", "given")
# Answers of the right form with a wrong content ...
TYPES: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "array": lambda answer: [answer],
    "no choices": lambda answer: answer | {"choices": []},
    "null content": lambda answer: _with_content(answer, None),
    "list content": lambda answer: _with_content(answer, [{"type": "text", "text": "?"}]),
    "error as answer": lambda answer: {"error": {"message": "overloaded", "type": "server_error"}},
    "no usage": lambda answer: {key: each for key, each in answer.items() if key != "usage"},
    "wrong usage": lambda answer: answer | {"usage": {"prompt_tokens": "many", "completion_tokens": -1}},
    "cut": lambda answer: _cut(answer),
}
# ... and texts that are not what was asked for, made of the right lines.
Lines = list[str]
TEXTS: Mapping[str, Callable[[Lines, Lines], str]] = {
    "merge": lambda lines, asked: (
        "\n".join([*lines[:-2], " ".join([lines[-2], _bare(lines[-1])])]) if len(lines) > 1 else lines[0]
    ),
    "split": lambda lines, asked: _numbered([*map(_bare, lines[:-1]), *_halves(_bare(lines[-1]))]),
    "drop": lambda lines, asked: "\n".join(lines[1:]),
    "reorder": lambda lines, asked: "\n".join(reversed(lines)),
    "shift": lambda lines, asked: _numbered(map(_bare, [*lines[1:], lines[0]])),
    "twice": lambda lines, asked: "\n".join([*lines, lines[0]]),
    "more": lambda lines, asked: "\n".join([*lines, f"[{len(lines) + 1}] Noch etwas."]),
    "blank": lambda lines, asked: "\n".join(["[1]", *lines[1:]]),
    "bare": lambda lines, asked: "\n".join(_bare(line) for line in lines),
    "refuse": lambda lines, asked: "I'm sorry, but I can't help with translating this text.",
    "empty": lambda lines, asked: "",
    "echo": lambda lines, asked: "\n".join(asked),
    "preface": lambda lines, asked: "Here is the translation:\n\n" + "\n".join(lines),
    "fence": lambda lines, asked: "```\n" + "\n".join(lines) + "\n```",
    "think": lambda lines, asked: "<think>It is German.</think>\n\n" + "\n".join(lines),
    "note": lambda lines, asked: "\n".join(lines) + "\n\nNote: “du” could also be “Sie”.",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    payload: dict[str, Any]
    at: float  # seconds, of time.monotonic

    @property
    def text(self) -> str:
        """The prompt: all messages."""
        return "\n".join(str(message["content"]) for message in self.payload["messages"])

    @property
    def question(self) -> str:
        """The last message of the user."""
        return str([m["content"] for m in self.payload["messages"] if m["role"] == "user"][-1])


@dataclass(slots=True)
class Fault:
    """What is to go wrong, how often, and for which requests."""

    name: str
    times: int | None
    when: Callable[[Request], bool]
    options: dict[str, Any] = field(default_factory=dict)


def asked_for(request: Request) -> Lines:
    """The lines to translate: those from the last line [1] of the question on, or else its last line."""
    lines = [line for line in request.question.splitlines() if line.strip()]
    starts = [n for n, line in enumerate(lines) if line.startswith("[1] ")]
    return lines[starts[-1] :] if starts else lines[-1:]


class Fake:
    """The server; `requests` logs what it was asked.

    `words` is the dictionary of sentences; others stay. With a `key`, every request has to show it.
    """

    def __init__(self, words: Mapping[str, str], key: str | None = None) -> None:
        self.words, self.key = dict(words), key
        self.requests: list[Request] = []
        self.most_at_once = 0
        self._faults: list[Fault] = []
        self._at_once = 0
        self._lock = threading.Lock()
        self.closing = threading.Event()

    def __enter__(self) -> Self:
        """Listen on a free port."""
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def misbehave(
        self,
        name: str,
        times: int | None = 1,
        when: Callable[[Request], bool] = lambda request: True,
        **options: Any,
    ) -> None:
        """Go wrong at the next `times` requests that fit `when`, at all of them if None.

        `options`: `retry_after` of a status (seconds or a date), `seconds` of a timeout, or in which an
        answer drips, by its `part` (head, body); `status`, `body` and `headers` of an answer that is given.
        """
        assert name in TRANSPORT or name in TYPES or name in TEXTS, name
        self._faults.append(Fault(name, times, when, options))

    def behave(self) -> None:
        """Forget what was to go wrong."""
        self._faults.clear()

    # --- used by the handler

    def noted(self, request: Request) -> Fault | None:
        """Write a request down, and say what goes wrong with it."""
        with self._lock:
            self.requests.append(request)
            for fault in self._faults:
                if fault.times != 0 and fault.when(request):
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return None

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def answer(self, request: Request, fault: str | None) -> Any:
        written = self._text(request, fault)
        read, wrote = len(request.text.split()), len(written.split())
        message = {"role": "assistant", "content": written}
        made = {
            "model": request.payload.get("model", "fake"),
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote},
        }
        return TYPES[fault](made) if fault in TYPES else made

    def _text(self, request: Request, fault: str | None) -> str:
        asked = asked_for(request)
        lines = [line.removesuffix(_bare(line)) + self.words.get(_bare(line), _bare(line)) for line in asked]
        return TEXTS[fault](lines, asked) if fault in TEXTS else "\n".join(lines)


class _Handler(BaseHTTPRequestHandler):
    fake: Fake
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # the head and the body in one write

    def do_POST(self) -> None:
        """Answer a request, rightly or wrongly."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.path, dict(self.headers.items()), json.loads(body), time.monotonic())
        with self.fake.counted():
            fault = self.fake.noted(request)
            if fault is not None and fault.name in TRANSPORT:
                self._fail(fault)
            elif self.fake.key and self.headers.get("Authorization") != f"Bearer {self.fake.key}":
                self._send(401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})
            else:
                self._send(200, self.fake.answer(request, fault.name if fault else None))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def _send(self, status: int, answer: Any, headers: Mapping[str, str] | None = None) -> None:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has had enough
            self.wfile.write(body)
            self.wfile.flush()

    def _fail(self, fault: Fault) -> None:
        if fault.name in STATUS:
            wait = fault.options.get("retry_after")
            headers = {} if wait is None else {"Retry-After": str(wait)}
            message = {"error": {"message": f"status {fault.name}", "type": "fake"}}
            self._send(int(fault.name), message, headers)
        elif fault.name == "given":
            options = fault.options
            self._send(options.get("status", 200), options["body"], options.get("headers"))
        elif fault.name == "timeout":
            self.fake.closing.wait(fault.options.get("seconds", 30))
            self.close_connection = True
        elif fault.name == "drip":
            self._drip(**fault.options)
        else:  # disconnect
            self.close_connection = True

    def _drip(self, part: str, seconds: float) -> None:
        """A byte at a time, twenty a second, of the head or of the body; then the right end."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nX-Waits: "
        body = b"\r\n\r\n" if part == "body" else b""
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has had enough
            for drop in [head + body, *[b" "] * int(20 * seconds)]:
                self.wfile.write(drop)
                self.wfile.flush()
                if self.fake.closing.wait(0.05):
                    break
            self.wfile.write(b"{}" if part == "body" else b"\r\n\r\n{}")
            self.wfile.flush()
        self.close_connection = True


def _bare(line: str) -> str:
    found = NUMBERED.fullmatch(line)
    return found[2] if found else line


def _numbered(texts: Iterable[str]) -> str:
    return "\n".join(f"[{number}] {text}" for number, text in enumerate(texts, 1))


def _halves(text: str) -> Lines:
    words = text.split(" ")
    middle = (len(words) + 1) // 2
    return [" ".join(words[:middle]), " ".join(words[middle:])]


def _with_content(answer: dict[str, Any], content: Any) -> dict[str, Any]:
    choice = answer["choices"][0]
    choice["message"] = choice["message"] | {"content": content}
    return answer


def _cut(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer that ends at the limit of its length, in the middle of a sentence."""
    choice = answer["choices"][0]
    text = choice["message"]["content"]
    answer = _with_content(answer, text[: max(1, 2 * len(text) // 3)])
    answer["choices"][0]["finish_reason"] = "length"
    return answer
