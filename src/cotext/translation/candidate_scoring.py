"""Candidate scoring: probabilities of several translations of one source, with one pass for their prefix.

    rows of a group   bos a b c | x d eos          one prefix: all inputs before the first that differs
                      bos a b c | y z d eos        two continuations

The source is encoded and the prefix decoded once. Then the state is widened as for a beam, and all
continuations are decoded in one call. Nothing is decoded after the last sentence to score. The scores equal
those of rows that are scored one by one.

Shapes: B groups, W distinct rows of a group, R rows (R = B * W), P tokens of a prefix, T tokens of a
continuation, N labels, M hidden states (B * P + R * T), D model.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cotext.data.batch import Instance, SpecialSymbols, TargetRow, padded, source_batch, target_row
from cotext.data.documents import ParallelDocument
from cotext.data.tokenizer import Side, Tokenizer
from cotext.data.views import Window
from cotext.models.interface import TranslationModel
from cotext.search.likelihood import negative_log_likelihood
from cotext.translation.scorer import (
    DocumentRow,
    DocumentScorer,
    SentenceScore,
    document_rows,
    require_finite,
)

Ids = NDArray[np.int64]
MANY_ROWS = 32  # with smaller batches, the processor is not fully used
MOST_PADDED = 1.25  # largest ratio of tokens with to without padding, in batches of more rows


KnownTokens = dict[tuple[Side, str], list[int]]  # by side and sentence


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """A document, several translations of it, and the indices of the sentences to compare."""

    source: Sequence[str]
    candidates: Sequence[Sequence[str]]
    compared: Sequence[int]


@dataclass(slots=True)
class _Group:
    """The same window of several candidates, as distinct rows that end after the last sentence to score.

    `scored`: the sentences from the first to the last compared one; 0 is the first source sentence of the
    row. `compared`: indices into `scored`. `row_of`: the row of each candidate. `shared`: length of the
    common prefix of the inputs. `scores`: scores of the scored sentences, by row, once computed.
    """

    candidate_set: int
    first: Instance
    scored: range
    compared: list[int]
    row_of: dict[int, int]
    rows: list[TargetRow]
    shared: int
    scores: list[list[SentenceScore]] = field(default_factory=list)

    @property
    def longest(self) -> int:
        """Length of the longest continuation; 0 with one row."""
        return max(len(row.inputs) for row in self.rows) - self.shared


def score_candidates(
    scorer: DocumentScorer, candidate_sets: Sequence[CandidateSet], known: KnownTokens | None = None
) -> list[list[SentenceScore]]:
    """Return the summed scores of the compared sentences of every candidate, in context.

    `known`: the tokens of sentences, kept for further calls about the same documents.

    Equal to `DocumentScorer.score_sentences` with each candidate as a document. That method is used for
    engines, non-autoregressive models, systems with a language model, and models whose rows attend to each
    other.
    """
    plan = scorer.plan
    if plan.kind.path is not None or plan.kind.forced_pass is None or plan.sees_other_rows:
        documents = [
            (ParallelDocument("", tuple(c.source), tuple(candidate)), c.compared)
            for c in candidate_sets
            for candidate in c.candidates
        ]
        sums = iter(scorer.score_sentences(documents))
        return [list(islice(sums, len(c.candidates))) for c in candidate_sets]
    model = cast(TranslationModel, scorer.model)  # all other models were excluded above
    known = {} if known is None else known
    _encode(scorer.tokenizer, known, "source", (c.source for c in candidate_sets))
    _encode(scorer.tokenizer, known, "target", (text for c in candidate_sets for text in c.candidates))
    groups: list[_Group] = []
    for number, candidate_set in enumerate(candidate_sets):
        groups += _groups(scorer, number, candidate_set, known)
    with torch.inference_mode():
        for batch in _packed(groups, plan.symbols, scorer.config.decode.max_tokens):
            for group, scores in zip(batch, _score(model, batch, plan.symbols, scorer.device), strict=True):
                group.scores = scores
    totals = [[[0.0, 0] for _ in c.candidates] for c in candidate_sets]
    for group in groups:
        for candidate, row in group.row_of.items():
            require_finite(group.scores[row])
            for k in group.compared:
                totals[group.candidate_set][candidate][0] += group.scores[row][k].log_probability
                totals[group.candidate_set][candidate][1] += group.scores[row][k].tokens
    return [[SentenceScore(p, int(n)) for p, n in members] for members in totals]


def _encode(tokenizer: Tokenizer, known: KnownTokens, side: Side, documents: Iterable[Sequence[str]]) -> None:
    """Add the tokens of the sentences of documents, each encoded once."""
    texts = dict.fromkeys((side, sentence) for document in documents for sentence in document)
    new = [text for text in texts if text not in known]
    known.update(zip(new, tokenizer.encode_batch([text for _, text in new], side), strict=True))


def _groups(
    scorer: DocumentScorer,
    number: int,
    candidate_set: CandidateSet,
    known: KnownTokens,
) -> Iterator[_Group]:
    """Yield the windows with compared sentences."""
    source = [known["source", s] for s in candidate_set.source]
    # The key includes the non-empty sentences: which sentences are empty on both sides depends on the
    # candidate.
    alike: dict[tuple[tuple[int, ...], Window], dict[int, DocumentRow]] = {}
    for candidate, sentences in enumerate(candidate_set.candidates):
        target = [known["target", s] for s in sentences]
        kept, groups = document_rows(scorer.plan, source, target, candidate_set.compared)
        for [row] in groups:
            alike.setdefault((tuple(kept), row.instance.window), {})[candidate] = row
    for members in alike.values():
        first = next(iter(members.values()))
        pairs = zip(first.instance.window.current, first.sentences, strict=True)
        compared = [i - first.instance.first_sentence for i, j in pairs if j in candidate_set.compared]
        instances = {candidate: row.instance for candidate, row in members.items()}
        yield _group(number, instances, compared, scorer.plan.symbols)


def _group(
    number: int, instances: dict[int, Instance], compared: Sequence[int], symbols: SpecialSymbols
) -> _Group:
    """Return a group; `compared` counts from the first source sentence of the row."""
    scored = range(compared[0], compared[-1] + 1)
    numbers: dict[tuple[tuple[int, ...], ...], int] = {}
    row_of, rows = {}, []
    for candidate, instance in instances.items():
        key = tuple(tuple(int(t) for t in s) for s in instance.target)
        if key not in numbers:
            numbers[key] = len(numbers)
            row = target_row(instance, symbols)
            needed = int(np.searchsorted(row.label_sentence, scored.stop))
            sides = row.inputs, row.input_sentence, row.labels, row.label_sentence
            rows.append(TargetRow(*(side[:needed] for side in sides)))
        row_of[candidate] = numbers[key]
    # The common prefix ends at the first input that differs in token or sentence.
    shared = len(rows[0].inputs)
    for row in rows[1:]:
        shared = min(shared, len(row.inputs))
        same = row.inputs[:shared] == rows[0].inputs[:shared]
        same &= row.input_sentence[:shared] == rows[0].input_sentence[:shared]
        shared = shared if same.all() else int(same.argmin())
    first = next(iter(instances.values()))
    return _Group(number, first, scored, [k - scored.start for k in compared], row_of, rows, shared)


def _packed(groups: Sequence[_Group], symbols: SpecialSymbols, max_tokens: int) -> Iterator[list[_Group]]:
    """Yield batches of groups with the same number of rows.

    A batch has at most `max_tokens` tokens, with padding, or a single group. With more than MANY_ROWS rows,
    padding is limited by MOST_PADDED.
    """
    # Similar groups are next to each other, so batches have little padding.
    ordered = sorted(
        groups, key=lambda g: (len(g.rows), g.longest // 4, g.shared, g.first.source_tokens(symbols))
    )
    for width, alike in groupby(ordered, key=lambda g: len(g.rows)):
        batch: list[_Group] = []
        longest, real = (0, 0, 0), 0  # of source, prefix and continuation; tokens to be decoded
        for group in alike:
            own = group.first.source_tokens(symbols), group.shared, group.longest
            own_real = sum(len(row.inputs) for row in group.rows) - (width - 1) * group.shared
            source, prefix, continuation = map(max, longest, own)
            decoded, count = prefix + width * continuation, len(batch) + 1
            wasteful = count * width > MANY_ROWS and count * decoded > MOST_PADDED * (real + own_real)
            if batch and (wasteful or count * max(source, decoded) > max_tokens):
                yield batch
                batch, longest, real = [group], own, own_real
            else:
                batch.append(group)
                longest, real = (source, prefix, continuation), real + own_real
        yield batch


def _score(
    model: TranslationModel, groups: Sequence[_Group], symbols: SpecialSymbols, device: torch.device
) -> list[list[list[SentenceScore]]]:
    """Return the scores of groups with the same number of rows, by group, row and sentence."""
    width = len(groups[0].rows)
    hidden_MD, longest_prefix, longest = _hidden(model, groups, symbols, device)
    # `state` and `label`: the hidden state and label of every distinct prediction. `entry` and `slot`: for
    # every label of every row, the index of its prediction, and of the sum to which it is added. The labels
    # of the common prefix are predicted only once.
    state: list[Ids] = []
    label: list[Ids] = []
    entry: list[Ids] = []
    slot: list[Ids] = []
    entries = slots = 0
    for b, g in enumerate(groups):
        common = g.shared - 1 if width > 1 else g.shared  # the last state of the prefix has several labels
        for w in range(width):
            at = np.flatnonzero(g.rows[w].label_sentence >= g.scored.start)
            mine = at if w == 0 else at[at >= common]
            state.append(
                np.where(
                    mine < g.shared,
                    b * longest_prefix + mine,
                    len(groups) * longest_prefix + (b * width + w) * longest + mine - g.shared,
                )
            )
            label.append(g.rows[w].labels[mine])
            # The first row predicts the common labels; the other rows refer to these predictions.
            own = np.arange(entries, entries + len(mine))
            entries += len(mine)
            if w == 0:
                before = own[mine < common]
            entry.append(own if w == 0 else np.concatenate((before, own)))
            slot.append(slots + g.rows[w].label_sentence[at] - g.scored.start)
            slots += len(g.scored)
    picked = torch.from_numpy(np.concatenate(state)).to(device)
    label_N = torch.from_numpy(np.concatenate(label)).to(device)
    nll_N = negative_log_likelihood(model, hidden_MD[picked], label_N).double().cpu()
    slot_N = torch.from_numpy(np.concatenate(slot))
    totals = torch.zeros(slots, dtype=torch.float64)
    totals.index_add_(0, slot_N, nll_N[torch.from_numpy(np.concatenate(entry))])
    counts = torch.bincount(slot_N, minlength=slots)
    scores = map(SentenceScore, (-totals).tolist(), counts.tolist())
    return [[list(islice(scores, len(g.scored))) for _ in range(width)] for g in groups]


def _hidden(
    model: TranslationModel, groups: Sequence[_Group], symbols: SpecialSymbols, device: torch.device
) -> tuple[Tensor, int, int]:
    """Return hidden states of prefixes [B * P], then of continuations [R * T]; also P and T."""
    state = model.encode(source_batch([g.first for g in groups], symbols).to(device))
    longest = max(g.longest for g in groups)
    prefixes = [(g.rows[0].inputs[: g.shared], g.rows[0].input_sentence[: g.shared]) for g in groups]
    tokens, sentence = (side.to(device) for side in padded(prefixes, symbols.pad))
    if longest:
        state.open(tokens.size(1) + longest)
    hidden_BPD = model.decode(tokens, sentence, state)
    if not longest:
        return hidden_BPD.flatten(0, 1), tokens.size(1), 0
    # All rows of a group share the prefix, like the beams of a search.
    state.widen(len(groups[0].rows))
    rest = []
    for g in groups:
        for row in g.rows:
            # A row that is all prefix repeats its last token, unscored: no row may be only padding.
            start = min(g.shared, len(row.inputs) - 1)
            rest.append((row.inputs[start:], row.input_sentence[start:]))
    after, after_sentence = (side.to(device) for side in padded(rest, symbols.pad))
    hidden_RTD = model.decode(after, after_sentence, state)
    return torch.cat((hidden_BPD.flatten(0, 1), hidden_RTD.flatten(0, 1))), tokens.size(1), after.size(1)
