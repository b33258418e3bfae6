"""Sequence-level knowledge distillation (Kim and Rush 2016): `cotext distill`.

The student is trained on translations of a teacher, found by beam search, instead of the references. The
teacher can be any run, for sentences or documents. It may have another tokenizer and view: it translates the
text of the documents as `cotext translate` does. The result is a prepared folder with the tokenizer of the
corpus. Development and test sets are copied.

This is a job (`cotext.runtime.jobs.engine`): it resumes after interruptions, and can be divided into shards.
"""

import json
import shutil
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from cotext.data.documents import Document, check_pair
from cotext.data.prepared import (
    REPORT,
    SplitStatistics,
    StatisticsCollector,
    checked_digests,
    file_digests,
    read_report,
    write_report,
)
from cotext.data.store import Flat, store_writer
from cotext.runtime import CotextError, __version__, read_json
from cotext.runtime.files import checksum, replacing, require_new, require_whole, writing
from cotext.runtime.jobs.engine import Job, Joined, clear, forget, run
from cotext.runtime.jobs.journal import Journal, Results, Shard, differences, storage
from cotext.training.inputs import PreparedData, open_data
from cotext.training.requests import DistillRequest
from cotext.translation.open import OpenedRun, open_run, systems_of

JOB: Final = "distillation.json"  # everything that determines the content of the folder
EXAMPLES: Final = 5
CHUNK_DOCUMENTS: Final = 256  # encoded and written at once
# Files of a prepared folder that are copied.
UNCHANGED: Final = ("tokenizer/*", "contrastive/*", "dev.*", "dev.*/*", "test.*", "test.*/*")


@dataclass(slots=True)
class Noted:
    """A number of documents or sentences, and the names of the first of them."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(name)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a distillation. Sentences are named document:sentence, counted from 1.

    `kept`: documents with a sentence that the teacher cannot translate. These documents, and the sentences in
    `missing`, keep their target. For `long`, `missing` and `cut` (there `truncated`), see
    `cotext.translation.translator.Translation`.
    """

    documents: int
    sentences: int
    signature: str
    kept: Noted = field(default_factory=Noted)
    cut: Noted = field(default_factory=Noted)
    long: Noted = field(default_factory=Noted)
    missing: Noted = field(default_factory=Noted)

    def note(self, document_id: str, entry: Mapping[str, Any]) -> None:
        """Count the result of one document, whose `sentences` are None if it was not translated."""
        if entry["sentences"] is None:
            self.kept.add(document_id)
        for noted, name in ((self.cut, "cut"), (self.long, "long"), (self.missing, "missing")):
            for sentence in entry.get(name, ()):
                noted.add(f"{document_id}:{sentence + 1}")


