"""Translation of files of people: their blocks are translated, everything else comes back as it was.

A job is one file, checked before any of several is worked at. Until all are complete, the journals of
finished ones stay, so that the same command goes on wherever it was interrupted.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar

from cotext.data.formats import FORMATS, detect_format
from cotext.data.formats.streams import (
    MAX_WHOLE_BYTES,
    PARQUET,
    binary_kind,
    check_readable,
)
from cotext.data.formats.table import BEGINNING_BYTES
from cotext.data.languages import name_warning
from cotext.data.splitting import Splitting
from cotext.files.blocks import BilingualFormat, Entries, FileFormat
from cotext.files.blocks import Job as BilingualJob
from cotext.files.mechanical import in_words
from cotext.files.table import ANY_TEXT, file_formats, named_format, recognise, require_fitting_name
from cotext.files.translate_blocks import BlockDocuments, PairedSentence
from cotext.runtime.errors import CotextError, nearest, shown
from cotext.runtime.files import replacing
from cotext.runtime.jobs.engine import Job, forget, journal_of, run
from cotext.runtime.jobs.journal import Journal, Results, Shard
from cotext.translation.file_report import FileReport
from cotext.translation.open import OpenedRun
from cotext.translation.translate_file import (
    CorpusJob,
    NotedWindows,
    check_outputs,
    entry_of,
    job_header,
    naming,
    pieces_of,
    require_translation,
    translation_of,
)
from cotext.translation.translator import Translation
from cotext.translation.wishes import Wishes
from cotext.translation.written_beside import lists_beside, remove_lists, require_no_lists

T = TypeVar("T")
MAX_FILE_BYTES: Final = MAX_WHOLE_BYTES
PLAIN: Final = ("text", "tsv")  # corpora that are recognised by nothing but their lines
GENERIC: Final = "prose"  # the format of files that any text has that is no corpus of another


class BlocksJob(Job[FileReport]):
    """A file of a format of blocks; `sentences` and `characters` count its text.

    `alone`: see `BlockDocuments`.

    Raises:
        CotextError: the format refuses it, or a sentence is over the limit.
    """

    command, unit = "translate", "documents"

    def __init__(
        self,
        opened: OpenedRun,
        source: Path,
        out: Path,
        format: FileFormat,
        *,
        splitting: Splitting | None,
        entries: Entries = "untranslated",
        wishes: Wishes | None = None,
        on_message: Callable[[str], None] = lambda text: None,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.source, self.out, self.tell = source, out, on_message
        wishes = wishes or Wishes()
        self._opened, self._format = opened, format
        if warning := name_warning(source, opened.languages.source, f"{opened.folder} translates"):
            on_message(warning)
        content = read_file(source)
        digest, name = hashlib.sha256(content).hexdigest(), format.name
        splitter = splitting.splitter(opened.languages.source) if splitting else None
        settings = splitter.name if splitter else ""
        if isinstance(format, BilingualFormat):
            format = format.for_job(BilingualJob(opened.languages.source, opened.languages.target, entries))
            settings += f" {entries}"
        self._file = format.open(content, str(source))
        self._texts = BlockDocuments(opened, self._file.contents, splitter, wishes, alone)
        self.messages = list(self._file.contents.messages)
        blocks, sentences = self._texts.blocks_split
        if blocks:
            self.messages.append(
                f"{blocks:,} paragraph{'s are' if blocks > 1 else ' is'} split into {sentences:,} sentences, "
                "translated in context and joined again (--no-split: each as one)"
            )
        self._translations: dict[int, Translation] = {}  # once it has run
        with naming(source):
            self.sentences = self._texts.check()
        self.characters = sum(len(text) for document in self._texts.documents for text in document.sentences)
        self.sizes = list(map(len, self._texts.documents))
        self.identity = job_header([digest], name, opened, settings, wishes)
        self.facts = {"signature": opened.signature}

    @property
    def pairs(self) -> list[PairedSentence]:
        """The sentences beside their translations, once the job has run."""
        return self._texts.paired(self._translations)

    @property
    def faults(self) -> str:
        """What the mechanical checks find, once the job has run; places are those of the file."""
        places = [self._texts.place(pair.document, pair.number) for pair in self.pairs]
        sides = [(pair.source, pair.target) for pair in self.pairs]
        return in_words(sides, places, self._opened.languages.target)

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Translate documents."""
        if begun := sum(map(len, journal.notes.values())):
            self.tell(f"{self.source}: {begun:,} windows were translated before the interruption")
        documents = [self._texts.documents[unit] for unit in todo]
        guide, taken, log = self._texts.guide(todo), self._texts.taken(todo), NotedWindows(journal, todo)
        translator = self._opened.translator
        for number, translation in translator.translate(documents, on_size, guide, taken, log):
            yield todo[number], entry_of(translation)

    def check(self, unit: int, entry: Mapping[str, Any]) -> None:
        """Check that an entry is a translation of its document."""
        require_translation(self._texts.documents[unit], entry)

    def write(self, results: Results) -> FileReport:
        """Write the file with its translations."""
        self._translations = {unit: translation_of(entry) for unit, entry in results.items()}
        remove_lists(self.out)
        known = len(self._file.contents.messages)
        content = self._file.written(self._texts.blocks(self._translations))
        for message in self._file.contents.messages[known:]:
            self.messages.append(message)
            self.tell(f"{self.source}: {message}")
        with replacing(self.out.resolve()) as temporary:
            temporary.write_bytes(content)
        translator = self._opened.translator
        report = FileReport(
            format=self._format.name,
            sentences=self.sentences,
            resumed_documents=results.resumed,
            align=translator.plan.options.align,
            piece=pieces_of(translator.config.view),
            signature=self._opened.signature,
            messages=self.messages,
            is_corpus=False,
            scored=translator.plan.options.scored,
            terms=self._texts.terms(self._translations),
            taken=sum(map(len, self._texts.taken(results.units).values())),
        )
        for unit, translation in self._translations.items():
            places = [self._texts.place(unit, j) for j in range(self.sizes[unit])]
            report.count(translation, places)
            for place, found in zip(places, self._texts.dropped(unit, translation), strict=True):
                report.dropped.add(place, found)
        return report


