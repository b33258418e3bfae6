"""Word alignment from probabilities: which target tokens lose by it that a source word is taken away.

The difference in log-probability, where it is positive (after the prediction difference of Li et al. 2019,
"On the word alignment from neural machine translation"). It needs no attention, but reads a row once more
for every word of a sentence.

Shapes: of a sentence, T target tokens, S source tokens.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from cotext.data.batch import Instance
from cotext.data.documents import ParallelDocument
from cotext.data.token_spans import token_spans
from cotext.data.tokenizer import Tokenizer
from cotext.decoding.scorer import DocumentRow, DocumentScorer, score_labels
from cotext.files.word_alignment import units

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
    found: list[dict[int, Tensor]] = [{} for _ in asked]
    wanted = [frozenset(chosen) for _, chosen in asked]

    def add(members: Sequence[Instance]) -> int:
        first = len(instances)
        instances.extend(replace(each, document=len(together)) for each in members)
        together.append(range(first, len(instances)))
        return first

    for group in groups:
        members = [rows[n][1].instance for n in group]
        whole = add(members)
        for place, n in enumerate(group):
            document, row = rows[n]
            for current, sentence, source, length in _chosen(row, wanted[document]):
                found[document][sentence] = torch.zeros(length, len(source), dtype=torch.float64)
                words = _words(scorer.tokenizer, source)
                if len(words) == 1:
                    found[document][sentence][:] = 1 / len(source)
                    continue
                for word in words:
                    one_less = [token for i, token in enumerate(source) if i not in word]
                    edited = _with_source(row.instance, current, one_less)
                    at = add([*members[:place], edited, *members[place + 1 :]]) + place
                    removals.append(_Removal(document, sentence, current, word, at, whole + place))
    budget = scorer.config.decode.max_tokens
    scores = score_labels(scorer.model, instances, scorer.plan.symbols, budget, scorer.device, together)
    for each in removals:
        with_it, without = (
            torch.tensor(scores[row][each.current][:-1], dtype=torch.float64)
            for row in (each.whole, each.row)
        )
        lost = (with_it - without).nan_to_num(0.0).clamp(0.0, MOST_NATS)
        found[each.document][each.sentence][:, each.tokens] = lost[:, None] / len(each.tokens)
    return [{j: distributions(weights) for j, weights in of_document.items()} for of_document in found]


def _chosen(row: DocumentRow, chosen: Container[int]) -> Iterator[tuple[int, int, list[int], int]]:
    """The chosen current sentences of a row that have tokens on both sides.

    Which of the row and of the document it is, its source tokens, and the number of target tokens.
    """
    window = row.instance.window
    for current, (j, sentence) in enumerate(zip(window.current, row.sentences, strict=True)):
        source = row.instance.source[j - window.source.start]
        target = row.instance.target[j - window.target.start]
        if sentence in chosen and source and target:
            yield current, sentence, list(source), len(target)


def _words(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[list[int]]:
    """The places of the tokens of each word of a sentence; tokens that show nothing are of that before."""
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
    return found


def _with_source(instance: Instance, current: int, tokens: list[int]) -> Instance:
    window = instance.window
    place = window.current[current] - window.source.start
    return replace(
        instance, source=[tokens if k == place else each for k, each in enumerate(instance.source)]
    )


def distributions(weights: Tensor) -> Tensor:
    """Weights whose rows sum to one, but for rows of nothing."""
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
