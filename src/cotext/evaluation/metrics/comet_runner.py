"""Runs COMET for `cotext.evaluation.metrics.comet`, by the interpreter of an environment with COMET.

This module may import only the standard library, COMET and its dependencies. It reads a file of JSON lines:
settings (model, contexts, batch size), then one line per document of a system. It answers in JSON lines: the
loaded model, then, for each context, the scores of each document; or an error message.
"""

import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK_SENTENCES = 512  # scored in one call of COMET, which sorts them by length

Texts = dict[str, str]  # with the keys of COMET: src, mt and ref


class RefusalError(Exception):
    """An error that the user can correct."""


@dataclass(frozen=True)
class Window:
    """Source, hypothesis and reference of a sentence as COMET reads them, each after its context sentences.

    `shrunk`: the encoder has no room for all requested context. `cut`: COMET drops the end of the sentence.
    """

    texts: Texts
    shrunk: bool
    cut: bool


def build_windows(
    document: dict[str, list[str]], before: int, separator: str, fits: Callable[[Texts], bool]
) -> list[Window]:
    """Put up to `before` previous sentences in front of every sentence (Vernikos et al., 2022).

    The context of the hypothesis is that of the reference, so that an error counts once, and not again in the
    following sentences. Without a reference, it is the previous sentences of the hypothesis. All sides get
    the same number of context sentences: the maximum that fits on all sides.
    """
    sides = {"src": document["source"], "mt": document["hypothesis"]}
    if document.get("reference"):
        sides["ref"] = document["reference"]
    if before:  # a separator inside a sentence would end its context
        sides = {side: [text.replace(separator, " ") for text in lines] for side, lines in sides.items()}
    contexts = {**sides, "mt": sides.get("ref", sides["mt"])}
    windows = []
    for index in range(len(sides["src"])):
        possible = min(before, index)
        for context in range(possible, -1, -1):
            texts = {
                side: f" {separator} ".join([*contexts[side][index - context : index], lines[index]])
                for side, lines in sides.items()
            }
            fitting = fits(texts)
            if fitting:
                break
        windows.append(Window(texts, context < possible, not fitting))
    return windows


class Scorer:
    """A loaded COMET checkpoint, with the limit of its encoder."""

    def __init__(self, model: str) -> None:
        checkpoint = find_checkpoint(model)
        self.model = _load(checkpoint)
        self.kind = str(self.model.hparams["class_identifier"])
        self.uses_reference = bool(self.model.requires_references())
        encoder = self.model.encoder
        self.tokenizer = encoder.tokenizer
        self.max_tokens = int(encoder.max_positions) - 2  # where COMET truncates, with special tokens
        # Unified models read their texts as one sequence.
        self.joined: tuple[str, ...] = ()
        if self.kind in ("unified_metric", "xcomet_metric"):
            self.joined = tuple(self.model.hparams["input_segments"])
            self.max_joined = int(encoder.max_positions)
            self.separator_tokens = int(encoder.size_separator)
        import torch

        self.gpus = 1 if torch.cuda.is_available() else 0
        self.description = {
            "sha256": _sha256(checkpoint),
            "uses_reference": self.uses_reference,
            "max_tokens": self.max_tokens,
            "comet": importlib.metadata.version("unbabel-comet"),
        }

    def require_context(self) -> None:
        """Raise RefusalError for a model that cannot average over the current sentence only."""
        if self.kind not in ("regression_metric", "referenceless_regression_metric"):
            raise RefusalError(
                f"a {self.kind} model cannot score only the current sentence; use a regression "
                "model, such as Unbabel/wmt22-comet-da, or omit --comet-context"
            )
        if self.model.hparams["pool"] != "avg":
            raise RefusalError(
                f"the model pools by {self.model.hparams['pool']!r}; document COMET needs an average"
            )

    def fits(self, texts: Texts) -> bool:
        lengths = {side: len(self.tokenizer(text)["input_ids"]) for side, text in texts.items()}
        if max(lengths.values()) > self.max_tokens:
            return False
        joined = [lengths[side] - 2 for side in self.joined if side in lengths]
        return not joined or sum(joined) + 1 + len(joined) * self.separator_tokens <= self.max_joined

    def score(self, texts: list[Texts], batch_size: int) -> list[float]:
        """Return the scores in the order of the texts."""
        prediction = self.model.predict(
            texts, batch_size=batch_size, gpus=self.gpus, progress_bar=False, num_workers=0
        )
        return [float(score) for score in prediction["scores"]]


