"""The files of `cotext windows`: what windows of sentences do to systems, as a table, tests and pictures."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cotext.config.recipe import Config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_parallel, second_file
from cotext.data.languages import check_sides
from cotext.evaluation.metrics.bleu import Measurement, find_protocol
from cotext.evaluation.metrics.tokenised import Words, measure_words
from cotext.evaluation.requests import WindowsRequest
from cotext.evaluation.statistics.flips import SIGNIFICANT, least_p
from cotext.evaluation.statistics.significance import PairedTest, Resampling, paired_test
from cotext.evaluation.studies.compare.job import name_runs
from cotext.evaluation.studies.windows.window_figures import MEANINGS, WindowFigures, measure_windows
from cotext.runtime.files import replacing
from cotext.runtime.locks import working_in
from cotext.runtime.tables import render_p, render_rows
from cotext.translation.open import OpenedRun, open_run, open_scorer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Lines = dict[str, tuple[list[int], list[float]]]  # by name, x and y
LOSS_PICTURE, SIZE_PICTURE = "loss-by-sentence.png", "by-context-size.png"
DISCOUNT_PICTURE = "by-discount.png"
LEAST_DISCOUNTS = 3  # that make a picture: of two, the table says it all


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
    [scores] = measure_words(words, {"": written}, [references], request.protocols, language).values()
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


def _by_discount(measured: Sequence[MeasuredWindows]) -> list[MeasuredWindows]:
    """Runs in windows as in training, by falling discount; none where something else sets them apart, too."""
    trained = [each for each in measured if each.figures.before == each.figures.trained > 0]
    configs = [each.config for each in trained]
    discounts = {config.loss.context_discount for config in configs}
    alike = all((c.model, c.view) == (configs[0].model, configs[0].view) for c in configs)
    if not alike or not LEAST_DISCOUNTS <= len(discounts) == len(trained):
        return []
    return sorted(trained, key=lambda each: -each.config.loss.context_discount)


def _draw(report: WindowsReport, out: Path) -> None:
    from cotext.evaluation.studies.pictures import lines_of_systems, two_over_settings

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
        _save(lines_of_systems(lines, x_label, y_label), out / file)
    if discounted := _by_discount(report.measured):
        labels = {
            "loss": "loss of the current sentence, nats a token",
            "share": "attention on the current sentence",
        }
        found = {
            label: [each.figures.statistics(name).score for each in discounted]
            for name, label in labels.items()
        }
        settings = [f"{each.config.loss.context_discount:g}" for each in discounted]
        _save(two_over_settings(settings, "context discount", found), out / DISCOUNT_PICTURE)


def _save(figure: "Figure", path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=160)
