"""Context use: how log-probabilities change if context is removed or replaced, for a corpus or one document.

CXMI (conditional cross-mutual information; Fernandes et al. 2021, section 3) of a context C is

    log p(y | x, C) - log p(y | x)

of a target sentence y, given its source sentence x, in nats; for a corpus, it is the mean over sentences or
tokens. A system scores the sentence with its context and alone (see `cotext.data.context_edits`). With other
contexts (shuffled, from other documents), the difference shows the effect of any context, right or not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, get_args

from cotext.data.context_edits import Excerpt, Pair, alone, excerpt, replaced, shuffled, without
from cotext.data.documents import Document, ParallelDocument, check_sides
from cotext.data.formats import read_documents, read_parallel, second_file
from cotext.evaluation.requests import Condition, CxmiRequest, DocumentRequest
from cotext.runtime import CotextError, nearest
from cotext.runtime.jobs.engine import Job, Joined
from cotext.runtime.jobs.journal import Journal
from cotext.runtime.progress import Meter
from cotext.runtime.rendering import render_rows
from cotext.translation.corpus_files import checksums_of
from cotext.translation.open import OpenedRun, open_run, open_scorer, scoring_signature, systems_of
from cotext.translation.translator import DocumentTranslator

CONDITIONS: Final = get_args(Condition)
DOCUMENTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class SentenceUse:
    """Log-probabilities of the tokens of one sentence under every condition; the last token is its end.

    `number` is the index in its document; `context` counts its context sentences that are not blank.
    """

    document: str
    number: int
    context: int
    tokens: dict[str, tuple[float, ...]]

    def cxmi(self, condition: str = "true") -> float:
        """Return the CXMI of the whole sentence, in nats."""
        return sum(self.tokens[condition]) - sum(self.tokens["none"])

    def token_cxmi(self) -> tuple[float, ...]:
        """Return the CXMI of every token under the true context."""
        return _minus(self.tokens["true"], self.tokens["none"])


@dataclass(frozen=True, slots=True)
class ConditionMean:
    """CXMI of a condition: means over the sentences with context, and the share of them above zero."""

    condition: str
    sentences: int
    tokens: int
    per_sentence: float
    per_token: float
    share_above: float


def mean_use(sentences: Sequence[SentenceUse], condition: str) -> ConditionMean:
    """Average over a corpus; raise CotextError if no sentence has context."""
    having = [s for s in sentences if s.context and s.tokens["none"]]
    if not having:
        raise CotextError(
            "no sentence has context: the system translates single sentences, or every document has only one"
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
    scorer: DocumentTranslator, document: ParallelDocument, selected: Sequence[int] | None = None
) -> list[Excerpt]:
    """Return for each (selected) sentence the part of the document that is visible to it, as a document.

    If this part would be split into windows differently than in the document, the whole document is used.
    """
    visible = scorer.visible_sentences(Document(document.id, document.source))
    by_window = {range(len(visible)): visible}
    parts = []
    for number in range(len(visible)) if selected is None else selected:
        window = visible[number]
        if window not in by_window:
            by_window[window] = scorer.visible_sentences(
                Document(document.id, document.source[window.start : window.stop])
            )
        same = by_window[window][number - window.start] == range(len(window))
        parts.append(excerpt(document, window, number, whole=not same))
    return parts


def edited(original: Excerpt, condition: str, others: Sequence[Pair], random: Random) -> Excerpt:
    if condition == "true":
        return original
    if condition == "none":
        return alone(original)
    return shuffled(original, random) if condition == "shuffled" else replaced(original, others, random)


def conditions_of(
    excerpts_of: Sequence[Excerpt], conditions: Sequence[str], others: Sequence[Pair], seed: int
) -> list[dict[str, Excerpt]]:
    """Return every excerpt under every condition; random draws depend on seed, document and sentence."""
    edits = []
    for number, original in enumerate(excerpts_of):
        drawn = {c: Random(f"{seed} {c} {number} {original.document.id}") for c in conditions}
        edits.append({c: edited(original, c, others, drawn[c]) for c in conditions})
    return edits


class Pool:
    """The sentences of a corpus that have words on both sides, from which random context is drawn."""

    def __init__(self, documents: Sequence[ParallelDocument]) -> None:
        self.pairs: list[Pair] = []
        self.bounds = [0]
        for document in documents:
            pairs = zip(document.source, document.target, strict=True)
            self.pairs += [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
            self.bounds.append(len(self.pairs))

    def without(self, number: int) -> list[Pair]:
        """Return the sentences of all documents except one."""
        return self.pairs[: self.bounds[number]] + self.pairs[self.bounds[number + 1] :]


def groups_of(documents: int) -> list[range]:
    """Return the numbers of documents that are scored together, in order."""
    firsts = range(0, documents, DOCUMENTS_AT_ONCE)
    return [range(first, min(first + DOCUMENTS_AT_ONCE, documents)) for first in firsts]


def measure_group(
    scorer: DocumentTranslator,
    documents: Sequence[ParallelDocument],
    numbers: Sequence[int],
    pool: Pool,
    conditions: Sequence[str],
    seed: int,
) -> list[SentenceUse]:
    """Score every sentence of some documents under every condition, always with `none`."""
    ordered = tuple(c for c in CONDITIONS if c in conditions or c == "none")
    edits = [
        conditions_of(excerpts(scorer, documents[number]), ordered, pool.without(number), seed)
        for number in numbers
    ]
    flat = [item for of_document in edits for of_sentence in of_document for item in of_sentence.values()]
    scores = iter(score_excerpts(scorer, flat))
    uses = []
    for number, of_document in zip(numbers, edits, strict=True):
        for index, of_sentence in enumerate(of_document):
            tokens = {condition: next(scores) for condition in of_sentence}
            context = len(of_sentence["true"].context) if "true" in of_sentence else 0
            uses.append(SentenceUse(documents[number].id, index, context, tokens))
    return uses


def check_conditions(conditions: Sequence[str], documents: int) -> None:
    """Raise CotextError if `conditions` cannot be measured with this number of documents."""
    if "true" not in conditions:
        raise CotextError("the other contexts are compared with the true context: choose true, too")
    if "random" in conditions and documents < 2:
        raise CotextError("random context needs other documents, but there is only one; choose true context")


def score_excerpts(scorer: DocumentTranslator, excerpts_scored: Sequence[Excerpt]) -> list[tuple[float, ...]]:
    """Return log-probabilities of the tokens of every excerpt's sentence; equal excerpts are scored once."""
    sentences: dict[tuple[tuple[str, ...], tuple[str, ...]], set[int]] = {}
    for item in excerpts_scored:
        sentences.setdefault((item.document.source, item.document.target), set()).add(item.sentence)
    documents = [(ParallelDocument("", *sides), sorted(numbers)) for sides, numbers in sentences.items()]
    scores = {
        (document.source, document.target, number): tokens
        for (document, numbers), members in zip(documents, scorer.score_tokens(documents), strict=True)
        for number, tokens in zip(numbers, members, strict=True)
    }
    return [scores[item.document.source, item.document.target, item.sentence] for item in excerpts_scored]


