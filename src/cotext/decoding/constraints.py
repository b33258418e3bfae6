"""What a search is asked to write, and which token may follow: sentences are closed in step with the source.

    plain     y1 sep y2 sep y3 eos            indexed   y1 sep1 y2 sep2 y3 eos
    bracket   y1 eos y2 eos y3 eos, where the input after each `eos` but the last is `bos`
    numbered  as with brackets, but for the number of the sentence in place of `bos`

Constrained, exactly the sentences that were asked for come out, none of them empty, each closed by the symbol
of its place and within its own limit. Free, all of that is left to the model.

Shapes: B entries, W beam, R rows (R = B * W), C candidates of a step, N most sentences asked for,
S separators, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from cotext.data.batch import SpecialSymbols
from cotext.data.build import check_align
from cotext.runtime.errors import CotextError

Align = Literal["constrained", "free"]


@dataclass(frozen=True, slots=True)
class SearchSymbols:
    """The ids that search must know.

    `blank` are those that decode to an empty string, `unused` special symbols of other recipes: no output
    holds them.
    """

    special: SpecialSymbols
    unk: int
    blank: tuple[int, ...] = ()
    unused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to write for one row of the source.

    `prefix` holds target labels already decided, for instance `y1 sep y2 sep`; `first_sentence` is the
    sentence index of the first of them (see `cotext.data.batch`), and `sentence_offset` the index in its
    document of the row's sentence 0, which numbered sentences show. `max_tokens` has an entry for every
    sentence then to be produced, and bounds its new tokens, the symbol that closes it included: a sentence
    that will not end takes nothing from those after it. A sentence that the prefix has begun counts as the
    first. In free search only the sum counts.
    """

    prefix: Sequence[int]
    first_sentence: int
    max_tokens: tuple[int, ...]
    sentence_offset: int = 0

    @property
    def sentences(self) -> int:
        """How many are to be produced."""
        return len(self.max_tokens)

    def closed_before(self, symbols: SearchSymbols) -> int:
        """How many sentences the prefix has closed."""
        return sum(token in symbols.special.separators for token in self.prefix)

    def has_begun(self, symbols: SearchSymbols) -> bool:
        """Whether the prefix has begun the first sentence to be produced, with a token that is not blank."""
        for token in reversed(self.prefix):
            if token in symbols.special.separators:
                return False
            if token not in symbols.blank:
                return True
        return False


def check_requests(requests: Sequence[SearchRequest], symbols: SearchSymbols, align: Align) -> None:
    """Refuse what cannot be met."""
    check_align(align, symbols.special.bracket)
    for i, request in enumerate(requests):
        if request.sentences < 1:
            raise CotextError(f"request {i} asks for 0 sentences; ask for at least 1")
        for number, limit in enumerate(request.max_tokens, start=1):
            need = 2 - (number == 1 and request.has_begun(symbols))
            if limit < need:
                raise CotextError(
                    f"request {i}: sentence {number} of {request.sentences} needs at least {need} tokens, "
                    f"but its max_tokens is {limit}; raise the limit"
                )


@dataclass(slots=True)
class SentenceProgress:
    """How far every hypothesis has come with what was asked for.

    Free search is the case in which no sentence must come before the last, none needs a word, and the one
    limit is that of the whole.
    """

    first: Tensor  # [B], sentence index of the next decoder input when nothing was written yet
    sentence_offset: Tensor  # [B], index in the document of sentence 0
    last: Tensor  # [B], how many sentences are closed before the last one
    limits: Tensor  # [B, N]
    closed: Tensor  # [B, W], sentences closed so far
    stop: Tensor  # [B, W], how many tokens there may be when the sentence being written is closed
    has_content_token: Tensor  # [B, W], True once the sentence being written may be closed

    @classmethod
    def start(
        cls,
        requests: Sequence[SearchRequest],
        symbols: SearchSymbols,
        align: Align,
        beam: int,
        device: torch.device,
    ) -> "SentenceProgress":
        """Nothing written yet."""
        free = align == "free"
        limits = [(sum(r.max_tokens),) if free else r.max_tokens for r in requests]
        most = max(map(len, limits))
        # What stands in the place of sentences that nobody asks for is never looked at.
        limits_BN = torch.tensor([[*row, *row[-1:] * (most - len(row))] for row in limits], device=device)
        has_content_token = torch.tensor([free or r.has_begun(symbols) for r in requests], device=device)
        return cls(
            first=torch.tensor(
                [r.first_sentence + r.closed_before(symbols) for r in requests], device=device
            ),
            sentence_offset=torch.tensor([r.sentence_offset for r in requests], device=device),
            last=torch.tensor([0 if free else r.sentences - 1 for r in requests], device=device),
            limits=limits_BN,
            closed=torch.zeros(len(requests), beam, dtype=torch.long, device=device),
            stop=limits_BN[:, :1].repeat(1, beam),
            has_content_token=has_content_token[:, None].repeat(1, beam),
        )

    @property
    def sentence(self) -> Tensor:
        """Sentence index of the next decoder input: [B, W]."""
        return self.first[:, None] + self.closed

    def select(self, entries: Tensor) -> "SentenceProgress":
        """Keep the given entries, in the given order."""
        return SentenceProgress(*(getattr(self, f.name).index_select(0, entries) for f in fields(self)))

    def reorder(self, origin: Tensor) -> None:
        """Beam w continues what beam origin[:, w] was: [B, W]."""
        for name in ("closed", "stop", "has_content_token"):
            setattr(self, name, getattr(self, name).gather(1, origin))


