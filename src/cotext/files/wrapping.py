"""Lines broken at a fixed width: detected, joined to paragraphs, and broken again."""

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

WIDTHS: Final = range(40, 121)  # characters of a line that somebody has broken by its width
FEWEST_BREAKS: Final = 3
_SENTENCE_ENDS: Final = (".", "!", "?", "…", ":", ";", ".”", '."', ".“", ".)", "。", "！", "？")


def wrap_width(lines: Sequence[str]) -> int:
    """The width at which lines are broken; 0 where no width explains where they end.

    A break is explained by a width where the first word of the next line would have gone beyond it. At least
    three have to be, half of them inside a sentence, a quarter of all, and seven in ten of those behind lines
    of more than half the width: shorter lines are breaks that somebody meant. Of one sentence a line, lines
    end anywhere.
    """
    breaks = [(a.rstrip(), b.split()[0]) for a, b in pairwise(lines) if _is_text(a) and _is_text(b)]
    width = max((len(line) for line, _ in breaks), default=0)
    explained = [line for line, word in breaks if breaks_at(width, line, word)]
    if len(explained) < FEWEST_BREAKS or width not in WIDTHS:
        return 0
    long = sum(2 * len(line) > width for line, _ in breaks)
    inside = sum(not line.endswith(_SENTENCE_ENDS) for line in explained)
    share = 4 * len(explained) >= len(breaks) and 10 * len(explained) >= 7 * long
    return width if share and 2 * inside >= len(explained) else 0


def breaks_at(width: int, line: str, word: str) -> bool:
    """Whether a line is so long that the next word does not fit into the width."""
    return len(line.rstrip()) + 1 + len(word) > width


def ends_sentence(line: str) -> bool:
    """Whether a line ends as a sentence, or what introduces a list, does."""
    return line.rstrip().endswith(_SENTENCE_ENDS)


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most so many characters, words never broken."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def spread(text: str, lengths: Sequence[int]) -> list[str]:
    """A text in exactly as many lines as there are lengths, its words shared out in proportion to them.

    Every line has a word, as long as there are words; a text in a script without spaces is cut anywhere.
    """
    words = text.split()
    between = " "
    if len(words) < len(lengths):
        words, between = list("".join(words)), ""
    whole, total = sum(lengths), sum(map(len, words))
    lines: list[str] = []
    taken = at = done = 0
    for number, length in enumerate(lengths):
        done += length
        start, most = at, len(words) - (len(lengths) - number - 1)
        while at < most and (at == start or (taken + len(words[at]) / 2) * whole <= done * total):
            taken += len(words[at])
            at += 1
        lines.append(between.join(words[start:at]))
    lines[-1] = between.join(filter(None, [lines[-1], *words[at:]]))
    return lines


def _is_text(line: str) -> bool:
    return any(map(str.isalpha, line)) and " " in line.strip()
