"""Word alignment of translated sentences, from the model that translates.

    autoregressive      the cross-attention of the decoder step that writes a target token
    non-autoregressive  the cross-attention of the positions that the best CTC path assigns to the token
    engines             no attention is available

Attention is averaged over heads and the last layers, restricted to the tokens of the source sentence itself,
and normalised. In the lower layers of deep models, a decoder step attends to the source word of its input
token (Chen et al. 2020, section 3). In the models measured here, it attends in every layer to the source word
of the token that it writes. So the attention of this step is read.

In two cases, attention is not reliable: non-autoregressive models attend to the source before any token is
decided; and if positions are part of the cross-attention scores (`model.cross.score`), weights depend on
positions as well as on words. Attention is then averaged with the effect that each source word has on the
probability of the token (`differences`). For engines, only this effect is available; for models without token
probabilities, only attention.

To read attention, every document is decoded once with its translation, as in scoring.

Shapes of the attention of a batch: B rows, H heads, T queries, S keys. Shapes of a sentence: T target tokens,
F queries, S source tokens.
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
from cotext.data.words import token_spans, word_units
from cotext.models.attention_weights import attention_of, distributions
from cotext.translation.scorer import DocumentRow, DocumentScorer, score_labels
from cotext.translation.terms.word_alignment import SentenceAlignment, proportional

# --- Word alignment from probabilities: which target tokens become less likely without a source word.
#
# The effect of a word is the loss of log-probability without it, at least 0 (similar to Li et al. 2019, "On
# the word alignment from neural machine translation"). No attention is needed, but a row is read again up to
# twice for every word of the longest sentence in its group. Each time, every second sentence loses a word.
#
# Shapes of a sentence: T target tokens, S source tokens.


APART: Final = 2  # distance of sentences that lose a word at the same time; sentences between them keep all
MOST_NATS: Final = 10.0  # upper bound of effects: a token may be impossible without a word


@dataclass(frozen=True, slots=True)
class _Removal:
    """A word that is removed from a current sentence, and the rows with and without it."""

    document: int
    sentence: int  # in its document
    current: int  # index among the current sentences of the row
    tokens: list[int]  # indices of the word's tokens in the sentence
    row_without_word: int  # indices of rows in the list of instances
    row_with_word: int


def differences(
    scorer: DocumentScorer, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
) -> list[dict[int, Tensor]]:
    """Return, for every document, the weights [T, S] of its chosen sentences; each row sums to one or zero.

    The system must have token probabilities (`ModelKind.token_nll`). Raises the errors of
    `DocumentScorer.check_pairs`.
    """
    rows, groups = scorer.rows(documents)
    instances: list[Instance] = []
    together: list[range] = []
    removals: list[_Removal] = []
    chosen = [frozenset(indices) for _, indices in documents]

    def add(members: Sequence[Instance]) -> int:
        first = len(instances)
        instances.extend(replace(instance, document=len(together)) for instance in members)
        together.append(range(first, len(instances)))
        return first

    for group in groups:
        members = [rows[n] for n in group]
        complete = add([row.instance for _, row in members])
        words = [[_words(scorer.tokenizer, *pair) for pair in _current(row)] for _, row in members]
        longest = max((len(sentence) for row_words in words for sentence in row_words), default=0)
        # One pass for each word of the longest sentence and each of APART sets of sentences.
        for part, nth in product(range(APART), range(longest)):
            edited, begun = [row.instance for _, row in members], len(removals)
            for place, (document, row) in enumerate(members):
                for current in range(part, len(row.sentences), APART):
                    if nth < len(words[place][current]):
                        word = words[place][current][nth]
                        edited[place] = _without(edited[place], current, word)
                        at = len(instances) + place
                        removals.append(
                            _Removal(document, row.sentences[current], current, word, at, complete + place)
                        )
            if len(removals) > begun:
                add(edited)
    scores = score_labels(scorer.to_read(instances, together))
    results: list[dict[int, Tensor]] = [{} for _ in documents]
    for document, row in rows:
        for sentence, (source, target) in zip(row.sentences, _current(row), strict=True):
            if sentence in chosen[document]:
                results[document][sentence] = torch.zeros(len(target), len(source), dtype=torch.float64)
    # The effect of a word is divided among its tokens.
    for removal in removals:
        if removal.sentence in chosen[removal.document]:
            with_it, without = (
                torch.tensor(scores[row][removal.current][:-1], dtype=torch.float64)
                for row in (removal.row_with_word, removal.row_without_word)
            )
            lost = (with_it - without).nan_to_num(0.0).clamp(0.0, MOST_NATS)
            weights = results[removal.document][removal.sentence]
            weights[:, removal.tokens] = lost[:, None] / len(removal.tokens)
    return [{j: distributions(weights) for j, weights in by_sentence.items()} for by_sentence in results]


def _current(row: DocumentRow) -> list[tuple[list[int], list[int]]]:
    """Return source and target of the current sentences of a row."""
    window, instance = row.instance.window, row.instance
    return [
        (list(instance.source[j - window.source.start]), list(instance.target[j - window.target.start]))
        for j in window.current
    ]


def _words(tokenizer: Tokenizer, tokens: Sequence[int], target: Sequence[int]) -> list[list[int]]:
    """Return the token indices of each word of a sentence; an invisible token belongs to the word before it.

    The result is empty if there is nothing to align: a side has no tokens, or there is only one word.
    """
    if not tokens or not target:
        return []
    text = tokenizer.decode(tokens, "source")
    parts = word_units(text)
    words: list[list[int]] = []
    part = 0
    for place, (start, stop) in enumerate(token_spans(tokenizer, tokens, text, "source")):
        before = part
        while stop > start and part + 1 < len(parts) and parts[part].stop <= start:
            part += 1
        if words and part == before:
            words[-1].append(place)
        else:
            words.append([place])
    return words if len(words) > 1 else []


def _without(instance: Instance, current: int, word: Sequence[int]) -> Instance:
    """Return the instance without these tokens of one of its current sentences."""
    place = instance.window.current[current] - instance.window.source.start
    source = list(instance.source)
    source[place] = [token for i, token in enumerate(source[place]) if i not in word]
    return replace(instance, source=source)


POSITIONAL: Final = ("absolute", "positions")  # scores with positions in every cross-attention


def align(
    scorer: DocumentScorer, pairs: Sequence[ParallelDocument], chosen: Sequence[Sequence[int]] | None = None
) -> list[list[SentenceAlignment]]:
    """Return the alignments of the chosen sentences of every document, in the given order; None: of all.

    Args:
        scorer: The system, such as a `DocumentTranslator`.
        pairs: Documents with their translations, by any system.
        chosen: Indices of sentences, by document; only their windows are read.

    Raises:
        CotextError: a sentence that is too long to be scored.
    """
    sentences = chosen or [range(len(pair.source)) for pair in pairs]
    documents = list(zip(pairs, sentences, strict=True))
    kind, readings = scorer.plan.kind, []
    if kind.forced_pass is not None:
        readings.append(scorer.read(documents, attention_of))
    # Attention suffices only in autoregressive systems without positions in cross-attention scores.
    in_place = scorer.plan.config.model.stack("cross").score in POSITIONAL
    suffices = kind.forced_pass is not None and kind.path is None and not in_place
    if kind.token_nll is not None and not suffices:
        readings.append(differences(scorer, documents))
    alignments = []
    for n, (pair, indices) in enumerate(documents):
        weights = {j: [reading[n][j] for reading in readings if j in reading[n]] for j in indices}
        alignments.append([_sentence_alignment(scorer, pair, j, weights[j]) for j in indices])
    return alignments


def _sentence_alignment(
    scorer: DocumentScorer, pair: ParallelDocument, j: int, read: Sequence[Tensor]
) -> SentenceAlignment:
    """Return the mean of the weights `read` for a sentence, with the characters of each token.

    Without weights, tokens are aligned by their relative position.
    """
    source, target = pair.source[j], pair.target[j]
    weights = sum(read, torch.zeros(()))
    if not bool(weights.any()):
        return proportional(source, target)
    tokenizer = scorer.tokenizer
    source_spans = token_spans(tokenizer, tokenizer.encode(source), source, "source")
    target_spans = token_spans(tokenizer, tokenizer.encode(target, "target"), target, "target")
    return SentenceAlignment(tuple(source_spans), tuple(target_spans), distributions(weights))
