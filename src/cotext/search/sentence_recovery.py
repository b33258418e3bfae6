"""Recovery of sentences from labels: the only place where separators say which sentence a label belongs to.

In free search the model itself has set the separators. A piece is what stands up to a closing symbol; n
sentences were requested. Every label counts to one sentence, and the log-probabilities of the sentences add
up to the whole.

    plain     a sep b sep c eos     Piece i is sentence i. What is missing is missing at the end; surplus
                                    pieces belong to the last sentence.
    from end  a sep b sep c eos     The same from the other end, where only the last sentence is kept.
    indexed   a sep1 b sep3 c eos   A separator names the sentence that it closes, wherever and however often
                                    it comes: a is sentence 1 and b is 3, 2 is missing. `eos` names none: c is
                                    the one after the last named; from end, the last.

With brackets, and wherever search was constrained, the pieces are the sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from cotext.data.batch import SpecialSymbols
from cotext.data.collate import Ids, headed


@dataclass(frozen=True, slots=True)
class Recovered:
    """The sentence that each label belongs to, counted from the first requested.

    `exact`: as many pieces came as were requested, in order. One of them may still hold no text.
    """

    sentence: tuple[int, ...]
    exact: bool


def recover(
    labels: Sequence[int], symbols: SpecialSymbols, count: int, first: int = 0, from_end: bool = False
) -> Recovered:
    """Recover `count` sentences from labels that end with `eos`; `first`: sentence index of the first.

    A separator right before the final `eos` closes the last sentence twice, if there are enough without it.
    """
    closing = {*symbols.separators, symbols.eos}
    stops = [i + 1 for i, label in enumerate(labels) if label in closing]
    closers = [labels[stop - 1] for stop in stops]
    if len(stops) > count and stops[-1] - stops[-2] == 1:
        del stops[-2]
        del closers[-1]
    named: list[int] = []
    for piece, closer in enumerate(closers):
        following = named[-1] + 1 if named else 0
        if len(symbols.separators) == 1:
            named.append(piece + count - len(stops) if from_end else piece)
        elif closer not in symbols.separators:
            named.append(count - 1 if from_end else following)
        elif closer == symbols.separators[-1]:  # that of every later sentence too
            named.append(max(following, len(symbols.separators) - 1 - first))
        else:
            named.append(symbols.separators.index(closer) - first)
    lengths = [stop - start for start, stop in pairwise([0, *stops])]
    sentences = (min(max(k, 0), count - 1) for k in named)
    return Recovered(
        sentence=tuple(k for k, length in zip(sentences, lengths, strict=True) for _ in range(length)),
        exact=named == list(range(count)),
    )


def begun_input(
    labels: Sequence[int], symbols: SpecialSymbols, first: int, first_sentence: int
) -> tuple[Ids, Ids]:
    """Decoder input of labels that search has written so far, and the sentence of each, `bos` included: [T].

    `first` is the sentence index of the first label in its row, `first_sentence` that of the row in its
    document. Symbols of a language follow `bos`.
    """
    # In Python: rows of a window are short, and array operations on a few numbers cost more than they do.
    opens = [False, *(label in symbols.separators for label in labels)]
    sentence = [first + k for k in accumulate(opens)]
    tokens = [symbols.bos, *labels]
    if symbols.bracket:
        for t in (0, *(t for t, does in enumerate(opens) if does)):
            tokens[t] = symbols.opening(first_sentence + sentence[t])
    ids, sentences = np.array(tokens, np.int64), np.array(sentence, np.int64)
    return headed(symbols.target_prefix, ids, sentences, behind=1)
