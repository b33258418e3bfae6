"""Translation of corpus files with a run: resumable, with nothing half-written.

While a file is being translated, every finished document is appended to `<out>.partial` at once. The output
appears under its name when it is complete; the same command continues an interrupted job.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cotext.config.view import ViewConfig
from cotext.data.documents import Document
from cotext.data.formats import write_translations
from cotext.data.formats.table import FORMATS, find_format, require_written
from cotext.data.languages import name_warning
from cotext.data.shortlist import identity_of
from cotext.data.splitting import Splitting
from cotext.runtime.addresses import require_here
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.locks import writing
from cotext.runtime.shards import Shard
from cotext.runtime.version import __version__
from cotext.search.guide import Guide
from cotext.translation.document_state import WindowLog
from cotext.translation.file_report import FileReport, paired_documents
from cotext.translation.open import OpenedRun
from cotext.translation.partial_output import Journal, JournalWindows, TranslationJournal, journal_of
from cotext.translation.prose import Prose, trained_length
from cotext.translation.score_table import require_column
from cotext.translation.source_file import SourceFile
from cotext.translation.terms.terms import TermGuide
from cotext.translation.translator import DocumentTranslator, Translation
from cotext.translation.wishes import Wishes
from cotext.translation.written_beside import lists_beside, remove_lists, write_lists, write_scores

Windows = Callable[[Sequence[int]], WindowLog | None]


def _no_windows(chosen: Sequence[int]) -> None:
    pass


class CorpusJob:
    """A corpus file that is going to be translated into the same format, checked: `sentences` counts them.

    The file is read twice, for its checksum and for its documents, which stay in memory. `by_window`: the
    journal has the windows of documents, too, for files that may be one long document. `shard`: only its
    documents are translated, by `cotext.translation.translate_shards`.

    Raises:
        CotextError: as `translate_file`; all that can be known beforehand.
    """

    def __init__(
        self,
        opened: OpenedRun,
        source: Path,
        out: Path,
        *,
        scores: Path | None = None,
        format: str | None = None,
        splitting: Splitting | None = None,
        wishes: Wishes | None = None,
        on_message: Callable[[str], None] = lambda text: None,
        by_window: bool = False,
        shard: Shard | None = None,
    ) -> None:
        self._by_window = by_window
        self._wishes = Wishes() if wishes is None else wishes
        self._wishes.check(opened.translator)
        if self._wishes.memory is not None:
            raise CotextError(
                f"{source}: a translation memory is for files, and this is a corpus; leave it out"
            )
        self.source, self.out = source, out
        self.messages: list[str] = []
        self.opened, self.scores, self._on_message = opened, scores, on_message
        translator = opened.translator
        translator.plan.check_passes()
        if scores is not None and not translator.plan.options.scored:
            raise CotextError(f"{scores}: decode.scores = false leaves scores out; leave out one of the two")
        self._file = SourceFile(source, format, shard)
        if warning := name_warning(source, opened.languages.source, f"{opened.folder} translates"):
            on_message(warning)
        _require_room_for_missing(source, self._file.format, translator)
        splitter = splitting.splitter(opened.languages.source) if splitting else None
        self._prose = Prose(trained_length(opened.folder), translator.tokenizer, splitter, opened.languages)
        with naming(source):
            checked_id = require_column if scores is not None else None
            self.sentences = translator.check(self._file.read(self._prose, checked_id))
        self.characters = sum(len(s) for document in self._file.documents for s in document.sentences)
        if message := self._prose.message(source, self._file.first_prose):
            on_message(message)
        if opened.config.decode.nbest > 1:
            self._prose.require_a_sentence_a_line(self._file.first_prose)

    def _guide(self, chosen: Sequence[int]) -> TermGuide | None:
        documents = [self._prose.split(self._file.documents[index]).sentences for index in chosen]
        return self._wishes.guide(self.opened.translator, documents)

    @property
    def header(self) -> dict[str, Any]:
        """All that decides the translation."""
        file = self._file
        return job_header(file.checksums(), file.format, self.opened, self._prose.settings, self._wishes)

    @property
    def format(self) -> str:
        """The format of the file."""
        return self._file.format

    @property
    def sizes(self) -> list[int]:
        """With a shard, the sentences of all documents of the file."""
        return self._file.sizes

    def translate_into(
        self,
        journal: Journal,
        on_sentences: Callable[[int], None],
        windows: Windows = _no_windows,
    ) -> int:
        """As `translate_remaining`, of the documents of this file."""
        return translate_remaining(
            self.opened.translator,
            self._file.documents,
            journal,
            on_sentences,
            self._prose.split,
            self._prose.join,
            self._guide,
            windows=windows,
        )

    def run(self, on_sentences: Callable[[int], None], overwrite: bool, keep: bool = False) -> FileReport:
        """Translate and write; `keep`: the journal, which `forget` then removes.

        `overwrite`: what an interrupted job with other settings has translated may be discarded.
        """
        opened, file = self.opened, self._file
        report = FileReport(
            format=file.format,
            sentences=self._prose.lines,
            align=opened.translator.plan.options.align,
            piece=pieces_of(opened.translator.config.view),
            signature=opened.signature,
        )
        with (
            writing(self.out) as lock,
            TranslationJournal(self.out, self.header, self._on_message, overwrite) as journal,
        ):
            log = partial(JournalWindows, journal) if self._by_window else _no_windows
            report.resumed_documents = self.translate_into(journal, on_sentences, log)
            lock.require()
            done = [journal.done[index] for index in range(len(file.documents))]
            if self.scores is not None:
                write_scores(self.scores, done)
            if (nbest := opened.config.decode.nbest) > 1:
                pairs = paired_documents(file.documents, journal.done, FileReport())
                report.lists = str(lists_beside(self.out))
                write_lists(self.out, pairs, done, nbest, opened.signature)
            else:
                remove_lists(self.out)
            paired = paired_documents(file.documents, journal.done, report)
            if journal.output_stands:
                deque(paired, maxlen=0)
            else:
                pair = opened.languages.source, opened.languages.target
                write_translations(self.out, paired, file.format, pair if all(pair) else None)
            journal.finish(keep)
        return report


def translate_file(
    opened: OpenedRun,
    source: Path,
    out: Path,
    *,
    scores: Path | None = None,
    format: str | None = None,
    splitting: Splitting | None = None,
    overwrite: bool = False,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
    on_message: Callable[[str], None] = lambda text: None,
) -> FileReport:
    """Translate a corpus file into the same format.

    With `splitting`, lines of several sentences are split into them, which are translated in context and
    joined again: a line stays a line. `scores`: where the log-probabilities of the output tokens go, as a
    table. `overwrite`: what an interrupted job with other settings has translated may be discarded.
    `on_start` is called with the number of sentences, `on_sentences` with each few that are done,
    `on_message` with what a person should know at once.

    Raises:
        CotextError: unreadable input, a sentence over the limit, an output that cannot be written or that
            another process writes, translations of another job; all that can be known beforehand is checked
            before any work is done.
    """
    check_outputs(out, scores, [source])
    job = CorpusJob(
        opened, source, out, scores=scores, format=format, splitting=splitting, on_message=on_message
    )
    on_start(job.sentences)
    return job.run(on_sentences, overwrite)


def check_outputs(out: Path, scores: Path | None, sources: Sequence[Path]) -> None:
    """Refuse, before a run is opened, outputs of a translation that cannot be written.

    Raises:
        CotextError: as `check_output`, or one file for both.
    """
    for path in (out, journal_of(out), lists_beside(out)):
        check_output(path, sources)
    if scores is not None:
        check_output(scores, sources)
        if scores.absolute() == out.absolute():
            raise CotextError(f"{out}: --out and --scores name one file; give each its own")


def pieces_of(view: ViewConfig) -> str:
    """The windows of a view by name; sub-documents are the unit of Li et al. 2022, table VII."""
    return f"sub-documents of up to {view.max_tokens} tokens" if view.kind == "document" else "windows"


def check_output(out: Path, inputs: Iterable[Path]) -> None:
    """Check, before any work is done, that an output can be written as a new file and is no input.

    Raises:
        CotextError: a folder, a device, a file in no folder, an address, an input, a format not written.
    """
    require_here(out)
    require_written(out)
    folder = out.absolute().parent
    if out.is_dir():
        raise CotextError(f"{out}: is a folder; give --out the name of a file")
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist; make it first"
        raise CotextError(f"{out}: {folder} {problem}")
    if out.exists() and not out.is_file():
        raise CotextError(f"{out}: is no regular file; give --out another name")
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise CotextError(f"{out}: would overwrite what is read from; give --out another name")


def _require_room_for_missing(source: Path, kind: str, translator: DocumentTranslator) -> None:
    """Refuse free search where a sentence that the model leaves out could not be written as one."""
    if translator.plan.options.align == "free" and not find_format(kind).holds_empty_sentences:
        able = ", ".join(name for name, row in FORMATS.items() if row.holds_empty_sentences)
        raise CotextError(
            f"{source}: decode.align = free may leave sentences without a translation, and the format {kind} "
            f"cannot hold empty ones; write the source as one of {able}, or choose decode.align = constrained"
        )


@contextmanager
def naming(*paths: Path) -> Iterator[None]:
    """Name the first file in an error of the block, unless it names one itself."""
    try:
        yield
    except CotextError as error:
        file = "" if str(error).startswith(tuple(map(str, paths))) else f"{paths[0]}: "
        raise CotextError(f"{file}{error}") from None


def job_header(
    sources: Sequence[str], format: str, opened: OpenedRun, split: str, wishes: Wishes
) -> dict[str, Any]:
    """Everything that a continued job must share with the one it continues; `sources` are checksums."""
    header: dict[str, Any] = {
        "cotext": __version__,
        "source": sources,
        "format": format,
        **systems_of(opened),
    }
    terms = {"terms": wishes.settings} if wishes.settings else {}
    return {**header, "split": split, **terms}


def systems_of(opened: OpenedRun) -> dict[str, Any]:
    """A run and that of its first pass, by checksums of their models and their whole configurations."""
    before = {} if opened.first_pass is None else {"first_pass": _system(opened.first_pass)}
    return {**_system(opened), **before}


def _system(opened: OpenedRun) -> dict[str, Any]:
    engine = {"engine": opened.loaded.engine} if opened.loaded.engine else {}
    return {
        **engine,
        "model": checksum(opened.weights),
        "tokenizer": opened.loaded.tokenizer.fingerprint,
        "config": opened.config.model_dump(mode="json"),
        **identity_of(opened.translator.shortlist),
    }


def translate_remaining(
    translator: DocumentTranslator,
    documents: Sequence[Document],
    journal: Journal,
    on_sentences: Callable[[int], None],
    split: Callable[[Document], Document] = lambda document: document,
    join: Callable[[Document, Translation], Translation] = lambda document, translation: translation,
    guide: Callable[[Sequence[int]], Guide | None] = lambda chosen: None,
    taken: Callable[[Sequence[int]], Mapping[int, Mapping[int, str]]] = lambda chosen: {},
    windows: Windows = _no_windows,
) -> int:
    """Translate what the journal does not hold yet; returns how many documents it held.

    `split` gives the sentences of a document that are translated, `join` what is noted of their translation,
    `guide` the constraints of chosen documents, `taken` translations of their sentences that are given.
    `windows` gives a log of the windows of chosen documents, where there is one.
    """
    todo = list(_remaining(documents, journal.done))
    resumed = len(journal.done)
    waiting = {index for index, _ in todo}
    on_sentences(sum(len(split(d)) for index, d in enumerate(documents) if index not in waiting))
    chosen = [index for index, _ in todo]
    texts = (split(document) for _, document in todo)
    given = guide(chosen), taken(chosen)
    for number, translation in translator.translate(texts, on_sentences, *given, windows(chosen)):
        index, document = todo[number]
        journal.add(index, join(document, translation))
    return resumed


def _remaining(documents: Sequence[Document], done: dict[int, Translation]) -> Iterator[tuple[int, Document]]:
    """The documents still to be translated; drops from `done` what is no translation of its document."""
    for index, document in enumerate(documents):
        found = done.get(index)
        if found is None or (found.document.id, len(found.document)) != (document.id, len(document)):
            done.pop(index, None)
            yield index, document
