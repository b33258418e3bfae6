"""Context use: the change of log-probabilities when context is removed or replaced.

CXMI (conditional cross-mutual information; Fernandes et al. 2021, section 3) of a context C is

    log p(y | x, C) - log p(y | x)

of a target sentence y, given its source sentence x, in nats; a corpus has the mean over sentences or tokens.
Above zero, the system makes use of C; below, C leads it astray. Both probabilities are those of one system,
which is given the sentence in its excerpt, and alone (see `cotext.data.context_edits`). With other contexts
(shuffled, of other documents) the same difference tells what the system takes from context of any kind.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random
from typing import Final, Protocol, get_args, overload

from cotext.data.context_edits import Excerpt, Pair, alone, excerpt, replaced, shuffled, without
from cotext.data.documents import Document, ParallelDocument
from cotext.evaluation.requests import Condition
from cotext.files.bilingual_page import Influences
from cotext.files.translate_blocks import PairedSentence
from cotext.runtime.errors import CotextError

CONDITIONS: Final = get_args(Condition)
DOCUMENTS_AT_ONCE = 16


class SentenceVisibility(Protocol):
    """A system that knows the context window of each sentence."""

    def visible_sentences(self, document: Document) -> list[range]:
        """For every sentence, the sentences within its context window, itself included."""


class TokenScorer(SentenceVisibility, Protocol):
    """A system that scores the tokens of chosen sentences."""

    def score_tokens(
        self, documents: Sequence[tuple[ParallelDocument, Sequence[int]]]
    ) -> list[list[tuple[float, ...]]]:
        """Log-probabilities of the tokens of the chosen sentences; none for an empty sentence."""


@dataclass(frozen=True, slots=True)
class SentenceUse:
    """One sentence under every condition: log-probabilities of its tokens, its end the last.

    `number` is its index in its document; `context` counts the sentences of its context window.
    """

    document: str
    number: int
    context: int
    tokens: dict[str, tuple[float, ...]]

    def cxmi(self, condition: str = "true") -> float:
        """CXMI of the whole sentence, in nats."""
        return sum(self.tokens[condition]) - sum(self.tokens["none"])

    def token_cxmi(self, condition: str = "true") -> tuple[float, ...]:
        """CXMI of every token."""
        pairs = zip(self.tokens[condition], self.tokens["none"], strict=True)
        return tuple(given - not_given for given, not_given in pairs)


@dataclass(frozen=True, slots=True)
class ConditionMean:
    """CXMI of a condition over the sentences that have context.

    `share_above` is the share, of all these sentences, of those whose CXMI is above zero.
    """

    condition: str
    sentences: int
    tokens: int
    per_sentence: float
    per_token: float
    share_above: float


def mean_use(sentences: Sequence[SentenceUse], condition: str) -> ConditionMean:
    """Average over a corpus.

    Raises:
        CotextError: no sentence has context.
    """
    having = [s for s in sentences if s.context and s.tokens["none"]]
    if not having:
        raise CotextError(
            "no sentence has context: the system sees one sentence at a time, or every document has but one"
        )
    values = [s.cxmi(condition) for s in having]
    tokens = sum(len(s.tokens["none"]) for s in having)
    return ConditionMean(
        condition,
        len(having),
        tokens,
        sum(values) / len(having),
        sum(values) / tokens,
        sum(value > 0 for value in values) / len(having),
    )


def excerpts(
    scorer: SentenceVisibility, document: ParallelDocument, chosen: Sequence[int] | None = None
) -> list[Excerpt]:
    """What each sentence of a document, or each of those chosen, sees, as a document of its own.

    Where that would be cut in another way than it was in the document (several parts, groups of windows with
    context), the whole document stands for it.
    """
    sees = scorer.visible_sentences(Document(document.id, document.source))
    alike = {range(len(sees)): sees}
    found = []
    for number in range(len(sees)) if chosen is None else chosen:
        reach = sees[number]
        if reach not in alike:
            alike[reach] = scorer.visible_sentences(
                Document(document.id, document.source[reach.start : reach.stop])
            )
        same = alike[reach][number - reach.start] == range(len(reach))
        found.append(excerpt(document, reach, number, whole=not same))
    return found


def edited(found: Excerpt, condition: str, others: Sequence[Pair], random: Random) -> Excerpt:
    """An excerpt under one of the CONDITIONS."""
    if condition == "true":
        return found
    if condition == "none":
        return alone(found)
    return shuffled(found, random) if condition == "shuffled" else replaced(found, others, random)


def conditions_of(
    excerpts_of: Sequence[Excerpt], conditions: Sequence[str], others: Sequence[Pair], seed: int
) -> list[dict[str, Excerpt]]:
    """Every excerpt under every condition; what is random depends on seed, document and sentence index."""
    made = []
    for number, found in enumerate(excerpts_of):
        drawn = {c: Random(f"{seed} {c} {number} {found.document.id}") for c in conditions}
        made.append({c: edited(found, c, others, drawn[c]) for c in conditions})
    return made


class Others(Sequence[Pair]):
    """The sentences of all documents but one that have words on both sides; nothing is copied."""

    def __init__(self, pool: "Pool", number: int) -> None:
        self.pool = pool.pairs
        self.first, self.stop = pool.bounds[number], pool.bounds[number + 1]

    def __len__(self) -> int:
        """Count them."""
        return len(self.pool) - (self.stop - self.first)

    @overload
    def __getitem__(self, index: int) -> Pair: ...

    @overload
    def __getitem__(self, index: slice) -> list[Pair]: ...

    def __getitem__(self, index: int | slice) -> Pair | list[Pair]:
        """One of them, or several."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.pool[index if index < self.first else index + self.stop - self.first]


