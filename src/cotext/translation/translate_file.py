"""Translation of corpus files with a run: resumable, without partial output.

Every finished document is appended to `<out>.partial` at once. The output gets its name when it is complete.
The same command continues an interrupted job.

Re-ranking of n-best lists (`cotext rerank`) is such a job, too. Sentences are processed in order. A system
scores all translations in the list of a sentence, each after the translations chosen for the previous
sentences, and chooses the best. With a language model, this is the method of Sugiyama and Yoshinaga 2021.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field, fields
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from cotext.config.recipe import ViewConfig
from cotext.data.documents import Document, check_sides, name_warning, same_language
from cotext.data.formats import (
    FORMATS,
    check_output,
    detect_format,
    find_format,
    located_documents,
    read_documents,
    write_documents,
    write_translations,
)
from cotext.data.formats.line_formats import side_file_to_write
from cotext.data.formats.streams import same_file
from cotext.data.nbest_lists import Candidate, Candidates, ListedDocument, lists_beside, read_lists
from cotext.data.splitting import Splitter
from cotext.models.describe import describe_length_penalty
from cotext.runtime import CotextError, naming
from cotext.runtime.files import require_absent
from cotext.runtime.jobs.engine import Job, Joined, journal_of, run
from cotext.runtime.jobs.journal import DAMAGE, Journal, Results, Shard
from cotext.translation.corpus_files import (
    FileReport,
    checksums_of,
    paired,
    reported,
    require_column,
    write_lists,
    write_scores,
)
from cotext.translation.document_state import FoundWindow, SentenceHypothesis
from cotext.translation.open import OpenedRun, Terminology, scoring_signature, systems_of
from cotext.translation.prose import Prose
from cotext.translation.requests import RerankRequest
from cotext.translation.scorer import CandidateSet, DocumentScorer, KnownTokens, score_candidates
from cotext.translation.translator import DocumentTranslator, Translation

# All fields of a translation except the document.
_LISTS: Final = tuple(part.name for part in fields(Translation) if part.name != "document")


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a file is translated; the last three are only for corpora.

    `splitting`: split lines or paragraphs into sentences, translate these in context and join them. The value
    has additional abbreviations; None: do not split. `on_message` is called with messages for the user.
    `scores`: file for the log-probabilities of the output tokens, as a table. `by_window`: the journal
    also contains windows, for files that may be one long document. `shard`: the part to translate.
    """

    splitting: frozenset[str] | None = None
    terminology: Terminology = field(default_factory=Terminology)
    on_message: Callable[[str], None] = lambda text: None
    scores: Path | None = None
    by_window: bool = False
    shard: Shard | None = None


