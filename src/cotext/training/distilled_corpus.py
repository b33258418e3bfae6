"""The folder that a distillation makes: prepared data with the translations of a teacher."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from cotext.data.documents import ParallelDocument
from cotext.data.encoding import EncodedChunk
from cotext.data.prepared import REPORT, checked_digests, digest_file, file_digests, read_report, write_report
from cotext.data.statistics import SplitStatistics, StatisticsCollector
from cotext.data.store import Flat, StoreWriter
from cotext.data.tokenizer import with_all_processors
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, replacing
from cotext.runtime.integrity import require_whole
from cotext.runtime.shard_lines import storage
from cotext.runtime.version import __version__
from cotext.training.distillation_texts import Entry, Texts
from cotext.training.prepared_data import PreparedData

JOB: Final = "distillation.json"  # in the folder: all that decides what it holds
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
    monolingual ones are left out. The others as in `cotext.translation.file_report.FileReport`.
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


class DistilledCorpus:
    """The folder that is written once all documents are translated; `signature` says how they were.

    `job` is all that decides what it holds, `model` the model file of the teacher.
    """

    def __init__(
        self,
        request: DistillationRequest,
        data: PreparedData,
        texts: Texts,
        job: Mapping[str, Any],
        model: Path,
        signature: str,
    ) -> None:
        self.request, self.data, self.texts = request, data, texts
        self.job, self.model, self.signature = job, model, signature

    def write(
        self, read: Callable[[int], Entry], on_documents: Callable[[int], None] = lambda count: None
    ) -> Outcome:
        """Write the distilled corpus, and give it its name; `read` gives the translation of a document.

        Raises:
            CotextError: storage refuses.
        """
        with storage(self.request.out), replacing(self.request.out.resolve()) as folder:
            folder.mkdir()
            description = json.dumps(self.job, indent=1, ensure_ascii=False)
            (folder / JOB).write_text(description, encoding="utf-8")
            self._copy_unchanged(folder)
            outcome, train = self._write_train(folder, read, on_documents)
            write_report(folder, self._report(folder, outcome, train))
        return outcome

    def _copy_unchanged(self, folder: Path) -> None:
        found = (path for pattern in UNCHANGED for path in sorted(self.data.folder.glob(pattern)))
        paths = [path for path in found if path.is_file()]
        checked_digests(self.data.folder, (str(path.relative_to(self.data.folder)) for path in paths))
        for path in paths:
            copy = folder / path.relative_to(self.data.folder)
            copy.parent.mkdir(exist_ok=True)
            # The content alone: data that may not be written to are no reason to make such.
            shutil.copyfile(path, copy)

    def _write_train(
        self, folder: Path, read: Callable[[int], Entry], on_documents: Callable[[int], None]
    ) -> tuple[Outcome, SplitStatistics]:
        store, tokenizer = self.data.train, with_all_processors(self.data.tokenizer)
        noted = Outcome(0, 0, self.signature)
        collector = StatisticsCollector(tokenizer.unk)
        with StoreWriter(folder / store.path.name, tokenizer.fingerprint) as writer:
            for chunk in self.texts.chunks(read, tokenizer):
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

    def _report(self, folder: Path, outcome: Outcome, train: SplitStatistics) -> dict[str, Any]:
        """As that of `prepare`, with what the teacher did, and from what its corpus was prepared."""
        request = self.request
        before, store = self.data.report, digest_file(self.data.train.path)
        inputs = {str(path): checksum(path) for path in (store, *self.texts.inputs())}
        command = {"distill": str(request.teacher), "data": str(request.data)}
        if request.monolingual is not None:
            command |= {"monolingual": str(request.monolingual), "side": request.side}
        own = {"fingerprint": self.data.tokenizer.fingerprint, "pieces": self.data.tokenizer.pieces}
        return {
            "cotext": __version__,
            "command": {**command, "set": request.decode, "checkpoint": request.update},
            "inputs": {**inputs, str(self.model): self.job["teacher"]["model"]},
            "languages": asdict(self.data.languages),
            "tokenizer": before.get("tokenizer", own),
            "splits": {**before.get("splits", {}), "train": asdict(train)},
            "files": file_digests(folder),
            "notes": before.get("notes", []),
            "distillation": asdict(outcome),
            "versions": {"torch": torch.__version__, "numpy": np.__version__},
            "prepared": {k: before[k] for k in ("cotext", "command", "inputs", "prepared") if k in before},
        }


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
