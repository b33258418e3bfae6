"""COMET, document COMET and SLIDE (Rei et al., 2020; Vernikos et al., 2022; Raunak et al., 2024).

They run in an environment of their own. COMET pins old versions of numpy and others, and its checkpoints are
pickles: neither belongs into the process that trains and translates. `comet_runner.py` is started with the
interpreter of an environment that has COMET; documents go there in a file of JSON lines, scores come back as
JSON lines.
"""

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from cotext.data.documents import Document
from cotext.evaluation.metrics.interface import Measurement, check_correspondence
from cotext.evaluation.statistics.sufficient_statistics import Statistics, share
from cotext.runtime.errors import CotextError
from cotext.runtime.version import __version__

PYTHON_VARIABLE = "COTEXT_COMET_PYTHON"
INSTALL = "python -m venv comet-env && comet-env/bin/pip install unbabel-comet 'setuptools<81'"
BATCH_SENTENCES = 16
_RUNNER = Path(__file__).with_name("comet_runner.py")
_TITLES = {"comet": "COMET", "doc-comet": "doc-COMET", "slide": "SLIDE"}
_TAIL_LINES = 12
_SCALE = 100.0
_DIGEST_DIGITS = 12

Progress = Callable[[int, int], None]  # sentences and windows scored so far, and in all


@dataclass(frozen=True, slots=True)
class Comet:
    """COMET settings: the model, the interpreter that runs it, and the context of document COMET.

    `model` is a checkpoint file, a folder with `checkpoints/` and `hparams.yaml`, or a name of the hub.
    `context_sentences` above 0 adds document COMET with so many earlier sentences (2 in the paper),
    `slide_sentences` above 0 adds SLIDE with windows of so many, each `slide_stride` after the one before.
    """

    model: str
    python: Path
    context_sentences: int = 0
    slide_sentences: int = 0
    slide_stride: int = 1

    def __post_init__(self) -> None:
        if self.slide_sentences < 0 or self.slide_stride < 1:
            raise CotextError(
                f"SLIDE with windows of {self.slide_sentences} sentences, stride {self.slide_stride}: "
                "give at least 1 of each"
            )
        if self.slide_sentences and self.slide_stride > self.slide_sentences:
            raise CotextError(
                f"SLIDE with a stride of {self.slide_stride} leaves sentences out between windows of "
                f"{self.slide_sentences}; give a stride of at most that"
            )
        if self.context_sentences < 0:
            raise CotextError(f"{self.context_sentences} sentences of context for COMET; give 0 or more")
        if looks_like_path(self.model) and not Path(self.model).exists():
            raise CotextError(
                f"{self.model}: no such COMET model; give a checkpoint file, a folder with checkpoints/ and "
                "hparams.yaml, or a name such as Unbabel/wmt22-comet-da"
            )

    @property
    def model_name(self) -> str:
        """The name of the model for a signature: that of its folder where it is a file."""
        path = Path(self.model)
        if not path.exists():
            return self.model
        path = path.resolve()
        return path.name if path.is_dir() else path.parents[1].name


def slide_windows(documents: Sequence[Document], sentences: int, stride: int) -> list[Document]:
    """The windows of SLIDE: of each document, so many sentences joined with a space, `stride` apart.

    A document of fewer sentences is one window. The last window ends where the document does: with a stride
    above 1 it may hold fewer sentences than the others.
    """
    found = []
    for document in documents:
        starts = range(0, max(1, len(document) - sentences + stride), stride) if len(document) else range(0)
        windows = (" ".join(document.sentences[start : start + sentences]) for start in starts)
        found.append(Document(document.id, tuple(windows)))
    return found


def looks_like_path(model: str) -> bool:
    """Whether a model can be meant as a path only, not as a name of the hub, which is `who/what` at most."""
    return model.startswith((".", "~", os.sep)) or model.endswith(".ckpt") or model.count("/") > 1


