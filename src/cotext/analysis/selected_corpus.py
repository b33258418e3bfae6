"""The sentences of corpus files or of a prepared folder, ranked; weights of them: `cotext select`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotext.analysis.context_corpus import CorpusQuestion, measure_corpus
from cotext.analysis.corpus_texts import corpus_texts
from cotext.analysis.selection import Criterion, Selection, read_figures, select, training_weights
from cotext.data.sentence_weights import write_weights
from cotext.data.tokenizer import load_tokenizer
from cotext.decoding.open import open_scorer

CONTEXT = ("true", "none")


@dataclass(frozen=True, slots=True)
class SelectionRequest:
    """A run, the texts, and where figures of them lie if they are measured already.

    `decode` and `update` as in `open_scorer`.
    """

    run: Path
    source: Path
    target: Path | None = None
    format: str | None = None
    cxmi: Path | None = None
    criterion: Criterion = field(default_factory=Criterion)
    device: str | None = None
    decode: dict[str, Any] | None = None
    update: int | None = None


def select_corpus(
    request: SelectionRequest,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> Selection:
    """Rank the sentences of a corpus; callbacks as in `measure_corpus`.

    Raises:
        CotextError: as `measure_corpus`, `read_figures` and `select`.
    """
    if request.cxmi is not None:
        figures, where = read_figures(request.cxmi), str(request.cxmi)
        tokenizer = load_tokenizer(request.run / "tokenizer")
    else:
        opened = open_scorer(request.run, request.device, request.decode, request.update)
        found = measure_corpus(
            opened,
            request.source,
            request.target,
            CorpusQuestion(CONTEXT),
            format=request.format,
            on_start=on_start,
            on_sentences=on_sentences,
        )
        figures, where, tokenizer = found.as_dict(), str(request.run), opened.translator.tokenizer
    documents = corpus_texts(request.source, request.target, request.format)
    return select(figures, documents, tokenizer, request.criterion, where)


def weigh(path: Path, folder: Path, selection: Selection, share: float) -> Sequence[float]:
    """Write the weights of the training corpus of a prepared folder, whose sentences are ranked.

    Returns them, one sentence after the other.

    Raises:
        CotextError: as `training_weights` and `write_weights`.
    """
    found = list(training_weights(selection, share))
    write_weights(path, folder, f"{selection.signature}|share:{share:g}", found)
    return [weight for _, weights in found for weight in weights]
