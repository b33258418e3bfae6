"""Sequence-level knowledge distillation: training data whose targets a teacher has translated.

Sequence-level knowledge distillation (Kim and Rush 2016): the student learns from the teacher's translations,
found by beam search, instead of the references. The teacher is any run, of sentences or documents,
with a tokenizer and a view of its own: it is given the text of a document and translates it as `cotext
translate` does. The result is an ordinary prepared folder with the tokenizer of the corpus; development and
test sets stay as they are.

Instead, monolingual documents can be translated and added to the corpus: see `distillation_texts.py`.

Documents can be shared out among shards, each a process of its own. Whoever is interrupted goes on with the
same command; the call without a shard translates what no shard has, and writes the folder.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from cotext.config.recipe import Config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.encoding import EncodedChunk
from cotext.data.languages import Languages, check_pair, name_warning
from cotext.data.prepared import REPORT, checked_digests, digest_file, file_digests, read_report, write_report
from cotext.data.statistics import SplitStatistics, StatisticsCollector
from cotext.data.store import StoreWriter
from cotext.data.store_file import Flat
from cotext.data.tokenizer import with_all_processors
from cotext.decoding.open import open_run
from cotext.decoding.translator import DocumentTranslator
from cotext.models.run_folder import model_file
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.integrity import require_whole
from cotext.runtime.locks import writing
from cotext.runtime.version import __version__
from cotext.training.distillation_shards import (
    JOB,
    LOCKS,
    PARTS,
    Entry,
    Parts,
    Shard,
    differences,
    storage,
    working_folder,
)
from cotext.training.distillation_texts import CorpusTexts, MonolingualTexts, Texts, choose_side
from cotext.training.prepared_data import PreparedData, open_data

EXAMPLES: Final = 5
# Of a prepared folder, what a distilled one takes over as it is.
UNCHANGED: Final = ("tokenizer/*", "contrastive/*", "dev.*", "dev.*/*", "test.*", "test.*/*")


@dataclass(slots=True)
class Noted:
    """A number of documents or sentences, and the first of them as examples."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a distillation; sentences are named document:sentence, from 1.

    `kept`: documents with a sentence that the teacher does not take, which keep the target they had;
    monolingual ones are left out. The others as in `cotext.decoding.translate_file.FileReport`.
    """

    documents: int
    sentences: int
    signature: str
    kept: Noted = field(default_factory=Noted)
    cut: Noted = field(default_factory=Noted)
    long: Noted = field(default_factory=Noted)
    missing: Noted = field(default_factory=Noted)

    def note(self, document_id: str, entry: Entry) -> None:
        """Count what there is to know of one document."""
        if entry.sentences is None:
            self.kept.add(document_id)
        for noted, sentences in (
            (self.cut, entry.cut),
            (self.long, entry.long),
            (self.missing, entry.missing),
        ):
            for sentence in sentences:
                noted.add(f"{document_id}:{sentence + 1}")


@dataclass(frozen=True, slots=True)
class DistillationRequest:
    """The settings of a distillation; `decode` overrides keys of the teacher's configuration.

    `monolingual`: documents to translate in place of the corpus's sources, which are added to it; `format` of
    the file; `side`: where they stand, as the languages tell if empty. See `distillation_texts.py`.
    """

    teacher: Path
    data: Path
    out: Path
    decode: dict[str, Any] = field(default_factory=dict)
    update: int | None = None
    monolingual: Path | None = None
    format: str | None = None
    side: str = ""


class Distillation:
    """A distillation under way: `translate`, and once all shards have, `write`."""

    def __init__(
        self,
        request: DistillationRequest,
        data: PreparedData,
        texts: Texts,
        translator: DocumentTranslator,
        signature: str,
        folder: Path,
        shard: Shard,
        parts: Parts,
    ) -> None:
        self.request = request
        self.data = data
        self.texts = texts
        self.translator = translator
        self.signature = signature
        self.folder = folder
        self.parts = parts
        # All is there, but it was interrupted before it had its name: nothing is left to be translated.
        self.written = _is_written(folder)
        self._indices = shard.documents(0 if self.written else len(texts))
        self.documents = len(self._indices)
        self.sentences = self.resumed_documents = self.resumed_sentences = 0
        for index in self._indices:
            sentences = texts.sentences(index)
            self.sentences += sentences
            if index in parts:
                self.resumed_documents += 1
                self.resumed_sentences += sentences

    def translate(self, on_sentences: Callable[[int], None] = lambda count: None) -> None:
        """Translate the documents of this shard that no shard has translated yet."""
        on_sentences(self.resumed_sentences)
        under_way: dict[int, int] = {}  # index of each document that the translator has taken

        def documents() -> Iterator[Document]:
            number = 0
            todo = (index for index in self._indices if index not in self.parts)
            for index, document in self.texts.documents(todo):
                if self._takes(document):
                    under_way[number] = index
                    number += 1
                    yield document
                else:
                    self.parts.add(Entry(index, None))
                    on_sentences(len(document))

        for number, found in self.translator.translate(documents(), on_sentences):
            sentences = found.document.sentences
            self.parts.add(
                Entry(under_way.pop(number), sentences, found.truncated, found.long, found.missing)
            )

    def write(self, on_documents: Callable[[int], None] = lambda count: None) -> Outcome:
        """Write the distilled corpus, give it its name and say what it holds; all must be translated.

        Raises:
            CotextError: storage refuses.
        """
        with storage(self.request.out):
            if not self.written:
                self._copy_unchanged()
                outcome, train = self._write_train(on_documents)
                # Last: it says that all the others are whole.
                write_report(self.folder, self._report(outcome, train))
            return self._publish()

    def _takes(self, document: Document) -> bool:
        """Whether the teacher takes every sentence; passes and settings were checked before."""
        try:
            self.translator.check([document])
        except CotextError:
            return False
        return True

    def _copy_unchanged(self) -> None:
        found = (path for pattern in UNCHANGED for path in sorted(self.data.folder.glob(pattern)))
        paths = [path for path in found if path.is_file()]
        checked_digests(self.data.folder, (str(path.relative_to(self.data.folder)) for path in paths))
        for path in paths:
            copy = self.folder / path.relative_to(self.data.folder)
            copy.parent.mkdir(exist_ok=True)
            # The content alone: what may not be written to, must be so once more after an interruption.
            shutil.copyfile(path, copy)

    def _write_train(self, on_documents: Callable[[int], None]) -> tuple[Outcome, SplitStatistics]:
        store, tokenizer = self.data.train, with_all_processors(self.data.tokenizer)
        noted = Outcome(0, 0, self.signature)
        collector = StatisticsCollector(tokenizer.unk)
        with StoreWriter(self.folder / store.path.name, tokenizer.fingerprint) as writer:
            for chunk in self.texts.chunks(self.parts.read, tokenizer):
                documents: list[ParallelDocument] = []
                sources: list[list[int]] = []
                targets: list[list[int]] = []
                for row in chunk:
                    if row.entry is not None:
                        noted.note(row.id, row.entry)
                    if row.text is None:
                        continue
                    writer.add(row.id, row.source, row.target)
                    documents.append(row.text)
                    sources += row.source
                    targets += row.target
                if documents:
                    collector.add(
                        EncodedChunk.of(
                            (document.id for document in documents),
                            map(len, documents),
                            Flat.of(sources),
                            Flat.of(targets),
                        )
                    )
                on_documents(len(chunk))
        totals = writer.totals
        return replace(noted, documents=totals.documents, sentences=totals.sentences), collector.statistics()

    def _report(self, outcome: Outcome, train: SplitStatistics) -> dict[str, Any]:
        """As that of `prepare`, with what the teacher did, and from what its corpus was prepared."""
        request = self.request
        before = self.data.report
        inputs = (
            digest_file(self.data.train.path),
            model_file(request.teacher, request.update),
            *self.texts.inputs(),
        )
        command = {"distill": str(request.teacher), "data": str(request.data)}
        if request.monolingual is not None:
            command |= {"monolingual": str(request.monolingual), "side": request.side}
        own = {"fingerprint": self.data.tokenizer.fingerprint, "pieces": self.data.tokenizer.pieces}
        return {
            "cotext": __version__,
            "command": {**command, "set": request.decode, "checkpoint": request.update},
            "inputs": {str(path): checksum(path) for path in inputs},
            "languages": asdict(self.data.languages),
            "tokenizer": before.get("tokenizer", own),
            "splits": {**before.get("splits", {}), "train": asdict(train)},
            "files": file_digests(self.folder, without=(PARTS, LOCKS)),
            "notes": before.get("notes", []),
            "distillation": asdict(outcome),
            "versions": {"torch": torch.__version__, "numpy": np.__version__},
            "prepared": {k: before[k] for k in ("cotext", "command", "inputs", "prepared") if k in before},
        }

    def _publish(self) -> Outcome:
        """Clear away what the work has needed, and give the folder its name, unless it has it."""
        outcome = outcome_of(self.folder)
        if self.folder != self.request.out:
            for path in (*self.folder.glob(PARTS), *self.folder.glob(".*")):
                path.unlink()
            self.folder.replace(self.request.out)
        return outcome


def outcome_of(folder: Path) -> Outcome:
    """The description of a distilled folder.

    Raises:
        CotextError: it is not finished, or damaged.
    """
    report = read_report(folder)
    require_whole(folder, report.get("files", {}), "delete the folder to start anew")
    try:
        return TypeAdapter(Outcome).validate_python(report["distillation"])
    except (KeyError, ValidationError):
        raise CotextError(f"{folder / REPORT}: missing or damaged; delete the folder to start anew") from None


def _is_written(folder: Path) -> bool:
    try:
        outcome_of(folder)
    except CotextError:
        return False
    return True


@contextmanager
def distillation(
    request: DistillationRequest, shard: Shard | None = None, device: str | None = None
) -> Iterator[Distillation]:
    """Open a distillation, or go on with an interrupted one; without a shard, all that is left to be done.

    Raises:
        CotextError: no teacher or prepared data there, settings that are unknown or differ from those of the
            interrupted job, data of other languages than the teacher's, a folder `out` that is not empty or
            lies in the data, another process at work.
    """
    out = request.out.resolve()
    finished = (out / JOB).is_file()
    if not finished:
        _require_new(out, request)
    data = open_data(request.data)
    opened = open_run(request.teacher, device, request.decode, request.update)
    translator, loaded = opened.translator, opened.loaded
    translator.plan.check_passes()
    request, texts = _texts(replace(request, out=out), data, loaded.languages)
    job = {**_job(request, data, translator), **texts.identity()}
    signature = opened.signature
    chosen = shard or Shard()
    if finished:
        # Repeated, or killed before it could say so.
        if changed := differences(out, job):
            raise CotextError(f"{request.out}: is there already; choose another --out:\n{changed}")
        outcome_of(out)
        with writing(out):
            yield Distillation(
                request, data, texts, translator, signature, out, chosen, Parts(out, chosen, 0)
            )
        return
    with working_folder(out, job, shard) as folder:
        _require_new(out, request)  # still: another process may have made it before this one held the folder
        with Parts(folder, chosen, len(texts)) as parts:
            yield Distillation(request, data, texts, translator, signature, folder, chosen, parts)


def _texts(
    request: DistillationRequest, data: PreparedData, teacher: Languages
) -> tuple[DistillationRequest, Texts]:
    """What is translated; the request with the side that is chosen for it."""
    if request.monolingual is None:
        check_pair(teacher, data.languages, f"{request.data}", f"{request.teacher} translates")
        return request, CorpusTexts(data)
    side = choose_side(request.side, teacher, data.languages, str(request.data))
    warning = name_warning(request.monolingual, teacher.source, f"{request.teacher} translates")
    texts = MonolingualTexts(data, request.monolingual, request.format, side, warning)
    return replace(request, side=side), texts


def _require_new(out: Path, request: DistillationRequest) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CotextError(f"{request.out}: is there already; choose another --out")
    if out.is_relative_to(request.data.resolve()):
        raise CotextError(f"{request.out}: lies inside the data to be distilled; choose another --out")


def _job(request: DistillationRequest, data: PreparedData, translator: DocumentTranslator) -> dict[str, Any]:
    """Everything that decides what the distilled corpus holds."""
    job: dict[str, Any] = {
        "cotext": __version__,
        "data": checked_digests(data.folder, data.files_read),
        "tokenizer": data.tokenizer.fingerprint,
        "teacher": _system(model_file(request.teacher, request.update), translator),
    }
    if first_pass := translator.first_pass:
        job["first_pass"] = _system(model_file(Path(translator.config.decode.first_pass)), first_pass)
    return job


def _system(model: Path, translator: DocumentTranslator) -> dict[str, Any]:
    return {
        "model": checksum(model),
        "tokenizer": translator.tokenizer.fingerprint,
        "config": _deciding(translator.config),
    }


def _deciding(config: Config) -> dict[str, Any]:
    """A configuration without the size of a batch, which depends on the machine that translates."""
    content = config.model_dump(mode="json")
    del content["decode"]["max_tokens"]
    return content
