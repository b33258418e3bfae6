"""BLEU on the development set, by translating it with the model as it stands."""

from collections.abc import Callable
from pathlib import Path

import sacrebleu
import torch

from cotext.config.recipe import Config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel
from cotext.models.interface import Model
from cotext.training.prepared_data import PreparedData
from cotext.translation.translator import DocumentTranslator


def development_bleu(
    config: Config,
    data: PreparedData,
    device: torch.device,
    on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Callable[[Model], float]:
    """Return a function that translates the first development sentences greedily and computes s-BLEU.

    `on_stage` as in `TrainingCallbacks`.
    """
    documents = _first_sentences(data.folder / "dev.jsonl", config.train.validate_sentences)
    # Greedy and in one pass: the figure is for comparing checkpoints of one run, many times a run.
    alone = {"beam": 1, "nbest": 1, "schedule": "sequential", "first_pass": "", "shortlist": 0}
    decode = config.decode.model_copy(update=alone)
    fast = config.model_copy(update={"decode": decode})
    references = [sentence for d in documents for sentence in d.target]
    total = sum(map(len, documents))

    def score(model: Model) -> float:
        done = 0

        def on_sentences(count: int) -> None:
            nonlocal done
            done += count
            on_stage("translating the development set, sentences", done, total)

        translator = DocumentTranslator(model, fast, data.tokenizer, device)
        found = dict(translator.translate((Document(d.id, d.source) for d in documents), on_sentences))
        hypotheses = [sentence for i in range(len(documents)) for sentence in found[i].document.sentences]
        return float(sacrebleu.BLEU(force=True).corpus_score(hypotheses, [references]).score)

    return score


def _first_sentences(path: Path, count: int) -> list[ParallelDocument]:
    """Read the first sentences of a corpus in their documents; the last document may be cut."""
    documents: list[ParallelDocument] = []
    for document in read_parallel(path, None):
        kept = ParallelDocument(document.id, document.source[:count], document.target[:count])
        documents.append(kept)
        count -= len(kept)
        if count == 0:
            break
    return documents
