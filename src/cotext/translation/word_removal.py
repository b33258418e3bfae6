"""Word alignment from probabilities: which target tokens lose by it that a source word is taken away.

The difference in log-probability, where it is positive (after the prediction difference of Li et al. 2019,
"On the word alignment from neural machine translation"). It needs no attention, but reads a row again for
every word of its longest sentence: every other sentence of the row loses one at a time.

Shapes: of a sentence, T target tokens, S source tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import torch
from torch import Tensor

from cotext.data.batch import Instance
from cotext.data.documents import ParallelDocument
from cotext.data.tokenizer import Tokenizer
from cotext.data.words import token_spans
from cotext.translation.scorer import DocumentRow, DocumentScorer, score_labels
from cotext.translation.terms.word_alignment import units

# Sentences of a row that lose a word at the same time are so far from each other: those between stay whole.
APART: Final = 2
MOST_NATS: Final = 10.0  # that one word adds to a token, which may be impossible without it


@dataclass(frozen=True, slots=True)
class _Removal:
    """A word of a current sentence that is taken away: where its scores will stand, and those with it."""

    document: int
    sentence: int  # in its document
    current: int  # which of the current sentences of the row
    tokens: list[int]  # of the word, by place in the sentence
    row: int
    whole: int


def differences(
    scorer: DocumentScorer, asked: Sequence[tuple[ParallelDocument, Sequence[int]]]
) -> list[dict[int, Tensor]]:
    """For every document, the weights [T, S] of its chosen sentences, by index; rows sum to one or are zero.

    The system must have probabilities of tokens (`ModelKind.token_nll`).

    Raises:
        CotextError: as `DocumentScorer.check_pairs`.
    """
    rows, groups = scorer.rows(asked)
    instances: list[Instance] = []
    together: list[range] = []
    removals: list[_Removal] = []
    wanted = [frozenset(chosen) for _, chosen in asked]

    def add(members: Sequence[Instance]) -> int:
        first = len(instances)
        instances.extend(replace(each, document=len(together)) for each in members)
        together.append(range(first, len(instances)))
        return first

    for group in groups:
        members = [rows[n] for n in group]
        whole = add([row.instance for _, row in members])
        words = [[_words(scorer.tokenizer, *pair) for pair in _current(row)] for _, row in members]
        longest = max((len(each) for of_row in words for each in of_row), default=0)
        for part, nth in product(range(APART), range(longest)):
            edited, begun = [row.instance for _, row in members], len(removals)
            for place, (document, row) in enumerate(members):
                for current in range(part, len(row.sentences), APART):
                    if nth < len(words[place][current]):
                        word = words[place][current][nth]
                        edited[place] = _without(edited[place], current, word)
                        at = len(instances) + place
                        removals.append(
                            _Removal(document, row.sentences[current], current, word, at, whole + place)
                        )
            if len(removals) > begun:
                add(edited)
    budget = scorer.config.decode.max_tokens
    scores = score_labels(scorer.model, instances, scorer.plan.symbols, budget, scorer.device, together)
    found: list[dict[int, Tensor]] = [{} for _ in asked]
    for document, row in rows:
        for sentence, (source, target) in zip(row.sentences, _current(row), strict=True):
            if sentence in wanted[document]:
                found[document][sentence] = torch.zeros(len(target), len(source), dtype=torch.float64)
    for each in removals:
        if each.sentence in wanted[each.document]:
            with_it, without = (
                torch.tensor(scores[row][each.current][:-1], dtype=torch.float64)
                for row in (each.whole, each.row)
            )
            lost = (with_it - without).nan_to_num(0.0).clamp(0.0, MOST_NATS)
            found[each.document][each.sentence][:, each.tokens] = lost[:, None] / len(each.tokens)
    return [{j: distributions(weights) for j, weights in of_document.items()} for of_document in found]


def _current(row: DocumentRow) -> list[tuple[list[int], list[int]]]:
    """The current sentences of a row, source and target."""
    window, instance = row.instance.window, row.instance
    return [
        (list(instance.source[j - window.source.start]), list(instance.target[j - window.target.start]))
        for j in window.current
    ]


def _words(tokenizer: Tokenizer, tokens: Sequence[int], target: Sequence[int]) -> list[list[int]]:
    """The places of the tokens of each word of a sentence; tokens that show nothing are of that before.

    None where there is nothing to be told: of a sentence without tokens on a side, or of a single word.
    """
    if not tokens or not target:
        return []
    text = tokenizer.decode(tokens, "source")
    parts = units(text)
    found: list[list[int]] = []
    part = 0
    for place, (start, stop) in enumerate(token_spans(tokenizer, tokens, text, "source")):
        before = part
        while stop > start and part + 1 < len(parts) and parts[part].stop <= start:
            part += 1
        if found and part == before:
            found[-1].append(place)
        else:
            found.append([place])
    return found if len(found) > 1 else []


def _without(instance: Instance, current: int, word: Sequence[int]) -> Instance:
    """The same without these tokens of one of its current sentences."""
    place = instance.window.current[current] - instance.window.source.start
    source = list(instance.source)
    source[place] = [token for i, token in enumerate(source[place]) if i not in word]
    return replace(instance, source=source)


def distributions(weights: Tensor) -> Tensor:
    """Weights whose rows sum to one, but for rows of nothing."""
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
