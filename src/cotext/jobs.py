"""Long jobs on files: translate and score with a run, resumable, with nothing half-written.

While a file is being translated, every finished document is appended to `<out>.partial` at once. The output
appears under its name when it is complete; the same command continues an interrupted job.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch

import cotext
from cotext.checkpoint import LoadedModel, load_run
from cotext.config import Config, DecodeConfig, dump_config, parse_config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import detect_format, read_documents, read_parallel, write_translations
from cotext.data.suites import ContrastiveSuite
from cotext.errors import CotextError
from cotext.metrics.bleu import DEFAULT_PROTOCOLS, Score, check_correspondence, evaluate
from cotext.metrics.contrastive import CandidateScores, ContrastiveReport, contrastive_accuracy
from cotext.systems import choose_threads
from cotext.translate import DocumentTranslator, Translation

SUITE_CHUNK = 2000  # candidates scored between two signs of progress


@dataclass(slots=True)
class FileReport:
    """What became of a translated file."""

    documents: int = 0
    sentences: int = 0
    resumed_documents: int = 0
    cut: list[str] = field(default_factory=list)  # "document:sentence" closed by the length limit
    long: list[str] = field(default_factory=list)  # longer than what the model was trained on
    signature: str = ""


def open_translator(
    run: Path, device: str | None = None, decode: dict[str, Any] | None = None, update: int | None = None
) -> tuple[DocumentTranslator, LoadedModel]:
    """Load a run for translation; `decode` overrides keys of its `decode` section.

    Raises:
        CotextError: no such run or device, unknown decode keys.
    """
    loaded = load_run(run, update)
    config = _with_decode(loaded.config, decode or {})
    place = choose_device(device)
    torch.set_num_threads(choose_threads(config.model, config.train.threads))
    return DocumentTranslator(loaded.model.to(place), config, loaded.tokenizer, place), loaded


def choose_device(name: str | None) -> torch.device:
    """The named device, or the GPU where there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
        return torch.device(name)
    except (RuntimeError, AssertionError) as error:
        raise CotextError(f"device '{name}' cannot be used: {str(error).splitlines()[0]}") from None


def _with_decode(config: Config, decode: dict[str, Any]) -> Config:
    unknown = set(decode) - set(DecodeConfig.model_fields)
    if unknown:
        known = ", ".join(DecodeConfig.model_fields)
        raise CotextError(f"unknown decode setting '{min(unknown)}': known are {known}")
    content = config.model_dump()
    content["decode"] |= decode
    return parse_config(content, "decode settings")


