"""The tokens of a target among those of a whole prompt: exactly its characters, or none of them.

A language model reads a prompt and the target after it as one row of tokens, and its tokenizer knows of no
boundary between them:

    prompt   Deutsch:\n          target   Er geht.
    tokens   Deutsch | : | \n | Er | geht | .          the target begins a token: the last three are its own
    tokens   Deutsch | : | \nEr | geht | .             no token begins with it: it has no score

Where a character is divided among tokens, their texts do not tell it: APIs show U+FFFD or nothing. Then the
tokens of the prompt alone tell where the target begins.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cotext.runtime.errors import CotextError, shown

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Token:
    """A token as an API shows it, and its log-probability after those before it; the first has none."""

    text: str
    log_probability: float | None


@dataclass(frozen=True, slots=True)
class TargetToken:
    """A token of a target, and its log-probability (natural logarithm)."""

    text: str
    log_probability: float


class UntoldError(CotextError):
    """An answer without the log-probabilities that were asked for."""


class NoBoundaryError(CotextError):
    """A target that does not begin where a token does, or whose tokens are not told from others."""


def target_tokens(
    tokens: Sequence[Token], target: str, prompt_alone: Callable[[], Sequence[Token]]
) -> tuple[TargetToken, ...]:
    """The last of the tokens, which together are the target; `prompt_alone` asks for those of its prompt.

    Raises:
        NoBoundaryError: there are none.
        UntoldError: one of them has no log-probability.
    """
    count = _counted(tokens, target)
    if count is None:
        count = _after(prompt_alone(), tokens, target)
    return tuple(_of_target(token) for token in tokens[len(tokens) - count :])


def _of_target(token: Token) -> TargetToken:
    # A hair above zero is rounding of a server that computes in half precision.
    if token.log_probability is None or not token.log_probability < 0.01:
        raise UntoldError(
            f"the API tells {token.log_probability} as the log-probability of the token {shown(token.text)}; "
            "choose another server, or judge by generation"
        )
    return TargetToken(token.text, token.log_probability)


def _counted(tokens: Sequence[Token], target: str) -> int | None:
    """The number of tokens at the end that spell the target; None where their texts do not tell it."""
    rest, count = target, 0
    for token in reversed(tokens):
        if not rest:
            return None if _divides(token) else count
        if _divides(token):
            return None
        if not rest.endswith(token.text):
            raise _straddled(token, rest, target)
        rest = rest.removesuffix(token.text)
        count += 1
    if rest:
        raise NoBoundaryError(f"the API tells no tokens for the beginning of {shown(target)}")
    return count


def _straddled(token: Token, rest: str, target: str) -> NoBoundaryError:
    if token.text.endswith(rest):
        return NoBoundaryError(
            f"the token {shown(token.text)} holds the beginning of the target {shown(target)} and what "
            "stands before it in the prompt: the target has no score of its own; end the template in another "
            "way, best in a line end"
        )
    return NoBoundaryError(
        f"the API tells tokens that do not spell the target {shown(target)}: {shown(token.text)} where "
        f"{shown(rest[-len(token.text) :])} stands"
    )


def _divides(token: Token) -> bool:
    """Whether a token may be a part of a character."""
    return not token.text or REPLACEMENT in token.text


def _spells(parts: Sequence[str], target: str) -> bool:
    """Whether a target has these parts, and between two of them a character that is not known, or several."""
    first, *others = parts
    if not others:
        return first == target
    last, at = others.pop(), len(first)
    for part in others:
        found = target.find(part, at + 1)
        if found < 0:
            return False
        at = found + len(part)
    return target.startswith(first) and at + 1 + len(last) <= len(target) and target.endswith(last)


def _after(prompt: Sequence[Token], tokens: Sequence[Token], target: str) -> int:
    """The number of tokens after those of the prompt, if these are the same without the target."""
    texts = [token.text for token in tokens]
    count = len(tokens) - len(prompt)
    if texts[: len(prompt)] != [token.text for token in prompt]:
        raise NoBoundaryError(
            f"the tokens of the prompt are others where the target {shown(target)} follows: it has no score "
            "of its own; end the template in another way, best in a line end"
        )
    spelled = "".join(texts[len(prompt) :])
    if not _spells(re.split(f"{REPLACEMENT}+", spelled), target):
        raise NoBoundaryError(f"the API tells tokens that do not spell the target {shown(target)}")
    return count
