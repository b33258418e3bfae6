"""What the routes of the own API read of a request: its body, and who asks."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from cotext.serving.errors import RequestError
from cotext.serving.requests import bearer_key, client_of, fields
from cotext.serving.service import Client


class Body(BaseModel):
    """A request: these fields and no others."""

    model_config = ConfigDict(extra="forbid")


B = TypeVar("B", bound=Body)


def asking(request: Request) -> Client:
    """Who asks, by `Authorization: Bearer KEY`.

    Raises:
        RequestError: 403, a key is needed, or this is none.
    """
    return client_of(request, bearer_key(request))


async def body_of(request: Request, kind: type[B]) -> B:
    """The fields of a request.

    Raises:
        RequestError: 400, they are not such, with the first that is wrong.
    """
    try:
        return kind.model_validate(await fields(request))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestError(400, f"{where[:100]}: {first['msg'].lower()}") from None
