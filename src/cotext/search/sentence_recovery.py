"""Recovery of sentences from labels, by the separators that the model wrote in free search.

No other code uses separators to find sentences. A chunk is the text up to a closing symbol; n sentences were
requested. Every label is assigned to one sentence, so the log-probabilities of the sentences add up to that
of the row.

    plain     a sep b sep c eos     Chunk i is sentence i. Missing chunks are those of the last sentences;
                                    surplus chunks belong to the last sentence.
    from end  a sep b sep c eos     Counted from the end, if only the last sentence is used.
    indexed   a sep1 b sep3 c eos   A separator has the index of the sentence that it closes, in any order: a
                                    is sentence 1, b is 3, 2 is missing. `eos` has no index: c is the sentence
                                    after the last index or, from the end, the last sentence.

With brackets, and in constrained search, the chunks are the sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from cotext.data.batch import Ids, SpecialSymbols, headed


@dataclass(frozen=True, slots=True)
class Recovered:
    """The sentence of each label, counted from the first requested.

    `exact`: the chunks are exactly the requested sentences, in order. A chunk may still have no text.
    """

    sentence: tuple[int, ...]
    exact: bool


def recover(
    labels: Sequence[int], symbols: SpecialSymbols, count: int, first: int = 0, from_end: bool = False
) -> Recovered:
    """Recover `count` sentences from labels that end with `eos`; `first`: sentence index of the first.

    If there are more chunks than sentences, a separator directly before the final `eos` is ignored.
    """
    closing = {*symbols.separators, symbols.eos}
    stops = [i + 1 for i, label in enumerate(labels) if label in closing]
    closers = [labels[stop - 1] for stop in stops]
    # The model closed the last sentence twice, with a separator and with `eos`.
    if len(stops) > count and stops[-1] - stops[-2] == 1:
        del stops[-2]
        del closers[-1]
    named: list[int] = []
    for chunk, closer in enumerate(closers):
        following = named[-1] + 1 if named else 0
        if len(symbols.separators) == 1:
            named.append(chunk + count - len(stops) if from_end else chunk)
        elif closer not in symbols.separators:
            named.append(count - 1 if from_end else following)
        elif closer == symbols.separators[-1]:  # shared by all later sentences
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
    """Return decoder inputs for the labels written so far, and their sentences, `bos` included: [T] each.

    `first` is the sentence index of the first label in its row, `first_sentence` that of the row in its
    document. Language symbols follow `bos`.
    """
    # Python lists, as rows of windows are short: array operations would take longer.
    opens = [False, *(label in symbols.separators for label in labels)]
    sentence = [first + k for k in accumulate(opens)]
    tokens = [symbols.bos, *labels]
    if symbols.bracket:
        for t in (0, *(t for t, does in enumerate(opens) if does)):
            tokens[t] = symbols.opening(first_sentence + sentence[t])
    ids, sentences = np.array(tokens, np.int64), np.array(sentence, np.int64)
    return headed(symbols.target_prefix, ids, sentences, behind=1)
