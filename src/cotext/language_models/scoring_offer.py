"""Log-probabilities of prompts: in which way an API tells them, if it does.

Three ways are known, and none of them is part of what every API offers:

    chat             vLLM: `prompt_logprobs` of a chat whose last message, the target, is gone on with
    prompt_logprobs  vLLM: the same of a plain text, without the template of a chat
    echo             the API for completions as it was first: `echo` with `logprobs`, of a plain text

They are tried in this order on a small text, once; answers are kept, so that later jobs need not ask again.
Some servers take such a request and tell the tokens that they wrote themselves: what they tell has to be the
text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, get_args

from cotext.language_models.client import RefusedRequestError, UnansweredError
from cotext.language_models.config import Endpoint
from cotext.language_models.scored_tokens import NoBoundaryError, Token, UntoldError, target_tokens

Way = Literal["chat", "prompt_logprobs", "echo"]
Messages = Sequence[Mapping[str, str]]  # of a chat: role and content
BETWEEN_MESSAGES: Final = "\n\n"  # in a plain text
_OF_THE_KEY: Final = (401, 403)
# So some servers answer fields that they do not know, some proxies with an error in an answer whose status
# tells of none. Others (503 and the like) say that nobody is there.
_BROKE_DOWN: Final = (500, 200)
_QUESTION: Final[Messages] = ({"role": "user", "content": "Count to three."},)
_TRIED: Final = "one two three"


class Asks(Protocol):
    """A connection to an API, as `cotext.language_models.client.Client`."""

    def post(self, path: str, payload: Mapping[str, Any], repeat: int = 0) -> dict[str, Any]:
        """The answer to a request."""


@dataclass(frozen=True, slots=True)
class ScoringOffer:
    """The way in which an API tells log-probabilities, or None; `refused`: why not in others."""

    way: Way | None
    refused: Mapping[str, str]

    @property
    def in_words(self) -> str:
        """For a person."""
        if self.way is not None:
            return f"log-probabilities of prompts are offered ({self.way})"
        reasons = "; ".join(f"{way}: {reason}" for way, reason in self.refused.items())
        return f"log-probabilities of prompts are not offered ({reasons})"


def find_offer(client: Asks, endpoint: Endpoint) -> ScoringOffer:
    """Ask an API in which way it tells log-probabilities of prompts.

    Raises:
        CotextError: nobody is there, or the key is refused.
    """
    refused: dict[str, str] = {}
    for way in get_args(Way):
        ask = partial(told_tokens, client, endpoint, way, _QUESTION)
        try:
            target_tokens(ask(_TRIED), _TRIED, partial(ask, ""))
        except RefusedRequestError as error:
            if error.status in _OF_THE_KEY:
                raise
            refused[way] = f"status {error.status}"
        except UnansweredError as error:
            if error.status not in _BROKE_DOWN:
                raise
            refused[way] = f"status {error.status}, however often it is asked"
        except (UntoldError, NoBoundaryError) as error:
            refused[way] = str(error)
        else:
            return ScoringOffer(way, refused)
    return ScoringOffer(None, refused)


def told_tokens(
    client: Asks, endpoint: Endpoint, way: Way, messages: Messages, begins: str, repeat: int = 0
) -> list[Token]:
    """All tokens of a prompt whose answer `begins` so, in one of the ways; `repeat`: as of `Client.post`.

    Raises:
        UntoldError: the answer has none.
        CotextError: as `Client.post`.
    """
    # Several servers refuse to write nothing.
    least: dict[str, Any] = {"model": endpoint.model, "max_tokens": 1, "temperature": 0}
    if way == "chat":
        # Some parameters are of the template of the chat.
        asked = {**endpoint.parameters, **least, "prompt_logprobs": 0, **_chat(messages, begins)}
        answer = client.post("chat/completions", asked, repeat)
        return _entries(answer.get("prompt_logprobs"))
    text = "".join(f"{message['content']}{BETWEEN_MESSAGES}" for message in messages) + begins
    ways: dict[str, Any] = (
        {"prompt_logprobs": 0} if way == "prompt_logprobs" else {"echo": True, "logprobs": 1}
    )
    answer = client.post("completions", {**least, **ways, "prompt": text}, repeat)
    choice = _first_choice(answer)
    return _entries(choice.get("prompt_logprobs")) if way == "prompt_logprobs" else _echoed(choice, answer)


def _chat(messages: Messages, begins: str) -> dict[str, Any]:
    """A chat whose last message, what the answer begins with, is gone on with, if there is one."""
    begun = [{"role": "assistant", "content": begins}] if begins else []
    return {
        "messages": [*messages, *begun],
        "add_generation_prompt": not begun,
        "continue_final_message": bool(begun),
    }


def _echoed(choice: Mapping[str, Any], answer: Mapping[str, Any]) -> list[Token]:
    """The tokens of the prompt, without those that were written behind it."""
    found = choice.get("logprobs")
    texts, values = (found.get(k) if isinstance(found, dict) else None for k in ("tokens", "token_logprobs"))
    if not isinstance(texts, list) or not isinstance(values, list) or len(texts) != len(values):
        raise UntoldError("no tokens in the answer")
    usage = answer.get("usage")
    written = usage.get("completion_tokens") if isinstance(usage, dict) else None
    own = written if type(written) is int and 0 <= written <= len(texts) else 1
    return [_token(*each) for each in zip(texts, values, strict=True)][: len(texts) - own]


def _first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise UntoldError("no choices in the answer")
    return choices[0]


def _entries(found: Any) -> list[Token]:
    """Tokens as vLLM tells them: for each place of the prompt, what stands there; null first."""
    if not isinstance(found, list) or not found:
        raise UntoldError("no prompt_logprobs in the answer")
    tokens = [Token("", None)] if found[0] is None else []
    for entry in found[len(tokens) :]:
        told = list(entry.values()) if isinstance(entry, dict) else []
        if len(told) != 1 or not isinstance(told[0], dict):
            raise UntoldError("not one token at every place of the prompt")
        tokens.append(_token(told[0].get("decoded_token"), told[0].get("logprob")))
    return tokens


def _token(text: Any, value: Any) -> Token:
    if not isinstance(text, str) or not (value is None or type(value) in (int, float)):
        raise UntoldError("a token without its text or its log-probability")
    return Token(text, None if value is None else float(value))
