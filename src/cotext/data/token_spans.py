"""Where the tokens of a text stand in it, for every tokenizer that can decode."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from cotext.data.tokenizer import Side, Tokenizer


def token_spans(tokenizer: Tokenizer, tokens: Sequence[int], text: str, side: Side) -> list[tuple[int, int]]:
    """The span of characters of each token of a text: first, and one behind the last; empty where none shows.

    Found by decoding longer and longer beginnings, of which the characters that are no white space count; the
    normal form that the tokenizer encodes may differ from the text in some.
    """
    decoded = "".join(tokenizer.decode(tokens, side).split())
    places = [i for i, character in enumerate(text) if not character.isspace()]
    partners = _partners(decoded, "".join(text[i] for i in places))
    ends = [0]
    for n in range(1, len(tokens) + 1):
        shown = len("".join(tokenizer.decode(tokens[:n], side).split()))
        ends.append(max(ends[-1], min(shown, len(decoded))))
    found = []
    for first, last in pairwise(ends):
        a, b = partners[first], partners[last]
        start = places[a] if a < len(places) else len(text)
        found.append((start, places[b - 1] + 1 if b > a else start))
    return found


def _partners(one: str, other: str) -> list[int]:
    """For every place in a text and its end, the place in another that is much the same."""
    if len(one) == len(other):
        return list(range(len(one) + 1))
    found = [0] * (len(one) + 1)
    for _, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for i in range(a, b):
            found[i] = c + (i - a) * (d - c) // (b - a)
    found[-1] = len(other)
    return found
