"""Word differences between two texts."""

from difflib import SequenceMatcher


def differing(text: str, beside: str) -> list[tuple[str, bool]]:
    """The words of a text, and whether each differs from the text beside it."""
    words, others = text.split(), beside.split()
    kept = [False] * len(words)
    for block in SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks():
        kept[block.a : block.a + block.size] = [True] * block.size
    return [(word, not same) for word, same in zip(words, kept, strict=True)]
