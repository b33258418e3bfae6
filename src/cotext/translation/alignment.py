"""Word alignment of translated sentences, from the model that translates.

    left to right       of a target token, the cross-attention of the decoder step that writes it or,
                        `shifted`, of the step after, whose *input* it is (Shift-Att: Chen et al. 2020,
                        section 3)
    non-autoregressive  that of the positions at which the best path through the row says the token
    engines             show none

Attention is averaged over heads and layers, restricted to the tokens of the source sentence itself, and made
to sum to one. In the lower layers of deep models, attention is on what was written last, hence the later
step; in the models that were measured here, every layer is on what is written next.

Where attention tells too little, the mean of it and of what each source word adds to the probability of the
token is taken (`word_removal`): in non-autoregressive models, where all positions look about before any is
decided; where positions have a share in every cross-attention (`model.cross.score`), so that it is on places
as well as on words; and with engines, which have nothing else. Models whose single tokens have no probability
have their attention alone.

A document is read once with its translation, as in scoring, whatever the sentences see.

Shapes: B rows, H heads, T queries, S keys; of a sentence, T tokens, F queries, S source tokens.
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
from cotext.data.collate import bracketed_targets
from cotext.data.documents import ParallelDocument
from cotext.data.tokenizer import Tokenizer
from cotext.data.words import token_spans
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.layers.masks import is_current
from cotext.layers.multi_head import CrossAttention
from cotext.losses.ctc import Lattices, best_alignment, units
from cotext.models.interface import NonAutoregressiveModel
from cotext.runtime.errors import CotextError
from cotext.translation.plan import DecodingPlan, kind_of
from cotext.translation.scorer import DocumentRow, DocumentScorer, instance_batches, score_labels
from cotext.translation.terms.word_alignment import SentenceAlignment, proportional, word_units

# --- Word alignment from probabilities: which target tokens lose by it that a source word is taken away.
#
# The difference in log-probability, where it is positive (after the prediction difference of Li et al. 2019,
# "On the word alignment from neural machine translation"). It needs no attention, but reads a row again for
# every word of its longest sentence: every other sentence of the row loses one at a time.
#
# Shapes: of a sentence, T target tokens, S source tokens.


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
    parts = word_units(text)
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


# --- The tokens of the rows of a batch, found again in what an attention shows of its weights.
#
# Shapes: B rows, T tokens; primed where an attention sets them in another order.


NOWHERE: Final = -1  # of a key that is no token of a row


@dataclass(frozen=True, slots=True)
class RowTokens:
    """The tokens of one side of a batch: where they stand, and in which sentence of the document."""

    sentence: Tensor  # [B, T] within the row, -1 on padding
    document: Tensor  # [B, T] within the document
    current: Tensor  # [B, T], True on tokens of sentences that the row answers for

    @classmethod
    def of(cls, sentence: Tensor, source: Source) -> "RowTokens":
        """The tokens of a side, given the sentence of each within its row, -1 on padding."""
        document = torch.where(sentence >= 0, sentence + source.first_sentence[:, None], NOWHERE)
        return cls(sentence, document, is_current(sentence, source.current))

    def places(self, shown: Tensor) -> Tensor:
        """Which tokens stand where an attention shows its real queries or keys: [B', T'], True = real.

        Attention over whole rows, over their current sentences alone, over those of all rows in a row, or
        over whole rows behind one more vector; in any case in order.

        Raises:
            CotextError: it is none of these.
        """
        real = self.sentence >= 0
        place = torch.arange(real.numel(), device=real.device).view_as(real)
        counts, found = shown.sum(dim=1), torch.full(shown.shape, NOWHERE, device=shown.device)
        for tokens in (real, self.current):
            if torch.equal(counts, tokens.sum(dim=1)) or (len(counts) == 1 and counts == tokens.sum()):
                found[shown] = place[tokens]
                return found
        if torch.equal(counts, real.sum(dim=1) + 1):
            behind = shown.clone()
            behind[torch.arange(len(shown)), shown.int().argmax(dim=1)] = False
            found[behind] = place[real]
            return found
        raise CotextError(
            f"attention over rows of {counts.tolist()} tokens, where those of the batch have "
            f"{real.sum(dim=1).tolist()}: which sentence they belong to cannot be told"
        )

    def queries(self, place: Tensor) -> Tensor:
        """The document's sentence of the tokens at these places, where they are current."""
        asks = torch.where(self.current, self.document, NOWHERE).flatten()
        return torch.where(place >= 0, asks[place.clamp(min=0)], NOWHERE)

    def keys(self, place: Tensor) -> Tensor:
        """The document's sentence of the tokens at these places."""
        return torch.where(place >= 0, self.document.flatten()[place.clamp(min=0)], NOWHERE)


def token_indices(weights_BHTS: Tensor, real_BT: Tensor, own: RowTokens, keys: RowTokens) -> TokenIndices:
    """The indices of the queries and keys of an attention that does not tell them.

    Raises:
        CotextError: as `RowTokens.places`.
    """
    visible = (weights_BHTS > 0) & real_BT[:, None, :, None]
    return TokenIndices(own.places(real_BT), keys.places(visible.any(dim=2).any(dim=1)))


