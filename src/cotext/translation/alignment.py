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

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor, nn

from cotext.data.batch import Batch, Instance, Source, SpecialSymbols
from cotext.data.documents import ParallelDocument
from cotext.data.tokenizer import Tokenizer
from cotext.data.words import token_spans, word_units
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.layers.multi_head import CrossAttention
from cotext.layers.positions import is_current
from cotext.losses.ctc import Lattices, best_alignment, units
from cotext.models.interface import NonAutoregressiveModel
from cotext.runtime import CotextError
from cotext.search.likelihood import autoregressive_pass, forced_draft
from cotext.translation.plan import kind_of
from cotext.translation.scorer import DocumentRow, DocumentScorer, RowsToRead, score_labels
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


def distributions(weights: Tensor) -> Tensor:
    """Scale the rows of weights to a sum of one, except for rows of zeros."""
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


# --- The tokens of a batch, identified in recorded attention weights.
#
# Shapes: B rows, T tokens; B' and T' are the rows and places of a recorded attention, which may have another
# layout.


NOWHERE: Final = -1  # index of a key that is not a token of a row


@dataclass(frozen=True, slots=True)
class RowTokens:
    """The tokens of one side of a batch, with their sentences; extra tokens belong to no sentence."""

    sentence: Tensor  # [B, T] within the row, -1 on padding
    document: Tensor  # [B, T] within the document
    current: Tensor  # [B, T], True for tokens of current sentences

    @classmethod
    def of(cls, source: Source, extra: int, sentence_BT: Tensor) -> "RowTokens":
        """Create from the sentence of each token within its row, -1 on padding; `extra`: tokens in front."""
        sentence = torch.cat((sentence_BT[:, :extra], sentence_BT), dim=1)
        document = torch.where(sentence >= 0, sentence + source.first_sentence[:, None], NOWHERE)
        document[:, :extra] = NOWHERE
        return cls(sentence, document, is_current(sentence, source.current))

    def places(self, shown: Tensor) -> Tensor:
        """Return the index of the token at each place of an attention: [B', T'].

        `shown` [B', T'] is True for places that are not padding; tokens are in order. An attention may have
        all tokens of the rows, or only those of current sentences; and all rows may be joined to one.

        Raises CotextError if the number of places fits none of these layouts.
        """
        real = self.sentence >= 0
        place = torch.arange(real.numel(), device=real.device).view_as(real)
        counts, token_of_place = shown.sum(dim=1), torch.full(shown.shape, NOWHERE, device=shown.device)
        for tokens in (real, self.current):
            if torch.equal(counts, tokens.sum(dim=1)) or (len(counts) == 1 and counts == tokens.sum()):
                token_of_place[shown] = place[tokens]
                return token_of_place
        raise CotextError(
            f"attention over rows of {counts.tolist()} tokens, but the rows of the batch have "
            f"{real.sum(dim=1).tolist()}: their sentences cannot be identified"
        )

    def sentences(self, index: Tensor, counted: Tensor) -> Tensor:
        """Return the sentence, in the document, of each token; NOWHERE if it is not `counted` [B, T]."""
        sentences = torch.where(counted, self.document, NOWHERE).flatten()
        return torch.where(index >= 0, sentences[index.clamp(min=0)], NOWHERE)


def token_indices(weights_BHTS: Tensor, real_BT: Tensor, own: RowTokens, keys: RowTokens) -> TokenIndices:
    """Identify the tokens of an attention by its weights; raise the same errors as `places`."""
    visible = (weights_BHTS > 0) & real_BT[:, None, :, None]
    return TokenIndices(own.places(real_BT), keys.places(visible.any(dim=2).any(dim=1)))


POSITIONAL: Final = ("absolute", "positions")  # scores with positions in every cross-attention


# Decoder layers whose attention is read, counted from the last. These have the lowest alignment error on
# development documents of the controlled corpus, over systems of two and three layers
# (docs/results/sentences-and-files.md).
LAYERS: Final = (0, 1)


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


@torch.inference_mode()
def attention_of(rows: RowsToRead) -> list[list[Tensor]]:
    """Return the weights of the current sentences of every row, [T, S] each: see `scorer.Reading`."""
    weights: list[list[Tensor]] = [[] for _ in rows.instances]
    read = _read_parallel if kind_of(rows.model).path is not None else _read_forced
    model: Any = rows.model
    for members, batch in rows.batches():
        sentences = _sentences([rows.instances[i] for i in members], batch, rows.symbols, model.extra_tokens)
        read(model, batch, sentences)
        for sentence in sentences:
            weights[members[sentence.row]].append(distributions(sentence.weights.cpu()))
    return weights


@dataclass(slots=True)
class _Sentence:
    """A current sentence of a row: the indices of its source tokens and labels in `RowTokens`.

    `queries` [F]: indices of the positions whose attention is read. `weights` [F, S]: sum of their attention
    over the layers so far.
    """

    row: int
    index: int
    source: Tensor  # [S]
    labels: Tensor  # [T]
    queries: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    weights: Tensor = field(default_factory=lambda: torch.empty(0))

    def set_queries(self, queries: Tensor) -> None:
        """Set the queries whose attention is read."""
        self.queries = queries
        shape = len(queries), len(self.source)
        self.weights = torch.zeros(shape, dtype=torch.float64, device=queries.device)


