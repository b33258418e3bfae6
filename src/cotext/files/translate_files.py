"""Translation of files: blocks are translated, everything else is unchanged.

A job translates one file. All jobs are checked before the first one starts. Journals of finished jobs stay
until all jobs are complete, so the same command resumes where it was interrupted.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cotext.data.documents import name_warning
from cotext.data.faults import Fault, add_faults
from cotext.data.formats.xml_formats import encode_memory
from cotext.data.nbest_lists import lists_beside
from cotext.data.splitting import Splitter
from cotext.files.bilingual_page import render_page
from cotext.files.blocks import Entries, FileFormat
from cotext.files.blocks import Job as BilingualJob
from cotext.files.requests import PAGE_SUFFIX, TranslationRequest
from cotext.files.table import format_of, read_file, require_fitting_name
from cotext.files.translate_blocks import BlockDocuments, PairedSentence
from cotext.runtime import CotextError, naming
from cotext.runtime.files import replacing
from cotext.runtime.jobs.engine import Job, forget, journal_of, run
from cotext.runtime.jobs.journal import Header, Journal, Results
from cotext.translation.corpus_files import FileReport
from cotext.translation.engine_cache import open_to_translate
from cotext.translation.open import OpenedRun, read_terminology
from cotext.translation.ray_cluster import placed
from cotext.translation.translate_file import (
    CorpusJob,
    FileOptions,
    NotedWindows,
    check_outputs,
    entry_of,
    job_header,
    pieces_of,
    require_translation,
    translation_of,
)
from cotext.translation.translator import Translation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BlockOptions(FileOptions):
    """`entries`: the entries of bilingual files to translate. `alone`: reserves the model for word alignment.

    `bilingual`: file with source and translation, which is written afterwards.
    """

    entries: Entries = "untranslated"
    bilingual: Path | None = None
    alone: Callable[[], AbstractContextManager[object]] = nullcontext


class BlocksJob(Job[FileReport]):
    """Job that translates a file of blocks; `sentences` and `characters` count its text.

    Raises CotextError if the file cannot be read as its format, or a sentence is too long.
    """

    command, unit = "translate", "documents"

    def __init__(
        self, opened: OpenedRun, source: Path, out: Path, format: FileFormat, options: BlockOptions
    ) -> None:
        self.source, self.out, self.tell = source, out, options.on_message
        splitting, terminology = options.splitting, options.terminology
        self._opened, self._format = opened, format
        if warning := name_warning(source, opened.languages.source, f"{opened.folder} translates"):
            self.tell(warning)
        content = read_file(source)
        digest, name = hashlib.sha256(content).hexdigest(), format.name
        splitter = None if splitting is None else Splitter(opened.languages.source, splitting)
        settings = splitter.name if splitter else ""
        if format.bilingual:
            settings += f" {options.entries}"
        bilingual = BilingualJob(opened.languages.source, opened.languages.target, options.entries)
        self._file = format.for_job(bilingual).open(content, str(source))
        self._texts = BlockDocuments(opened, self._file.contents, splitter, terminology, options.alone)
        self.messages = list(self._file.contents.messages)
        blocks, sentences = self._texts.blocks_split
        if blocks:
            self.messages.append(
                f"{blocks:,} paragraph{'s are' if blocks > 1 else ' is'} split into {sentences:,} sentences, "
                "translated and joined again (--no-split: each paragraph as one sentence)"
            )
        if unknown := self._texts.unknown_words:
            listed = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
            self.messages.append(f"copied, because the model does not know their characters: {listed}")
        self._translations: dict[int, Translation] = {}  # once it has run
        self._faults: dict[tuple[int, int], list[Fault]] = {}
        with naming(source):
            self.sentences = self._texts.check()
        self.characters = sum(len(text) for document in self._texts.documents for text in document.sentences)
        self.sizes = list(map(len, self._texts.documents))
        self.identity = job_header([digest], name, opened, settings, terminology)
        bilingual_file = options.bilingual and str(options.bilingual.absolute())
        self.facts = {"signature": opened.signature, "bilingual": bilingual_file}

    @property
    def pairs(self) -> list[PairedSentence]:
        """The sentences with their translations, after the job has run."""
        return self._texts.paired(self._translations, self._faults)

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Translate documents; see `Job.work`."""
        if begun := sum(map(len, journal.notes.values())):
            self.tell(f"{self.source}: {begun:,} windows were translated before the interruption")
        documents = [self._texts.documents[unit] for unit in todo]
        guide, taken, log = self._texts.guide(todo), self._texts.taken(todo), NotedWindows(journal, todo)
        translator = self._opened.translator
        for number, translation in translator.translate(documents, on_size, guide, taken, log):
            yield todo[number], entry_of(translation)

    def check(self, unit: int, entry: Mapping[str, Any]) -> None:
        """Raise KeyError, TypeError or ValueError if an entry is not a translation of its document."""
        require_translation(self._texts.documents[unit], entry)

    def write(self, results: Results) -> FileReport:
        self._translations = {unit: translation_of(entry) for unit, entry in results.items()}
        lists_beside(self.out).unlink(missing_ok=True)
        known_messages = len(self._file.contents.messages)
        content = self._file.written(self._texts.blocks(self._translations))
        for message in self._file.contents.messages[known_messages:]:
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
        self._faults = self._texts.faults(self._translations)
        for (unit, j), faults in self._faults.items():
            add_faults(report.faults, self._texts.place(unit, j), faults)
        return report


