"""Conditional cross-mutual information (CXMI) of a corpus: `cotext cxmi`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cotext.data.documents import Document, ParallelDocument, check_sides
from cotext.data.formats import read_parallel, second_file
from cotext.evaluation.requests import CxmiRequest
from cotext.evaluation.studies.context.context_use import (
    ConditionMean,
    Pool,
    SentenceUse,
    check_conditions,
    groups_of,
    mean_use,
    measure_group,
)
from cotext.runtime import CotextError, __version__
from cotext.runtime.jobs.engine import Job, Joined
from cotext.runtime.jobs.journal import Journal
from cotext.runtime.rendering import render_rows
from cotext.translation.corpus_files import checksums_of
from cotext.translation.open import OpenedRun, systems_of

DIGITS = 5


@dataclass(frozen=True, slots=True)
class CorpusUse:
    """CXMI per condition except "none"; `without_path`: excluded sentences without a valid CTC alignment."""

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


def measure_corpus(
    opened: OpenedRun,
    request: CxmiRequest,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> CorpusUse:
    """Score reference translations under every condition; raise the errors of `read_checked`."""
    documents, translator = read_checked(opened, request), opened.translator
    on_start(sum(map(len, documents)))
    pool, uses = Pool(documents), list[SentenceUse]()
    for group in groups_of(len(documents)):
        uses += measure_group(translator, documents, group, pool, request.conditions, request.seed)
        on_sentences(sum(len(documents[number]) for number in group))
    signature = f"{opened.signature}|seed:{request.seed}|unit:nats"
    return _corpus_use(documents, uses, request.conditions, signature)


def read_checked(opened: OpenedRun, request: CxmiRequest) -> list[ParallelDocument]:
    """Read a parallel corpus and check that CXMI can be computed for it with this run.

    Raises CotextError for unreadable, unequal or swapped files, too long sentences, and no context at all.
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

    Documents that share batches are never divided, so that results stay equal. All documents are read,
    because random context is drawn from them. Raises CotextError for an input that is not a regular file.
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
            "cotext": __version__,
            "inputs": digests,
            "format": request.format or "",
            "asked": {"context": request.conditions, "seed": request.seed},
            **systems_of(opened),
        }
        paths = [str(path.absolute()) for path in files]
        self.facts = {"files": paths, "signature": f"{opened.signature}|seed:{request.seed}|unit:nats"}

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