@dataclass(frozen=True, slots=True)
class Rules:
    """Which token may follow and what it does, as index tensors on the right device."""

    special: SpecialSymbols
    free: bool
    never: Tensor  # ids that no output holds, and those that close a sentence: allowed one by one
    blank: Tensor
    separators: Tensor  # [S], closing sentence 0, 1 ...
    separates: Tensor  # [V], True for these
    openings: Tensor  # what opens the sentence at place 0, 1 ... of a document, where sentences are bracketed
    words: Tensor  # [V], True for ids after which a sentence may be closed

    @classmethod
    def of(cls, symbols: SearchSymbols, align: Align, vocabulary: int, device: torch.device) -> "Rules":
        """Prepare the rules for a vocabulary."""
        special, free = symbols.special, align == "free"
        closing = () if free else (*special.separators, special.eos)
        unwritten = (special.pad, special.bos, symbols.unk, *special.numbers, *symbols.unused)
        never = torch.tensor([*unwritten, *closing], device=device)
        blank = torch.tensor(symbols.blank, dtype=torch.long, device=device)
        separators = torch.tensor(special.separators, device=device)
        separates = torch.zeros(vocabulary, dtype=torch.bool, device=device)
        separates[separators] = True
        words = torch.ones_like(separates)
        if not free:
            words[never] = False
            words[blank] = False
        openings = torch.tensor(special.numbers or (special.bos,), device=device)
        return cls(special, free, never, blank, separators, separates, openings, words)

    def forbid(self, next_RV: Tensor, progress: SentenceProgress, written: int, near_a_limit: bool) -> None:
        """Set the log-probabilities of tokens that may not follow to -inf, in place.

        `near_a_limit`: whether some hypothesis may have come to a limit.
        """
        has_content_token = progress.has_content_token.flatten()
        place = progress.sentence.clamp(max=self.separators.numel() - 1)
        more = progress.closed < progress.last[:, None]
        closer = torch.where(more, self.separators[place], self.special.eos).view(-1, 1)
        closing = next_RV.gather(1, closer).masked_fill(~has_content_token[:, None], -torch.inf)
        next_RV.index_fill_(1, self.never, -torch.inf)
        if near_a_limit:
            # A sentence needs its closing symbol and, where it has none yet, a word.
            at_limit = progress.stop.flatten() - written <= 2 - has_content_token.long()
            if bool(at_limit.any()):
                # One that has a word is closed now, and one that has none gets a word.
                next_RV.masked_fill_((at_limit & has_content_token)[:, None], -torch.inf)
                next_RV[:, self.blank] = next_RV[:, self.blank].masked_fill(at_limit[:, None], -torch.inf)
        next_RV.scatter_(1, closer, closing)

    def ends(self, progress: SentenceProgress, origin: Tensor, token: Tensor) -> Tensor:
        """Where a token after hypothesis `origin` of its entry ends the whole: [B, C] each."""
        return (token == self.special.eos) & (progress.closed.gather(1, origin) >= progress.last[:, None])

    def follow(self, progress: SentenceProgress, token: Tensor, written: int) -> Tensor:
        """Note the tokens just written, [B, W]; returns the decoder inputs that they become, [R, 1]."""
        separates = self.separates[token]
        progress.closed = progress.closed + separates.long()
        if not self.free:
            # Beams that nothing possible is left for may have written anything.
            progress.closed = torch.minimum(progress.closed, progress.last[:, None])
            stop = progress.limits.gather(1, progress.closed) + written + 1
            progress.stop = torch.where(separates, stop, progress.stop)
        progress.has_content_token = (progress.has_content_token & ~separates) | self.words[token]
        following = token
        if self.special.bracket:
            opening = self.opening(progress.sentence_offset[:, None] + progress.sentence)
            following = torch.where(separates, opening, token)
        return following.reshape(-1, 1)

    def opening(self, place: Tensor) -> Tensor:
        """What opens bracketed sentences at these places of their documents."""
        return self.openings[place.clamp(max=self.openings.numel() - 1)]

    def truncated(self, tokens: Sequence[int], request: SearchRequest) -> tuple[int, ...]:
        """The places of closing symbols, the final `eos` included, that stand where a limit is reached."""
        if self.free:
            return (len(tokens),) if len(tokens) + 1 == sum(request.max_tokens) else ()
        closing = set(self.special.separators)
        places = [*(place for place, token in enumerate(tokens) if token in closing), len(tokens)]
        lengths = (stop - start for start, stop in zip([-1, *places], places, strict=False))
        limits = zip(places, lengths, request.max_tokens, strict=True)
        return tuple(place for place, length, limit in limits if length == limit)