POSITIONAL: Final = ("absolute", "positions")  # scores to which positions add in every cross-attention


@dataclass(frozen=True, slots=True)
class Attended:
    """Which attention is read: the mean of decoder layers, counted from the last; `shifted`: a step later.

    The defaults have the lowest error of alignment on development documents of the controlled corpus over
    systems of two and three layers (docs/results/sentences-and-files.md).
    """

    layers: tuple[int, ...] = (0, 1)
    shifted: bool = False


def align(
    scorer: DocumentScorer,
    pairs: Sequence[ParallelDocument],
    chosen: Sequence[Sequence[int]] | None = None,
    attended: Attended | None = None,
) -> list[list[SentenceAlignment]]:
    """The alignments of the chosen sentences of every document, in the order given; None: of all.

    Args:
        scorer: The system, as a `DocumentTranslator`.
        pairs: Documents with their translations, which need not be its own.
        chosen: Indices of sentences, document by document; only windows that translate these are read.
        attended: Which attention, and nothing else; None: what suits the system, of attention the default.

    Raises:
        CotextError: a sentence too long to be scored.
    """
    wanted = chosen or [range(len(pair.source)) for pair in pairs]
    asked = list(zip(pairs, wanted, strict=True))
    kind, read = scorer.plan.kind, []
    if kind.forced_pass is not None:
        read.append(scorer.read(asked, partial(attention_of, attended or Attended())))
    if attended is None and kind.token_nll is not None and not _attention_suffices(scorer.plan):
        read.append(differences(scorer, asked))
    return [
        [_sentence_alignment(scorer, pair, j, [found[n][j] for found in read if j in found[n]]) for j in each]
        for n, (pair, each) in enumerate(asked)
    ]


def _attention_suffices(plan: DecodingPlan) -> bool:
    """Whether cross-attention alone tells which words belong together."""
    in_place = plan.config.model.stack("cross").score in POSITIONAL
    return plan.kind.forced_pass is not None and plan.kind.path is None and not in_place


def _sentence_alignment(
    scorer: DocumentScorer, pair: ParallelDocument, j: int, read: Sequence[Tensor]
) -> SentenceAlignment:
    """That of a sentence, by characters, the mean of what was read; in proportion where nothing was."""
    source, target = pair.source[j], pair.target[j]
    weights = sum(read, torch.zeros(()))
    if not bool(weights.any()):
        return proportional(source, target)
    tokenizer = scorer.tokenizer
    of_source = token_spans(tokenizer, tokenizer.encode(source), source, "source")
    of_target = token_spans(tokenizer, tokenizer.encode(target, "target"), target, "target")
    return SentenceAlignment(tuple(of_source), tuple(of_target), distributions(weights))


def attention_of(
    attended: Attended,
    model: Any,
    instances: Sequence[Instance],
    symbols: SpecialSymbols,
    max_tokens: int,
    device: torch.device,
    groups: Sequence[Sequence[int]] | None = None,
) -> list[list[Tensor]]:
    """The weights of the current sentences of every instance, [T, S] each: see `scorer.Reading`."""
    found: list[list[Tensor]] = [[] for _ in instances]
    read = _read_parallel if kind_of(model).path is not None else _read_forced
    with torch.inference_mode():
        for members, batch in instance_batches(instances, symbols, max_tokens, device, groups):
            sentences = _sentences([instances[i] for i in members], batch, symbols)
            read(model, batch, sentences, attended)
            for sentence in sentences:
                found[members[sentence.row]].append(distributions(sentence.weights.cpu()))
    return found


@dataclass(slots=True)
class _Sentence:
    """A current sentence of a row: the places of its source tokens and labels among those of all rows.

    `queries` [F] are the places whose attention is read, `weights` [F, S] its sum so far.
    """

    row: int
    index: int
    source: Tensor  # [S]
    labels: Tensor  # [T]
    queries: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    weights: Tensor = field(default_factory=lambda: torch.empty(0))

    def ask(self, queries: Tensor) -> None:
        """Read the attention of these places."""
        self.queries = queries
        shape = len(queries), len(self.source)
        self.weights = torch.zeros(shape, dtype=torch.float64, device=queries.device)


def _sentences(instances: Sequence[Instance], batch: Batch, symbols: SpecialSymbols) -> list[_Sentence]:
    """The current sentences of the rows of a batch, in order."""
    source, width = batch.source, batch.label_sentence.size(1)
    is_subword = symbols.are_subwords(source.tokens)
    found = []
    for row, instance in enumerate(instances):
        for j in instance.window.current:
            k = j - instance.window.source.start
            of_source = ((source.sentence[row] == k) & is_subword[row]).nonzero()[:, 0]
            of_label = (batch.label_sentence[row] == k).nonzero()[:-1, 0]  # not the symbol that closes it
            places = of_source + row * source.tokens.size(1), of_label + row * width
            found.append(_Sentence(row, k, *places))
    return found