def read_file(path: Path) -> bytes:
    """The content of a file.

    Raises:
        CotextError: it cannot be read, or holds more than MAX_FILE_BYTES, which is seen without reading it.
    """
    check_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise CotextError(f"{path}: cannot be read: {error.strerror or error}") from None


def check_file(path: Path) -> None:
    """Raise CotextError where there is no regular file here, or one of more than MAX_FILE_BYTES."""
    _check_regular(path)
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise CotextError(f"{path}: holds {size:,} bytes, and a file at most {MAX_FILE_BYTES:,}; split it")


def _check_regular(path: Path) -> None:
    if path.is_dir():
        raise CotextError(f"{path}: is a folder; name the files in it, as in {path}/*")
    check_readable(path)
    if not path.is_file():
        raise CotextError(f"{path}: is no regular file; copy it to one, or give - for standard input")


def format_of(path: Path, name: str | None = None) -> FileFormat | str:
    """The format of a file, or the name of that of a corpus, by its content; `name`: as a person says.

    Raises:
        CotextError: no such format, a file of none, or one that is named as a format and holds only text.
    """
    formats = file_formats()
    if name is not None:
        if name in formats:
            return formats[name]
        if name in FORMATS:
            return name
        known = [*formats, *FORMATS]
        near = nearest(name, known)
        hint = f"did you mean {near[0]}? " if near else ""
        raise CotextError(f"unknown format {shown(name)}: {hint}known are {', '.join(known)}")
    _check_regular(path)
    if not (head := _beginning(path)):
        raise CotextError(f"{path}: is empty, so that there is nothing to translate; leave it out")
    found = recognise(head, path.name)
    if found is not None and found.name != GENERIC:
        return found
    if (kind := binary_kind(head)) and kind != PARQUET:
        raise CotextError(
            f"{path}: not a supported format: it looks like {kind}; save it in one that is, as .docx or "
            "plain text"
        )
    if (corpus := detect_format(path)) not in PLAIN:
        return corpus
    named = named_format(path.name)
    if named is None:
        return corpus if found is None or corpus != "text" else found
    if named.name not in ANY_TEXT:
        raise CotextError(
            f"{path}: ends in {path.suffix}, and what it holds is only text; save it as {path.suffix} again, "
            "or rename it to .txt, to have it translated as text (--format prose)"
        )
    return named


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(BEGINNING_BYTES)
    except OSError as error:
        raise CotextError(f"{path}: cannot be read: {error.strerror or error}") from None