class Pool:
    """The sentences of a corpus that have words on both sides, of which random context is drawn."""

    def __init__(self, documents: Sequence[ParallelDocument]) -> None:
        self.pairs: list[Pair] = []
        self.bounds = [0]
        for document in documents:
            pairs = zip(document.source, document.target, strict=True)
            self.pairs += [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
            self.bounds.append(len(self.pairs))

    def without(self, number: int) -> Others:
        """Those of all documents but one."""
        return Others(self, number)


def measure(
    scorer: TokenScorer,
    documents: Sequence[ParallelDocument],
    conditions: Sequence[str] = CONDITIONS,
    seed: int = 1,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> Iterator[SentenceUse]:
    """Score every sentence of every document under every condition, `none` always among them.

    Raises:
        CotextError: an unknown condition; `random` with one document.
    """
    check_conditions(conditions, len(documents))
    pool = Pool(documents)
    for numbers in groups_of(len(documents)):
        found = measure_group(scorer, documents, numbers, pool, conditions, seed)
        yield from found
        on_sentences(len(found))


def groups_of(documents: int) -> list[range]:
    """The numbers of documents that are scored together, all documents once, in order."""
    firsts = range(0, documents, DOCUMENTS_AT_ONCE)
    return [range(first, min(first + DOCUMENTS_AT_ONCE, documents)) for first in firsts]


def measure_group(
    scorer: TokenScorer,
    documents: Sequence[ParallelDocument],
    numbers: Sequence[int],
    pool: "Pool",
    conditions: Sequence[str],
    seed: int,
) -> list[SentenceUse]:
    """Score every sentence of some documents of a corpus, as `measure` does; `pool` is of all of them."""
    wanted = tuple(c for c in CONDITIONS if c in conditions or c == "none")
    made = [
        conditions_of(excerpts(scorer, documents[number]), wanted, pool.without(number), seed)
        for number in numbers
    ]
    flat = [found for of_document in made for of_sentence in of_document for found in of_sentence.values()]
    scores = iter(score_excerpts(scorer, flat))
    uses = []
    for number, of_document in zip(numbers, made, strict=True):
        for index, of_sentence in enumerate(of_document):
            tokens = {condition: next(scores) for condition in of_sentence}
            context = len(of_sentence["true"].context) if "true" in of_sentence else 0
            uses.append(SentenceUse(documents[number].id, index, context, tokens))
    return uses


def check_conditions(conditions: Sequence[str], documents: int) -> None:
    """Refuse conditions that are unknown, or that cannot be had."""
    for condition in conditions:
        if condition not in CONDITIONS:
            raise CotextError(f"unknown context {condition!r}; choose from {', '.join(CONDITIONS)}")
    if "true" not in conditions:
        raise CotextError("the other contexts are compared with the true one: choose true, too")
    if "random" in conditions and documents < 2:
        raise CotextError(
            "random context is drawn from other documents, and there is one alone; give a file with several, "
            "or choose true, shuffled and none"
        )


def score_excerpts(scorer: TokenScorer, found: Sequence[Excerpt]) -> list[tuple[float, ...]]:
    """Log-probabilities of the tokens of every excerpt's sentence in question; equal ones are read once."""
    asked: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for each in found:
        asked.setdefault((each.document.source, each.document.target), []).append(each.sentence)
    documents = [(ParallelDocument("", *sides), sorted(set(places))) for sides, places in asked.items()]
    scores = {
        (sides, place): tokens
        for (sides, (_, places)), members in zip(
            zip(asked, documents, strict=True), scorer.score_tokens(documents), strict=True
        )
        for place, tokens in zip(places, members, strict=True)
    }
    return [scores[(each.document.source, each.document.target), each.sentence] for each in found]


@dataclass(frozen=True, slots=True)
class Influence:
    """The influence of a context sentence on the tokens of another: log p with it minus log p without it."""

    number: int  # of the context sentence in the document
    tokens: tuple[float, ...]

    @property
    def nats(self) -> float:
        """The change of the sentence's log-probability."""
        return sum(self.tokens)

    @property
    def change(self) -> float:
        """The sum of the tokens' absolute changes."""
        return sum(abs(value) for value in self.tokens)


@dataclass(frozen=True, slots=True)
class SentenceInfluences:
    """A sentence, its CXMI per token, and the influence of each context sentence, in document order."""

    excerpt: Excerpt
    cxmi: tuple[float, ...]
    influences: tuple[Influence, ...]

    @property
    def most(self) -> Influence | None:
        """The context sentence that changes most; None where there is none."""
        return max(self.influences, key=lambda each: each.change, default=None)


def influences(scorer: TokenScorer, document: ParallelDocument) -> list[SentenceInfluences]:
    """Take every context sentence of every sentence of a document away, one at a time, and all of them."""
    asked = [counterfactuals(each) for each in excerpts(scorer, document)]
    scores = iter(score_excerpts(scorer, [each for of_sentence in asked for each in of_sentence]))
    return [influences_of([(each, next(scores)) for each in of_sentence]) for of_sentence in asked]


def context_influences(
    scorer: TokenScorer,
    sentences: Sequence[PairedSentence],
    on_sentences: Callable[[int], None] = lambda count: None,
) -> list[Influences]:
    """For every sentence of a file, the influence of the others that its translation sees, largest first.

    That is the log-probability of the translation with the context sentence minus that without it.

    Raises:
        CotextError: a system whose single tokens have no probability, or a sentence too long to be scored.
    """
    found: list[Influences] = []
    for name, members in groupby(sentences, lambda each: each.document):
        pairs, first = list(members), len(found)
        document = ParallelDocument(
            str(name + 1), tuple(each.source for each in pairs), tuple(each.target for each in pairs)
        )
        for each in influences(scorer, document):
            ranked = sorted(each.influences, key=lambda one: -abs(one.nats))
            found.append([(first + one.number, one.nats) for one in ranked])
        on_sentences(len(pairs))
    return found


def counterfactuals(found: Excerpt) -> list[Excerpt]:
    """What is to be scored of a sentence: in its excerpt, alone, and without each context sentence."""
    return [found, alone(found), *(without(found, place) for place in found.context)]


def influences_of(scored: Sequence[tuple[Excerpt, Sequence[float]]]) -> SentenceInfluences:
    """The influences on a sentence, whose `counterfactuals` have these log-probabilities of tokens."""
    (found, full), (_, bare), *others = scored
    changes = [_minus(full, tokens) for _, tokens in others]
    of_context = []
    for place, change in zip(found.context, changes, strict=True):
        number = found.numbers[place]
        assert number is not None
        of_context.append(Influence(number, change))
    return SentenceInfluences(found, _minus(full, bare), tuple(of_context))


def _minus(a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def word_lengths(decode: Callable[[Sequence[int]], str], tokens: Sequence[int]) -> list[int]:
    """The number of tokens of each word, where words are separated by spaces; they sum to all tokens.

    A token belongs to the word that the text ends with once it is there. Where nothing is set apart, each
    token is a word.
    """
    ends = [max(1, len(decode(tokens[: i + 1]).split())) for i in range(len(tokens))]
    if ends and ends[-1] == 1:
        return [1] * len(tokens)
    # A text may lose a word again while it grows, as pieces are put together.
    word = [max(ends[: i + 1]) for i in range(len(ends))]
    return [word.count(n) for n in sorted(set(word))]