@dataclass(frozen=True, slots=True)
class Influence:
    """The effect of a context sentence on the tokens of a sentence: log p with it minus log p without it."""

    number: int  # index of the context sentence in its document
    tokens: tuple[float, ...]

    @property
    def nats(self) -> float:
        """Return the change of the sentence's log-probability."""
        return sum(self.tokens)

    @property
    def change(self) -> float:
        """Return the sum of the absolute changes of the tokens."""
        return sum(abs(value) for value in self.tokens)


@dataclass(frozen=True, slots=True)
class SentenceInfluences:
    """A sentence, its CXMI per token, and the influence of each context sentence, in document order."""

    excerpt: Excerpt
    cxmi: tuple[float, ...]
    influences: tuple[Influence, ...]

    @property
    def most(self) -> Influence | None:
        """Return the influence of the context sentence with the largest `change`; None without context."""
        return max(self.influences, key=lambda influence: influence.change, default=None)


def influences(scorer: DocumentTranslator, document: ParallelDocument) -> list[SentenceInfluences]:
    """Measure, for every sentence, the effect of removing each of its context sentences, and all of them."""
    variants = [counterfactuals(variant) for variant in excerpts(scorer, document)]
    scores = iter(score_excerpts(scorer, [variant for of_sentence in variants for variant in of_sentence]))
    return [influences_of([(variant, next(scores)) for variant in of_sentence]) for of_sentence in variants]


def counterfactuals(original: Excerpt) -> list[Excerpt]:
    """Return the variants of a sentence to score: in its excerpt, alone, without each context sentence."""
    return [original, alone(original), *(without(original, place) for place in original.context)]


def influences_of(scored: Sequence[tuple[Excerpt, Sequence[float]]]) -> SentenceInfluences:
    """Return the influences on a sentence from the log-probabilities of its `counterfactuals`."""
    (original, full), (_, bare), *others = scored
    changes = [_minus(full, tokens) for _, tokens in others]
    of_context = []
    for place, change in zip(original.context, changes, strict=True):
        number = original.numbers[place]
        assert number is not None
        of_context.append(Influence(number, change))
    return SentenceInfluences(original, _minus(full, bare), tuple(of_context))


