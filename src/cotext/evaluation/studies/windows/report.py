"""The files of `cotext windows`: what windows of sentences do to systems, as a table, tests and pictures.

Windows of sentences over a corpus: loss by sentence, and the entropy and direction of attention.

What Lupo et al. 2022 show in figures 2 and 3 (loss of the current sentence, its ratio to that of the context,
attention on the current sentence) and table 5 (entropy of attention). Every figure is a ratio of sums over
documents, so that two systems can be compared by swapping documents.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from cotext.config.recipe import Config
from cotext.data.batch import Batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel, second_file
from cotext.data.languages import check_sides
from cotext.evaluation.metrics.interface import Measurement, Texts, find_protocol
from cotext.evaluation.metrics.tokenised import Words, measure_words
from cotext.evaluation.requests import WindowsRequest
from cotext.evaluation.statistics.significance import (
    SIGNIFICANT,
    PairedTest,
    Resampling,
    least_p,
    paired_test,
)
from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics
from cotext.evaluation.studies.attention.report import window_batches
from cotext.evaluation.studies.attention.sentence_maps import SentenceMap, observed
from cotext.evaluation.studies.compare.job import name_runs
from cotext.models.interface import TranslationModel
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.locks import working_in
from cotext.runtime.tables import render_p, render_rows
from cotext.search.likelihood import negative_log_likelihood
from cotext.translation.open import OpenedRun, open_run, open_scorer
from cotext.translation.translator import DocumentTranslator

SELF: Final = ("encoder", "decoder")
STACKS: Final = (*SELF, "cross")


@dataclass(frozen=True, slots=True)
class MeanFigure:
    """A mean: a sum of some columns over a sum of others, and where asked for, over another such mean."""

    above: tuple[str, ...]
    below: tuple[str, ...]
    over: tuple[str, str] | None = None

    def of(self, sums: Mapping[str, Floats]) -> Floats:
        """The figure of every corpus whose sums are given; 0 where there is nothing to divide by."""
        value = _ratio(_added(sums, self.above), _added(sums, self.below))
        return value if self.over is None else _ratio(value, _ratio(sums[self.over[0]], sums[self.over[1]]))


def _added(sums: Mapping[str, Floats], columns: Sequence[str]) -> Floats:
    added: Floats = np.stack([sums[column] for column in columns]).sum(axis=0)
    return added


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _attention(what: str, stacks: Sequence[str]) -> MeanFigure:
    return MeanFigure(tuple(f"{what} {s}" for s in stacks), tuple(f"{what} queries {s}" for s in stacks))


FIGURES: Final[Mapping[str, MeanFigure]] = {
    "loss": MeanFigure(("current nll",), ("current tokens",)),
    "ratio": MeanFigure(
        ("nll beside context",), ("windows with context",), ("context nll", "context sentences")
    ),
    "entropy": _attention("entropy", STACKS),
    **{f"entropy, {stack}": _attention("entropy", (stack,)) for stack in STACKS},
    "share": _attention("share", SELF),
    **{f"share, {stack}": _attention("share", (stack,)) for stack in STACKS},
}
MEANINGS: Final[Mapping[str, str]] = {
    "loss": "of the current sentence, nats a token",
    "ratio": "loss of the current sentence over that of a context sentence in the same window",
    "entropy": "of attention weights, nats, over all queries of self- and cross-attention",
    "share": "of the self-attention of current tokens that goes to their own sentence",
}


@dataclass(frozen=True, slots=True)
class PlaceLoss:
    """Loss of the sentences at one place of a window: nats, tokens and sentences."""

    nats: float
    tokens: int
    sentences: int


@dataclass(frozen=True, slots=True, eq=False)
class WindowFigures:
    """Sums of a system over a corpus by document, and losses by place: 0 the current sentence, 1 that before.

    `before` and `trained` are the context sentences of the windows here and in training.
    """

    signature: str
    before: int
    trained: int
    columns: Mapping[str, Floats]  # [documents] each
    places: Mapping[int, PlaceLoss]

    def statistics(self, figure: str) -> Statistics:
        """A figure as a function of sums over documents."""
        names = list(self.columns)
        counts = np.stack([self.columns[name] for name in names], axis=1)
        return Statistics(
            counts, np.arange(len(counts)), "document", partial(_scored, FIGURES[figure], names)
        )

    def value(self, figure: str) -> float | None:
        """A figure over the corpus; None where there is nothing of the kind."""
        below = [*FIGURES[figure].below, *(FIGURES[figure].over or ())]
        empty = any(not self.columns[name].any() for name in below)
        return None if empty else self.statistics(figure).score

    def as_dict(self) -> dict[str, Any]:
        """Everything but sums by document, for a JSON file."""
        return {
            "signature": self.signature,
            "before": self.before,
            "trained_before": self.trained,
            "figures": {name: self.value(name) for name in FIGURES},
            "loss_by_sentence": {
                str(place): {
                    "nats_a_token": each.nats / each.tokens,
                    "nats_a_sentence": each.nats / each.sentences,
                    "tokens": each.tokens,
                    "sentences": each.sentences,
                }
                for place, each in self.places.items()
            },
        }


def _scored(figure: MeanFigure, names: Sequence[str], sums: Floats) -> Floats:
    return figure.of({name: sums[:, i] for i, name in enumerate(names)})


def measure_windows(
    translator: DocumentTranslator,
    model: TranslationModel,
    documents: Sequence[ParallelDocument],
    signature: str,
    trained: int,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> WindowFigures:
    """The figures of a system on a corpus; `model` is that of the translator, and in eval mode.

    `trained`: context sentences of its windows in training.

    Raises:
        CotextError: a system that reads no windows, a sentence over the limit.
    """
    view = translator.config.view
    if view.kind not in ("window", "sentence"):
        raise CotextError(
            f"this system reads no windows (view.kind = {view.kind}): of documents, see cotext attention, "
            "cxmi and profile"
        )
    translator.check_pairs(documents)
    of_documents: list[dict[str, float]] = []
    places: dict[int, list[float]] = {}
    for document in documents:
        source = translator.tokenizer.encode_batch(document.source)
        target = translator.tokenizer.encode_batch(document.target, side="target")
        kept, batches = window_batches(translator, source, target)
        # Losses and attention are those of one pass.
        with observed(model, len(kept)) as reader:
            sums = _of_losses(model, batches, reader.read, places)
        of_documents.append(sums | _of_attention(reader.maps))
        on_sentences(len(document))
    if not places:
        raise CotextError("no sentence of the corpus has words on either side; there is nothing to measure")
    names = dict.fromkeys(name for sums in of_documents for name in sums)
    return WindowFigures(
        signature=signature,
        before=view.before if view.kind == "window" else 0,
        trained=trained,
        columns={name: np.array([sums.get(name, 0.0) for sums in of_documents]) for name in names},
        places={
            place: PlaceLoss(nats, int(tokens), int(sentences))
            for place, (nats, tokens, sentences) in sorted(places.items())
        },
    )


def _of_losses(
    model: TranslationModel,
    batches: Sequence[Batch],
    read: Callable[[Batch], Tensor],
    places: dict[int, list[float]],
) -> dict[str, float]:
    """Losses of the current and the context sentences of the windows of a document; adds to `places`."""
    sums = dict.fromkeys(
        (
            *("current nll", "current tokens", "nll beside context", "windows with context"),
            *("context nll", "context sentences"),
        ),
        0.0,
    )
    for batch in batches:
        nll_BN, tokens_BN = _by_place(model, batch, read(batch))
        for place in range(nll_BN.size(1)):
            there = tokens_BN[:, place] > 0
            found = [nll_BN[:, place].sum().item(), tokens_BN[:, place].sum().item(), there.sum().item()]
            if found[2]:
                places[place] = [a + b for a, b in zip(places.get(place, [0.0] * 3), found, strict=True)]
        context = (tokens_BN[:, 1:] > 0).sum(dim=1)
        sums["current nll"] += nll_BN[:, 0].sum().item()
        sums["current tokens"] += tokens_BN[:, 0].sum().item()
        sums["nll beside context"] += nll_BN[context > 0, 0].sum().item()
        sums["windows with context"] += (context > 0).sum().item()
        sums["context nll"] += nll_BN[:, 1:].sum().item()
        sums["context sentences"] += context.sum().item()
    return sums


def _by_place(model: TranslationModel, batch: Batch, hidden_BTD: Tensor) -> tuple[Tensor, Tensor]:
    """Loss and labels of every row by sentences back from the current one: two times [B, N], in float64."""
    real = batch.label_sentence >= 0
    nll = negative_log_likelihood(model, hidden_BTD[real], batch.target_label[real]).double()
    row, _ = real.nonzero(as_tuple=True)
    place = batch.source.current[row, 0] - batch.label_sentence[real]
    size = (len(real), int(place.max()) + 1)
    index = row * size[1] + place
    sums = [
        torch.zeros(size[0] * size[1], dtype=torch.float64, device=nll.device).index_add_(0, index, each)
        for each in (nll, torch.ones_like(nll))
    ]
    return sums[0].view(size), sums[1].view(size)


def _of_attention(maps: Mapping[str, SentenceMap]) -> dict[str, float]:
    """Sums of entropies over all queries, and of shares over current ones, by stack."""
    sums: dict[str, float] = {}

    def add(name: str, value: float) -> None:
        sums[name] = sums.get(name, 0.0) + value

    for each in maps.values():
        stack = each.kind.partition("-")[0]
        add(f"entropy {stack}", each.spread_of_all.entropy)
        add(f"entropy queries {stack}", each.spread_of_all.queries)
        add(f"share {stack}", each.weight.diagonal().sum().item())
        add(f"share queries {stack}", each.queries.sum().item())
    return sums


Lines = dict[str, tuple[list[int], list[float]]]  # by name, x and y
LOSS_PICTURE, SIZE_PICTURE = "loss-by-sentence.png", "by-context-size.png"


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredWindows:
    """A run with windows of one size: its figures, and the scores of what it translates with them.

    `config` is that of its training.
    """

    name: str
    config: Config
    figures: WindowFigures
    scores: tuple[Measurement, ...]

    @property
    def size(self) -> str:
        """Context sentences, marked where they are those of training."""
        return f"{self.figures.before}{'*' if self.figures.before == self.figures.trained else ''}"


@dataclass(frozen=True, slots=True, eq=False)
class WindowsReport:
    """All measurements, and paired tests of runs with windows of one size, by that size and figure."""

    measured: tuple[MeasuredWindows, ...]
    tests: Mapping[tuple[int, str], PairedTest]
    documents: int
    sentences: int

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "format": "cotext-windows",
            "version": 1,
            "documents": self.documents,
            "sentences": self.sentences,
            "systems": [
                {
                    "name": each.name,
                    "context_discount": each.config.loss.context_discount,
                    **each.figures.as_dict(),
                    "scores": {m.score.protocol: m.score.as_dict() for m in each.scores},
                }
                for each in self.measured
            ],
            "tests": [
                {"before": before, "figure": figure, **test.as_dict()}
                for (before, figure), test in self.tests.items()
            ],
        }

    def render(self) -> str:
        """Plain text: figures, losses by sentence of the window, tests."""
        titles = [m.score.title for m in self.measured[0].scores]
        rows = [["system", "context", *MEANINGS, *titles]]
        places = sorted({place for each in self.measured for place in each.figures.places})
        by_place = [["nats a token", "context", "current", *(f"{place} before" for place in places[1:])]]
        for each in self.measured:
            values = [each.figures.value(name) for name in MEANINGS]
            cells = ["" if value is None else f"{value:.4f}" for value in values]
            rows.append([each.name, each.size, *cells, *(f"{m.score.value:.2f}" for m in each.scores)])
            losses = [each.figures.places.get(place) for place in places]
            by_place.append(
                [each.name, each.size, *("" if x is None else f"{x.nats / x.tokens:.4f}" for x in losses)]
            )
        counts = f"{self.documents:,} documents, {self.sentences:,} sentences; *: as in training"
        legend = [f"{name}: {meaning}" for name, meaning in MEANINGS.items()]
        signatures = [m.score.signature for m in self.measured[0].scores]
        signatures += [f"{each.name}: {each.figures.signature}" for each in self.measured]
        blocks = [f"{render_rows(rows, left=1)}\n{counts}", render_rows(by_place, left=1), *self._tests()]
        return "\n\n".join([*blocks, "\n".join([*legend, *signatures])])

    def _tests(self) -> list[str]:
        rows = [["", "context", "", "difference", "95 % interval", "p", "corrected"]]
        for (before, figure), test in self.tests.items():
            for each in test.comparisons:
                low, high = each.interval_95
                names = f"{each.system} - {each.baseline}"
                values = [f"{each.difference:+.4f}", f"[{low:+.4f}, {high:+.4f}]"]
                rows.append(
                    [figure, str(before), names, *values, render_p(each.p), render_p(each.p_corrected)]
                )
        if not self.tests:
            return []
        lines = [render_rows(rows, left=3)]
        if least_p(self.documents) * max(len(t.comparisons) for t in self.tests.values()) >= SIGNIFICANT:
            lines.append(f"{self.documents} documents are too few for any significant difference")
        return ["\n".join([*lines, *dict.fromkeys(test.signature for test in self.tests.values())])]


def report_windows(
    request: WindowsRequest,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> WindowsReport:
    """Measure every run with windows of every size; writes windows.json and pictures into the folder `out`.

    `on_start` is told how many sentences are to be measured and translated, `on_sentences` of each few.

    Raises:
        CotextError: no such run, one that reads no windows or is non-autoregressive, unreadable or unequal
            files, a sentence over the limit, an unknown protocol, a tokenizer without words.
    """
    names, out, resampling = name_runs(request.runs), request.out, Resampling(samples=request.samples)
    for protocol in request.protocols:
        find_protocol(protocol)
    words = Words.of(request.words)
    target = second_file(request.source, request.target)
    documents = list(read_parallel(request.source, target, request.format))
    sentences = sum(map(len, documents))
    with working_in(out):
        times = 2 if request.translate else 1
        on_start(times * sentences * len(names) * max(1, len(dict.fromkeys(request.before))))
        measured = tuple(
            each
            for run, name in zip(request.runs, names, strict=True)
            for each in _of_run(request, run, name, documents, words, on_sentences)
        )
        report = WindowsReport(measured, _tests(measured, resampling), len(documents), sentences)
        with replacing(out / "windows.json") as temporary:
            content = json.dumps(report.as_dict(), indent=1, ensure_ascii=False, allow_nan=False)
            temporary.write_text(content, encoding="utf-8")
        _draw(report, out)
    return report


def _of_run(
    request: WindowsRequest,
    run: Path,
    name: str,
    documents: Sequence[ParallelDocument],
    words: Words | None,
    on_sentences: Callable[[int], None],
) -> list[MeasuredWindows]:
    """A run with windows of every size, loaded once."""
    open_one = open_run if request.translate else open_scorer
    opened = open_one(run, request.device, dict(request.decode), request.checkpoint)
    check_sides(opened.languages, request.source, request.target, f"{run} translates")
    model, trained = opened.loaded.left_to_right("cotext windows"), opened.loaded.config.view
    sizes: list[OpenedRun] = []
    for before in dict.fromkeys(request.before):
        # One sentence alone is all that a system of single sentences reads.
        same = trained.kind == "sentence" and before == 0
        kept = opened.config.decode.model_dump(exclude={"before"})
        sizes.append(opened if same else opened.with_decode({**kept, "before": before}))
    found = []
    for sized in sizes or [opened]:
        figures = measure_windows(
            sized.translator, model, documents, sized.signature, trained.before, on_sentences
        )
        scores = _translated(request, sized, documents, words, on_sentences)
        found.append(MeasuredWindows(name, opened.loaded.config, figures, scores))
    return found


def _translated(
    request: WindowsRequest,
    opened: OpenedRun,
    documents: Sequence[ParallelDocument],
    words: Words | None,
    on_sentences: Callable[[int], None],
) -> tuple[Measurement, ...]:
    """Scores of what a run translates, where that was asked for."""
    if not request.translate:
        return ()
    sources = [Document(d.id, d.source) for d in documents]
    opened.translator.check(sources)
    found = dict(opened.translator.translate(sources, on_sentences))
    written = [found[index].document for index in range(len(sources))]
    references = [Document(d.id, d.target) for d in documents]
    language = opened.languages.target or None
    texts = Texts({"": written}, [references], sources)
    [scores] = measure_words(words, texts, request.protocols, language).values()
    return tuple(scores)


def _tests(measured: Sequence[MeasuredWindows], resampling: Resampling) -> dict[tuple[int, str], PairedTest]:
    """Runs with windows of one size, all pairs: by the size, and the figure or the protocol."""
    sizes: dict[int, list[MeasuredWindows]] = {}
    for each in measured:
        sizes.setdefault(each.figures.before, []).append(each)
    found = {}
    for before, systems in sizes.items():
        if len(systems) < 2 or len(next(iter(systems[0].figures.columns.values()))) < 2:
            continue
        for figure in MEANINGS:
            if all(each.figures.value(figure) is not None for each in systems):
                statistics = {each.name: each.figures.statistics(figure) for each in systems}
                found[before, figure] = paired_test(statistics, None, resampling)
        for index, score in enumerate(systems[0].scores):
            statistics = {each.name: each.scores[index].statistics for each in systems}
            found[before, score.score.title] = paired_test(statistics, None, resampling)
    return found


def _draw(report: WindowsReport, out: Path) -> None:
    from cotext.evaluation.studies.plots import lines_of_systems, save

    names = list(dict.fromkeys(each.name for each in report.measured))
    by_place: Lines = {}
    by_size: Lines = {name: ([], []) for name in names}
    for each in report.measured:
        places = each.figures.places
        loss = ([*places], [x.nats / x.tokens for x in places.values()])
        by_place[f"{each.name}, {each.size}"] = loss
        sizes, values = by_size[each.name]
        sizes.append(each.figures.before)
        values.append(each.scores[0].score.value if each.scores else loss[1][0])
    what = report.measured[0].scores[0].score.title if report.measured[0].scores else "loss, nats a token"
    pictures = [(LOSS_PICTURE, by_place, "sentences before the current one", "loss, nats a token")]
    if len(report.measured) > len(names):
        pictures.append((SIZE_PICTURE, by_size, "sentences of context in the window", what))
    for file, lines, x_label, y_label in pictures:
        save(lines_of_systems(lines, x_label, y_label), out / file)
