"""Reports, tables of scores and n-best lists of corpus files; the scoring of translated files."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from cotext.data.documents import Document, ParallelDocument, check_sides
from cotext.data.formats import read_parallel
from cotext.data.formats.line_formats import find_side_file
from cotext.data.formats.streams import atomic_sinks, check_readable
from cotext.data.nbest_lists import ListedDocument, finite, lists_beside, write_documents
from cotext.runtime import CotextError, naming, shown
from cotext.runtime.files import checksum
from cotext.runtime.jobs.engine import Job, Joined
from cotext.runtime.jobs.journal import Journal, Shard
from cotext.translation.faults import checked
from cotext.translation.open import OpenedRun, scoring_signature, systems_of
from cotext.translation.scorer import SentenceScore
from cotext.translation.terms.terms import TermReport
from cotext.translation.translator import OF_SENTENCES, Translation

COLUMNS = ("document", "sentence", "log_probability", "tokens")
ScoredDocument = tuple[str, list[SentenceScore]]  # its id, and a score for every sentence


def require_column(document: str) -> None:
    """Raise CotextError for a document id with a tab or a line break, which would end a column or line."""
    if any(c in document for c in "\t\n\r"):
        raise CotextError(
            f"document id {shown(document)} contains a tab or a line break, which would shift the columns of "
            "the table; rename the document, or use `cotext score --json`"
        )


def score_lines(documents: Iterable[ScoredDocument]) -> Iterator[str]:
    """Yield the lines of a table with tabs between columns: a heading, then one line per sentence."""
    yield "\t".join(COLUMNS)
    for document, scores in documents:
        require_column(document)
        for number, score in enumerate(scores, start=1):
            yield f"{document}\t{number}\t{score.log_probability:.6f}\t{score.tokens}"


def score_figures(documents: Iterable[ScoredDocument], signature: str) -> dict[str, Any]:
    """Return scores as JSON content; a probability of 0, possible in non-autoregressive models, is None."""
    listed = [
        {
            "id": document,
            "log_probabilities": [finite(score.log_probability) for score in scores],
            "tokens": [score.tokens for score in scores],
        }
        for document, scores in documents
    ]
    return {"format": "cotext-scores", "version": 1, "signature": signature, "documents": listed}


def write_scores(path: Path, translations: Iterable[Translation]) -> None:
    """Write the log-probabilities of the output tokens of every sentence."""
    documents = (
        (t.document.id, list(map(SentenceScore, t.log_probabilities, t.tokens))) for t in translations
    )
    with atomic_sinks([path]) as [sink]:
        for line in score_lines(documents):
            sink.write(f"{line}\n")


def write_lists(
    out: Path,
    pairs: Iterable[ParallelDocument],
    translations: Iterable[Translation],
    nbest: int,
    signature: str,
) -> None:
    """Write the n-best lists of a translated corpus; `pairs`: its source and the written output.

    Sentences without text are not translated. Their list has one entry, the output line.
    """
    sides = ((p.id, zip(p.target, t.lists, strict=True)) for p, t in zip(pairs, translations, strict=True))
    documents = (
        ListedDocument(id, tuple((first._replace(text=text), *others) for text, (first, *others) in lists))
        for id, lists in sides
    )
    with atomic_sinks([lists_beside(out)]) as [sink]:
        write_documents(sink, documents, nbest, f"{signature}|nbest:{nbest}")


def checksums_of(paths: Iterable[Path], format: str | None) -> list[str]:
    """Return the SHA-256 of corpus files and their side files; raise CotextError if one is not regular."""
    checksums = []
    for path in paths:
        check_readable(path)
        if not path.is_file():
            raise CotextError(
                f"{path}: is not a regular file, but must be read more than once; copy it to a regular file"
            )
        side_file = find_side_file(path) if format in (None, "docids") else None
        checksums += [checksum(file) for file in (path, side_file) if file is not None]
    return checksums


# --- The report of a translated file, and the translated documents of a corpus, which are counted in it.


@dataclass(slots=True)
class FileReport:
    """Counts of a translated file, and its sentences that a person should check.

    Sentences are named `document:sentence`, or by their place in files that are not a corpus. `messages`
    state what was not translated and how the file was read.
    """

    format: str = ""
    documents: int = 0
    sentences: int = 0
    resumed_documents: int = 0
    recovered_documents: int = 0
    recovered_pieces: int = 0
    pieces: int = 0
    piece: str = "windows"  # name of the pieces in messages
    align: str = "constrained"
    truncated: list[str] = field(default_factory=list)  # at the length limit
    long: list[str] = field(default_factory=list)  # longer than any sentence used in training
    shed: list[str] = field(default_factory=list)  # with less context than the view allows
    missing: list[str] = field(default_factory=list)  # without text; only in free search
    resegmented: list[str] = field(default_factory=list)  # with subwords that differ from the tokenizer's
    signature: str = ""
    messages: list[str] = field(default_factory=list)
    is_corpus: bool = True
    terms: TermReport | None = None  # only with a glossary or words to keep
    taken: int = 0  # sentences from a translation memory
    faults: dict[str, list[str]] = field(default_factory=dict)  # places by kind of fault
    lists: str = ""  # file with n-best lists, if any
    scored: bool = True  # False with decode.scores = false

    @property
    def places(self) -> str:
        """The words before names of sentences in messages."""
        return "document:sentence" if self.is_corpus else "at"

    def count(self, translation: Translation, places: Sequence[str]) -> None:
        """Count the translation of a document; `places` are the names of its sentences."""
        self.documents += 1
        self.recovered_documents += translation.recovered
        self.recovered_pieces += sum(translation.pieces)
        self.pieces += len(translation.pieces)
        for name in OF_SENTENCES:
            getattr(self, name).extend(places[j] for j in getattr(translation, name))


def paired(document: Document, translation: Translation) -> ParallelDocument:
    """Return source and translation of a document, as they are written."""
    # A sentence without visible characters is copied. One that the model omitted stays empty.
    sides = zip(document.sentences, translation.document.sentences, strict=True)
    target = (t if t or j in translation.missing else s for j, (s, t) in enumerate(sides))
    return ParallelDocument(document.id, document.sentences, tuple(target))


def reported(
    documents: Iterable[Document],
    translations: Iterable[Translation],
    report: FileReport,
    languages: tuple[str, str],
) -> Iterator[ParallelDocument]:
    """Yield source and translation of documents, in input order, and fill the report."""

    def counted() -> Iterator[ParallelDocument]:
        for document, translation in zip(documents, translations, strict=True):
            report.count(translation, [f"{document.id}:{j + 1}" for j in range(len(document))])
            report.sentences += len(document)
            report.scored &= bool(translation.log_probabilities)
            yield paired(document, translation)

    return checked(counted(), languages, report.faults)


# --- Scoring of translated files, complete or in shards.


def score_file(
    opened: OpenedRun, source: Path, target: Path | None, *, format: str | None = None, columns: bool = True
) -> tuple[Iterator[ScoredDocument], str]:
    """Score a translation: yield documents with the scores of their sentences; also return the signature.

    The tokenizer splits the text into subwords, even if the system that wrote it used other subwords (`cotext
    translate --scores` writes the scores of those). `columns`: document ids must fit into a table.

    Raises CotextError if file names show swapped sides, the files have different lengths, a sentence is
    longer than allowed, or an id does not fit. The error is raised before any work or, for a pipe, when the
    document is reached.
    """
    translator = opened.translator
    check_sides(opened.languages, source, target, f"{opened.folder} translates")
    paths = [path for path in (source, target) if path is not None]

    documents = partial(_documents, source, target, format, columns)
    # A pipe can be read only once: it is checked while it is scored.
    if all(path.is_file() for path in paths):
        with naming(*paths):
            translator.check_pairs(documents())
    scored = ((document.id, translator.score([document])[0]) for document in documents())
    return scored, scoring_signature(opened)


def _documents(
    source: Path, target: Path | None, format: str | None, columns: bool
) -> Iterator[ParallelDocument]:
    for document in read_parallel(source, target, format):
        if columns:
            require_column(document.id)
        yield document


class ScoreJob(Job[None]):
    """The scoring of the documents of a shard of regular files, like `score_file`."""

    command, unit = "score", "documents"

    def __init__(
        self,
        opened: OpenedRun,
        source: Path,
        target: Path | None,
        out: Path,
        shard: Shard,
        *,
        format: str | None = None,
        columns: bool = True,
    ) -> None:
        self.out, self.shard = out, shard
        self._translator = opened.translator
        self._documents = partial(_documents, source, target, format, columns)
        check_sides(opened.languages, source, target, f"{opened.folder} translates")
        paths = [path for path in (source, target) if path is not None]
        self.identity = {"inputs": checksums_of(paths, format), "format": format or "", **systems_of(opened)}
        self.facts = {"signature": scoring_signature(opened)}
        self.sizes = [len(document.source) for document in self._documents()]
        with naming(*paths):
            self._translator.check_pairs(islice(self._documents(), self.units.start, self.units.stop))

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        remaining = set(todo)
        documents = islice(self._documents(), self.units.start, self.units.stop)
        for unit, document in enumerate(documents, self.units.start):
            if unit in remaining:
                [scores] = self._translator.score([document])
                numbers = [score.log_probability for score in scores], [score.tokens for score in scores]
                yield unit, {"id": document.id, "log_probabilities": numbers[0], "tokens": numbers[1]}
                on_size(self.sizes[unit])


def joined_scores(parts: Joined) -> tuple[Iterator[ScoredDocument], str]:
    """Return the scores of all shards, in the form of `score_file`."""
    scored = (
        (entry["id"], list(map(SentenceScore, entry["log_probabilities"], entry["tokens"])))
        for entry in parts.values()
    )
    return scored, parts.header.facts["signature"]
