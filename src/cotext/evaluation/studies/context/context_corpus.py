"""Conditional cross-mutual information (CXMI) of a corpus: `cotext cxmi`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cotext.data.documents import Document, ParallelDocument
from cotext.evaluation.metrics.interface import Score, evaluate
from cotext.evaluation.requests import CxmiRequest
from cotext.evaluation.studies.context.context_use import (
    ConditionMean,
    Pool,
    SentenceUse,
    check_conditions,
    conditions_of,
    excerpts,
    groups_of,
    mean_use,
    measure,
    measure_group,
)
from cotext.evaluation.studies.corpus_texts import (
    check_languages,
    corpus_checksums,
    corpus_files,
    corpus_texts,
    digest_of_texts,
)
from cotext.runtime.errors import CotextError
from cotext.runtime.jobs.engine import Job, Joined
from cotext.runtime.jobs.journal import Journal
from cotext.runtime.tables import render_rows
from cotext.runtime.version import __version__
from cotext.translation.open import OpenedRun
from cotext.translation.signature import systems_of
from cotext.translation.translator import DocumentTranslator

DIGITS = 5


@dataclass(frozen=True, slots=True)
class CorpusUse:
    """CXMI per context condition and, if requested, the scores of the translations under each condition.

    `means`: for every condition except "none". `texts`: digest of the corpus. `without_path`: sentences
    without a valid CTC alignment, which are excluded.
    """

    signature: str
    sentences: tuple[SentenceUse, ...]
    means: tuple[ConditionMean, ...]
    scores: dict[str, tuple[Score, ...]]
    texts: str
    without_path: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": "cotext-cxmi",
            "version": 1,
            "signature": self.signature,
            "unit": "nats",
            "texts": self.texts,
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
            "quality": {name: [score.as_dict() for score in scores] for name, scores in self.scores.items()},
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
        """Format as text, a line for every condition."""
        protocols = [score.title for score in next(iter(self.scores.values()), ())]
        rows: list[list[str]] = [["context", "nats/sentence", "nats/token", "above 0", *protocols]]
        by_condition = {mean.condition: mean for mean in self.means}
        for condition in (*by_condition, "none"):
            cells = ["0", "0", ""]
            if condition in by_condition:
                mean = by_condition[condition]
                share = f"{100 * mean.share_above:.1f} %"
                cells = [f"{mean.per_sentence:+.4f}", f"{mean.per_token:+.5f}", share]
            rows.append([condition, *cells, *(f"{s.value:.2f}" for s in self.scores.get(condition, ()))])
        mean = self.means[0]
        counts = (
            f"{mean.sentences:,} of {len(self.sentences):,} sentences have context; {mean.tokens:,} tokens"
        )
        if self.without_path:
            counts += f"; {self.without_path:,} have no valid CTC alignment and are excluded"
        signatures = [score.signature for score in next(iter(self.scores.values()), ())]
        return "\n".join([render_rows(rows, left=1), counts, *signatures, self.signature])


def measure_corpus(
    opened: OpenedRun,
    request: CxmiRequest,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> CorpusUse:
    """Score reference translations under every condition; if requested, also translate under each.

    `on_start` is called with the number of sentences, `on_sentences` with the number of newly scored
    sentences after each group of documents.

    Raises:
        CotextError: the errors of `read_checked`.
    """
    documents, translator = read_checked(opened, request), opened.translator
    on_start(sum(map(len, documents)))
    uses = list(measure(translator, documents, request.conditions, request.seed, on_sentences))
    written = {}
    if request.translate:
        pool, everything = Pool(documents), range(len(documents))
        for condition in request.conditions:
            written[condition] = translate_under(
                translator, documents, everything, pool, condition, request.seed
            )
    signature = f"{opened.signature}|seed:{request.seed}|unit:nats"
    return _corpus_use(documents, uses, written, request, signature)


def read_checked(opened: OpenedRun, request: CxmiRequest) -> list[ParallelDocument]:
    """Read a parallel corpus and check that CXMI can be computed for it with this run.

    Raises:
        CotextError: unreadable or unequal files, files in the wrong order of languages, a sentence over the
            limit, no context at all.
    """
    source, target, translator = request.source, request.target, opened.translator
    documents = corpus_texts(source, target, request.format)
    check_conditions(request.context or request.conditions, len(documents))
    check_languages(opened.languages, source, target, f"{opened.folder} translates")
    if request.translate:
        translator.check(_sources(documents))
    translator.plan.require_token_probabilities()
    translator.check_pairs(documents)
    if all(
        len(visible) < 2
        for document in _sources(documents)
        for visible in translator.visible_sentences(document)
    ):
        raise CotextError(
            f"{opened.folder}: no sentence of {source} has another sentence in its context window; "
            "measure a system with context, on documents of several sentences"
        )
    return documents


def _corpus_use(
    documents: Sequence[ParallelDocument],
    uses: Sequence[SentenceUse],
    written: Mapping[str, Sequence[Document]],
    request: CxmiRequest,
    signature: str,
) -> CorpusUse:
    """Compute the results of a corpus from its scored sentences, and `written` translations by condition."""
    means = tuple(mean_use(uses, condition) for condition in request.conditions if condition != "none")
    references = [Document(d.id, d.target) for d in documents]
    scores = {
        condition: tuple(evaluate(list(written[condition]), references, request.protocols))
        for condition in written
    }
    pairs = ((s, t) for d in documents for s, t in zip(d.source, d.target, strict=True))
    without_path = sum(
        bool(s.strip() and t.strip()) and not use.tokens["none"]
        for use, (s, t) in zip(uses, pairs, strict=True)
    )
    return CorpusUse(signature, tuple(uses), means, scores, digest_of_texts(documents), without_path)


def translate_under(
    translator: DocumentTranslator,
    documents: Sequence[ParallelDocument],
    numbers: Sequence[int],
    pool: Pool,
    condition: str,
    seed: int,
) -> list[Document]:
    """Translate every sentence of the numbered documents in its excerpt under a condition.

    The result has the same documents and sentences. The context on the target side is translated, too: target
    sentences of the corpus are not used. `pool` contains all documents.
    """
    indices: dict[tuple[str, ...], int] = {}
    of_documents: list[list[tuple[int, int]]] = []
    for number in numbers:
        of_document = []
        excerpts_of = excerpts(translator, documents[number])
        for edits in conditions_of(excerpts_of, [condition], pool.without(number), seed):
            excerpt = edits[condition]
            of_document.append((indices.setdefault(excerpt.document.source, len(indices)), excerpt.sentence))
        of_documents.append(of_document)
    todo = (Document(str(index), source) for source, index in indices.items())
    written = {index: excerpt.document.sentences for index, excerpt in translator.translate(todo)}
    return [
        Document(documents[number].id, tuple(written[index][sentence] for index, sentence in indices))
        for number, indices in zip(numbers, of_documents, strict=True)
    ]


def _sources(documents: Sequence[ParallelDocument]) -> Iterator[Document]:
    return (Document(d.id, d.source) for d in documents)


class CorpusUseJob(Job[None]):
    """The scoring of the documents of a shard under every condition; see `measure_corpus`.

    Documents that share batches are never divided, so that results stay equal. All documents are read,
    because random context is drawn from the whole corpus.

    Raises:
        CotextError: the errors of `measure_corpus`, or an input that is not a regular file.
    """

    command, unit = "cxmi", "groups of documents"

    def __init__(self, opened: OpenedRun, request: CxmiRequest) -> None:
        assert request.out is not None
        self.out, self.shard = request.out, request.part()
        self._translator, self._request = opened.translator, request
        source, target, format = request.source, request.target, request.format
        digests = corpus_checksums(source, target, format)
        self._documents = read_checked(opened, request)
        self._groups = groups_of(len(self._documents))
        self.sizes = [sum(len(self._documents[number]) for number in group) for group in self._groups]
        self.identity = {
            "cotext": __version__,
            "inputs": digests,
            "format": format or "",
            "asked": {
                "context": request.conditions,
                "seed": request.seed,
                "translate": request.translate,
                "protocol": request.protocol,
            },
            **systems_of(opened),
        }
        files = [str(path.absolute()) for path in corpus_files(source, target)]
        self.facts = {"files": files, "signature": f"{opened.signature}|seed:{request.seed}|unit:nats"}

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Score one group after the other, and translate it if requested."""
        translator, documents, request = self._translator, self._documents, self._request
        pool = Pool(documents)
        for unit in todo:
            group = self._groups[unit]
            uses = measure_group(translator, documents, group, pool, request.conditions, request.seed)
            written: dict[str, Any] = {}
            for condition in request.conditions if request.translate else ():
                texts = translate_under(translator, documents, group, pool, condition, request.seed)
                written[condition] = [text.sentences for text in texts]
            yield unit, {"sentences": [asdict(use) for use in uses], "written": written}
            on_size(self.sizes[unit])