def find_python(given: Path | None) -> Path:
    """The interpreter beside COMET: as given (itself or its environment's folder), or of the variable.

    Raises CotextError that says how to make such an environment.
    """
    named = given or (Path(value) if (value := os.environ.get(PYTHON_VARIABLE)) else None)
    if named is None:
        raise CotextError(
            f"COMET runs in an environment of its own; make one ({INSTALL}) and give it by --comet-python "
            f"comet-env or the environment variable {PYTHON_VARIABLE}"
        )
    if named.is_dir():
        inside = [named / "bin" / "python", named / "Scripts" / "python.exe"]
        named = next((path for path in inside if path.exists()), inside[0])
    if not named.is_file():
        raise CotextError(f"{named}: no such interpreter to run COMET with; make one: {INSTALL}")
    # Never resolved: an environment is recognised by the path of the link.
    return named.absolute()


def measure_comet(
    comet: Comet,
    hypotheses: Mapping[str, Sequence[Document]],
    source: Sequence[Document],
    references: Sequence[Sequence[Document]],
    progress: Progress | None = None,
) -> dict[str, list[Measurement]]:
    """Measure COMET and, if asked for, document COMET and SLIDE of several systems; the model is loaded once.

    A score is the mean over sentences, or windows, times 100. Of several references COMET reads the first.

    Raises:
        CotextError: documents that do not correspond; no COMET, no model or not one for context there; or
            COMET broke down.
    """
    for hypothesis in hypotheses.values():
        check_correspondence(hypothesis, source)
        check_correspondence(hypothesis, references[0])
    contexts = sorted({0, comet.context_sentences})
    texts = _Texts(hypotheses, source, references[0])
    windows = texts.slid(comet) if comet.slide_sentences else None
    kinds = {("comet" if not context else "doc-comet", context): texts for context in contexts}
    if windows is not None:
        kinds["slide", 0] = windows
    segments = sum(each.segments for each in kinds.values())
    found: dict[tuple[str, int], list[dict[str, Any]]] = {kind: [] for kind in kinds}
    done = 0
    with tempfile.TemporaryDirectory(prefix="cotext-comet-") as folder:
        request = _write_request(Path(folder), comet, texts, windows, contexts)
        with closing(_answers(comet, request)) as answers:
            loaded = next(answers)
            for answer in answers:
                context = answer["context"]
                slid = answer["document"] >= texts.documents
                found["slide" if slid else "doc-comet" if context else "comet", context].append(answer)
                done += len(answer["scores"])
                if progress is not None:
                    progress(done, segments)
    measured: dict[str, list[Measurement]] = {name: [] for name in hypotheses}
    for (protocol, context), records in found.items():
        of = kinds[protocol, context]
        first = texts.documents if protocol == "slide" else 0
        if [record["document"] for record in records] != list(range(first, first + of.documents)):
            raise CotextError(f"COMET answered for {len(records)} of {of.documents} documents; run it again")
        recipe = _recipe(comet, loaded, protocol, context, len(references))
        for index, (name, documents) in enumerate(of.hypotheses.items()):
            own = records[index * len(source) : (index + 1) * len(source)]
            measured[name].append(_measurement(own, documents, protocol, recipe))
    return measured


@dataclass(frozen=True, slots=True)
class _Texts:
    """What is scored: documents of every system, source and reference, segment by segment."""

    hypotheses: Mapping[str, Sequence[Document]]
    source: Sequence[Document]
    reference: Sequence[Document]

    @property
    def documents(self) -> int:
        """Those of all systems."""
        return len(self.hypotheses) * len(self.source)

    @property
    def segments(self) -> int:
        """Those of all systems."""
        return len(self.hypotheses) * sum(map(len, self.source))

    def slid(self, comet: Comet) -> "_Texts":
        """The windows of SLIDE, as segments."""

        def slid(documents: Sequence[Document]) -> list[Document]:
            return slide_windows(documents, comet.slide_sentences, comet.slide_stride)

        hypotheses = {name: slid(documents) for name, documents in self.hypotheses.items()}
        return _Texts(hypotheses, slid(self.source), slid(self.reference))

    def lines(self) -> Iterator[dict[str, Any]]:
        """A line of the request for each document."""
        for name, documents in self.hypotheses.items():
            for original, ours, theirs in zip(self.source, documents, self.reference, strict=True):
                sides = {"source": original, "hypothesis": ours, "reference": theirs}
                yield {"system": name, **{side: list(each.sentences) for side, each in sides.items()}}


