"""Translation of a corpus in shards, each by a process of its own, and the corpus that is joined of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_documents, write_translations
from cotext.runtime.addresses import absolute
from cotext.runtime.errors import CotextError
from cotext.runtime.joining import JoinedParts
from cotext.runtime.shards import Part, Shard, ShardedJob, ShardReport
from cotext.translation.file_report import FileReport, paired_documents
from cotext.translation.partial_output import entry_of, translation_of
from cotext.translation.source_file import checksums_of
from cotext.translation.translate_file import CorpusJob, pieces_of
from cotext.translation.translator import Translation
from cotext.translation.written_beside import (
    check_new_lists,
    lists_beside,
    remove_lists,
    write_lists,
    write_scores,
)

COMMAND = "translate"


class _PartJournal:
    """A part as a journal of the documents of its shard, counted from its first."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.done = {unit - part.units.start: translation_of(part.read(unit)) for unit in part.done()}

    def add(self, index: int, translation: Translation) -> None:
        """As `Journal.add`."""
        self._part.add(self._part.units.start + index, entry_of(translation))


def translate_shard(job: CorpusJob, shard: Shard, on_sentences: Callable[[int], None]) -> ShardReport:
    """Translate the documents of a shard, which the job was opened with; those that are done stay.

    Raises:
        CotextError: as `Part`.
    """
    translator = job.opened.translator
    joining = {
        "source": str(absolute(job.source)),
        "format": job.format,
        "scores": "" if job.scores is None else str(job.scores.absolute()),
        "align": translator.plan.options.align,
        "piece": pieces_of(translator.config.view),
        "signature": job.opened.signature,
        "nbest": job.opened.config.decode.nbest,
    }
    identity = {**job.header, "scores": job.scores is not None}
    sharded = ShardedJob(COMMAND, "documents", identity, joining)
    with Part(job.out, shard, job.sizes, sharded) as part:
        resumed = job.translate_into(_PartJournal(part), on_sentences)
    return part.report(job.sentences, resumed, job.opened.signature)


class _Translations(Mapping[int, Translation]):
    """The translations of all shards, read where they lie."""

    def __init__(self, parts: JoinedParts) -> None:
        self._parts = parts

    def __getitem__(self, index: int) -> Translation:
        return translation_of(self._parts.read(index))

    def __len__(self) -> int:
        return self._parts.total

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._parts.total))


def _counted(documents: Iterable[ParallelDocument], report: FileReport) -> Iterator[ParallelDocument]:
    for document in documents:
        report.sentences += len(document.source)
        yield document


def join_translations(out: Path, parts: JoinedParts, overwrite: bool = False) -> FileReport:
    """Write the translation of a corpus by shards, and its scores where they were asked for.

    Raises:
        CotextError: the source is not where it was, or has changed; scores are there already, without
            `overwrite`; storage refuses.
    """
    facts = parts.joining
    if facts["scores"] and Path(facts["scores"]).exists() and not overwrite:
        raise CotextError(f"{facts['scores']}: exists; move it away, or add --overwrite to replace it")
    if not overwrite:
        check_new_lists(out)
    source, format = Path(facts["source"]), facts["format"]
    if checksums_of([source], format) != parts.job["source"]:
        raise CotextError(f"{source}: is not what the shards have translated; put that file back")
    report = FileReport(
        format=format, align=facts["align"], piece=facts["piece"], signature=facts["signature"]
    )
    translations = _Translations(parts)
    if facts["scores"]:
        write_scores(Path(facts["scores"]), translations.values())
    if facts["nbest"] > 1:
        pairs = paired_documents(read_documents(source, format), translations, FileReport())
        report.lists = str(lists_beside(out))
        write_lists(out, pairs, translations.values(), facts["nbest"], facts["signature"])
    else:
        remove_lists(out)
    paired = paired_documents(read_documents(source, format), translations, report)
    write_translations(out, _counted(paired, report), format)
    return report