@dataclass(frozen=True, slots=True)
class DistilledCorpus:
    """Writes the output folder when all documents are translated.

    `job`: everything that determines the content of the folder. `model`: the model file of the teacher.
    `signature`: the signature of the teacher's translations.
    """

    request: DistillRequest
    data: PreparedData
    job: Mapping[str, Any]
    model: Path
    signature: str

    def write(
        self, results: Mapping[int, Mapping[str, Any]], on_stage: Callable[[str, int, int], None]
    ) -> Outcome:
        """Write the corpus, given the results of its documents; raises CotextError for storage errors."""
        with storage(self.request.out), replacing(self.request.out.resolve()) as folder:
            folder.mkdir()
            description = json.dumps(self.job, indent=1, ensure_ascii=False)
            (folder / JOB).write_text(description, encoding="utf-8")
            self._copy_unchanged(folder)
            outcome, train = self._write_train(folder, results, on_stage)
            write_report(folder, self._report(folder, outcome, train))
        return outcome

    def _copy_unchanged(self, folder: Path) -> None:
        matches = (path for pattern in UNCHANGED for path in sorted(self.data.folder.glob(pattern)))
        paths = [path for path in matches if path.is_file()]
        checked_digests(self.data.folder, (str(path.relative_to(self.data.folder)) for path in paths))
        for path in paths:
            copy = folder / path.relative_to(self.data.folder)
            copy.parent.mkdir(exist_ok=True)
            # File permissions are not copied: a read-only source would make the copy read-only.
            shutil.copyfile(path, copy)

    def _write_train(
        self,
        folder: Path,
        results: Mapping[int, Mapping[str, Any]],
        on_stage: Callable[[str, int, int], None],
    ) -> tuple[Outcome, SplitStatistics]:
        store, tokenizer = self.data.train, self.data.tokenizer
        noted = Outcome(0, 0, self.signature)
        collector = StatisticsCollector(tokenizer.unk)
        with store_writer(folder / store.path.name, tokenizer.fingerprint) as writer:
            for start in range(0, len(store), CHUNK_DOCUMENTS):
                chunk = range(start, min(start + CHUNK_DOCUMENTS, len(store)))
                entries = {index: results[index] for index in chunk}
                written = [s for entry in entries.values() for s in entry["sentences"] or ()]
                encoded = iter(tokenizer.encode_batch(written, side="target"))
                sources: list[list[int]] = []
                targets: list[list[int]] = []
                for index, entry in entries.items():
                    before = store[index]
                    noted.note(before.id, entry)
                    source, target = ([t.tolist() for t in side] for side in (before.source, before.target))
                    if entry["sentences"] is not None:
                        # From empty targets, the student would learn to omit sentences.
                        for sentence, found in zip(range(len(target)), encoded, strict=False):
                            if sentence not in entry["missing"]:
                                target[sentence] = found
                    writer.add(before.id, source, target)
                    sources += source
                    targets += target
                sizes = [len(store.lengths(index)[0]) for index in chunk]
                collector.add(sizes, Flat.of(sources), Flat.of(targets))
                on_stage("writing documents", chunk.stop, len(store))
        totals = writer.totals
        return replace(noted, documents=totals.documents, sentences=totals.sentences), collector.statistics()

    def _report(self, folder: Path, outcome: Outcome, train: SplitStatistics) -> dict[str, Any]:
        """Return a report like that of `prepare`, with the result of distillation and the old settings."""
        request = self.request
        before, store = self.data.report, self.data.train.path
        command = {"distill": str(request.teacher), "data": str(request.data)}
        tokenizer = {"fingerprint": self.data.tokenizer.fingerprint, "pieces": self.data.tokenizer.pieces}
        return {
            "cotext": __version__,
            "command": {**command, "set": dict(request.decode), "checkpoint": request.checkpoint},
            "inputs": {str(store): checksum(store), str(self.model): self.job["teacher"]["model"]},
            "languages": asdict(self.data.languages),
            "tokenizer": before.get("tokenizer", tokenizer),
            "splits": {**before.get("splits", {}), "train": asdict(train)},
            "files": file_digests(folder),
            "notes": before.get("notes", []),
            "distillation": asdict(outcome),
            "versions": {"torch": torch.__version__, "numpy": np.__version__},
            "prepared": {k: before[k] for k in ("cotext", "command", "inputs", "prepared") if k in before},
        }


def outcome_of(folder: Path) -> Outcome:
    """Read the result of a finished distillation; raises CotextError if it is unfinished or damaged."""
    report = read_report(folder)
    require_whole(folder, report.get("files", {}), "delete the folder to start again")
    try:
        return TypeAdapter(Outcome).validate_python(report["distillation"])
    except (KeyError, ValidationError):
        raise CotextError(f"{folder / REPORT}: damaged; delete the folder to distill again") from None


