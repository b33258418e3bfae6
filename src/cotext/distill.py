"""A corpus whose training targets are what a teacher makes of its sources: what `cotext distill` does.

Sequence-level knowledge distillation (Kim and Rush 2016): the student learns from the teacher's translations,
found by beam search, in place of those that people wrote. The teacher is any run, of sentences or documents,
with a tokenizer and a view of its own: it is given the text of a document and translates it as `cotext
translate` does. The result is an ordinary prepared folder with the tokenizer of the corpus; development and
test sets stay as they are.

Documents can be shared out among shards, each a process of its own. Whoever is interrupted goes on with the
same command; the call without a shard translates what no shard has, and writes the folder.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

import cotext
from cotext.checkpoint import model_file
from cotext.config import Config
from cotext.data.corpus_statistics import SplitStatistics, StatisticsCollector
from cotext.data.documents import Document, ParallelDocument
from cotext.data.languages import check_pair
from cotext.data.prepared import REPORT, checked_digests, file_digests, read_report
from cotext.data.store import StoreWriter
from cotext.data.tokenizer import SentencePieceTokenizer
from cotext.distillation_parts import (
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
from cotext.errors import CotextError
from cotext.files import checksum, replacing
from cotext.integrity import require_whole
from cotext.jobs import open_translator
from cotext.locks import writing
from cotext.runs import READ, Data, open_data
from cotext.translate import DocumentTranslator

CHUNK_DOCUMENTS: Final = 256  # encoded and written at once
EXAMPLES: Final = 5
# Of a prepared folder, what a distilled one takes over as it is.
UNCHANGED: Final = ("tokenizer/*", "contrastive/*", "dev.*", "test.*")


@dataclass(slots=True)
class Noted:
    """How many documents or sentences something is true of, and the first of them."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Count one more."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a distilled corpus holds; sentences are named document:sentence, from 1.

    `kept`: documents with a sentence that the teacher does not take, which keep the target they had. The
    others as in `cotext.jobs.FileReport`.
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
class Request:
    """What is distilled, by whom and how; `decode` overrides keys of the teacher's configuration."""

    teacher: Path
    data: Path
    out: Path
    decode: dict[str, Any] = field(default_factory=dict)
    update: int | None = None


