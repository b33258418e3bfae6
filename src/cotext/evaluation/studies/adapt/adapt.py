"""A document system of one's own, from a model and a corpus: the command `cotext adapt`.

Documents are set aside, the rest is prepared with the model's tokenizer, and training starts where the model
stands (`model.neutral_start`). Everything but the run lies in the folder OUT.adapt:

    adapt.json                            what it is made of; another corpus or model is refused
    train.jsonl, dev.jsonl, test.jsonl    the corpus, divided by whole documents
    data/                                 the same, prepared
    before.jsonl, after.jsonl             the test documents, translated by the model and by the run
    report.json, report.html              scores of both, tests, and the sentences that changed most

Every step is skipped that is done already, so that the same call goes on with an interrupted one.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from json import dumps
from pathlib import Path
from typing import Any, Final

import sacrebleu

from cotext.config.recipe import Config, load_config
from cotext.data.corpora import OnDocuments, languages_of_files
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, read_parallel, write_documents, write_parallel
from cotext.data.languages import Languages, check_pair
from cotext.data.preparation_report import Report
from cotext.data.prepare import prepare
from cotext.data.requests import PreparationRequest
from cotext.data.tokenizer import ImportedTokenizer, load_tokenizer
from cotext.evaluation.requests import AdaptRequest, EvaluationRequest
from cotext.evaluation.studies.evaluate.evaluate_files import Evaluation, evaluate_files
from cotext.models.engine_folder import config_of
from cotext.models.run_folder import model_file
from cotext.runtime.devices import choose_threads
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, replacing
from cotext.runtime.integrity import sealed, unsealed
from cotext.runtime.reading import read_text
from cotext.training.dry_run import DryRun, dry_run
from cotext.training.resume import TrainingProgress
from cotext.training.run import train
from cotext.training.start_settings import written_config
from cotext.training.trainer import TrainingCallbacks
from cotext.translation.open import open_run

RECIPE: Final = "opus/s4to4"  # for a model of single sentences; others keep their own configuration
SPLITS: Final = ("train", "dev", "test")
PART: Final = 20  # sentences: of a corpus with too few documents, what is set aside and trained on
LEAST_SHARE: Final = 3  # times as many documents as are set aside, or the corpus is cut into parts
VALIDATIONS: Final = 10  # in the time that is given, about
FEWEST_UPDATES: Final = 20
OF_SEARCH: Final = ("beam", "length_penalty", "max_ratio", "max_extra")  # as the model has them
# Beside those of the recipe: small batches, as time is short, and a low learning rate.
SETTINGS: Final = (
    "decode.precision=float32",
    "train.init_architecture=run",
    "train.validate_bleu=false",
    "train.learning_rate=1.0e-4",
    "train.max_tokens=4096",
    "train.accumulate=1",
)


@dataclass(frozen=True, slots=True)
class ChangedSentence:
    """A test sentence whose translation changed; `gain`: its chrF after less before."""

    document: str
    number: int
    source: str
    reference: str
    before: str
    after: str
    gain: float


@dataclass(frozen=True, slots=True)
class AdaptReport:
    """What an adaptation has brought; `changed`: by size of the change, the largest first."""

    request: AdaptRequest
    folder: Path
    notes: tuple[str, ...]
    evaluation: Evaluation
    changed: tuple[ChangedSentence, ...]


class Adaptation:
    """The steps of an adaptation, to be taken in the order in which they stand here.

    Raises:
        CotextError: an engine, languages of a corpus that are not those of the model.
    """

    def __init__(self, request: AdaptRequest) -> None:
        self.request = request
        self.folder = request.out.with_name(f"{request.out.name}.adapt")
        self._model = config_of(request.model)
        self._weights = model_file(request.model)
        self._languages = Languages.parse(self._model.languages)
        stated = languages_of_files(*self._files, request.format)
        check_pair(self._languages, stated, f"the corpus {self._files[0]}", f"{request.model} translates")

    @property
    def _files(self) -> tuple[Path, Path | None]:
        source, *target = self.request.corpus
        return source, target[0] if target else None

    def corpus(self, split: str) -> Path:
        """The documents of a split: train, dev or test."""
        return self.folder / f"{split}.jsonl"

    @property
    def data(self) -> Path:
        """The prepared data."""
        return self.folder / "data"

    def set_aside(self) -> None:
        """Divide the corpus by whole documents, drawn at random by seed.

        Raises:
            CotextError: too few documents; a folder of another adaptation; as `read_parallel`.
        """
        noted, identity = self.folder / "adapt.json", self._identity
        if noted.is_file():
            try:
                same = unsealed(read_text(noted))["made_of"] == identity
            except (ValueError, KeyError):
                same = False
            if not same:
                raise CotextError(f"{self.folder}: was made of another corpus or model; choose another --out")
            return
        held_out = self.request.dev_documents + self.request.test_documents
        count, cut = sum(1 for _ in self._documents(cut=False)), False
        if count < LEAST_SHARE * held_out:
            count, cut = sum(1 for _ in self._documents(cut=True)), True
        if count < LEAST_SHARE * held_out:
            raise CotextError(
                f"{self._files[0]}: has {count} parts of {PART} sentences at most, and {held_out} are to be "
                "set aside; lower --dev-documents and --test-documents, or give a larger corpus"
            )
        drawn = random.Random(self.request.seed).sample(range(count), held_out)
        splits = dict.fromkeys(drawn, "test") | dict.fromkeys(drawn[: self.request.dev_documents], "dev")
        self.folder.mkdir(parents=True, exist_ok=True)
        for split in SPLITS:
            chosen = (d for n, d in enumerate(self._documents(cut)) if splits.get(n, "train") == split)
            write_parallel(self.corpus(split), None, chosen, "jsonl")
        note = (
            f"The corpus has too few documents; it was cut into {count:,} parts of at most {PART} sentences. "
            "Neighbouring parts may be trained on and tested on: mark where documents begin for a test that "
            "tells what happens on new documents."
        )
        with replacing(noted) as temporary:
            content = {"made_of": identity, "notes": [note] if cut else []}
            temporary.write_text(f"{sealed(content)}\n", encoding="utf-8")

    @property
    def _identity(self) -> dict[str, Any]:
        files = [checksum(path) for path in self._files if path is not None]
        asked = self.request
        counts = [asked.dev_documents, asked.test_documents, asked.seed, asked.format]
        return {"model": checksum(self._weights), "corpus": files, "asked": counts}

    def _documents(self, cut: bool) -> Iterator[ParallelDocument]:
        for document in read_parallel(*self._files, self.request.format):
            if not cut:
                yield document
                continue
            for start in range(0, len(document.source), PART):
                part = slice(start, start + PART)
                name = f"{document.id}-{start // PART + 1}"
                yield ParallelDocument(name, document.source[part], document.target[part])

    def prepare(self, on_documents: OnDocuments = lambda stage, documents: None) -> Report | None:
        """Prepare the data with the model's tokenizer; None where that is done."""
        if self.data.is_dir():
            return None
        tokenizer = load_tokenizer(self.request.model / "tokenizer")
        # One of many languages comes with its own names of those that it was imported for.
        of_many = isinstance(tokenizer, ImportedTokenizer) and bool(tokenizer.languages)
        pair = Languages() if of_many else self._languages
        request = PreparationRequest(
            source=self.corpus("train"),
            dev_source=self.corpus("dev"),
            test_source=self.corpus("test"),
            source_language=pair.source,
            target_language=pair.target,
            tokenizer=str(self.request.model),
            out=self.data,
        )
        return prepare(request, on_documents)

    @property
    def is_begun(self) -> bool:
        """Whether there is a run already, whose training goes on."""
        return (self.request.out / "config.yaml").is_file()

    @cached_property
    def estimate(self) -> DryRun:
        """What an update takes here, measured on a few of them."""
        return dry_run(self._config(), self.data, self.request.out, self._recipe, self.request.device)

    @property
    def updates(self) -> int:
        """The updates that the time will do for, by the estimate."""
        return max(FEWEST_UPDATES, round(60 * self.request.minutes / self.estimate.seconds_an_update))

    @property
    def _recipe(self) -> str:
        is_single = self._model.view.kind == "sentence"
        return RECIPE if is_single else str(self.request.model / "config.yaml")

    def _config(self, *settings: str) -> Config:
        start = [f"train.init={dumps(str(self.request.model))}", f"train.seed={self.request.seed}"]
        if self._recipe == RECIPE:
            kept = self._model.decode.model_dump(include=set(OF_SEARCH))
            start += ["model.neutral_start=true", *(f"decode.{key}={dumps(kept[key])}" for key in kept)]
        return load_config(self._recipe, None, [*SETTINGS, *start, *settings])

    @cached_property
    def config(self) -> Config:
        """The configuration of the run, as it was begun if it was."""
        if self.is_begun:
            return written_config(self.request.out / "config.yaml")
        threads = choose_threads(self._model.model.dimension, 0)
        every = max(1, self.updates // VALIDATIONS)
        return self._config(
            f"train.max_cpu_minutes={self.request.minutes * threads}",
            f"train.max_updates={self.updates}",
            f"train.validate_every={every}",
            f"train.log_every={max(1, every // 5)}",
            f"train.warmup_updates={max(1, min(500, every))}",
        )

    def train(self, callbacks: TrainingCallbacks) -> TrainingProgress:
        """Train; the start stays the model where nothing is better on the development documents."""
        return train(self.config, self.data, self.request.out, callbacks, self._recipe, self.request.device)

    @cached_property
    def test(self) -> list[ParallelDocument]:
        """The test documents."""
        return [*read_parallel(self.corpus("test"), None)]

    def measure(self, on_sentences: Callable[[int], None] = lambda count: None) -> AdaptReport:
        """Translate the test documents with the model and with the run, and compare."""
        files = {}
        for name, run in (("before", self.request.model), ("after", self.request.out)):
            files[name] = self.folder / f"{name}.jsonl"
            if not files[name].is_file():
                translator = open_run(run, self.request.device).translator
                sources = [Document(each.id, each.source) for each in self.test]
                found = dict(translator.translate(sources, on_sentences))
                documents = (found[number].document for number in range(len(sources)))
                write_documents(files[name], documents, "jsonl")
        reference = self.folder / "reference.jsonl"
        write_documents(reference, (Document(each.id, each.target) for each in self.test), "jsonl")
        evaluation = evaluate_files(
            EvaluationRequest(
                hypothesis=[files["before"], files["after"]],
                reference=[reference],
                target_language=self._languages.target or None,
                paired=True,
                baseline="before.jsonl",
            )
        )
        notes = unsealed(read_text(self.folder / "adapt.json"))["notes"]
        return AdaptReport(self.request, self.folder, tuple(notes), evaluation, self._changed(files))

    def _changed(self, files: dict[str, Path]) -> tuple[ChangedSentence, ...]:
        texts = {name: [*read_documents(path)] for name, path in files.items()}
        found = []
        for own, before, after in zip(self.test, texts["before"], texts["after"], strict=True):
            rows = zip(own.source, own.target, before.sentences, after.sentences, strict=True)
            for number, (source, reference, old, new) in enumerate(rows, 1):
                if old != new:
                    gain = _chrf(new, reference) - _chrf(old, reference)
                    found.append(ChangedSentence(own.id, number, source, reference, old, new, gain))
        return tuple(sorted(found, key=lambda each: -abs(each.gain)))


def _chrf(translation: str, reference: str) -> float:
    return float(sacrebleu.sentence_chrf(translation, [reference]).score)