def joined_use(parts: Joined) -> CorpusUse:
    """Return the results of a corpus that shards have scored.

    Raises:
        CotextError: a file was moved or changed; no sentence has context.
    """
    job, facts = parts.header.identity, parts.header.facts
    source, *targets = (Path(name) for name in facts["files"])
    target, format = targets[0] if targets else None, job["format"] or None
    if corpus_checksums(source, target, format) != job["inputs"]:
        names = " and ".join(map(str, (source, *targets)))
        raise CotextError(f"{names}: changed since the shards scored it; restore it")
    # The run is no longer needed.
    request = CxmiRequest(run=Path(), source=source, target=target, format=format, **job["asked"])
    documents = corpus_texts(source, target, format)
    uses: list[SentenceUse] = []
    written: dict[str, list[Document]] = {}
    for unit, group in enumerate(groups_of(len(documents))):
        entry = parts[unit]
        for use in entry["sentences"]:
            tokens = {condition: tuple(values) for condition, values in use["tokens"].items()}
            uses.append(SentenceUse(use["document"], use["number"], use["context"], tokens))
        for condition, texts in entry["written"].items():
            written.setdefault(condition, []).extend(
                Document(documents[number].id, tuple(sentences))
                for number, sentences in zip(group, texts, strict=True)
            )
    return _corpus_use(documents, uses, written, request, facts["signature"])