class Distillation:
    """A distillation under way: `translate`, and once all shards have, `write`."""

    def __init__(
        self,
        request: Request,
        data: Data,
        translator: DocumentTranslator,
        signature: str,
        folder: Path,
        shard: Shard,
        parts: Parts,
    ) -> None:
        self.request = request
        self.data = data
        self.translator = translator
        self.signature = signature
        self.folder = folder
        self.parts = parts
        # Written, but interrupted before it had its name: nothing is left to be translated.
        self.written = _is_written(folder)
        self._places = shard.places(0 if self.written else len(data.train))
        self.documents = len(self._places)
        self.sentences = self.resumed_documents = self.resumed_sentences = 0
        for place in self._places:
            sentences = len(data.train.lengths(place)[0])
            self.sentences += sentences
            if place in parts:
                self.resumed_documents += 1
                self.resumed_sentences += sentences

    def translate(self, on_sentences: Callable[[int], None] = lambda count: None) -> None:
        """Translate the documents of this shard that no shard has translated yet."""
        on_sentences(self.resumed_sentences)
        under_way: dict[int, int] = {}  # place of each document that the translator has taken

        def documents() -> Iterator[Document]:
            number = 0
            for place in self._places:
                if place in self.parts:
                    continue
                document = self._source(place)
                if self._takes(document):
                    under_way[number] = place
                    number += 1
                    yield document
                else:
                    self.parts.add(Entry(place, None))
                    on_sentences(len(document))

        for number, found in self.translator.translate(documents(), on_sentences):
            sentences = found.document.sentences
            self.parts.add(Entry(under_way.pop(number), sentences, found.cut, found.long, found.missing))

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
                with replacing(self.folder / REPORT) as temporary:
                    text = json.dumps(self._report(outcome, train), indent=2, ensure_ascii=False)
                    temporary.write_text(f"{text}\n", encoding="utf-8")
            return self._publish()

    def _source(self, place: int) -> Document:
        """The source of a document as text, which the teacher reads with its own tokenizer."""
        document = self.data.train[place]
        return Document(document.id, _decoded(self.data, document.source))

    def _takes(self, document: Document) -> bool:
        """Whether the teacher takes every sentence; passes and settings were checked before."""
        try:
            self.translator.check([document])
        except CotextError:
            return False
        return True

    def _copy_unchanged(self) -> None:
        paths = [path for pattern in UNCHANGED for path in sorted(self.data.folder.glob(pattern))]
        checked_digests(self.data.folder, (str(path.relative_to(self.data.folder)) for path in paths))
        for path in paths:
            copy = self.folder / path.relative_to(self.data.folder)
            copy.parent.mkdir(exist_ok=True)
            # The content alone: what may not be written to, must be so once more after an interruption.
            shutil.copyfile(path, copy)

    def _write_train(self, on_documents: Callable[[int], None]) -> tuple[Outcome, SplitStatistics]:
        store, tokenizer = self.data.train, self.data.tokenizer
        if isinstance(tokenizer, SentencePieceTokenizer):
            tokenizer = tokenizer.with_threads(os.cpu_count() or 1)
        outcome = Outcome(store.totals.documents, store.totals.sentences, self.signature)
        collector = StatisticsCollector(tokenizer.unk)
        with StoreWriter(self.folder / store.path.name, tokenizer.fingerprint) as writer:
            for start in range(0, len(store), CHUNK_DOCUMENTS):
                documents: list[ParallelDocument] = []
                sources: list[list[int]] = []
                targets: list[list[int]] = []
                entries = [self.parts.read(p) for p in range(start, min(start + CHUNK_DOCUMENTS, len(store)))]
                encoded = iter(tokenizer.encode_batch([s for e in entries for s in e.sentences or ()]))
                for entry in entries:
                    before = store[entry.place]
                    outcome.note(before.id, entry)
                    source = [s.tolist() for s in before.source]
                    if entry.sentences is None:
                        target = [t.tolist() for t in before.target]
                        text = _decoded(self.data, before.target)
                    else:
                        target = [next(encoded) for _ in entry.sentences]
                        text = entry.sentences
                    writer.add(before.id, source, target)
                    documents.append(ParallelDocument(before.id, _decoded(self.data, before.source), text))
                    sources += source
                    targets += target
                collector.add(documents, sources, targets)
                on_documents(len(documents))
        return outcome, collector.statistics()

    def _report(self, outcome: Outcome, train: SplitStatistics) -> dict[str, Any]:
        """As that of `prepare`, with what the teacher did, and from what its corpus was prepared."""
        request = self.request
        before = read_report(self.data.folder)
        inputs = self.data.train.path, model_file(request.teacher, request.update)
        command = {"distill": str(request.teacher), "data": str(request.data)}
        own = {"fingerprint": self.data.tokenizer.fingerprint, "pieces": self.data.tokenizer.pieces}
        return {
            "cotext": cotext.__version__,
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
    """What a distilled folder says that it holds.

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
    request: Request, shard: Shard | None = None, device: str | None = None
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
    translator, loaded = open_translator(request.teacher, device, request.decode, request.update)
    translator.check_passes()
    check_pair(loaded.languages, data.languages, f"{request.data}", f"{request.teacher} translates")
    job = _job(request, data, translator)
    signature = f"{loaded.signature}|{translator.signature}"
    request = Request(request.teacher, request.data, out, request.decode, request.update)
    chosen = shard or Shard()
    if finished:
        # Repeated, or killed before it could say so.
        if changed := differences(out, job):
            raise CotextError(f"{request.out}: is there already; choose another --out:\n{changed}")
        outcome_of(out)
        with writing(out):
            yield Distillation(request, data, translator, signature, out, chosen, Parts(out, chosen, 0))
        return
    with working_folder(out, job, shard) as folder:
        _require_new(out, request)  # still: another process may have made it before this one held the folder
        with Parts(folder, chosen, len(data.train)) as parts:
            yield Distillation(request, data, translator, signature, folder, chosen, parts)


def _require_new(out: Path, request: Request) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CotextError(f"{request.out}: is there already; choose another --out")
    if out.is_relative_to(request.data.resolve()):
        raise CotextError(f"{request.out}: lies inside the data to be distilled; choose another --out")


def _job(request: Request, data: Data, translator: DocumentTranslator) -> dict[str, Any]:
    """Everything that decides what the distilled corpus holds."""
    job: dict[str, Any] = {
        "cotext": cotext.__version__,
        "data": checked_digests(data.folder, READ),
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


def _decoded(data: Data, sentences: Iterable[Any]) -> tuple[str, ...]:
    return tuple(data.tokenizer.decode(tokens) for tokens in sentences)
