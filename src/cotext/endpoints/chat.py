"""Chat completions: what is sent for messages, and the text that came back."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotext.endpoints.config import Endpoint
from cotext.endpoints.numbered import UnusableError
from cotext.runtime.errors import shown

PATH: Final = "chat/completions"


def payload_of(endpoint: Endpoint, messages: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The body of a request."""
    limits = {"temperature": endpoint.temperature, "max_tokens": endpoint.max_tokens}
    given = {key: value for key, value in limits.items() if value is not None}
    return {**endpoint.parameters, "model": endpoint.model, "messages": list(messages), **given}


def text_of(answer: Mapping[str, Any]) -> str:
    """The text of an answer.

    Raises:
        UnusableError: there is none, it was cut off, or it is a refusal.
    """
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UnusableError("has no message of the form that chat completions have")
    reason = choice.get("finish_reason")
    if reason == "length":
        raise UnusableError("was cut off at the limit of its length", smaller=True)
    if reason == "content_filter" or message.get("refusal"):
        raise UnusableError("is a refusal", smaller=True)
    content = message.get("content")
    if not isinstance(content, str):
        raise UnusableError(f"has a message whose content is {shown(type(content).__name__)} and no text")
    return content
