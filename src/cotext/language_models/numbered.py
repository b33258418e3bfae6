"""Numbered sentences: written into a prompt, and read from an answer that must have the same numbers.

    [1] The cat sleeps.
    [2] It is tired.

Every sentence is on a line of its own. An answer is taken where its numbers are 1, 2, ... to the last, each
once and in order, each with something behind it. Before the first and behind the last there may be a fence,
words of introduction, thoughts or a remark, which are left out and told; anything else is no answer, since
nobody could say which sentence it is of.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

# Also "[1]: text", as some models write it.
_LINE: Final = re.compile(r"[ \t]*\[([0-9]{1,6})\](?:[:.](?=[ \t]|$))?(.*)")
_FENCE: Final = re.compile(r"[ \t]*(```|~~~)[\w-]*[ \t]*")
_THOUGHTS: Final = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]+")
_REFUSAL: Final = re.compile(
    r"(?i)(i['’]m|i am) (very )?sorry\b|sorry, (but )?i\b|(i['’]m|i am) (unable|not able)\b"
    r"|i (cannot|can['’]t|won['’]t|will not)\b|as an ai\b|unfortunately, i\b"
)


class UnusableError(Exception):
    """An answer that holds no translation of what was asked for; the message completes "the answer ...".

    `smaller`: to ask for the same again would not help, but for less.
    """

    def __init__(self, problem: str, smaller: bool = False) -> None:
        super().__init__(problem)
        self.smaller = smaller


def one_line(text: str) -> str:
    """A text as one line: control characters and line ends are a space."""
    return _BREAKS.sub(" ", text).strip()


def numbered(sentences: Sequence[str]) -> str:
    """Sentences with their numbers, each on a line of its own."""
    return "\n".join(f"[{number}] {one_line(text)}" for number, text in enumerate(sentences, 1))


def read_numbered(text: str, count: int) -> tuple[list[str], list[str]]:
    """The sentences of an answer, and what was left out of it.

    Raises:
        UnusableError: not `count` numbered sentences.
    """
    text, left_out = _without_thoughts(text)
    lines = text.replace("\r\n", "\n").split("\n")
    found = [(place, match) for place, line in enumerate(lines) if (match := _LINE.fullmatch(line))]
    numbers = [int(match[1]) for _, match in found]
    if numbers != list(range(1, count + 1)):
        raise UnusableError(_numbers_problem(numbers, count))
    places = [place for place, _ in found]
    for first, second in pairwise(places):
        if any(line.strip() for line in lines[first + 1 : second]):
            raise UnusableError("has text between the numbered lines")
    before, behind = lines[: places[0]], lines[places[-1] + 1 :]
    if any(line.strip() and not _FENCE.fullmatch(line) for line in before):
        left_out.append("an introduction")
    rest = [line for line in behind if line.strip()]
    if any(map(_FENCE.fullmatch, [*before, *rest])):
        left_out.append("a fence")
    remark = [line for line in rest if not _FENCE.fullmatch(line)]
    if remark:
        # Right behind the last sentence it may be a part of it.
        if behind[0].strip() and not _FENCE.fullmatch(behind[0]):
            raise UnusableError("has text right behind the last numbered line")
        left_out.append("a remark")
    return [one_line(match[2]) for _, match in found], left_out


def read_plain(text: str, target_language: str) -> tuple[str, list[str]]:
    """The one sentence of an answer without numbers, and what was left out of it.

    `target_language`: its code; a refusal in English is none of a translation into English.

    Raises:
        UnusableError: several lines, or a refusal.
    """
    text, left_out = _without_thoughts(text)
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    kept = [line for line in lines if not _FENCE.fullmatch(line)]
    if len(kept) < len(lines):
        left_out.append("a fence")
    if len(kept) == 2 and kept[0].rstrip().endswith(":"):
        del kept[0]
        left_out.append("an introduction")
    if len(kept) > 1:
        raise UnusableError(f"has {len(kept)} lines, where a sentence was asked for")
    sentence = one_line(kept[0]) if kept else ""
    if target_language != "en" and _REFUSAL.match(sentence):
        raise UnusableError("is a refusal")
    return sentence, left_out


def _without_thoughts(text: str) -> tuple[str, list[str]]:
    """A text without what a model thought before it answered, and whether there was any."""
    rest = _THOUGHTS.sub("", text, count=1) if _THOUGHTS.match(text) else text
    return rest, ["thoughts"] if rest != text else []


def _numbers_problem(numbers: Sequence[int], count: int) -> str:
    if not numbers:
        return "has no numbered lines"
    if len(numbers) != count:
        return f"has {len(numbers)} numbered lines, where {count} were asked for"
    return "has numbers that are not 1, 2, 3 and so on"