def open_job(
    opened: OpenedRun, source: Path, out: Path, format: FileFormat | str, options: BlockOptions
) -> CorpusJob | BlocksJob:
    """Read and check a file to translate; `format` is a result of `format_of`."""
    if isinstance(format, str):
        return CorpusJob(opened, source, out, format, options)
    opened.require_no_lists(str(source))
    return BlocksJob(opened, source, out, format, options)


def all_checked(checks: Iterable[Callable[[], T]]) -> list[T]:
    """Call all `checks` and return their results; raise CotextError with all errors, one per line."""
    results, errors = [], []
    for check in checks:
        try:
            results.append(check())
        except CotextError as error:
            errors.append(str(error))
    if errors:
        raise CotextError("\n".join(errors))
    return results


def check_outputs_of(
    sources: Sequence[Path],
    outs: Sequence[Path],
    scores: Path | None,
    overwrite: bool,
    folder: Path | None = None,
    formats: Sequence[FileFormat | str] = (),
) -> None:
    """Check outputs before a run is loaded.

    Outputs of an interrupted job may exist. `folder`: folder of the outputs, which may not exist yet.
    `formats`: formats of the sources, which are also those of the outputs. Raises the errors of
    `check_outputs` and `require_fitting_name`, and CotextError if an output exists without `overwrite`.
    """
    for out, source, format in zip(outs, sources, formats, strict=False):
        require_fitting_name(out, format, source)
    for out in outs:
        if folder is None or folder.exists():
            check_outputs(out, scores, sources)
    existing = [
        str(path)
        for out in outs
        for path in (out, lists_beside(out))
        if path.exists() and not journal_of(out).exists()
    ]
    if scores and scores.exists() and not _is_written_with(scores, outs[0]):
        existing.append(str(scores))
    if existing and not overwrite:
        exist = "exists" if len(existing) == 1 else "exist"
        raise CotextError(
            f"{', '.join(existing)}: {exist}; choose another name, or add --overwrite to replace what is "
            "there"
        )


def _is_written_with(path: Path, out: Path) -> bool:
    """Return whether an interrupted job with the output `out` also writes the file `path`."""
    journal = journal_of(out)
    return journal.exists() and str(path.absolute()) in Header.read(journal).facts.values()


# --- The request of a command: options and files are checked before the run is loaded.