def find_checkpoint(model: str) -> Path:
    """Return the checkpoint file: as given, from a folder, the cache of the hub, or downloaded."""
    path = Path(model)
    if path.is_file():
        checkpoint = path
    elif path.is_dir():
        checkpoints = sorted(path.glob("checkpoints/*.ckpt"))
        if len(checkpoints) != 1:
            raise RefusalError(
                f"{len(checkpoints)} files checkpoints/*.ckpt in this folder; give the file itself"
            )
        checkpoint = checkpoints[0]
    else:
        return _download(model)
    if not (checkpoint.parents[1] / "hparams.yaml").is_file():
        raise RefusalError(f"hparams.yaml is missing from {checkpoint.parents[1]}; copy the whole folder")
    return checkpoint


def _download(model: str) -> Path:
    from comet import download_model
    from huggingface_hub import snapshot_download

    try:
        cached = Path(snapshot_download(repo_id=model, local_files_only=True)) / "checkpoints" / "model.ckpt"
        if cached.is_file():
            return cached
    except Exception:  # the name is only in COMET's own list, or not in the cache
        pass
    try:
        return Path(download_model(model))
    except Exception as error:
        raise RefusalError(
            f"no weights at hand ({_first_line(_root(error))}). Where there is a network, download them with "
            f"{sys.executable} -c \"import comet; print(comet.download_model('{model}'))\"; give its path"
        ) from None


def _load(checkpoint: Path) -> Any:
    from comet import load_from_checkpoint

    try:
        return load_from_checkpoint(str(checkpoint), local_files_only=True)
    except OSError:  # the encoder's tokenizer and configuration are not in the cache
        pass
    try:
        return load_from_checkpoint(str(checkpoint))
    except OSError as error:
        raise RefusalError(
            "the checkpoint exists, but not the tokenizer and configuration of its encoder "
            f"({_first_line(error)}). Fetch them where there is a network, and set HF_HOME to that cache"
        ) from None


def blocks(documents: list[dict[str, Any]]) -> Iterator[list[int]]:
    """Yield indices of documents to score in one call: those of one system, so all are truncated alike."""
    block: list[int] = []
    sentences = 0
    for index, document in enumerate(documents):
        if block and (document["system"] != documents[block[0]]["system"] or sentences >= BLOCK_SENTENCES):
            yield block
            block, sentences = [], 0
        block.append(index)
        sentences += len(document["source"])
    if block:
        yield block


def serve(request: Path, answer: Callable[[dict[str, Any]], None]) -> None:
    """Score all documents of a request; raise RefusalError if the environment or the model cannot be used."""
    head, *documents = (json.loads(line) for line in request.read_text(encoding="utf-8").splitlines())
    try:
        import comet  # noqa: F401
    except ImportError as error:
        raise RefusalError(f"COMET cannot be imported ({_first_line(error)})") from None
    scorer = Scorer(head["model"])
    if any(head["contexts"]):
        scorer.require_context()
    answer(scorer.description)
    if not scorer.uses_reference:
        documents = [{**document, "reference": None} for document in documents]
    for before in sorted(head["contexts"]):  # 0 first: context cannot be disabled again
        if before:
            scorer.model.enable_context()
        for block in blocks(documents):
            windows = [
                build_windows(documents[index], before, scorer.tokenizer.sep_token, scorer.fits)
                for index in block
            ]
            texts = [window.texts for document in windows for window in document]
            scores = iter(scorer.score(texts, head["batch_size"]) if texts else [])
            for index, document in zip(block, windows):  # noqa: B905 (Python 3.9 is common beside COMET)
                answer(
                    {
                        "context": before,
                        "document": index,
                        "scores": [next(scores) for _ in document],
                        "shrunk": sum(window.shrunk for window in document),
                        "cut": sum(window.cut for window in document),
                    }
                )


def main(request: str) -> int:
    """Serve one request; the output of libraries goes to standard error, only answers to standard output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(record: dict[str, Any]) -> None:
        print(json.dumps(record), file=answers, flush=True)

    try:
        serve(Path(request), answer)
    except RefusalError as error:
        answer({"error": str(error)})
        return 2
    return 0


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _root(error: BaseException) -> BaseException:
    """Return the original error: COMET reports every model that it cannot download as unknown."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
