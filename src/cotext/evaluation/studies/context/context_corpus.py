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
    """CXMI of a corpus by condition, and the quality of what is written under each, where that was asked."""

    signature: str
    sentences: tuple[SentenceUse, ...]
    means: tuple[ConditionMean, ...]  # of all conditions but none
    scores: dict[str, tuple[Score, ...]]
    texts: str  # their digest
    without_path: int = 0  # sentences that take no part: too long for their positions

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
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
                    "document": each.document,
                    "sentence": each.number + 1,
                    "context": each.context,
                    "cxmi": {m.condition: round(each.cxmi(m.condition), DIGITS) for m in self.means},
                    "tokens": [round(value, DIGITS) for value in each.token_cxmi()],
                }
                for each in self.sentences
            ],
        }

    def render(self) -> str:
        """A line for every condition."""
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
            counts += f"; {self.without_path:,} have no path, and take no part"
        signatures = [score.signature for score in next(iter(self.scores.values()), ())]
        return "\n".join([render_rows(rows, left=1), counts, *signatures, self.signature])


def measure_corpus(
    opened: OpenedRun,
    request: CxmiRequest,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> CorpusUse:
    """Score reference translations under every condition; if it is asked for, write under each, too.

    `on_start` is told how many sentences there are, and `on_sentences` of each few that are scored.

    Raises:
        CotextError: as `read_checked`.
    """
    documents, translator = read_checked(opened, request), opened.translator
    on_start(sum(map(len, documents)))
    found = list(measure(translator, documents, request.conditions, request.seed, on_sentences))
    written = {}
    if request.translate:
        pool, everything = Pool(documents), range(len(documents))
        for condition in request.conditions:
            written[condition] = translate_under(
                translator, documents, everything, pool, condition, request.seed
            )
    return _corpus_use(documents, found, written, request, _signature(opened, request))


def _signature(opened: OpenedRun, request: CxmiRequest) -> str:
    """The system and what is random."""
    return "|".join([opened.signature, f"seed:{request.seed}", "unit:nats"])


def read_checked(opened: OpenedRun, request: CxmiRequest) -> list[ParallelDocument]:
    """The documents of a corpus, which a run can be asked about.

    Raises:
        CotextError: unreadable or unequal files, files whose names are the languages of the run the wrong
            way round, a sentence over the limit, no context at all.
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
        len(visible) < 2 for each in _sources(documents) for visible in translator.visible_sentences(each)
    ):
        raise CotextError(
            f"{opened.folder}: no sentence of {source} is translated with another in its context window; "
            "measure a system with context, on documents of several sentences"
        )
    return documents


def _corpus_use(
    documents: Sequence[ParallelDocument],
    found: Sequence[SentenceUse],
    written: Mapping[str, Sequence[Document]],
    request: CxmiRequest,
    signature: str,
) -> CorpusUse:
    """The figures of a corpus all of whose sentences are scored, and `written` under the conditions."""
    means = tuple(mean_use(found, condition) for condition in request.conditions if condition != "none")
    references = [Document(d.id, d.target) for d in documents]
    scores = {
        condition: tuple(evaluate(list(written[condition]), references, request.protocols))
        for condition in written
    }
    pairs = ((s, t) for d in documents for s, t in zip(d.source, d.target, strict=True))
    without_path = sum(
        bool(s.strip() and t.strip()) and not use.tokens["none"]
        for use, (s, t) in zip(found, pairs, strict=True)
    )
    return CorpusUse(signature, tuple(found), means, scores, digest_of_texts(documents), without_path)


def translate_under(
    translator: DocumentTranslator,
    documents: Sequence[ParallelDocument],
    numbers: Sequence[int],
    pool: Pool,
    condition: str,
    seed: int,
) -> list[Document]:
    """Translate every sentence of the numbered documents in its excerpt under a condition.

    As many documents and sentences come back. The context is what is translated with it: target sentences of
    the corpus are not shown. `pool` is of all documents.
    """
    asked: dict[tuple[str, ...], int] = {}
    wanted: list[list[tuple[int, int]]] = []
    for number in numbers:
        of_document = []
        excerpts_of = excerpts(translator, documents[number])
        for made in conditions_of(excerpts_of, [condition], pool.without(number), seed):
            found = made[condition]
            of_document.append((asked.setdefault(found.document.source, len(asked)), found.sentence))
        wanted.append(of_document)
    todo = (Document(str(index), source) for source, index in asked.items())
    written = {index: found.document.sentences for index, found in translator.translate(todo)}
    return [
        Document(documents[number].id, tuple(written[index][sentence] for index, sentence in indices))
        for number, indices in zip(numbers, wanted, strict=True)
    ]


def _sources(documents: Sequence[ParallelDocument]) -> Iterator[Document]:
    return (Document(d.id, d.source) for d in documents)


class CorpusUseJob(Job[None]):
    """The scoring of the documents of a shard under every condition, as `measure_corpus` does.

    Documents that share batches are never divided, so that figures stay equal. All documents are read: random
    context is drawn from the whole corpus.

    Raises:
        CotextError: as `measure_corpus`, or an input that is not a regular file.
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
        self.facts = {"files": files, "signature": _signature(opened, request)}

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Score one group after the other, and translate it where that is asked."""
        translator, documents, request = self._translator, self._documents, self._request
        pool = Pool(documents)
        for unit in todo:
            group = self._groups[unit]
            found = measure_group(translator, documents, group, pool, request.conditions, request.seed)
            written: dict[str, Any] = {}
            for condition in request.conditions if request.translate else ():
                texts = translate_under(translator, documents, group, pool, condition, request.seed)
                written[condition] = [text.sentences for text in texts]
            yield unit, {"sentences": [asdict(use) for use in found], "written": written}
            on_size(self.sizes[unit])


def joined_use(parts: Joined) -> CorpusUse:
    """The figures of a corpus that shards have scored.

    Raises:
        CotextError: a file is not where it was, or has changed; no sentence has context.
    """
    job, facts = parts.header.identity, parts.header.facts
    source, *targets = (Path(name) for name in facts["files"])
    target, format = targets[0] if targets else None, job["format"] or None
    if corpus_checksums(source, target, format) != job["inputs"]:
        names = " and ".join(map(str, (source, *targets)))
        raise CotextError(f"{names}: not what the shards have scored; put that back")
    # The run is of no more use.
    request = CxmiRequest(run=Path(), source=source, target=target, format=format, **job["asked"])
    documents = corpus_texts(source, target, format)
    found: list[SentenceUse] = []
    written: dict[str, list[Document]] = {}
    for unit, group in enumerate(groups_of(len(documents))):
        entry = parts[unit]
        for use in entry["sentences"]:
            tokens = {condition: tuple(values) for condition, values in use["tokens"].items()}
            found.append(SentenceUse(use["document"], use["number"], use["context"], tokens))
        for condition, texts in entry["written"].items():
            written.setdefault(condition, []).extend(
                Document(documents[number].id, tuple(sentences))
                for number, sentences in zip(group, texts, strict=True)
            )
    return _corpus_use(documents, found, written, request, facts["signature"])
