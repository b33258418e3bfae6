"""Translation of the files of a request; options and files are checked before the run is loaded."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cotext.data.formats.xml_formats import encode_memory
from cotext.files.bilingual_page import render_page
from cotext.files.blocks import FileFormat
from cotext.files.requests import PAGE_SUFFIX, TranslationRequest
from cotext.files.table import format_of
from cotext.files.translate_files import (
    BlocksJob,
    check_outputs_of,
    open_job,
    run_jobs,
    unrefused,
)
from cotext.interchange.engine_cache import open_to_translate
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.jobs.engine import journal_of
from cotext.translation.file_report import FileReport
from cotext.translation.open import OpenedRun
from cotext.translation.ray_cluster import placed
from cotext.translation.translate_file import CorpusJob, FileOptions
from cotext.translation.wishes import read_wishes


class FilesTranslation:
    """The checked files of a request and the run that translates them; `jobs` has one job per file.

    `on_open` is called with the loaded run, `on_message` with messages about files.

    Raises:
        CotextError: a file cannot be translated, an output cannot be written or exists, or options do not fit
            the files.
    """

    def __init__(
        self,
        request: TranslationRequest,
        on_message: Callable[[str], None] = lambda text: None,
        on_open: Callable[[OpenedRun], None] = lambda opened: None,
    ) -> None:
        files, outs, part = request.files, request.outs, request.part()
        formats = unrefused(partial(format_of, file, request.format) for file in files)
        _check(request, outs, formats)
        check_outputs_of(files, outs, request.scores, request.overwrite, request.out_dir, formats)
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
        options = FileOptions(
            splitting=None if request.no_split else request.splitting(),
            wishes=read_wishes(self.opened.languages, request),
            on_message=on_message,
            scores=request.scores,
            shard=part,
        )
        self.request = request
        self.jobs: list[CorpusJob | BlocksJob] = unrefused(
            partial(open_job, self.opened, file, out, kind, options, entries=request.entries)
            for file, out, kind in zip(files, outs, formats, strict=True)
        )

    @property
    def sentences(self) -> int:
        return sum(job.sentences for job in self.jobs)

    def run(self, on_sentences: Callable[[int], None] = lambda count: None) -> list[FileReport]:
        request = self.request
        if request.out_dir is not None:
            request.out_dir.mkdir(parents=True, exist_ok=True)
        page = None
        if request.bilingual is not None and isinstance(self.jobs[0], BlocksJob):
            page = partial(write_bilingual, request.bilingual, self.jobs[0], self.opened)
        return run_jobs(self.jobs, on_sentences, request.overwrite, page)


def _check(request: TranslationRequest, outs: Sequence[Path], formats: Sequence[FileFormat | str]) -> None:
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
        if path.resolve() in {other.resolve() for other in (*request.files, *outs)}:
            raise CotextError(
                f"--bilingual {path}: this command also reads or writes this file; choose another name"
            )
        if not path.parent.is_dir():
            raise CotextError(f"--bilingual {path}: {path.parent} is not a folder; create it first")
        if os.path.lexists(path) and not request.overwrite and not journal_of(outs[0]).exists():
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