def translate_file(
    run: Path,
    source: Path,
    out: Path,
    *,
    format: str | None = None,
    device: str | None = None,
    decode: dict[str, Any] | None = None,
    update: int | None = None,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> FileReport:
    """Translate a corpus file into the same format.

    `on_start` is told the number of sentences, `on_sentences` of each few that are done.

    Raises:
        CotextError: unreadable input, a sentence over the limit, an output that cannot be written; all that
            can be known beforehand is checked before any work is done.
    """
    _check_output(source, out)
    kind = format or detect_format(source)
    translator, loaded = open_translator(run, device, decode, update)
    total = translator.check(read_documents(source, kind))
    report = FileReport(sentences=total, signature=f"{loaded.signature}|{translator.signature}")
    on_start(total)
    with _Journal(out, _header(source, kind, loaded, translator)) as journal:
        todo = list(_remaining(read_documents(source, kind), journal.done))
        report.resumed_documents = len(journal.done)
        on_sentences(total - sum(len(d.sentences) for _, d in todo))
        places = [place for place, _ in todo]
        for number, translation in translator.translate((d for _, d in todo), on_sentences):
            journal.add(places[number], translation)
        documents = _paired(read_documents(source, kind), journal.done, report)
        write_translations(out, documents, kind)
        journal.finish()
    return report


def _check_output(source: Path, out: Path) -> None:
    if out.is_dir():
        raise CotextError(f"{out}: is a folder; give --out the name of a file")
    if not out.absolute().parent.is_dir():
        raise CotextError(f"{out}: the folder {out.absolute().parent} does not exist")
    if out.exists() and source.exists() and out.samefile(source):
        raise CotextError(f"{out}: would overwrite the source; give --out another name")


def _header(source: Path, kind: str, loaded: LoadedModel, translator: DocumentTranslator) -> dict[str, Any]:
    """Everything that a continued job must share with the one it continues."""
    digest = hashlib.sha256()
    with source.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {
        "cotext": cotext.__version__,
        "source": digest.hexdigest(),
        "format": kind,
        "updates": loaded.updates,
        "tokenizer": loaded.tokenizer.fingerprint,
        "config": dump_config(translator.config),
    }


def _remaining(documents: Iterator[Document], done: dict[int, Translation]) -> Iterator[tuple[int, Document]]:
    return ((i, d) for i, d in enumerate(documents) if i not in done)


def _paired(
    documents: Iterator[Document], done: dict[int, Translation], report: FileReport
) -> Iterator[ParallelDocument]:
    """Source and translation side by side, in input order; counts what the report tells."""
    for place, document in enumerate(documents):
        translation = done[place]
        report.documents += 1
        report.cut += [f"{document.id}:{j + 1}" for j in translation.cut]
        report.long += [f"{document.id}:{j + 1}" for j in translation.long]
        yield ParallelDocument(document.id, document.sentences, translation.document.sentences)


class _Journal:
    """The translations so far, on disk: a header line, then one line per document."""

    def __init__(self, out: Path, header: dict[str, Any]) -> None:
        self.path = out.with_name(out.name + ".partial")
        self.header = header
        self.done: dict[int, Translation] = {}
        self.file: TextIO | None = None

    def __enter__(self) -> "_Journal":
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        kept = self._take_over(lines)
        try:
            temporary = self.path.with_name(self.path.name + ".new")
            temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
            os.replace(temporary, self.path)
            self.file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise CotextError(f"{self.path}: cannot be written: {error}") from None
        return self

    def _take_over(self, lines: list[str]) -> list[str]:
        """Read the lines of an earlier, interrupted job; a line cut off by the interruption is dropped."""
        header = json.dumps(self.header)
        if not lines or lines[0] != header:
            return [header]
        kept = [header]
        for line in lines[1:]:
            try:
                entry = json.loads(line)
                document = Document(entry["id"], tuple(entry["sentences"]))
                translation = Translation(
                    document, tuple(entry["log_probabilities"]), tuple(entry["cut"]), tuple(entry["long"])
                )
                self.done[int(entry["place"])] = translation
            except (ValueError, KeyError, TypeError):
                break
            kept.append(line)
        return kept

    def add(self, place: int, translation: Translation) -> None:
        """Append one document and push it to the disk."""
        assert self.file is not None
        fields = asdict(translation)
        document = fields.pop("document")
        try:
            self.file.write(json.dumps({"place": place, **document, **fields}) + "\n")
            self.file.flush()
        except OSError as error:
            raise CotextError(
                f"{self.path}: cannot be written: {error}; the same command continues"
            ) from None
        self.done[place] = translation

    def finish(self) -> None:
        """The output is complete: the journal has done its service."""
        self.path.unlink()

    def __exit__(self, *exc: object) -> None:
        if self.file is not None:
            self.file.close()


def run_suite(
    translator: DocumentTranslator,
    suite: ContrastiveSuite,
    *,
    tie: Any = "wrong",
    score: Any = "sum",
    recipe: dict[str, str] | None = None,
    on_candidates: Callable[[int], None] = lambda count: None,
) -> ContrastiveReport:
    """Score every candidate of a suite in its context and count how often the right one wins.

    What is scored are the sentences in which the candidates differ, each as current sentence of its window.
    """
    todo = [
        (ParallelDocument(example.id, example.source, candidate), example.differing_sentences)
        for example in suite.examples
        for candidate in example.candidates
    ]
    scores = []
    for start in range(0, len(todo), SUITE_CHUNK):
        chunk = todo[start : start + SUITE_CHUNK]
        scores += translator.score_sentences(chunk)
        on_candidates(len(chunk))
    by_candidate = iter(scores)
    groups = []
    for example in suite.examples:
        members = [next(by_candidate) for _ in example.candidates]
        log_probabilities = tuple(m.log_probability for m in members)
        groups.append(CandidateScores(log_probabilities, tuple(m.tokens for m in members)))
    return contrastive_accuracy(suite, groups, tie=tie, score=score, recipe=recipe)


def score_file(
    run: Path,
    source: Path,
    target: Path | None,
    *,
    format: str | None = None,
    device: str | None = None,
    update: int | None = None,
) -> tuple[Iterator[tuple[str, ...]], str]:
    """Score a translation: a header row, then document, sentence number, log-probability and tokens."""
    translator, loaded = open_translator(run, device, update=update)

    def rows() -> Iterator[tuple[str, ...]]:
        yield "document", "sentence", "log_probability", "tokens"
        for document in read_parallel(source, target, format):
            for number, score in enumerate(translator.score([document])[0], start=1):
                yield document.id, str(number), f"{score.log_probability:.6f}", str(score.tokens)

    return rows(), f"{loaded.signature}|{translator.signature}|unit:nats"


def evaluate_files(
    hypothesis: Path,
    references: Sequence[Path],
    source: Path | None = None,
    *,
    protocols: Sequence[str] | None = None,
    target_language: str | None = None,
    format: str | None = None,
) -> list[Score]:
    """Score a file of translations against reference files; document ids follow the first reference.

    Raises:
        CotextError: files that do not correspond document by document and sentence by sentence.
    """
    first, *further = [list(read_documents(path, format, side="target")) for path in references]
    found = list(read_documents(hypothesis, format, side="target"))
    if source is not None:
        check_correspondence(list(read_documents(source, format)), first)
    chosen = tuple(protocols) if protocols else DEFAULT_PROTOCOLS
    return evaluate(found, first, chosen, target_language=target_language, further_references=further)
