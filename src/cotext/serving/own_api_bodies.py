"""What the routes of the own API read of a request: its body, and who asks."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StrictStr, ValidationError
from starlette.requests import Request

from cotext.serving.errors import RequestError
from cotext.serving.requests import client_of, fields
from cotext.serving.service import Client


def whole(text: str) -> str:
    """The text with the replacement character for halves of characters, which no encoding can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


Text = Annotated[StrictStr, AfterValidator(whole)]


class Body(BaseModel):
    """A request: these fields and no others."""

    model_config = ConfigDict(extra="forbid")


B = TypeVar("B", bound=Body)


def asking(request: Request) -> Client:
    """Who asks, by `Authorization: Bearer KEY`.

    Raises:
        RequestError: 403, a key is needed, or this is none.
    """
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return client_of(request, key.strip() if kind.lower() == "bearer" else None)


async def body_of(request: Request, kind: type[B]) -> B:
    """The fields of a request.

    Raises:
        RequestError: 400, they are not such, with the first that is wrong.
    """
    try:
        return kind.model_validate(await fields(request))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = whole(".".join(map(str, first["loc"])))
        raise RequestError(400, f"{where[:100]}: {first['msg'].lower()}") from None