class CorpusJob(Job[FileReport]):
    """The translation of a corpus file into the same format, after all checks.

    The file is read several times, so it must be a regular file. Its documents stay in memory. `format`: name
    of its format; None: detected. `sentences` and `characters` count the translated text.

    Raises the errors of `translate_file` that can be found in advance.
    """

    command, unit = "translate", "documents"

    def __init__(
        self, opened: OpenedRun, source: Path, out: Path, format: str | None, options: FileOptions
    ) -> None:
        scores, shard = options.scores, options.shard
        self.source, self.out, self.shard, self.tell = source, out, shard, options.on_message
        self._by_window, self._terminology = options.by_window, options.terminology
        self._terminology.check(opened.translator)
        if self._terminology.memory is not None:
            raise CotextError(f"{source}: a translation memory cannot be used with a corpus; remove --memory")
        self.messages: list[str] = []
        self._translator, self._scores = opened.translator, scores
        self._translator.plan.check_passes()
        if scores is not None and not self._translator.plan.options.scored:
            raise CotextError(
                f"{scores}: there are no scores with decode.scores = false; remove this setting or --scores"
            )
        self._format = format or detect_format(source)
        find_format(self._format).require_written()
        checksums = checksums_of([source], self._format)
        if warning := name_warning(source, opened.languages.source, f"{opened.folder} translates"):
            self.tell(warning)
        if warning := _language_warning(source, self._format, opened):
            self.tell(warning)
        # All checks come before the work: a job may run for hours.
        _require_room_for_missing(source, self._format, self._translator)
        splitting, language = options.splitting, opened.languages.source
        splitter = None if splitting is None else Splitter(language, splitting)
        self._prose = Prose(splitter, opened.languages)
        self._documents: dict[int, Document] = {}
        self._first_prose = ""  # place of the first line with several sentences
        with naming(source):
            self.sentences = self._translator.check(self._read())
        if shard is None:
            self.sizes = list(map(len, self._documents.values()))
        self.characters = sum(len(s) for document in self._documents.values() for s in document.sentences)
        if message := self._prose.message(source, self._first_prose):
            self.tell(message)
        if opened.config.decode.nbest > 1:
            self._prose.require_a_sentence_a_line(self._first_prose)
        self.identity = job_header(checksums, self._format, opened, self._prose.settings, self._terminology)
        if shard is not None:
            self.identity["scores"] = scores is not None
        self.facts = {
            "source": str(source.absolute()),
            "format": self._format,
            "scores": "" if scores is None else str(scores.absolute()),
            "align": self._translator.plan.options.align,
            "piece": pieces_of(self._translator.config.view),
            "signature": opened.signature,
            "nbest": opened.config.decode.nbest,
            "languages": [opened.languages.source, opened.languages.target],
        }

    def _read(self) -> Iterator[Document]:
        """Read the documents of this shard or of the file; yield them as `Prose` splits them."""
        documents, first = located_documents(self.source, self._format), 0
        if self.shard is not None:
            self.sizes = list(map(len, read_documents(self.source, self._format)))
            first = self.units.start
            documents = islice(documents, first, self.units.stop)
        for unit, (document, place_of) in enumerate(documents, first):
            if self._scores is not None:
                require_column(document.id)
            self._documents[unit] = document
            split = self._prose.count(document)
            if not self._first_prose and self._prose.first is not None:
                self._first_prose = place_of(self._prose.first)
            yield split

    def size(self, unit: int) -> int:
        """Return the number of sentences of a document after splitting."""
        return len(self._prose.split(self._documents[unit]))

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        split = [self._prose.split(self._documents[unit]) for unit in todo]
        guide = self._terminology.guide(self._translator, [document.sentences for document in split])
        log = NotedWindows(journal, todo) if self._by_window else None
        for number, translation in self._translator.translate(split, on_size, guide, {}, log):
            unit = todo[number]
            yield unit, entry_of(self._prose.join(self._documents[unit], translation))

    def check(self, unit: int, entry: Mapping[str, Any]) -> None:
        require_translation(self._documents[unit], entry)

    def write(self, results: Results) -> FileReport:
        return _write_corpus(self.out, self._documents.values, self.facts, results)


def join_translations(out: Path, parts: Joined, overwrite: bool = False) -> FileReport:
    """Write the translation of a corpus from its shards, as one process does.

    Raises CotextError if the source was moved or has changed, files of scores or lists exist and `overwrite`
    is False, or a write fails.
    """
    facts = parts.header.facts
    if facts["scores"] and Path(facts["scores"]).exists() and not overwrite:
        raise CotextError(f"{facts['scores']}: exists; move it away, or add --overwrite to replace it")
    require_absent(lists_beside(out), overwrite)
    source = Path(facts["source"])
    if checksums_of([source], facts["format"]) != parts.header.identity["source"]:
        raise CotextError(f"{source}: is not the file that the shards have translated; restore that file")
    return _write_corpus(out, partial(read_documents, source, facts["format"]), facts, parts)


def _write_corpus(
    out: Path, documents: Callable[[], Iterable[Document]], facts: Mapping[str, Any], results: Results
) -> FileReport:
    def translations() -> Iterator[Translation]:
        return map(translation_of, results.values())

    format, signature = facts["format"], facts["signature"]
    report = FileReport(
        format=format,
        align=facts["align"],
        piece=facts["piece"],
        signature=signature,
        resumed_documents=results.resumed,
    )
    if facts["scores"]:
        write_scores(Path(facts["scores"]), translations())
    if facts["nbest"] > 1:
        report.lists = str(lists_beside(out))
        both = map(paired, documents(), translations())
        write_lists(out, both, translations(), facts["nbest"], signature)
    else:
        # Lists of an earlier translation would not belong to the new output.
        lists_beside(out).unlink(missing_ok=True)
    source, target = facts["languages"]
    pair = (source, target) if source and target else None
    pairs = reported(documents(), translations(), report, (source, target))
    write_translations(out, pairs, format, pair)
    return report


