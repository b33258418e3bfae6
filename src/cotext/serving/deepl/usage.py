"""`GET /v2/usage`, and the end of what a client may ask."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cotext.serving.deepl.asked import asked
from cotext.serving.errors import RequestError
from cotext.serving.requests import service_of
from cotext.serving.service import Client, Service


def check_quota(service: Service, client: Client) -> None:
    """Raise RequestError 456 where a client has had all that it may."""
    most = service.settings.max_characters_of_client
    if service.usage.characters(client.name) >= most:
        raise RequestError(456, f"Quota exceeded: {most:,} characters have been translated for you")


async def tell_usage(request: Request) -> Response:
    """`GET /v2/usage`."""
    _, client = await asked(request)
    service = service_of(request)
    count, limit = service.usage.characters(client.name), service.settings.max_characters_of_client
    return JSONResponse({"character_count": count, "character_limit": limit})