def _sentences(
    instances: Sequence[Instance], batch: Batch, symbols: SpecialSymbols, extra: tuple[int, int]
) -> list[_Sentence]:
    """Return the current sentences of the rows of a batch, in order; `extra`: see `System.extra_tokens`."""
    source, widths = batch.source, (batch.source.tokens.size(1), batch.label_sentence.size(1))
    # Special symbols get no weight.
    is_subword = symbols.are_subwords(source.tokens)
    sentences = []
    for row, instance in enumerate(instances):
        for j in instance.window.current:
            k = j - instance.window.source.start
            source_tokens = ((source.sentence[row] == k) & is_subword[row]).nonzero()[:, 0]
            labels = (batch.label_sentence[row] == k).nonzero()[:-1, 0]  # without the closing symbol
            firsts = (front + row * (front + width) for front, width in zip(extra, widths, strict=True))
            sentences.append(_Sentence(row, k, source_tokens + next(firsts), labels + next(firsts)))
    return sentences


def _read_forced(model: Any, batch: Batch, sentences: Sequence[_Sentence]) -> None:
    """Read, with teacher forcing, the attention of the query that predicts each label."""
    for sentence in sentences:
        sentence.set_queries(sentence.labels)
    forced, source = autoregressive_pass(model, batch), batch.source
    of_both = zip(model.extra_tokens, (source.sentence, forced.sentence), strict=True)
    keys, own = (RowTokens.of(source, extra, sentence) for extra, sentence in of_both)
    with _watched(model, partial(_gather, (own, keys), sentences)):
        forced.decode()


def _read_parallel(model: NonAutoregressiveModel, batch: Batch, sentences: Sequence[_Sentence]) -> None:
    """Read the attention of all positions; a token gets the mean over its positions on the best CTC path."""
    draft, tokens, sentence = forced_draft(model, batch)
    real, aligned = draft.sentence >= 0, model.path == "sentences"
    for one in sentences:
        here = draft.sentence[one.row] == one.index if aligned else real[one.row]
        one.set_queries(here.nonzero()[:, 0] + one.row * real.size(1))
    own = RowTokens.of(batch.source, 0, draft.sentence)
    keys = RowTokens.of(batch.source, 0, batch.source.sentence)
    with _watched(model, partial(_gather, (own, keys), sentences)):
        hidden_ND = model.decode(draft)[real]
    path = torch.full_like(draft.sentence, -1)
    if model.path == "length":
        # There are no blanks. Every position gets a different symbol, so it counts as a separate token.
        path[real] = model.blank + 1 + torch.arange(len(hidden_ND), device=path.device)
    else:
        batch_units = units(model.path, draft.sentence, tokens, sentence)
        lattices = Lattices.of(batch_units, model.blank, hidden_ND.size(1))
        path[real] = best_alignment(hidden_ND, model.output_weight, lattices)
    for one in sentences:
        symbols_F = path.flatten()[one.queries]
        begins = (symbols_F >= 0) & (symbols_F != model.blank)
        begins[1:] &= symbols_F[1:] != symbols_F[:-1]
        token = begins.cumsum(dim=0) - 1  # index of the token in the unit
        token[symbols_F == model.blank] = -1
        places = (sentence[one.row] == one.index).nonzero()[1:-1, 0]  # without bos, eos
        token_index = torch.arange(1, len(places) + 1, device=path.device) if aligned else places
        is_token = (token == token_index[:, None]).double()
        one.weights = is_token / is_token.sum(dim=1, keepdim=True).clamp(min=1.0) @ one.weights


@contextmanager
def _watched(
    model: nn.Module, watcher: Callable[[Tensor, Tensor, TokenIndices | None], None]
) -> Iterator[None]:
    """Pass the cross-attention of the decoder layers `LAYERS` to `watcher`."""
    decoder = model.get_submodule("decoder")
    assert isinstance(decoder, nn.ModuleList)
    blocks = list(decoder)[::-1]
    chosen = (module for layer in LAYERS if layer < len(blocks) for module in blocks[layer].modules())
    with ExitStack() as hooks, ExitStack() as recording:  # recording: while one of these attentions runs
        for module in chosen:
            if isinstance(module, CrossAttention):
                begin = module.register_forward_pre_hook(
                    lambda *_: recording.enter_context(watch_weights(watcher))
                )
                hooks.callback(begin.remove)
                hooks.callback(module.register_forward_hook(lambda *_: recording.close()).remove)
        yield


def _gather(
    sides: tuple[RowTokens, RowTokens],
    sentences: Sequence[_Sentence],
    weights_BHTS: Tensor,
    real_BT: Tensor,
    places: TokenIndices | None,
) -> None:
    """Add the weights of one attention, averaged over heads, to the weights of the sentences."""
    places = places or token_indices(weights_BHTS, real_BT, *sides)
    mean_BTS = weights_BHTS.mean(dim=1)
    # The place of each query of the batch in the recorded weights.
    shown_N = mean_BTS.new_full(sides[0].sentence.shape, NOWHERE, dtype=torch.long).flatten()
    shown = places.query >= 0
    shown_N[places.query[shown]] = torch.arange(shown.numel(), device=shown.device).view_as(shown)[shown]
    # The column of each key in the current sentence; reset after each sentence.
    column = torch.full_like(sides[1].sentence.flatten(), NOWHERE)
    for sentence in sentences:
        at = shown_N[sentence.queries]
        row, place = at // mean_BTS.size(1), at % mean_BTS.size(1)
        rank = torch.arange(len(sentence.source), device=column.device)
        column[sentence.source] = rank
        key_FS = places.key[row]
        # Keys outside the sentence are added to one more column, which is dropped.
        to_FS = torch.where(key_FS >= 0, column[key_FS.clamp(min=0)], NOWHERE)
        column[sentence.source] = NOWHERE
        gathered = sentence.weights.new_zeros(len(at), len(sentence.source) + 1)
        gathered.scatter_add_(1, to_FS % gathered.size(1), mean_BTS[row, place])
        sentence.weights += torch.where((at >= 0)[:, None], gathered[:, :-1], 0.0)
