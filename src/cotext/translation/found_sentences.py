"""The sentences of a hypothesis, as text and with the log-probability of each."""

from collections.abc import Sequence

from cotext.data.tokenizer import Tokenizer
from cotext.search.beam_search import Hypothesis
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.sentence_recovery import recover
from cotext.translation.document_state import SentenceHypothesis


def found_sentences(
    hypothesis: Hypothesis,
    request: SearchRequest,
    symbols: SearchSymbols,
    tokenizer: Tokenizer,
    count: int,
    from_end: bool = False,
) -> tuple[list[SentenceHypothesis], bool]:
    """The hypothesis of each of `count` sentences, and whether it has exactly these, in order.

    `from_end`: the last sentence alone is asked for (`sentence_recovery.py`).
    """
    special = symbols.special
    closing = {*special.separators, special.eos}
    log_probabilities = hypothesis.token_log_probabilities
    if count == 1 and closing.isdisjoint(hypothesis.tokens):
        only = _sentence(tokenizer, hypothesis.tokens, log_probabilities, bool(hypothesis.truncated))
        return [only], True
    labels = [*hypothesis.tokens, special.eos]
    first = request.first_sentence + request.closed_before(symbols)
    recovered = recover(labels, special, count, first, from_end)
    tokens: list[list[int]] = [[] for _ in range(count)]
    scores: list[list[float]] = [[] for _ in range(count)]
    for k, label, log_probability in zip(recovered.sentence, labels, log_probabilities, strict=True):
        scores[k].append(log_probability)
        if label not in closing:
            tokens[k].append(label)
    truncated = {recovered.sentence[i] for i in hypothesis.truncated}
    found = [
        _sentence(tokenizer, t, p, k in truncated)
        for k, (t, p) in enumerate(zip(tokens, scores, strict=True))
    ]
    return found, recovered.exact


def _sentence(
    tokenizer: Tokenizer, tokens: Sequence[int], log_probabilities: Sequence[float], truncated: bool
) -> SentenceHypothesis:
    """A sentence of its tokens, and the log-probabilities of its labels."""
    text = tokenizer.decode(tokens)
    return SentenceHypothesis(
        tuple(tokens), text, sum(log_probabilities, 0.0), truncated, len(log_probabilities)
    )