def translate_file(
    opened: OpenedRun,
    source: Path,
    out: Path,
    format: str | None = None,
    *,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> FileReport:
    """Translate a corpus file into the same format.

    `on_start` is called with the number of sentences, `on_sentences` with the number of newly finished ones.

    Raises CotextError if the input cannot be read, or a sentence is too long; or if the output cannot be
    written, is being written by another process, or has the progress of another job. Whatever can be known
    in advance is checked before any work is done.
    """
    check_outputs(out, None, [source])
    job = CorpusJob(opened, source, out, format, FileOptions())
    on_start(job.sentences)
    return run(job, on_sentences)


def check_outputs(out: Path, scores: Path | None, sources: Sequence[Path]) -> None:
    """Raise CotextError for outputs that cannot be written (see `check_output`) or are the same file."""
    # The journal and the lists must not replace an input either.
    written = out, journal_of(out), lists_beside(out)
    for path in written:
        check_output(path, sources)
    if scores is not None:
        check_output(scores, sources)
        if any(same_file(scores, path) for path in (*written, side_file_to_write(out))):
            raise CotextError(f"{scores}: --scores is a file that --out writes, too; choose another --scores")


def pieces_of(view: ViewConfig) -> str:
    """Return the name of the windows of a view; "sub-documents" is the term of Li et al. 2022, table VII."""
    return f"sub-documents of up to {view.max_tokens} tokens" if view.kind == "document" else "windows"


def _language_warning(source: Path, format: str, opened: OpenedRun) -> str:
    """Return a warning if the languages of a file and of the run differ; otherwise an empty string."""
    read, own = find_format(format).languages, opened.languages
    if read is None:
        return ""
    stated = read(source)
    pairs = zip(stated, (own.source, own.target), strict=True)
    if all(not theirs or not ours or same_language(theirs, ours) for theirs, ours in pairs):
        return ""
    named = "-".join(filter(None, stated))
    return f"{source}: states the languages {named}; {opened.folder} translates {own}"


def _require_room_for_missing(source: Path, kind: str, translator: DocumentTranslator) -> None:
    """Raise CotextError if search may omit sentences (free search), but the format needs all of them."""
    if translator.plan.options.align == "free" and not find_format(kind).holds_empty_sentences:
        able = ", ".join(name for name, row in FORMATS.items() if row.holds_empty_sentences)
        raise CotextError(
            f"{source}: decode.align = free may leave sentences without a translation, and the format {kind} "
            f"cannot hold empty ones; write the source as one of {able}, or choose decode.align = constrained"
        )


def job_header(
    sources: Sequence[str], format: str, opened: OpenedRun, split: str, terminology: Terminology
) -> dict[str, Any]:
    """Return all that a resumed job must share with the job that it resumes; `sources` are checksums."""
    terms = {"terms": terminology.settings} if terminology.settings else {}
    return {"source": sources, "format": format, **systems_of(opened), "split": split, **terms}


def entry_of(translation: Translation) -> dict[str, Any]:
    """Return the translation of a document as the result of a unit."""
    entry = asdict(translation)
    return {**entry.pop("document"), **entry}


def translation_of(entry: Mapping[str, Any]) -> Translation:
    """Reverse `entry_of`; raise KeyError, TypeError or ValueError if `entry` is not one of its results."""
    document = Document(entry["id"], tuple(entry["sentences"]))
    values: dict[str, Any] = {name: tuple(entry[name]) for name in _LISTS}
    values["lists"] = tuple(tuple(Candidate(*values) for values in texts) for texts in entry["lists"])
    return Translation(document, **values)


def require_translation(document: Document, entry: Mapping[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError if an entry is not a translation of a document."""
    translated = translation_of(entry).document
    if (translated.id, len(translated)) != (document.id, len(document)):
        raise ValueError(document.id)


class NotedWindows:
    """The log of finished windows in a journal; `units`: units of the translated documents."""

    def __init__(self, journal: Journal, units: Sequence[int]) -> None:
        self._journal, self._units = journal, units

    def found(self, document: int) -> Sequence[FoundWindow]:
        windows = []
        with suppress(*DAMAGE):  # damaged windows are searched again
            for note in self._journal.notes.get(self._units[document], ()):
                sentences = [
                    SentenceHypothesis(
                        tuple(map(int, tokens)), str(text), float(score), bool(cut), int(labels)
                    )
                    for tokens, text, score, cut, labels in note["found"]
                ]
                windows.append(FoundWindow(int(note["window"]), tuple(sentences), bool(note["exact"])))
        return windows

    def note(self, document: int, window: FoundWindow) -> None:
        sentences = [astuple(sentence) for sentence in window.sentences]
        content = {"window": window.number, "exact": window.exact, "found": sentences}
        self._journal.note(self._units[document], content)


@dataclass(frozen=True, slots=True)
class RerankReport:
    """The result of re-ranking; `changed` counts sentences whose translation is not the first of its list."""

    documents: int
    sentences: int
    changed: int
    signature: str


def best_candidates(
    scorer: DocumentScorer,
    document: Document,
    lists: Sequence[Candidates],
    on_sentence: Callable[[int], None],
) -> list[int]:
    """Return the index of the best translation of every sentence.

    Scores are divided by the length penalty, as in search. If scores are equal, the first translation wins.
    Sentences after the scored one have their first translation.

    Raises CotextError if a sentence is too long, or a score is not a finite number.
    """
    known: KnownTokens = {}
    for text, tokens in zip(document.sentences, scorer.encoded(document.id, document.sentences), strict=True):
        known["source", text] = tokens
    for candidates in lists:
        texts = [candidate.text for candidate in candidates]
        for text, tokens in zip(texts, scorer.encoded_target(document.id, texts), strict=True):
            known["target", text] = tokens
    texts = [candidates[0].text for candidates in lists]
    chosen: list[int] = []
    for j, candidates in enumerate(lists):
        versions = [[*texts[:j], candidate.text, *texts[j + 1 :]] for candidate in candidates]
        [scores] = score_candidates(scorer, [CandidateSet(document.sentences, versions, [j])], known)
        ranks = [scorer.plan.rank_score(score.log_probability, score.tokens) for score in scores]
        chosen.append(ranks.index(max(ranks)))
        texts[j] = candidates[chosen[-1]].text
        on_sentence(1)
    return chosen


class RerankJob(Job[RerankReport]):
    """The re-ranking of a file of n-best lists.

    Raises CotextError if the lists do not belong to the source, a file cannot be read, or `out` exists.
    """

    command, unit = "rerank", "documents"

    def __init__(self, opened: OpenedRun, request: RerankRequest) -> None:
        self.out, self._to = request.out, request.to
        find_format(self._to).require_written()
        check_output(self.out, [request.lists, request.source])
        check_sides(opened.languages, request.source, request.lists, f"{opened.folder} translates")
        require_absent(self.out, request.overwrite)
        self._scorer = opened.translator
        self._documents = list(read_documents(request.source, request.format))
        listed_by, listed = read_lists(request.lists)
        self._lists: list[ListedDocument] = list(listed)
        self.sizes = [len(document) for document in self._documents]
        ids, listed_ids = ([document.id for document in side] for side in (self._documents, self._lists))
        numbers = [str(number) for number in range(1, len(ids) + 1)]  # as in formats without ids
        may_differ = numbers in (ids, listed_ids) and sorted(ids) != sorted(listed_ids)
        sizes = [len(document.sentences) for document in self._lists]
        if (ids != listed_ids and not may_differ) or self.sizes != sizes:
            raise CotextError(
                f"{request.lists}: its documents differ in ids, order or numbers of sentences from those of "
                f"{request.source}; give the source of the lists"
            )
        self.identity = {
            "inputs": checksums_of([request.source, request.lists], request.format),
            "format": request.format or "",
            **systems_of(opened),
        }
        penalty = describe_length_penalty(opened.config.decode)
        entries = scoring_signature(opened), f"lp:{penalty}", f"lists:({listed_by.replace('|', ',')})"
        self.facts = {"signature": "|".join(entries)}

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Choose the translations of documents."""
        for unit in todo:
            lists = self._lists[unit].sentences
            yield unit, {"chosen": best_candidates(self._scorer, self._documents[unit], lists, on_size)}

    def check(self, unit: int, entry: Mapping[str, Any]) -> None:
        """Check that an entry chooses a translation of every sentence."""
        for candidates, chosen in zip(self._lists[unit].sentences, entry["chosen"], strict=True):
            if not 0 <= chosen < len(candidates):
                raise ValueError(unit)

    def write(self, results: Results) -> RerankReport:
        """Write the chosen translations."""
        choices = [results[unit]["chosen"] for unit in self.units]
        pairs = zip(self._lists, choices, strict=True)
        texts = (
            Document(listed.id, tuple(c[k].text for c, k in zip(listed.sentences, chosen, strict=True)))
            for listed, chosen in pairs
        )
        write_documents(self.out, texts, self._to)
        changed = sum(k > 0 for chosen in choices for k in chosen)
        return RerankReport(len(choices), sum(self.sizes), changed, self.facts["signature"])
