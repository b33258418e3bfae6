"""Reading of requests, common to all APIs: fields as JSON or form, and the client."""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from cotext.runtime import CotextError, parse_json, shown
from cotext.serving.keys import Admission
from cotext.serving.record import CURRENT, RequestError
from cotext.serving.service import Service
from cotext.serving.settings import ServerSettings

T = TypeVar("T")

FILE_FIELD: Final = "file"
IN_LOOP_BYTES: Final = 16 * 1024  # larger bodies are parsed in a thread, not in the event loop
_UTF8: Final = ("utf-8", "utf8", "us-ascii")
FORMS: Final = ("application/x-www-form-urlencoded", "multipart/form-data")


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def client_of(request: Request, key: str | None) -> str:
    """Authenticate the client by its key, and reserve a request slot; see `Admission.admit`."""
    admission: Admission = request.app.state.admission
    return admission.admit(CURRENT.get(), key)


def header_key(request: Request, scheme: str) -> str | None:
    """Return the key in a header `Authorization: SCHEME KEY`, or None; `scheme`: in lower case."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == scheme else None


async def fields(request: Request) -> dict[str, Any]:
    """Return the fields of a JSON object or a form; in a form, every field has a list of values.

    Raises RequestError: 400, the body is invalid; 413, it is too large; 415, its type is not supported.
    """
    kind, settings = content_type(request), service_of(request).settings
    max_fields = settings.max_sentences + 100
    if kind == "multipart/form-data":
        return await Form(request, max_fields, settings.max_body_bytes).read()
    content = await request.body()
    if len(content) > IN_LOOP_BYTES:
        return await to_thread.run_sync(_parsed, content, kind, max_fields)
    return _parsed(content, kind, max_fields)


class Fields:
    """The fields of a request; a repeated field of a form or address is a list.

    Methods raise RequestError 400 if a field has another type.
    """

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = {name: value for name, value in found.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def value(self, name: str) -> Any:
        """Return a field, or None."""
        return self._found.get(name)

    def text(self, name: str, default: str = "") -> str:
        text = default if (value := self.value(name)) is None else value
        if not isinstance(text, str):
            raise RequestError(400, f"Parameter '{name}' has to be a string")
        return text

    def needed(self, name: str) -> str:
        text = self.text(name)
        if not text.strip():
            raise RequestError(400, f"Parameter '{name}' not specified.")
        return text

    def texts(self, name: str) -> list[str]:
        """Return a list of texts; a single text is a list with one element."""
        value = self._found.get(name, [])
        texts: list[Any] = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise RequestError(400, f"Parameter '{name}' has to be a list of strings")
        return texts

    def names(self, name: str) -> list[str]:
        """Return a list of names, which may be separated by commas."""
        return [part.strip() for text in self.texts(name) for part in text.split(",") if part.strip()]

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean field; in a form, 1 or 0."""
        value = self.value(name)
        if value is None:
            return default
        if value in (True, False):
            return bool(value)
        if isinstance(value, str) and value.lower() in ("0", "1", "false", "true"):
            return value.lower() in ("1", "true")
        raise RequestError(400, f"Parameter '{name}' has to be true or false")

    def one_of(self, name: str, allowed: Collection[str], default: str = "") -> str:
        """Return a field with one of several values, in lower case."""
        value = self.text(name, default).lower()
        if value not in allowed and value != default:
            message = f"Value for '{name}' not supported: {shown(value)}; choose {', '.join(allowed)}"
            raise RequestError(400, message)
        return value


def whole_number(value: object, name: str) -> int:
    """Return a number from a form or from JSON; raise RequestError 400 if it is not a whole number."""
    digits = str(value) if isinstance(value, int | str) else ""
    if isinstance(value, bool) or not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise RequestError(400, f"{name}: give a whole number of at most nine digits")
    return int(digits)


async def read_fields(request: Request) -> Fields:
    """Return the fields of the body and, for missing fields, of the address; raise the errors of `fields`."""
    in_body = await fields(request)
    address = {name: request.query_params.getlist(name) for name in request.query_params}
    if content_type(request) in FORMS:
        return Fields(single(address | in_body))
    return Fields(single(address) | in_body)