class FilesTranslation:
    """The checked files of a request and the run that translates them; `jobs` has one job per file.

    `on_open` is called with the loaded run, `on_message` with messages about files. Raises CotextError if a
    file cannot be translated, an output cannot be written or exists, or options do not fit the files.
    """

    def __init__(
        self,
        request: TranslationRequest,
        on_message: Callable[[str], None] = lambda text: None,
        on_open: Callable[[OpenedRun], None] = lambda opened: None,
    ) -> None:
        files, outs, part = request.files, request.outs, request.part()
        formats = all_checked(partial(format_of, file, request.format) for file in files)
        inputs = [*files, *filter(None, [request.glossary, request.keep, request.memory])]
        _check(request, inputs, outs, formats)
        check_outputs_of(inputs, outs, request.scores, request.overwrite, request.out_dir, formats)
        settings = dict(request.settings)
        needs_states = {"--scores": request.scores, "--on": request.on}
        opened = open_to_translate(
            request.run,
            request.device,
            settings,
            request.checkpoint,
            without=next((name for name, value in needs_states.items() if value), ""),
        )
        self.opened = placed(opened, request, settings)
        on_open(self.opened)
        options = BlockOptions(
            splitting=None if request.no_split else request.splitting(),
            terminology=read_terminology(self.opened.languages, request),
            on_message=on_message,
            scores=request.scores,
            shard=part,
            entries=request.entries,
            bilingual=request.bilingual,
        )
        self.request = request
        self.jobs: list[CorpusJob | BlocksJob] = all_checked(
            partial(open_job, self.opened, file, out, kind, options)
            for file, out, kind in zip(files, outs, formats, strict=True)
        )

    @property
    def sentences(self) -> int:
        return sum(job.sentences for job in self.jobs)

    def run(self, on_sentences: Callable[[int], None] = lambda count: None) -> list[FileReport]:
        """Run all jobs in order; resume or skip those of an interrupted command."""
        request, first = self.request, self.jobs[0]
        if request.out_dir is not None:
            request.out_dir.mkdir(parents=True, exist_ok=True)
        keep = len(self.jobs) > 1 or request.bilingual is not None
        reports = [run(job, on_sentences, request.overwrite, keep) for job in self.jobs]
        if request.bilingual is not None and isinstance(first, BlocksJob):
            write_bilingual(request.bilingual, first, self.opened)
        for job in self.jobs if keep else ():
            forget(job.out)
        return reports


def _check(
    request: TranslationRequest,
    inputs: Sequence[Path],
    outs: Sequence[Path],
    formats: Sequence[FileFormat | str],
) -> None:
    """Raise CotextError if options do not fit the files."""
    of_one_corpus = len(formats) == 1 and isinstance(formats[0], str)
    if request.scores is not None and not of_one_corpus:
        raise CotextError("--scores can be used only with a single corpus with one sentence per line")
    if request.shard is not None and (request.overwrite or request.bilingual or not of_one_corpus):
        raise CotextError(
            "--shard can be used only with a single corpus with one sentence per line, and not with "
            "--bilingual or --overwrite"
        )
    if (path := request.bilingual) is not None:
        if len(formats) > 1 or of_one_corpus:
            raise CotextError("--bilingual can be used only with a single file that is not a corpus")
        if path.resolve() in {other.resolve() for other in (*inputs, *outs)}:
            raise CotextError(
                f"--bilingual {path}: this command also reads or writes this file; choose another name"
            )
        if not path.parent.is_dir():
            raise CotextError(f"--bilingual {path}: {path.parent} is not a folder; create it first")
        if os.path.lexists(path) and not request.overwrite and not _is_written_with(path, outs[0]):
            raise CotextError(f"{path}: exists; choose another name, or add --overwrite to replace it")
    if request.on is None:
        return
    for file, kind in zip(request.files, formats, strict=True):
        if not isinstance(kind, str):
            raise CotextError(f"{file}: --on is for corpora (docs/data-format.md); omit it for this file")
    if wish := request.glossary or request.keep or request.memory:
        raise CotextError(f"{wish}: glossaries, words to keep and memories cannot be combined with --on")


def write_bilingual(path: Path, job: BlocksJob, opened: OpenedRun) -> None:
    """Write the sentences of a finished job with their translations."""
    source, target, pairs = opened.languages.source, opened.languages.target, job.pairs
    if path.suffix.lower() == PAGE_SUFFIX:
        about = [("file", str(job.source.name)), ("system", opened.signature)]
        content = render_page(job.source.name, (source, target), pairs, about).encode()
    else:
        properties = ({"x-document": f"{p.document + 1}", "x-position": f"{p.number + 1}"} for p in pairs)
        units = ((p.source, p.target, attributes) for p, attributes in zip(pairs, properties, strict=True))
        content = encode_memory(units, source or "und", target or "und")
    with replacing(path.resolve()) as temporary:
        temporary.write_bytes(content)