def _minus(a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def word_lengths(decode: Callable[[Sequence[int]], str], tokens: Sequence[int]) -> list[int]:
    """Return the number of tokens of each word, for words separated by spaces; they sum to all tokens.

    A token belongs to the last word of the text up to and including it. Without spaces, each token is a word.
    """
    ends = [max(1, len(decode(tokens[: i + 1]).split())) for i in range(len(tokens))]
    if ends and ends[-1] == 1:
        return [1] * len(tokens)
    # A further token may merge words, so `ends` can decrease: use its maximum so far.
    word = [max(ends[: i + 1]) for i in range(len(ends))]
    return [word.count(n) for n in sorted(set(word))]


# --- CXMI of a corpus: `cotext cxmi`.

DIGITS = 5


@dataclass(frozen=True, slots=True)
class CorpusUse:
    """CXMI per condition except "none"; `without_path`: number of excluded sentences (no CTC alignment)."""

    signature: str
    sentences: tuple[SentenceUse, ...]
    means: tuple[ConditionMean, ...]
    without_path: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": "cotext-cxmi",
            "version": 1,
            "signature": self.signature,
            "unit": "nats",
            "without_path": self.without_path,
            "conditions": {
                mean.condition: {
                    "sentences_with_context": mean.sentences,
                    "tokens": mean.tokens,
                    "per_sentence": mean.per_sentence,
                    "per_token": mean.per_token,
                    "share_above_zero": mean.share_above,
                }
                for mean in self.means
            },
            "sentences": [
                {
                    "document": use.document,
                    "sentence": use.number + 1,
                    "context": use.context,
                    "cxmi": {m.condition: round(use.cxmi(m.condition), DIGITS) for m in self.means},
                    "tokens": [round(value, DIGITS) for value in use.token_cxmi()],
                }
                for use in self.sentences
            ],
        }

    def render(self) -> str:
        rows = [["context", "nats/sentence", "nats/token", "above 0"]]
        for mean in self.means:
            share = f"{100 * mean.share_above:.1f} %"
            rows.append([mean.condition, f"{mean.per_sentence:+.4f}", f"{mean.per_token:+.5f}", share])
        rows.append(["none", "0", "0", ""])
        mean = self.means[0]
        counts = (
            f"{mean.sentences:,} of {len(self.sentences):,} sentences have context; {mean.tokens:,} tokens"
        )
        if self.without_path:
            counts += f"; {self.without_path:,} have no valid CTC alignment and are excluded"
        return "\n".join([render_rows(rows, left=1), counts, self.signature])


def measure_corpus(opened: OpenedRun, request: CxmiRequest, progress: Meter) -> CorpusUse:
    """Score reference translations under every condition; raise the errors of `read_checked`."""
    documents, translator = read_checked(opened, request), opened.translator
    progress.restart(sum(map(len, documents)))
    pool, uses = Pool(documents), list[SentenceUse]()
    for group in groups_of(len(documents)):
        uses += measure_group(translator, documents, group, pool, request.conditions, request.seed)
        progress.advance(sum(len(documents[number]) for number in group))
    return _corpus_use(documents, uses, request.conditions, _signature(opened, request))


def _signature(opened: OpenedRun, request: CxmiRequest) -> str:
    drawn = len(request.conditions) > 2  # in addition to none and true
    return f"{scoring_signature(opened)}{f'|seed:{request.seed}' if drawn else ''}"


def read_checked(opened: OpenedRun, request: CxmiRequest) -> list[ParallelDocument]:
    """Read a parallel corpus and check that CXMI can be computed for it with this run.

    Raises CotextError if files are unreadable, unequal or swapped, a sentence is too long, or none has
    context.
    """
    source, target, translator = request.source, request.target, opened.translator
    documents = list(read_parallel(source, second_file(source, target), request.format))
    check_conditions(request.context or request.conditions, len(documents))
    check_sides(opened.languages, source, target, f"{opened.folder} translates")
    translator.plan.require_token_probabilities()
    translator.check_pairs(documents)
    if all(
        len(visible) < 2
        for document in documents
        for visible in translator.visible_sentences(Document(document.id, document.source))
    ):
        raise CotextError(
            f"{opened.folder}: no sentence of {source} has another sentence in its context window; "
            "measure a system with context, on documents of several sentences"
        )
    return documents


def _corpus_use(
    documents: Sequence[ParallelDocument],
    uses: Sequence[SentenceUse],
    conditions: Sequence[str],
    signature: str,
) -> CorpusUse:
    means = tuple(mean_use(uses, condition) for condition in conditions if condition != "none")
    pairs = ((s, t) for d in documents for s, t in zip(d.source, d.target, strict=True))
    without_path = sum(
        bool(s.strip() and t.strip()) and not use.tokens["none"]
        for use, (s, t) in zip(uses, pairs, strict=True)
    )
    return CorpusUse(signature, tuple(uses), means, without_path)