def single(lists: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Replace lists with one value by this value."""
    return {name: values[0] if len(values) == 1 else values for name, values in lists.items()}


def _parsed(content: bytes, kind: str, max_fields: int) -> dict[str, Any]:
    """Parse a body that is not a multipart form; raise the errors of `fields`."""
    if not content.strip():
        return {}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RequestError(400, "the body is not UTF-8") from None
    if kind in FORMS:
        try:
            return parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=max_fields)
        except UnicodeDecodeError:
            raise RequestError(400, "the form is not UTF-8") from None
        except ValueError:
            raise RequestError(413, f"more than {max_fields:,} fields in a form") from None
    if kind not in ("", "application/json") and not kind.endswith("+json"):
        raise RequestError(415, "send application/json, or a form")
    try:
        fields = parse_json(text, "the body", unique=True)
    except CotextError as error:
        raise RequestError(400, str(error)) from None
    if not isinstance(fields, dict):
        raise RequestError(400, "the body is not a JSON object")
    return fields


def content_length(headers: Headers) -> int:
    """Return the declared size of a body in bytes; 0 if there is none."""
    # A transfer encoding overrides the declared size (RFC 9112, 6.3).
    declared = "" if "transfer-encoding" in headers else headers.get("content-length", "")
    return int(declared[:20]) if declared.isdecimal() else 0


def content_type(request: Request) -> str:
    """Return the media type of a body; raise RequestError 415 if its encoding is not UTF-8."""
    kind, *options = request.headers.get("content-type", "").lower().split(";")
    pairs = (option.partition("=") for option in options)
    parameters = {name.strip(): value.strip(" \"'") for name, _, value in pairs}
    if parameters.get("charset", "utf-8") not in _UTF8:
        raise RequestError(415, "the encoding of the body is not UTF-8")
    return kind.strip()


class Form(MultiPartParser):
    """Reader of a multipart form (RFC 7578), and of a file in its part `file`.

    Starlette's parser writes files to the folder for temporary files, which can be in memory. `folder`:
    folder for a large file; a small one stays in memory, and the caller closes it. Without a folder, every
    part is a field. `max_bytes`: limit for all fields. Fields that are not UTF-8 are read as Latin-1.
    """

    def __init__(self, request: Request, max_fields: int, max_bytes: int, folder: Path | None = None) -> None:
        limits = {"max_files": max_fields, "max_fields": max_fields, "max_part_size": max_bytes}
        super().__init__(request.headers, request.stream(), **limits)
        self._folder, self._complete = folder, False
        self._bytes = 0
        self.file: UploadFile | None = None

    async def read(self) -> dict[str, list[Any]]:
        """Return the fields, each with a list of values.

        Raises RequestError: 400, the form is damaged or incomplete, or has several files; 413, it is too
        large. Raises OSError if the file cannot be written.
        """
        try:
            form = await self.parse()
        except (MultiPartException, ValueError) as error:
            raise RequestError(400, f"the form is damaged: {error}") from None
        if not self._complete:
            raise RequestError(400, "the form is incomplete: its end is missing; send it again")
        return {name: form.getlist(name) for name in form}

    def on_part_begin(self) -> None:
        super().on_part_begin()
        if len(self.items) >= self.max_fields:
            raise RequestError(413, f"more than {self.max_fields:,} fields in a form")

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._current_part.file is None:
            self._bytes += end - start
            if self._bytes > self.max_part_size:
                raise RequestError(413, f"more than {self.max_part_size:,} bytes in the fields of a form")
        super().on_part_data(data, start, end)

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        part = self._current_part
        if "\0" in part.field_name:
            raise RequestError(400, "the form has NUL in the name of a field")
        if part.file is None:
            return
        part.file.file.close()
        if self._folder is None or part.field_name != FILE_FIELD:
            part.file = None
            return
        if self.file is not None:
            raise RequestError(400, "the form has several files; send one at a time")
        stored = SpooledTemporaryFile(self.spool_max_size, dir=str(self._folder))  # noqa: SIM115
        self._files_to_close_on_error.append(stored)
        part.file.file = stored  # type: ignore[assignment]
        self.file = part.file

    def on_end(self) -> None:
        self._complete = True


def check_size(settings: ServerSettings, texts: Iterable[str]) -> int:
    """Return the bytes of texts; raise RequestError 413 if they are larger than the limit of a request."""
    size = sum(len(text.encode()) for text in texts)
    if size > settings.max_text_bytes:
        most = f"{settings.max_text_bytes:,} at most"
        raise RequestError(413, f"{size:,} bytes of text, and {most}; send less text at a time, or a file")
    return size


async def unless_gone(request: Request, answer: Awaitable[T]) -> T:
    """Wait for an answer and return it; cancel its work if the client disconnects."""
    task = asyncio.current_task()
    assert task is not None
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        return await answer
    except asyncio.CancelledError:
        if not gone or task.uncancel():  # also cancelled from outside
            raise
        raise RequestError(499, "the client has disconnected") from None
    finally:
        watcher.cancel()


# --- Requests of the own API.


class Body(BaseModel):
    """Base class of request bodies; other fields are an error."""

    model_config = ConfigDict(extra="forbid")


B = TypeVar("B", bound=Body)


def asking(request: Request) -> str:
    """Authenticate the client by `Authorization: Bearer KEY` (RFC 6750, 2.1); see `client_of`."""
    return client_of(request, header_key(request, "bearer"))


async def body_of(request: Request, kind: type[B]) -> B:
    """Validate the body of a request; raise RequestError 400 with the first invalid field."""
    try:
        return kind.model_validate(await fields(request))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestError(400, f"{where[:100]}: {first['msg'].lower()}") from None