def _read_forced(model: Any, batch: Batch, sentences: Sequence[_Sentence], attended: Attended) -> None:
    """Teacher forcing: the query that writes a label, or that which reads it, the next."""
    forced_pass = kind_of(model).forced_pass
    assert forced_pass is not None
    for sentence in sentences:
        sentence.ask(sentence.labels + attended.shifted)
    forced = forced_pass(model, batch)
    sides = RowTokens.of(forced.sentence, batch.source), RowTokens.of(batch.source.sentence, batch.source)
    with _watched(model, attended.layers, partial(_gather, sides, sentences)):
        forced.decode()


def _read_parallel(
    model: NonAutoregressiveModel, batch: Batch, sentences: Sequence[_Sentence], attended: Attended
) -> None:
    """All positions at once, then the best path: a token has the mean of its positions' weights."""
    tokens, sentence = bracketed_targets(batch)
    known = (sentence >= 0).sum(dim=1) if model.path == "length" else None
    draft = model.encode(batch.source, known)
    real, aligned = draft.sentence >= 0, model.path == "sentences"
    for each in sentences:
        here = draft.sentence[each.row] == each.index if aligned else real[each.row]
        each.ask(here.nonzero()[:, 0] + each.row * real.size(1))
    sides = RowTokens.of(draft.sentence, batch.source), RowTokens.of(batch.source.sentence, batch.source)
    with _watched(model, attended.layers, partial(_gather, sides, sentences)):
        hidden_ND = model.decode(draft)[real]
    path = torch.full_like(draft.sentence, -1)
    if model.path == "length":
        path[real] = torch.arange(len(hidden_ND), device=path.device)
    else:
        asked = units(model.path, draft.sentence, tokens, sentence)
        lattices = Lattices.of(asked, model.blank, hidden_ND.size(1))
        path[real] = best_alignment(hidden_ND, model.output_weight, lattices)
    for each in sentences:
        of_unit = path.flatten()[each.queries]
        begins = (of_unit >= 0) & (of_unit != model.blank)
        begins[1:] &= of_unit[1:] != of_unit[:-1]
        said = begins.cumsum(dim=0) - 1  # which token of the unit, blanks that of the one before
        said[of_unit == model.blank] = -1
        of_row = (sentence[each.row] == each.index).nonzero()[1:-1, 0]  # brackets stand around its tokens
        wanted = torch.arange(1, len(of_row) + 1, device=path.device) if aligned else of_row
        spoken = (said == wanted[:, None]).double()
        each.weights = spoken / spoken.sum(dim=1, keepdim=True).clamp(min=1.0) @ each.weights


@contextmanager
def _watched(
    model: nn.Module, layers: Sequence[int], watcher: Callable[[Tensor, Tensor, TokenIndices | None], None]
) -> Iterator[None]:
    """Show `watcher` the cross-attention of some decoder layers, of all their products."""
    decoder = model.get_submodule("decoder")
    assert isinstance(decoder, nn.ModuleList)
    blocks = list(decoder)[::-1]
    chosen = (module for layer in layers if layer < len(blocks) for module in blocks[layer].modules())
    with ExitStack() as hooks:
        for module in chosen:
            if isinstance(module, CrossAttention):
                open_one = ExitStack()
                enter = partial(_enter, open_one, watcher)
                hooks.callback(module.register_forward_pre_hook(enter).remove)
                hooks.callback(module.register_forward_hook(partial(_leave, open_one)).remove)
        yield


def _enter(open_one: ExitStack, watcher: Callable[..., None], *call: Any) -> None:
    open_one.enter_context(watch_weights(watcher))


def _leave(open_one: ExitStack, *call: Any) -> None:
    open_one.close()


def _gather(
    sides: tuple[RowTokens, RowTokens],
    sentences: Sequence[_Sentence],
    weights_BHTS: Tensor,
    real_BT: Tensor,
    places: TokenIndices | None,
) -> None:
    """Add the weights of one product to those of the sentences, averaged over heads."""
    places = places or token_indices(weights_BHTS, real_BT, *sides)
    mean_BTS = weights_BHTS.mean(dim=1)
    shown_N = mean_BTS.new_full(sides[0].sentence.shape, NOWHERE, dtype=torch.long).flatten()
    shown = places.query >= 0
    shown_N[places.query[shown]] = torch.arange(shown.numel(), device=shown.device).view_as(shown)[shown]
    column = torch.full_like(sides[1].sentence.flatten(), NOWHERE)
    for sentence in sentences:
        at = shown_N[sentence.queries]
        row, place = at // mean_BTS.size(1), at % mean_BTS.size(1)
        rank = torch.arange(len(sentence.source), device=column.device)
        column[sentence.source] = rank
        key_FS = places.key[row]
        to_FS = torch.where(key_FS >= 0, column[key_FS.clamp(min=0)], NOWHERE)
        column[sentence.source] = NOWHERE
        gathered = sentence.weights.new_zeros(len(at), len(sentence.source) + 1)
        gathered.scatter_add_(1, to_FS % gathered.size(1), mean_BTS[row, place])
        sentence.weights += torch.where((at >= 0)[:, None], gathered[:, :-1], 0.0)
