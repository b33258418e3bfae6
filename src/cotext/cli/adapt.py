"""Adaptation of a model to a corpus: the command `cotext adapt`.

Documents are set aside, the rest is prepared with the model's tokenizer, and training starts from the model
(`model.neutral_start`). The folder OUT.adapt contains:

    pairs.tmx                     pairs of bilingual files or documents, or of a corpus cut into sections
    data/                         the prepared corpus; whole documents are for training, development or test
    before.jsonl, after.jsonl     the test documents, translated by the model and by the run
    reference.jsonl               their references
    report.json, report.html      scores of both, tests, and the sentences that changed most

Steps that are complete are skipped, so the same call resumes an interrupted adaptation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from json import dumps
from pathlib import Path
from typing import Final

import sacrebleu

from cotext.config.recipe import Config, load_config
from cotext.data.documents import Document, Languages, ParallelDocument, check_pair, same_language
from cotext.data.formats import languages_of_files, read_documents, read_parallel, write_documents
from cotext.data.requests import PreparationRequest
from cotext.data.selection import Cleaner
from cotext.data.tokenizer import ImportedTokenizer, load_tokenizer
from cotext.evaluation.requests import AdaptRequest, EvaluationRequest
from cotext.evaluation.statistics.significance import SIGNIFICANT
from cotext.evaluation.studies.context.context_use import translated
from cotext.evaluation.studies.evaluate.evaluate_files import Evaluation, evaluate_files
from cotext.evaluation.studies.tables import Cell, Table, interval
from cotext.files.parallel import cut_corpus, pair_files
from cotext.interchange.model_names import name_of
from cotext.models.run_folder import config_of, describe_file, model_file
from cotext.runtime import CotextError
from cotext.runtime.devices import choose_threads
from cotext.runtime.rendering import facts, render_p, whole_page
from cotext.training.inputs import written_config
from cotext.training.run import DryRun, dry_run
from cotext.translation.open import open_run

RECIPE: Final = "opus/s4to4"  # for a sentence-level model; document-level models keep their configuration
VALIDATIONS: Final = 10  # approximate number during training
# By default, a fifth of the documents is for development and a fifth for the test, 20 each at most.
SHARE: Final = 5
MOST_HELD_OUT: Final = 20
FEWEST_DOCUMENTS: Final = 10  # a corpus with fewer is cut into sections
# Settings that the run takes from the model.
OF_SEARCH: Final = ("beam", "length_penalty", "length_penalty_form", "max_ratio", "max_extra")
BEFORE: Final = "before.jsonl"
AFTER: Final = "after.jsonl"
SHOWN: Final = 20  # number of changed sentences on the page
DROPOUT: Final = ("dropout", "activation_dropout", "attention_dropout")
# Changes to the recipe: small batches because time is short, and a low learning rate. A document-level
# model has its own configuration, so its own start and limits are reset.
SETTINGS: Final = (
    "decode.precision=float32",
    *("train.init_architecture=run", "train.init_parts=all", "train.freeze=none"),
    *("train.blend=null", "train.blend_updates=null", "train.max_epochs=0", "train.shard_model=false"),
    *("train.validate_bleu=false", "train.best_by=loss", "train.word_dropout=0", "train.coword_dropout=0"),
    *("train.learning_rate=1.0e-4", "train.max_tokens=4096", "train.accumulate=1"),
)


@dataclass(frozen=True, slots=True)
class ChangedSentence:
    """A test sentence whose translation changed; `gain`: its chrF after minus before."""

    document: str
    number: int
    source: str
    reference: str
    before: str
    after: str
    gain: float


@dataclass(frozen=True, slots=True)
class AdaptReport:
    """The result of an adaptation; `changed` is sorted by size of the change, the largest first."""

    request: AdaptRequest
    data: Path
    evaluation: Evaluation
    changed: tuple[ChangedSentence, ...]


def pairs_file(out: Path) -> Path:
    """Return the file for the pairs of bilingual files or documents, or of a corpus cut into sections."""
    return out.with_name(f"{out.name}.adapt") / "pairs.tmx"


class Adaptation:
    """The steps of an adaptation, in the order in which they must be called.

    Raises CotextError for an engine, or a corpus in other languages. Also the errors of `pair_files`.
    """

    def __init__(self, request: AdaptRequest) -> None:
        self.request = request
        pairs = pairs_file(request.out)
        self.folder = pairs.parent
        self._model = config_of(request.model)
        model_file(request.model)  # raises for an engine
        languages = Languages.parse(self._model.languages)
        source, *others = request.corpus
        self._files: tuple[Path, Path | None] = (source, others[0] if others else None)
        self.notes: tuple[str, ...] = ()
        self._format, notes = request.format, None
        if request.format is None:
            notes = pair_files(*self._files, pairs, languages, FEWEST_DOCUMENTS)
        if notes is None:
            stated = languages_of_files(*self._files, request.format)
            check_pair(languages, stated, f"the corpus {source}", f"{name_of(request.model)} translates")
            notes = cut_corpus(*self._files, request.format, pairs, languages, FEWEST_DOCUMENTS)
        if notes is not None:
            self._files, self.notes, self._format = (pairs, None), notes, None
        self._languages = languages if str(languages) else languages_of_files(*self._files, self._format)

    @property
    def data(self) -> Path:
        """Return the folder of the prepared data, with the test documents."""
        return self.folder / "data"

    def preparation(self) -> PreparationRequest:
        """Return the request to set documents aside and prepare the data with the model's tokenizer.

        Raises CotextError if most pairs have the same text on both sides, unless the model has one language.
        """
        tokenizer = load_tokenizer(self.request.model / "tokenizer")
        # A multilingual tokenizer already knows its languages, under its own names.
        of_many = isinstance(tokenizer, ImportedTokenizer) and bool(tokenizer.languages)
        pair = Languages() if of_many else self._languages
        cleaner = Cleaner({"copies": 0}, Languages(), (1, 1))
        for _ in cleaner.documents(read_parallel(*self._files, self._format)):
            pass
        pairs, copies = cleaner.cleaned.pairs_before, cleaner.cleaned.pairs.get("copies", 0)
        # Models of one language may learn from equal sides.
        if 2 * copies > pairs and not same_language(self._languages.source, self._languages.target):
            raise CotextError(
                f"{self.request.corpus[-1]}: in {copies:,} of {pairs:,} pairs, both sides are the same text; "
                "pass the translations, too"
            )
        dev, test = (
            min(MOST_HELD_OUT, max(least, cleaner.cleaned.documents_before // SHARE))
            if given is None
            else given
            for given, least in ((self.request.dev_documents, 1), (self.request.test_documents, 2))
        )
        return PreparationRequest(
            source=self._files[0],
            target=self._files[1],
            format=self._format,
            dev_documents=dev,
            test_documents=test,
            seed=self.request.seed,
            source_language=pair.source,
            target_language=pair.target,
            tokenizer=str(self.request.model),
            out=self.data,
        )

    @property
    def is_begun(self) -> bool:
        """Return whether a run exists already; its training is then resumed."""
        return (self.request.out / "config.yaml").is_file()

    @cached_property
    def estimate(self) -> DryRun:
        """Return the time of an update, measured on a few updates."""
        return dry_run(self._config(), self.data, self.request.out, self.recipe, self.request.device)

    @property
    def updates(self) -> int:
        """Return the number of updates that fit into the requested time, by the estimate."""
        return max(1, round(60 * self.request.minutes / self.estimate.seconds_an_update))

    @property
    def recipe(self) -> str:
        """Return the name or the file of the recipe of the run."""
        return RECIPE if self._model.view.kind == "sentence" else str(self.request.model / "config.yaml")

    def _config(self, *settings: str) -> Config:
        start = [f"train.init={dumps(str(self.request.model))}", f"train.seed={self.request.seed}"]
        if self._model.decode.first_pass == "init":  # would now be the model itself
            start.append(f"decode.first_pass={dumps(self._model.train.init)}")
        if self.recipe == RECIPE:
            decode = self._model.decode.model_dump(include=set(OF_SEARCH))
            start += ["model.neutral_start=true", *(f"decode.{key}={dumps(decode[key])}" for key in decode)]
            # In so few updates, more dropout than that of the model makes translations shorter.
            dropout = self._model.model.model_dump(include=set(DROPOUT))
            start += [f"model.{key}={dropout[key]}" for key in dropout]
        return load_config(self.recipe, None, [*SETTINGS, *start, *settings])

    @cached_property
    def config(self) -> Config:
        """Return the configuration of the run; the existing one if it was begun."""
        if self.is_begun:
            return written_config(self.request.out / "config.yaml")
        threads = choose_threads(self._model.model.dimension, self._config().train.threads)
        every = max(1, self.updates // VALIDATIONS)
        return self._config(
            f"train.max_cpu_minutes={self.request.minutes * threads}",
            f"train.max_updates={self.updates}",
            f"train.validate_every={every}",
            f"train.log_every={max(1, every // 5)}",
            f"train.warmup_updates={max(1, min(500, every))}",
        )

    @cached_property
    def test(self) -> list[ParallelDocument]:
        return [*read_parallel(self.data / "test.jsonl", None)]

    def measure(self, on_sentences: Callable[[int], None] = lambda count: None) -> AdaptReport:
        """Translate the test documents with the model and with the run, and compare."""
        files = {}
        for name, run in (("before", self.request.model), ("after", self.request.out)):
            files[name] = self.folder / f"{name}.jsonl"
            written = max(file.stat().st_mtime for file in (model_file(run), self.data / "test.jsonl"))
            if not (files[name].is_file() and files[name].stat().st_mtime >= written):
                translator = open_run(run, self.request.device).translator
                sources = [Document(document.id, document.source) for document in self.test]
                write_documents(files[name], translated(translator, sources, on_sentences), "jsonl")
        reference = self.folder / "reference.jsonl"
        targets = (Document(document.id, document.target) for document in self.test)
        write_documents(reference, targets, "jsonl")
        request = EvaluationRequest(
            hypothesis=list(files.values()),
            reference=[reference],
            target_language=self._languages.target or None,
            paired=True,
            baseline=BEFORE,
        )
        return AdaptReport(self.request, self.data, evaluate_files(request), self._changed(files))

    def _changed(self, files: dict[str, Path]) -> tuple[ChangedSentence, ...]:
        changed = []
        translations = (read_documents(files[name]) for name in ("before", "after"))
        for pair, before, after in zip(self.test, *translations, strict=True):
            rows = zip(pair.source, pair.target, before.sentences, after.sentences, strict=True)
            for number, (source, reference, old, new) in enumerate(rows, 1):
                if old != new:
                    gain = _chrf(new, reference) - _chrf(old, reference)
                    changed.append(ChangedSentence(pair.id, number, source, reference, old, new, gain))
        return tuple(sorted(changed, key=lambda sentence: -abs(sentence.gain)))


def _chrf(translation: str, reference: str) -> float:
    return float(sacrebleu.sentence_chrf(translation, [reference]).score)


def summary(report: AdaptReport) -> Table:
    rows = []
    for before, after in zip(*(report.evaluation.scores[name] for name in (BEFORE, AFTER)), strict=True):
        [test] = report.evaluation.paired[after.protocol].differences.values()
        difference = Cell(f"{test.difference:+.2f}", (interval(test.interval_95),), test.significant)
        rows.append((after.title, f"{before.value:.2f}", f"{after.value:.2f}", difference, render_p(test.p)))
    caption = (
        f"{after.documents:,} test documents, {after.sentences:,} sentences. Bold, or a star: p below "
        f"{SIGNIFICANT:g} in a paired test over documents."
    )
    return Table(("", "before", "after", "difference", "p"), rows, caption)


def answer(report: AdaptReport) -> str:
    first = report.evaluation.scores[AFTER][0]
    [test] = report.evaluation.paired[first.protocol].differences.values()
    if describe_file(model_file(report.request.out)).updates == [0]:
        outcome = "the unchanged model: no checkpoint was better on the development documents"
    elif not test.significant:
        outcome = "not shown to be better or worse than the model on the test documents"
    else:
        outcome = f"{'better' if test.difference > 0 else 'worse'} than the model on the test documents"
    return f"{report.request.out} is {outcome} ({first.title}: {test.difference:+.2f})."


def next_commands(report: AdaptReport) -> list[str]:
    out, model, data = report.request.out, name_of(report.request.model), report.data
    return [
        f"cotext translate {out} letter.docx --out translated.docx",
        f"cotext serve {out}",
        f"cotext cxmi {out} --source {data}/test.jsonl",
        f"cotext compare {model} {out} --data {data} --out {data.parent}/compare.html",
    ]


def render(report: AdaptReport) -> str:
    body = [
        f"<h1>{escape(report.request.out.name)}</h1>\n<p>{escape(answer(report))}</p>",
        "<h2>Before and after</h2>",
        summary(report).html(),
        f"<h2>The sentences that changed most</h2>\n<p>{len(report.changed):,} translations changed. The "
        "number is the change in chrF, which can mislead for a single sentence: read the translations.</p>",
        *map(_sentence, report.changed[:SHOWN]),
        "<h2>What to run next</h2>",
        f"<pre>{escape(chr(10).join(next_commands(report)))}</pre>",
        "<p>They translate a file, start a server with a page, measure how much context is used, and compare "
        "both systems in detail.</p>",
        "<h2>How these values were computed</h2>",
        facts((score.title, escape(score.signature)) for score in report.evaluation.scores[AFTER]),
    ]
    return whole_page(f"Cotext: {report.request.out.name}", body)


def _sentence(changed: ChangedSentence) -> str:
    lines = [(name, escape(getattr(changed, name))) for name in ("source", "before", "after", "reference")]
    title = f"{changed.document}, sentence {changed.number}: {changed.gain:+.1f}"
    return f"<article><h3>{escape(title)}</h3>{facts(lines)}</article>"