def _write_request(
    folder: Path, comet: Comet, texts: _Texts, windows: _Texts | None, contexts: Sequence[int]
) -> Path:
    path = Path(comet.model)
    model = str(path.absolute()) if path.exists() else comet.model
    head = {
        "model": model,
        "contexts": contexts,
        "batch_size": BATCH_SENTENCES,
        "windows": 0 if windows is None else windows.documents,  # so many documents, the last ones
    }
    lines = [head, *texts.lines(), *(windows.lines() if windows is not None else ())]
    request = folder / "request.jsonl"
    request.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return request


def _answers(comet: Comet, request: Path) -> Generator[dict[str, Any], None, None]:
    """Start the runner and yield what it answers: what it loaded first, then documents as they are scored."""
    # Isolated: neither PYTHONPATH nor the folder of the runner, in which this file would pass for COMET.
    command = [str(comet.python), "-I", str(_RUNNER), str(request)]
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=request.parent,
            )
        except OSError as error:
            raise CotextError(f"{comet.python}: cannot be started: {error.strerror or error}") from None
        with process:
            try:
                yield from _read(comet, process, log)
            finally:
                if process.poll() is None:
                    process.terminate()


def _read(comet: Comet, process: subprocess.Popen[bytes], log: IO[bytes]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    loaded = False
    for line in process.stdout:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise CotextError(f"{comet.python}: does not answer as expected: {line[:80]!r}")
        if "error" in answer:
            advice = (
                "" if loaded or "imported" not in answer["error"] else f"; make an environment: {INSTALL}"
            )
            raise CotextError(f"COMET ({comet.python}, {comet.model}): {answer['error']}{advice}")
        if not all(map(math.isfinite, answer.get("scores", ()))):
            raise CotextError(f"COMET ({comet.model}) gives scores that are no numbers; check the model")
        yield answer
        loaded = True
    code = process.wait()
    if code == 0 and loaded:
        return
    killed = f"was killed by signal {-code}, perhaps for want of memory" if code < 0 else f"ended with {code}"
    log.seek(0)
    lines = log.read().decode("utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    raise CotextError(
        "\n".join([f"COMET ({comet.python}, {comet.model}) {killed}; what it wrote last:", *lines])
    )


@dataclass(frozen=True, slots=True)
class _Recipe:
    """The parts of a signature before and after the counts of what did not fit."""

    before: str
    after: str


def _recipe(comet: Comet, loaded: Mapping[str, Any], protocol: str, context: int, references: int) -> _Recipe:
    if not loaded["uses_reference"]:
        side, refs = "hypothesis", "none"
    else:
        side, refs = "reference", "1" if references == 1 else f"first-of-{references}"
    unit = f"window-{comet.slide_sentences}+{comet.slide_stride}" if protocol == "slide" else "sentence"
    before = (
        f"protocol:{protocol}|unit:{unit}|model:{comet.model_name}"
        f"|sha256:{loaded['sha256'][:_DIGEST_DIGITS]}|refs:{refs}"
        f"|context:{f'{context}-{side}' if context else 0}|max-tokens:{loaded['max_tokens']}"
    )
    after = f"scale:{_SCALE:g}|comet:{loaded['comet']}|version:cotext-{__version__}"
    return _Recipe(before, after)


def _measurement(
    records: Sequence[Mapping[str, Any]], hypothesis: Sequence[Document], protocol: str, recipe: _Recipe
) -> Measurement:
    """The mean of the scores of sentences, or of windows, which the documents of `hypothesis` then hold."""
    for record, document in zip(records, hypothesis, strict=True):
        if len(record["scores"]) != len(document):
            raise CotextError(f"document {document.id!r}: COMET scored {len(record['scores'])} segments")
    scores = [score for record in records for score in record["scores"]]
    documents = [index for index, record in enumerate(records) for _ in record["scores"]]
    statistics = Statistics(
        np.array([(score, 1.0) for score in scores]).reshape(-1, 2),
        np.array(documents),
        "sentence",
        share(0, 1, _SCALE),
    )
    shrunk, cut = (sum(record[what] for record in records) for what in ("shrunk", "cut"))
    counts = f"shrunk:{shrunk}|cut:{cut}" if protocol == "doc-comet" else f"cut:{cut}"
    signature = f"{recipe.before}|{counts}|{recipe.after}"
    components = {"shrunk_windows": float(shrunk), "cut_sentences": float(cut)}
    return Measurement.of(protocol, _TITLES[protocol], signature, statistics, hypothesis, components)
