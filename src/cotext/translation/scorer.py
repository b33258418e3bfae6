"""Scoring: the probability of given translations, sentence by sentence, in context.

No other code converts documents with translations into rows. Documents are split into windows as in training,
sentence pairs without tokens are dropped, and every row has the indices of its current sentences. The score
of a sentence is the sum of the log-probabilities of its labels, closing symbol included.
"""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cotext.data.batch import Batch, Instance, SpecialSymbols, TargetRow, padded, source_batch, target_row
from cotext.data.documents import Document, ParallelDocument
from cotext.data.tokenizer import Side, Tokenizer, clean
from cotext.data.views import Encoded, Window, cut_document, group_of
from cotext.models.interface import Engine, Model, TranslationModel
from cotext.models.likelihood import RowsToRead, negative_log_likelihood, sentence_of_label
from cotext.runtime import CotextError
from cotext.translation.plan import DecodingPlan, kind_of

# Upper bound of the mean number of characters per token. Longer texts are rejected before tokenisation,
# which would take memory in proportion to their length.
CHARACTERS_PER_TOKEN = 100
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """Log-probability of a sentence (natural logarithm), summed over `tokens` labels and closing symbol."""

    log_probability: float
    tokens: int


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A window with its translation, and the document indices of its current sentences."""

    instance: Instance
    sentences: list[int]


def document_rows(
    plan: DecodingPlan, source: Encoded, target: Encoded, chosen: Container[int] | None = None
) -> tuple[list[int], list[list[DocumentRow]]]:
    """Return the indices of non-empty sentences of a document, and its rows in groups that share a batch.

    `chosen`: only groups in which one of these sentences is current.
    """
    kept, windows = cut_document(plan.view, source, target)
    groups = []
    for first in range(0, len(windows), plan.group_windows):
        group = windows[first : first + plan.group_windows]
        if chosen is None or any(kept[j] in chosen for window in group for j in window.current):
            groups.append([_row(kept, window, source, target) for window in group])
    return kept, groups


def _row(kept: Sequence[int], window: Window, source: Encoded, target: Encoded) -> DocumentRow:
    sides = [source[kept[j]] for j in window.source], [target[kept[j]] for j in window.target]
    return DocumentRow(Instance(0, window, *sides), [kept[j] for j in window.current])


@torch.inference_mode()
def score_instances(rows: RowsToRead) -> list[list[SentenceScore]]:
    """Return the scores of the current sentences of every row."""
    scores: list[list[SentenceScore]] = [[] for _ in rows.instances]
    sentence_nll = kind_of(rows.model).sentence_nll
    for members, batch in rows.batches():
        nll = sentence_nll(rows.model, batch)
        labels = torch.bincount(sentence_of_label(batch), minlength=len(nll))
        sentence_scores = map(SentenceScore, (-nll).tolist(), labels.tolist())
        for i in members:
            scores[i] = list(islice(sentence_scores, len(rows.instances[i].window.current)))
    return scores


def score_labels(rows: RowsToRead) -> list[list[tuple[float, ...]]]:
    """Return the log-probabilities of all labels of every current sentence, closing symbol last.

    The model must have token probabilities (`ModelKind.token_nll`).
    """
    token_nll = kind_of(rows.model).token_nll
    assert token_nll is not None
    return read_labels(lambda model, batch: (-token_nll(model, batch)).tolist(), rows)


@torch.inference_mode()
def read_labels(values: Callable[[Any, Batch], list[T]], rows: RowsToRead) -> list[list[tuple[T, ...]]]:
    """Return the values of all labels of every current sentence; `values` computes those of a batch."""
    found: list[list[tuple[T, ...]]] = [[] for _ in rows.instances]
    for members, batch in rows.batches():
        of_labels = iter(values(rows.model, batch))
        for i in members:
            window, target = rows.instances[i].window, rows.instances[i].target
            lengths = [len(target[j - window.target.start]) + 1 for j in window.current]
            found[i] = [tuple(islice(of_labels, length)) for length in lengths]
    return found


def require_finite(scores: Iterable[SentenceScore], none_possible: bool = False) -> None:
    """Raise CotextError for scores that are NaN or infinite, which would silently lose every comparison.

    `none_possible`: a sentence may have probability 0.
    """
    worst = -math.inf if none_possible else None
    if not all(math.isfinite(s.log_probability) or s.log_probability == worst for s in scores):
        raise CotextError(
            "the log-probabilities of the model are not finite numbers; its weights may be damaged"
        )


# A function that reads the current sentences of rows: `score_instances`, `score_labels` or the like.
Reading = Callable[[RowsToRead], Sequence[Sequence[T]]]


class DocumentScorer:
    """A system that scores documents; its plan defines their context."""

    def __init__(
        self, model: Model | Engine, tokenizer: Tokenizer, device: torch.device, plan: DecodingPlan
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.device = device
        self.plan, self.config = plan, plan.config

    def check_pairs(self, documents: Iterable[ParallelDocument]) -> None:
        """Check that all documents can be scored.

        Raises CotextError if a source sentence is longer than `decode.max_source_tokens`, or a target
        sentence is longer than outputs may be.
        """
        for document in documents:
            self.encoded(document.id, document.source)
            self.encoded_target(document.id, document.target)

    def score(self, documents: Sequence[ParallelDocument]) -> list[list[SentenceScore]]:
        """Return the scores of all sentences of all documents, each in context.

        A sentence that is empty on both sides scores 0, with 0 tokens. Raises the errors of `check_pairs`.
        """
        return self._score([(document, range(len(document.source))) for document in documents])

    def score_sentences(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[SentenceScore]:
        return [
            SentenceScore(sum(s.log_probability for s in members), sum(s.tokens for s in members))
            for members in self._score(documents)
        ]

    def score_tokens(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[list[tuple[float, ...]]]:
        """Return the log-probabilities of the tokens of chosen sentences in context, closing symbols last.

        The result is empty for a sentence that is empty on both sides, or has no valid CTC alignment.

        Raises CotextError if the system has no token probabilities; or an error of `check_pairs`.
        """
        self.plan.require_token_probabilities()
        scores = self.read(documents, score_labels)
        for document_scores in scores:
            # With CTC, a sentence without a valid alignment has probability 0.
            if self.plan.kind.path is not None:
                for j in [j for j, tokens in document_scores.items() if -math.inf in tokens]:
                    del document_scores[j]
            require_finite(SentenceScore(sum(tokens), len(tokens)) for tokens in document_scores.values())
        return [[s.get(j, ()) for j in chosen] for s, (_, chosen) in zip(scores, documents, strict=True)]

    def visible_sentences(self, document: Document, own_row: bool = False) -> list[range]:
        """Return, for every sentence, the sentences that its translation may depend on, itself included.

        This holds for source and target. A sentence without tokens depends only on itself. `own_row`: leave
        out the sentences of other windows.
        """
        kept, windows = cut_document(self.plan.view, self.tokenizer.encode_batch(document.sentences))
        visible = [range(j, j + 1) for j in range(len(document.sentences))]
        for number, window in enumerate(windows):
            group = group_of(number, len(windows), 1 if own_row else self.plan.group_windows)
            first = min(windows[n].source.start for n in group)
            last = max(windows[n].source.stop for n in group) - 1
            for j in window.current:
                visible[kept[j]] = range(kept[first], kept[last] + 1)
        return visible

    def _score(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[list[SentenceScore]]:
        scores = self.read(documents, score_instances)
        for document_scores in scores:
            require_finite(document_scores.values(), none_possible=self.plan.kind.path is not None)
        empty = SentenceScore(0.0, 0)
        return [[s.get(j, empty) for j in chosen] for s, (_, chosen) in zip(scores, documents, strict=True)]

    def read(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]], reading: Reading[T]
    ) -> list[dict[int, T]]:
        """Apply a scoring function to rows of chosen sentences; return results by document and sentence."""
        rows, groups = self.rows(documents)
        row_results = reading(self.to_read([row.instance for _, row in rows], groups))
        results: list[dict[int, T]] = [{} for _ in documents]
        for (index, row), members in zip(rows, row_results, strict=True):
            results[index] |= zip(row.sentences, members, strict=True)
        return results

    def to_read(self, instances: Sequence[Instance], groups: Sequence[Sequence[int]]) -> RowsToRead:
        """Return rows with their groups, to read with this system."""
        budget = self.config.decode.max_tokens
        return RowsToRead(self.model, instances, self.plan.symbols, budget, self.device, groups)

    def rows(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> tuple[list[tuple[int, DocumentRow]], list[range]]:
        """Return the rows in which chosen sentences are current, with document indices, and their groups.

        The model treats every group as a separate document: groups of one document do not attend to each
        other. Raises the errors of `check_pairs`.
        """
        rows: list[tuple[int, DocumentRow]] = []
        groups: list[range] = []
        for index, (document, chosen) in enumerate(documents):
            source = self.encoded(document.id, document.source)
            target = self.encoded_target(document.id, document.target)
            _, document_groups = document_rows(self.plan, source, target, frozenset(chosen))
            for group in document_groups:
                # A separate number for every group, in place of the document index.
                ordinal = len(groups)
                groups.append(range(len(rows), len(rows) + len(group)))
                rows += [
                    (index, replace(row, instance=replace(row.instance, document=ordinal))) for row in group
                ]
        return rows, groups

    def encoded(self, document: str, sentences: Sequence[str]) -> list[list[int]]:
        """Tokenise source sentences of the document with this id; raise CotextError if one is too long."""
        most = self.config.decode.max_source_tokens
        return self._within(most, f"document {document}, sentence", sentences, "source")

    def encoded_target(self, document: str, sentences: Sequence[str]) -> list[list[int]]:
        """Tokenise target sentences; raise CotextError if one is longer than outputs may be."""
        decode = self.config.decode
        most = int(decode.max_ratio * decode.max_source_tokens) + decode.max_extra
        return self._within(most, f"document {document}, target sentence", sentences, "target")

    def _within(self, limit: int, which: str, sentences: Sequence[str], side: Side) -> list[list[int]]:
        most = limit * CHARACTERS_PER_TOKEN
        for number, text in enumerate(sentences, 1):
            # Cleaning may shorten a text; it is only needed if the raw text is too long.
            if len(text) > most and len(clean(text)) > most:
                raise self._too_long(f"{which} {number}: {len(text)} characters", limit)
        encoded = self.tokenizer.encode_batch(sentences, side)
        for number, tokens in enumerate(encoded, 1):
            if len(tokens) > limit:
                raise self._too_long(f"{which} {number}: {len(tokens)} tokens", limit)
        return encoded

    def _too_long(self, problem: str, limit: int) -> CotextError:
        return CotextError(
            f"{problem}, at most {limit} tokens are allowed; split it, or raise "
            f"decode.max_source_tokens (the model was trained on up to {self.config.view.max_tokens})"
        )


# --- Candidate scoring: probabilities of several translations of one source, with one pass for their prefix.
#
#     rows of a group   bos a b c | x d eos          one prefix: all inputs before the first that differs
#                       bos a b c | y z d eos        two continuations
#
# The source is encoded and the prefix decoded once. Then the state is widened as for a beam, and all
# continuations are decoded in one call. Nothing is decoded after the last sentence to score. The scores equal
# those of rows that are scored separately.
#
# Shapes: B groups, W distinct rows of a group, R rows (R = B * W), P tokens of a prefix, T tokens of a
# continuation, N labels, M hidden states (B * P + R * T), D model.


Ids = NDArray[np.int64]
MANY_ROWS = 32  # with smaller batches, the processor is not fully used
MOST_PADDED = 1.25  # with more rows: largest ratio of tokens including padding to those without


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
    """Add to `known` the tokens of the sentences that it lacks."""
    texts = dict.fromkeys((side, sentence) for document in documents for sentence in document)
    new = [text for text in texts if text not in known]
    known.update(zip(new, tokenizer.encode_batch([text for _, text in new], side), strict=True))


def _groups(
    scorer: DocumentScorer, number: int, candidate_set: CandidateSet, known: KnownTokens
) -> Iterator[_Group]:
    """Yield a group for each window that contains compared sentences."""
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
    """Return a group; `compared`: sentence indices, 0 for the first source sentence of the row."""
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