def open_job(
    opened: OpenedRun,
    source: Path,
    out: Path,
    format: FileFormat | str,
    *,
    splitting: Splitting | None,
    entries: Entries = "untranslated",
    wishes: Wishes,
    scores: Path | None = None,
    on_message: Callable[[str], None],
    alone: Callable[[], AbstractContextManager[object]] = nullcontext,
    by_window: bool = False,
    shard: Shard | None = None,
) -> CorpusJob | BlocksJob:
    """A file to be translated, read and checked; `format` as `format_of` gives it.

    `entries`: of a file that holds both languages, those that are translated. `alone`: the right to use the
    model other than to translate. Of a corpus: `by_window`: the journal has windows, too; `shard`: its part.
    """
    if isinstance(format, str):
        return CorpusJob(
            opened,
            source,
            out,
            scores=scores,
            format=format,
            splitting=splitting,
            wishes=wishes,
            on_message=on_message,
            by_window=by_window,
            shard=shard,
        )
    require_no_lists(opened, str(source))
    return BlocksJob(
        opened,
        source,
        out,
        format,
        splitting=splitting,
        entries=entries,
        wishes=wishes,
        on_message=on_message,
        alone=alone,
    )


def unrefused(checks: Iterable[Callable[[], T]]) -> list[T]:
    """What all of these give.

    Raises:
        CotextError: what one or several of them refuse, a line each.
    """
    found, refused = [], []
    for check in checks:
        try:
            found.append(check())
        except CotextError as error:
            refused.append(str(error))
    if refused:
        raise CotextError("\n".join(refused))
    return found


def check_outputs_of(
    sources: Sequence[Path],
    outs: Sequence[Path],
    scores: Path | None,
    overwrite: bool,
    folder: Path | None = None,
    formats: Sequence[FileFormat | str] = (),
) -> None:
    """Refuse, before a run is opened, outputs that cannot be written, and such as are there already.

    An output that an interrupted job has begun may be there: this or the one that it replaces. `folder`: that
    of the outputs, which may have to be made. `formats`: those of the sources, which the outputs have too.

    Raises:
        CotextError: as `check_outputs`, `require_fitting_name`, or an output that exists without `overwrite`.
    """
    for out, source, format in zip(outs, sources, formats, strict=False):
        require_fitting_name(out, format, source)
    for out in outs:
        if folder is None or folder.exists():
            check_outputs(out, scores, sources)
    there = [
        str(path)
        for out in outs
        for path in (out, lists_beside(out), *filter(None, [scores]))
        if path.exists() and not journal_of(out).exists()
    ]
    if there and not overwrite:
        exist = "exists" if len(there) == 1 else "exist"
        raise CotextError(
            f"{', '.join(there)}: {exist}; choose another name, or add --overwrite to replace what is there"
        )


def run_jobs(
    jobs: Sequence[Job[FileReport]],
    on_sentences: Callable[[int], None],
    overwrite: bool = False,
    finish: Callable[[], None] | None = None,
) -> list[FileReport]:
    """Translate the files of all jobs, one after the other; what was complete is not translated again.

    `finish`: what is written once all are complete, and again by the same command if it was interrupted.
    """
    keep = len(jobs) > 1 or finish is not None
    reports = [run(job, on_sentences, overwrite, keep) for job in jobs]
    if finish is not None:
        finish()
    for job in jobs if keep else ():
        forget(job.out)
    return reports
