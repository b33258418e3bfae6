"""COMET and document COMET (Rei et al., 2020; Vernikos et al., 2022).

COMET runs in a separate environment, because it needs old versions of numpy and other packages, and its
checkpoints are pickles. That environment runs `comet_runner.py`; texts and scores are JSON lines.
"""

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from cotext.evaluation.metrics.interface import Measurement, Texts
from cotext.evaluation.statistics.sufficient_statistics import Statistics, share
from cotext.runtime import CotextError, __version__

PYTHON_VARIABLE = "COTEXT_COMET_PYTHON"
INSTALL = "python -m venv comet-env && comet-env/bin/pip install unbabel-comet 'setuptools<81'"
BATCH_SENTENCES = 16
_RUNNER = Path(__file__).with_name("comet_runner.py")
_TAIL_LINES = 12
_SCALE = 100.0
_DIGEST_DIGITS = 12

Progress = Callable[[int, int], None]  # called with the numbers of scored and of all sentences


@dataclass(frozen=True, slots=True)
class Comet:
    """COMET settings: the model, the interpreter that runs it, and the context of document COMET.

    `model` is a checkpoint file, a folder with `checkpoints/` and `hparams.yaml`, or a name on the Hugging
    Face Hub. `context_sentences`: previous sentences for document COMET (2 in the paper); 0: none.
    """

    model: str
    python: Path
    context_sentences: int = 0

    def __post_init__(self) -> None:
        if looks_like_path(self.model) and not Path(self.model).exists():
            raise CotextError(
                f"{self.model}: no such COMET model; give a checkpoint, its folder, or a name such as "
                "Unbabel/wmt22-comet-da"
            )

    @property
    def model_name(self) -> str:
        """Return the name of the model for signatures; for a file, the name of its folder."""
        path = Path(self.model)
        if not path.exists():
            return self.model
        path = path.resolve()
        return path.name if path.is_dir() else path.parents[1].name


def looks_like_path(model: str) -> bool:
    """Return whether a model can only be a path, not a name on the hub (`owner/name` at most)."""
    return model.startswith((".", "~", os.sep)) or model.endswith(".ckpt") or model.count("/") > 1


def find_python(given: Path | None) -> Path:
    """Return the interpreter with COMET: `given` (path or environment), otherwise COTEXT_COMET_PYTHON."""
    named = given or (Path(value) if (value := os.environ.get(PYTHON_VARIABLE)) else None)
    if named is None:
        raise CotextError(
            f"COMET needs a separate environment; make one ({INSTALL}) and give it with --comet-python "
            f"comet-env or the environment variable {PYTHON_VARIABLE}"
        )
    if named.is_dir():
        inside = [named / "bin" / "python", named / "Scripts" / "python.exe"]
        named = next((path for path in inside if path.exists()), inside[0])
    if not named.is_file():
        raise CotextError(f"{named}: no such interpreter to run COMET with; make one: {INSTALL}")
    # Symbolic links are not resolved: an environment is recognised by the path of the link.
    return named.absolute()


def measure_comet(
    comet: Comet, texts: Texts, progress: Progress | None = None
) -> dict[str, list[Measurement]]:
    """Measure COMET and, if requested, document COMET of several systems; the model is loaded once.

    A score is the mean over sentences, times 100. COMET reads only the first of several references. Raises
    CotextError if COMET or the model is missing, the model does not support context, or COMET failed.
    """
    contexts = sorted({0, comet.context_sentences})
    source = texts.source
    segments = len(contexts) * len(texts.systems) * sum(map(len, source))
    answers_by_context: dict[int, list[dict[str, Any]]] = {context: [] for context in contexts}
    done = 0
    with tempfile.TemporaryDirectory(prefix="cotext-comet-") as folder:
        request, path = Path(folder) / "request.jsonl", Path(comet.model)
        model = str(path.absolute()) if path.exists() else comet.model
        lines: list[dict[str, Any]] = [{"model": model, "contexts": contexts, "batch_size": BATCH_SENTENCES}]
        for name, documents in texts.systems.items():
            for original, ours, theirs in zip(source, documents, texts.references[0], strict=True):
                sides = {"source": original, "hypothesis": ours, "reference": theirs}
                lines.append({"system": name, **{side: each.sentences for side, each in sides.items()}})
        request.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        with closing(_answers(comet, request)) as answers:
            loaded = next(answers)
            for answer in answers:
                answers_by_context[answer["context"]].append(answer)
                done += len(answer["scores"])
                if progress is not None:
                    progress(done, segments)
    side, refs = "hypothesis", "none"
    if loaded["uses_reference"]:
        count = len(texts.references)
        side, refs = "reference", "1" if count == 1 else f"first-of-{count}"
    measured: dict[str, list[Measurement]] = {name: [] for name in texts.systems}
    for context, records in answers_by_context.items():
        for index, (name, hypothesis) in enumerate(texts.systems.items()):
            scored = records[index * len(source) : (index + 1) * len(source)]
            scores = [(score, 1.0) for record in scored for score in record["scores"]]
            numbers = [number for number, record in enumerate(scored) for _ in record["scores"]]
            counts = np.array(scores).reshape(-1, 2)
            statistics = Statistics(counts, np.array(numbers), "sentence", share(0, 1, _SCALE))
            shrunk, cut = (sum(record[key] for record in scored) for key in ("shrunk", "cut"))
            protocol, title = ("doc-comet", "doc-COMET") if context else ("comet", "COMET")
            signature = (
                f"protocol:{protocol}|unit:sentence|model:{comet.model_name}"
                f"|sha256:{loaded['sha256'][:_DIGEST_DIGITS]}|refs:{refs}"
                f"|context:{f'{context}-{side}' if context else 0}|max-tokens:{loaded['max_tokens']}"
                f"|{f'shrunk:{shrunk}|' if context else ''}cut:{cut}"
                f"|scale:{_SCALE:g}|comet:{loaded['comet']}|version:cotext-{__version__}"
            )
            components = {"shrunk_windows": float(shrunk), "cut_sentences": float(cut)}
            measurement = Measurement.of(protocol, title, signature, statistics, hypothesis, components)
            measured[name].append(measurement)
    return measured


def _answers(comet: Comet, request: Path) -> Generator[dict[str, Any], None, None]:
    """Start the runner and yield its answers: first the model that it loaded, then each scored document."""
    # -I ignores PYTHONPATH and the folder of the runner, where `import comet` would find this file.
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
            advice = f"; make an environment: {INSTALL}" if "imported" in answer["error"] else ""
            raise CotextError(f"COMET ({comet.python}, {comet.model}): {answer['error']}{advice}")
        if not all(map(math.isfinite, answer.get("scores", ()))):
            raise CotextError(f"COMET ({comet.model}) returns scores that are not numbers; check the model")
        yield answer
        loaded = True
    code = process.wait()
    if code == 0 and loaded:
        return
    killed = f"was killed by signal {-code} (no memory?)" if code < 0 else f"ended with {code}"
    log.seek(0)
    lines = log.read().decode("utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    raise CotextError(
        "\n".join([f"COMET ({comet.python}, {comet.model}) {killed}; what it wrote last:", *lines])
    )