class CorpusUseJob(Job[None]):
    """The scoring of the documents of a shard under every condition; see `measure_corpus`.

    Documents in common batches stay in one shard, so results are the same as without shards. All documents
    are read, because random context is drawn from them. Raises CotextError if an input is not a regular file.
    """

    command, unit = "cxmi", "groups of documents"

    def __init__(self, opened: OpenedRun, request: CxmiRequest) -> None:
        assert request.out is not None
        self.out, self.shard = request.out, request.part()
        self._translator, self._request = opened.translator, request
        files = [request.source, *filter(None, [second_file(request.source, request.target)])]
        digests = checksums_of(files, request.format)
        self._documents = read_checked(opened, request)
        self._groups = groups_of(len(self._documents))
        self.sizes = [sum(len(self._documents[number]) for number in group) for group in self._groups]
        self.identity = {
            "inputs": digests,
            "format": request.format or "",
            "asked": {"context": request.conditions, "seed": request.seed},
            **systems_of(opened),
        }
        paths = [str(path.absolute()) for path in files]
        self.facts = {"files": paths, "signature": _signature(opened, request)}

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        translator, documents, request = self._translator, self._documents, self._request
        pool = Pool(documents)
        for unit in todo:
            group = self._groups[unit]
            uses = measure_group(translator, documents, group, pool, request.conditions, request.seed)
            yield unit, {"sentences": [asdict(use) for use in uses]}
            on_size(self.sizes[unit])


def joined_use(parts: Joined) -> CorpusUse:
    """Return the results of a corpus that shards have scored; raise CotextError if a file has changed."""
    job, facts = parts.header.identity, parts.header.facts
    files, format = [Path(name) for name in facts["files"]], job["format"] or None
    if checksums_of(files, format) != job["inputs"]:
        names = " and ".join(map(str, files))
        raise CotextError(f"{names}: changed since the shards scored it; restore it")
    documents = list(read_parallel(files[0], files[1] if files[1:] else None, format))
    uses: list[SentenceUse] = []
    for unit in range(len(groups_of(len(documents)))):
        for use in parts[unit]["sentences"]:
            tokens = {condition: tuple(values) for condition, values in use["tokens"].items()}
            uses.append(SentenceUse(use["document"], use["number"], use["context"], tokens))
    return _corpus_use(documents, uses, job["asked"]["context"], facts["signature"])


# --- The document of an analysis, the run that is analysed with it, and translations by a run.


def translated(
    translator: DocumentTranslator,
    documents: Sequence[Document],
    on_sentences: Callable[[int], None] = lambda count: None,
) -> list[Document]:
    translations = dict(translator.translate(documents, on_sentences))
    return [translations[index].document for index in range(len(documents))]


def translated_once(
    translator: DocumentTranslator,
    sources: Sequence[tuple[str, ...]],
    on_sentences: Callable[[int], None] = lambda count: None,
) -> list[Document]:
    """Translate sources, each a document; equal sources are translated once."""
    distinct = [Document(str(n), source) for n, source in enumerate(dict.fromkeys(sources))]
    pairs = zip(distinct, translated(translator, distinct, on_sentences), strict=True)
    by_source = {document.sentences: translation for document, translation in pairs}
    return [by_source[source] for source in sources]


def translated_by(run: OpenedRun, document: ParallelDocument) -> ParallelDocument:
    [translation] = translated(run.translator, [Document(document.id, document.source)])
    return ParallelDocument(document.id, document.source, translation.sentences)


def open_document(request: DocumentRequest, translates: bool = True) -> tuple[OpenedRun, ParallelDocument]:
    """Load the run and the document to analyse; check that the run can score it and, if needed, translate it.

    Without a target, target sentences are empty. With a target and `translates=False`, the run only needs to
    score. Raises CotextError if the run, device, document or target does not exist, or does not fit the run.
    """
    source, target = request.document, request.target
    if target is not None:
        documents = iter(read_parallel(source, second_file(source, target), request.format))
    else:
        sides = read_documents(source, request.format)
        documents = (ParallelDocument(d.id, d.sentences, ("",) * len(d)) for d in sides)
    ids = []
    for document in documents:
        if request.id in (None, document.id):
            break
        ids.append(document.id)
    else:
        near = nearest(str(request.id), ids, 3) or ids[:3]
        raise CotextError(
            f"{source}: no document '{request.id}' among its {len(ids):,} documents: {', '.join(near)}"
            f"{' ...' if len(ids) > len(near) else ''}"
        )
    translates = translates or target is None
    open_one = open_run if translates else open_scorer
    opened = open_one(request.run, request.device, dict(request.decode), request.checkpoint)
    translator = opened.translator
    check_sides(opened.languages, source, target, f"{request.run} translates")
    if translates:
        translator.check([Document(document.id, document.source)])
    else:
        translator.check_pairs([document])
    if not any(translator.tokenizer.encode_batch(document.source)):
        raise CotextError(f"{source}: document {document.id} has no words; there is nothing to analyse")
    return opened, document
