"""A sentence model and a language model of target documents (Sugiyama and Yoshinaga 2021).

    score(y)  =  log p(y | x)  +  log p_LM(y | c)  -  log p_LM(y)

x: the source sentence; c: target sentences before y. The difference is the pointwise mutual information of
context and sentence. It is added token by token, so it takes part in beam search:

    rows of the language model      bos c1 sep c2 sep y1 y2       one row with context
                                    bos y1 y2                     one without
    row of the sentence model       bos y1 y2                     and the source of this sentence alone

All rows are cut from windows whose current sentence is the last. Scores of tokens do not sum to a probability
and may be above 0.

Shapes: B entries, R rows, S source tokens, T target tokens, P tokens of the current sentence, D sum of the
dimensions of the three rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cotext.data.batch import Source, SpecialSymbols
from cotext.layers.kernels.common import moved_left
from cotext.layers.layout import Layouts
from cotext.models.interface import TranslationModel


@dataclass(slots=True)
class CombinedState:
    """The states of the three rows. Search treats it like a `DecoderState`."""

    states: Sequence[Any]
    first: Tensor  # [R], the current sentence
    is_begun: bool = False  # whether an input of the current sentence was read

    def open(self, slots: int) -> None:
        for state in self.states:
            state.open(slots)

    def widen(self, beam: int) -> None:
        self.first = self.first.repeat_interleave(beam)
        for state in self.states:
            state.widen(beam)

    def reorder(self, origin: Tensor) -> None:
        for state in self.states:
            state.reorder(origin)

    def select(self, entries: Tensor, beam: int) -> None:
        self.first = self.first.view(-1, beam)[entries].flatten()
        for state in self.states:
            state.select(entries, beam)


class WithLanguageModel(TranslationModel):
    """A sentence model whose scores are corrected by a language model; `name` is that of the language model.

    Hidden states are those of the three rows, side by side. `split` separates them; search and likelihoods
    add up the scores of the three rows, with the signs of `terms`.
    """

    def __init__(
        self,
        sentence_model: TranslationModel,
        language_model: TranslationModel,
        symbols: SpecialSymbols,
        name: str,
    ) -> None:
        super().__init__()
        self.sentence_model, self.language_model, self.name = sentence_model, language_model, name
        self._bos, self._pad = symbols.bos, symbols.pad

    @property
    def output_weight(self) -> Tensor:
        return self.sentence_model.output_weight

    def terms(self) -> tuple[tuple[TranslationModel, int], ...]:
        """Return the model of every row, and the sign of its log-probabilities."""
        return (self.sentence_model, 1), (self.language_model, 1), (self.language_model, -1)

    def split(self, hidden: Tensor) -> Iterator[Tensor]:
        """Split hidden states [..., D] into those of the three rows."""
        yield from torch.split(hidden, [model.output_weight.size(1) for model, _ in self.terms()], dim=-1)

    def layouts(
        self, source: Source, input_sentence: Tensor | None = None, training: bool = False
    ) -> Layouts:
        """Return the layouts of the row with context; the others are made while decoding."""
        return self.language_model.layouts(source, input_sentence, training)

    def encode(self, source: Source) -> CombinedState:
        first = source.current[:, 0]
        tokens, sentence, _ = _current(source.tokens, source.sentence, first, self._pad)
        alone = Source(
            tokens,
            sentence,
            current=source.current - first[:, None],
            document=source.document,
            first_sentence=source.first_sentence + first,
        )
        states = (
            self.sentence_model.encode(alone),
            self.language_model.encode(source),
            self.language_model.encode(alone),
        )
        return CombinedState(states, first)

    def decode(self, tokens: Tensor, sentence: Tensor, state: CombinedState) -> Tensor:
        """Decode as every autoregressive model; the first call contains an input of the current sentence.

        Hidden states of inputs before the current sentence are meaningless in the rows without context.
        """
        of_sentence, in_context, alone = state.states
        own, own_sentence, before = _current(tokens, sentence, state.first, self._pad)
        if not state.is_begun:
            # `bos` replaces the separator that closes the context.
            own[:, 0], state.is_begun = self._bos, True
        hidden = [
            self.sentence_model.decode(own, own_sentence, of_sentence),
            self.language_model.decode(tokens, sentence, in_context),
            self.language_model.decode(own, own_sentence, alone),
        ]
        # Back to the places of the tokens in the row with context.
        at = torch.arange(tokens.size(1), device=tokens.device) - before[:, None]
        at = at.clamp(0, own.size(1) - 1)[:, :, None]
        for row in (0, 2):
            hidden[row] = hidden[row].gather(1, at.expand(-1, -1, hidden[row].size(2)))
        return torch.cat(hidden, dim=2)


def _current(tokens: Tensor, sentence: Tensor, first: Tensor, pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens from sentence `first` [R] on, their sentence, now 0, and the number before, [R].

    [R, T] each -> [R, P] each, with sentence -1 on padding.
    """
    before = ((sentence >= 0) & (sentence < first[:, None])).sum(dim=1)
    own, now = moved_left(sentence >= first[:, None], (tokens, pad), (torch.zeros_like(sentence), -1))
    return own, now, before
