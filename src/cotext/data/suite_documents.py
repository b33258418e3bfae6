"""The documents of the examples of a contrastive suite: examples of one are not independent."""

from collections.abc import Sequence

from cotext.data.contrastive_suites import ContrastiveExample


def documents_of(examples: Sequence[ContrastiveExample]) -> list[int]:
    """The number of its document for every example, counted from 0.

    Of one document are examples for which the suite names the same; where it names none, those of the same
    source, and consecutive examples that share a source sentence.
    """
    numbers: list[int] = []
    known: dict[str | tuple[str, ...], int] = {}
    count = 0
    for i, example in enumerate(examples):
        key = example.document or example.source
        if key not in known and i and _continues(examples[i - 1], example):
            known[key] = numbers[-1]
        elif key not in known:
            known[key] = count
            count += 1
        numbers.append(known[key])
    return numbers


def _continues(before: ContrastiveExample, example: ContrastiveExample) -> bool:
    named = bool(before.document or example.document)
    return not named and any(s.strip() and s in before.source for s in example.source)