class DistillationJob(Job[Outcome]):
    """The translation of the documents of a prepared corpus; `run` writes the new corpus.

    `placed` may give the opened teacher another translator, such as one on a cluster. `on_stage` is called
    while the corpus is written, with a name and the numbers of finished and of all documents. Raises
    CotextError if the teacher or the data do not exist, or have different languages; if a setting is unknown;
    or if the folder `out` is in the data, has other content, or was finished with other settings.
    """

    command, unit = "distill", "documents"

    def __init__(
        self,
        request: DistillRequest,
        shard: Shard | None = None,
        placed: Callable[[OpenedRun], OpenedRun] = lambda opened: opened,
    ) -> None:
        self.out, self.shard, self.resumed = request.out, shard, 0
        self.on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None
        # The command is repeated, or was killed after writing the folder.
        self.finished = shard is None and (request.out / JOB).is_file()
        if not self.finished:
            require_new(request.out)
        if request.out.resolve().is_relative_to(request.data.resolve()):
            raise CotextError(f"{request.out}: is inside the data to be distilled; choose another --out")
        data = open_data(request.data)
        opened = placed(open_run(request.teacher, request.device, dict(request.decode), request.checkpoint))
        self._translator = opened.translator
        self._translator.plan.check_passes()
        check_pair(opened.languages, data.languages, f"{request.data}", f"{request.teacher} translates")
        self._data = data
        self.sizes = array("I", (len(data.train.lengths(index)[0]) for index in range(len(data.train))))
        self.identity = _job(data, opened)
        if self.finished and (changed := differences(read_json(request.out / JOB), self.identity)):
            raise CotextError(f"{request.out}: exists; choose another --out:\n{changed}")
        self._corpus = DistilledCorpus(request, data, self.identity, opened.weights, opened.signature)
        # Relative paths refer to `folder`, because shards may be joined from another folder.
        paths = {"teacher": str(request.teacher), "data": str(request.data), "out": str(request.out)}
        here = {"folder": str(Path.cwd()), "model": str(opened.weights), "signature": opened.signature}
        self.facts = {**asdict(request), **paths, **here}

    def run(self, on_sentences: Callable[[int], None] = lambda count: None) -> Outcome:
        """Translate the remaining documents and write the corpus; if it is finished, only read the result."""
        if not self.finished:
            return run(self, on_sentences, overwrite=None)
        with writing(self.out):
            outcome = outcome_of(self.out)
        forget(self.out)
        clear(self.out)
        return outcome

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Translate documents, which are read when the translator needs them."""
        taken: list[int] = []
        refused: list[int] = []

        def documents() -> Iterator[Document]:
            for unit in todo:
                # As text, because the teacher has its own tokenizer.
                text = self._data.train[unit].decoded(self._data.tokenizer)
                document = Document(text.id, text.source)
                try:  # settings were checked before, so an error means that a sentence is too long
                    self._translator.check([document])
                except CotextError:
                    refused.append(unit)
                    on_size(len(document))
                    continue
                taken.append(unit)
                yield document

        for number, result in self._translator.translate(documents(), on_size):
            notes = {"cut": result.truncated, "long": result.long, "missing": result.missing}
            yield taken[number], {"sentences": result.document.sentences, **notes}
            while refused:
                yield refused.pop(), {"sentences": None}
        yield from ((unit, {"sentences": None}) for unit in refused)

    def check(self, unit: int, entry: Mapping[str, Any]) -> None:
        """Check that an entry has the number of sentences of its document."""
        sentences = entry["sentences"]
        if sentences is not None and len(sentences) != self.sizes[unit]:
            raise ValueError(unit)

    def write(self, results: Results) -> Outcome:
        self.resumed = results.resumed
        return self._corpus.write(results, self.on_stage)


def join_distilled(out: Path, parts: Joined, on_stage: Callable[[str, int, int], None]) -> Outcome:
    """Write the corpus from the results of shards; raises CotextError if the data were moved or changed."""
    facts, job = parts.header.facts, parts.header.identity
    # Relative paths refer to the folder in which the shards were started.
    began = Path(facts["folder"]) if Path(facts["folder"]) != Path.cwd() else Path()
    teacher, folder = began / facts["teacher"], began / facts["data"]
    request = DistillRequest(
        teacher=teacher, data=folder, out=out, decode=facts["decode"], checkpoint=facts["checkpoint"]
    )
    data = open_data(request.data)
    if changed := differences(job, {**job, "data": checked_digests(data.folder, data.files_read)}):
        raise CotextError(f"{request.data}: changed since the shards were run; restore it:\n{changed}")
    corpus = DistilledCorpus(request, data, job, began / facts["model"], facts["signature"])
    return corpus.write(parts, on_stage)


def _job(data: PreparedData, opened: OpenedRun) -> dict[str, Any]:
    """Return everything that determines the content of the distilled corpus."""
    teacher = systems_of(opened)
    for system in (teacher, *(teacher[name] for name in opened.further_runs())):
        del system["config"]["decode"]["max_tokens"]  # the batch size may differ between machines
    return {
        "cotext": __version__,
        "data": checked_digests(data.folder, data.files_read),
        "tokenizer": data.tokenizer.fingerprint,
        "teacher": teacher,
    }
