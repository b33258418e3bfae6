"""Requests of the commands and functions that measure translations, runs and their use of context."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from cotext.data.requests import CorpusFormat
from cotext.runtime import CotextError, shown
from cotext.runtime.request import Request, option
from cotext.translation.requests import Decoding, Device, RunOptions, Sharded

if TYPE_CHECKING:
    from cotext.evaluation.metrics.comet import Comet
    from cotext.evaluation.metrics.realign import Realigned
    from cotext.evaluation.statistics.significance import Resampling


def check_page(out: Path | None) -> None:
    """Raise CotextError if the name of an HTML page has the suffix of another format."""
    if out is not None:
        from cotext.files.table import file_formats, require_fitting_name

        require_fitting_name(out, file_formats()["html"])


class Protocols(Request):
    """The metrics to compute."""

    protocol: Sequence[str] = option(
        "Metric of docs/metrics.md; may be repeated. Default: s-bleu, d-bleu and chrf.", default=()
    )

    @property
    def protocols(self) -> tuple[str, ...]:
        from cotext.evaluation.metrics.interface import DEFAULT_PROTOCOLS

        return tuple(self.protocol or DEFAULT_PROTOCOLS)

    def check(self) -> None:
        from cotext.evaluation.metrics.interface import find_protocol

        for name in self.protocol:
            find_protocol(name)


class TargetLanguage(Request):
    """The target language."""

    target_language: str | None = option(
        "Language code, such as zh, for the tokenizer of a metric.", default=None
    )


class Words(Request):
    """A tokenizer that splits texts into words before scoring."""

    words: Path | None = option(
        "Run or data folder whose moses-bpe tokenizer splits (and may truecase) texts before scoring.",
        default=None,
    )


class CometOptions(Request):
    """A COMET model, and where COMET is installed."""

    comet: str | None = option(
        "Path or name of a COMET model (docs/metrics.md); adds its score.", default=None, needs="source"
    )
    comet_python: Path | None = option(
        "Interpreter or environment with COMET. Default: $COTEXT_COMET_PYTHON.", default=None, needs="comet"
    )

    def comet_model(self, context: int = 0) -> "Comet | None":
        """Return the settings of COMET, or None if not requested; raise the errors of `Comet`."""
        from cotext.evaluation.metrics.comet import Comet, find_python

        if self.comet is None:
            return None
        return Comet(self.comet, find_python(self.comet_python), context)


class DocumentComet(CometOptions):
    """A COMET model, which may also read the context of a sentence."""

    comet_context: int = option(
        "Previous sentences that document COMET reads (2 in its paper).", default=0, needs="comet", least=0
    )


class PairedTests(Request):
    """Significance tests between systems."""

    paired: bool = option("Test the differences between systems for significance.", default=False)
    baseline: str | None = option(
        "With --paired: file name of the baseline. Default: all pairs.", default=None, needs="paired"
    )
    unit: Literal["document", "sentence"] = option(
        "With --paired: resample by document or sentence.", default="document", needs="paired"
    )
    samples: int = option("With --paired: number of samples.", default=10_000, needs="paired", least=100)
    seed: int = option("With --paired: seed.", default=12345, needs="paired", least=0)

    def resampling(self) -> "Resampling | None":
        from cotext.evaluation.statistics.significance import Resampling

        if not self.paired:
            return None
        return Resampling(unit=self.unit, samples=self.samples, seed=self.seed)


class EvaluationRequest(Protocols, TargetLanguage, Words, DocumentComet, PairedTests, CorpusFormat):
    """Files of translations to score against references; see `cotext.evaluate`."""

    hypothesis: Sequence[Path] = option("Translations by a system; repeat for each system.")
    reference: Sequence[Path] = option("Reference translations; repeat for several references.")
    source: Path | None = option("Source, for COMET and --terms, aligned with the reference.", default=None)
    realign: bool = option(
        "Align documents with different numbers of sentences; report omissions and additions.", default=False
    )
    realign_all: bool = option("Like --realign, but realign all documents.", default=False)
    discourse: Path | None = option(
        "File of marked words of the reference (docs/metrics.md); adds TC, CP, PT and TCP.", default=None
    )
    terms: Path | None = option(
        "Glossary; adds WMT's term success and document consistency.", default=None, needs="source"
    )

    @property
    def realigned(self) -> "Realigned | None":
        return "all" if self.realign_all else "unequal" if self.realign else None


class ProfileRequest(Protocols, TargetLanguage, CorpusFormat):
    """Translations to score by position in the document and by document length."""

    hypothesis: Sequence[Path] = option("Translated documents; may be repeated for several systems.")
    reference: Path = option("Reference translations.")
    out: Path | None = option("JSON file for all figures.", default=None)


class LeaderboardRequest(Protocols, TargetLanguage, DocumentComet, CorpusFormat):
    """Translations of many systems to rank; see `make_leaderboard`."""

    systems: Sequence[Path] = option(
        "Translations: one file per system, in any corpus format, or folders of such files.", argument=True
    )
    reference: Sequence[Path] = option("Reference translations; repeat for several references.")
    out: Path = option("HTML page to write.")
    source: Path | None = option("Source, for COMET and other metrics that need it.", default=None)
    rank_by: str | None = option(
        "Metric to rank by; may be comet or doc-comet. Default: the first --protocol.", default=None
    )
    realign_all: bool = option(
        "Realign all documents, not only those with different numbers of sentences.", default=False
    )
    samples: int | None = option(
        "Samples of tests. Default: the larger of 10000 and 40 per pair of systems.", default=None, least=100
    )
    seed: int = option("Seed of the samples.", default=12345, least=0)

    def check(self) -> None:
        super().check()
        check_page(self.out)

    @property
    def realigned(self) -> "Realigned":
        return "all" if self.realign_all else "unequal"


class ComparisonRequest(Protocols, Words, TargetLanguage, CorpusFormat, Decoding):
    """Runs to compare on a page; see `compare_folders`."""

    runs: Sequence[Path] = option(
        "Runs, engines, models, or folders of `train --seeds`; the first is the baseline.",
        argument=True,
        is_run=True,
    )
    out: Path = option("HTML page to write.")
    data: Path | None = option("Folder made by `prepare`, with a test set or suites.", default=None)
    source: Path | None = option("Test set, source side (or a file with both sides).", default=None)
    reference: Path | None = option("Test set, target side.", default=None)
    suite: Sequence[Path] = option("Contrastive suite; may be repeated.", default=())
    samples: int = option("Samples of tests and intervals.", default=10_000, least=100)
    use: bool = option("Measure the use of context on the test set (CXMI).", default=True)
    controls: bool = option("Also score suites without context and in foreign context.", default=True)
    csv: Path | None = option("Also write all figures to this CSV file.", default=None)

    @property
    def outputs(self) -> list[Path]:
        return [path for path in (self.out, self.csv) if path is not None]

    def check(self) -> None:
        super().check()
        check_page(self.out)


AuditKind = Literal[
    "lost", "added", "order", "untranslated", "copied", "language", "tag",
    "number", "separator", "name", "quote", "term", "drift", "all",
]  # fmt: skip


class AuditRequest(TargetLanguage, CorpusFormat):
    """Translations to audit; see `audit`."""

    output: Sequence[Path] = option("Translations, one file per system.", argument=True)
    source: Path | None = option("Source. Default: OUTPUT, which must contain both languages.", default=None)
    source_language: str | None = option("Language code of the source.", default=None)
    reference: Path | None = option("Reference, with a line for each line of the source.", default=None)
    terms: Path | None = option("Glossary of the terms that translations must use.", default=None)
    out: Path | None = option("HTML page to write.", default=None)
    fail_on: Sequence[AuditKind] = option("Kinds of findings, or all, that give exit code 1.", default=())

    def check(self) -> None:
        check_page(self.out)


class AdaptRequest(CorpusFormat, Device):
    """A model to train further on a corpus; see `Adaptation`."""

    model: Path = option("Run folder, or name of a model, to start from.", argument=True, is_run=True)
    corpus: Sequence[Path] = option(
        "One file or folder with both languages (TMX, XLIFF, PO, TSV and others); or two, source and target: "
        "texts, documents such as DOCX, or folders of documents.",
        argument=True,
    )
    out: Path = option("Run folder to make; an interrupted adaptation is resumed.")
    minutes: float = option(
        "Training time, without validation. The number of updates is estimated.", default=60.0, least=0.01
    )
    dev_documents: int | None = option(
        "Number of documents for development. Default: a fifth, 20 at most.", default=None, least=1
    )
    test_documents: int | None = option(
        "Number of documents for the test. Default: a fifth, 20 at most.", default=None, least=2
    )
    seed: int = option("Seed of the documents that are set aside, and of training.", default=1)

    def check(self) -> None:
        if len(self.corpus) > 2:
            raise CotextError(f"give one corpus path, or two (source and target), not {len(self.corpus)}")


class MbrRequest(CometOptions, CorpusFormat):
    """Translations from which the best is selected for each sentence; see `choose_translations`."""

    files: Sequence[Path] = option(
        "n-best lists (`cotext translate --set nbest=N`), or translations by several systems.", argument=True
    )
    out: Path = option("File to write.")
    utility: str = option(
        "Metric of similarity: chrf, comet (with --comet and --source), or an added metric.", default="chrf"
    )
    probabilities: Literal["scores", "uniform"] = option(
        "Weights of translations in a list: scores (model probabilities) or uniform.", default="scores"
    )
    candidates: int | None = option("Number of translations used from each list.", default=None, least=1)
    source: Path | None = option("Source documents, for COMET.", default=None)
    to: str = option("Corpus format to write.", default="text")
    overwrite: bool = option("Replace a file that exists.", default=False)

    def check(self) -> None:
        from cotext.evaluation.metrics.interface import metrics

        names = [*(name for name, metric in metrics().items() if metric.is_utility), "comet"]
        if self.utility not in names:
            raise CotextError(f"--utility {shown(self.utility)}: choose one of {', '.join(names)}")
        if (self.utility == "comet") != (self.comet is not None):
            raise CotextError("--utility comet and --comet MODEL belong together; give both or neither")


class DocumentRequest(CorpusFormat, RunOptions):
    """A document of a file, and the run to analyse it with."""

    run: Path = option("Run folder, or name of a model.", argument=True, is_run=True)
    document: Path = option("File with the document, in any corpus format.", argument=True)
    out: Path = option("Folder for values and plots.")
    target: Path | None = option("Translation of the document. Default: the run translates it.", default=None)
    id: str | None = option("Id of the document. Default: the first one.", name="document", default=None)


class ContextRequest(DocumentRequest):
    """A document whose context sentences are removed one by one; see `report_context`."""

    out: Path = option("HTML page to write; the values are written to a .json file of the same name.")

    def check(self) -> None:
        check_page(self.out)
        if self.out.suffix == ".json":
            raise CotextError(
                f"{self.out}: the data of the page are written to this file; give the page the suffix .html"
            )


Condition = Literal["true", "shuffled", "random", "none"]


class CxmiRequest(Sharded, CorpusFormat, RunOptions):
    """A corpus whose references are scored with and without context; see `measure_corpus`."""

    run: Path = option("Run folder, or name of a model.", argument=True, is_run=True)
    source: Path = option("Source documents, or a file with both sides.")
    target: Path | None = option("Reference translations, which are scored.", default=None)
    context: Sequence[Condition] = option(
        "Context to compare with none: true, shuffled or random. Default: all three.", default=()
    )
    seed: int = option("Seed of shuffled and random context.", default=1)
    out: Path | None = option("JSON file for all figures.", default=None)

    @property
    def conditions(self) -> list[str]:
        """Return the kinds of context in their usual order, always with `none`."""
        requested = self.context or get_args(Condition)
        return [name for name in get_args(Condition) if name == "none" or name in requested]


class SpeedRequest(CorpusFormat, Decoding):
    """Runs whose decoding time is measured; see `measure_speed`."""

    runs: Sequence[Path] = option(
        "Run or engine folders, or names of models; all later ones are compared with the first.",
        argument=True,
        is_run=True,
    )
    document: Path = option("File with the documents to translate, in any corpus format.")
    documents: int | None = option(
        "Translate only this number of documents, from the first. Default: all.", default=None, least=1
    )
    setting: Sequence[Literal["one", "many"]] = option(
        "one: one document at a time; many: shared batches (--set max_tokens=...). Default: both.",
        default=(),
    )
    rounds: int = option("How often each run is timed; the median is reported.", default=3, least=1)
    clock: Literal["cpu", "wall"] | None = option(
        "cpu: processor time; wall: elapsed time. Default: cpu, or wall on a GPU.", default=None
    )
    threads: int = option("CPU threads to use.", default=1, least=1)
    out: Path | None = option("JSON file for all figures.", default=None)

    def check(self) -> None:
        if "beam" in self.decode:
            raise CotextError(
                "--set beam: omit it; every run is timed with greedy search and with its configured beam"
            )


class SuiteRules(Request):
    """What is scored in a contrastive suite, and when a candidate wins."""

    tie: Literal["wrong", "first"] = option(
        "wrong: a tie counts as an error; first: the first candidate wins.", default="wrong"
    )
    score: Literal["sum", "mean"] = option(
        "How candidates are scored: by the sum or the mean of their token log-probabilities.", default="sum"
    )
    controls: bool = option(
        "Also score without context and in foreign context (see --context), to test whether context is used; "
        "up to 3 times slower.",
        default=False,
    )
    context: Literal["true", "none", "shuffled", "foreign", "global"] = option(
        "Context of candidates: true, none, shuffled, foreign (from other documents) or global (for "
        "batch-level context: only other sequences are foreign).",
        default="true",
    )


class ContrastiveRequest(SuiteRules, Sharded, RunOptions):
    """Contrastive suites to score; see `cotext.evaluation.studies.contrastive`."""

    run: Path = option(
        "Run folder, name of a model, or endpoint.yaml of a language model behind an API.",
        argument=True,
        is_run=True,
    )
    suites: Sequence[Path] = option(
        "Contrastive suites (docs/contrastive-format.md), ContraPro or consistency sets.", argument=True
    )
    generate: bool = option("Also translate, and check for the correct form.", default=False)
    out: Path | None = option("JSON file for all figures and decisions.", default=None)

    def check(self) -> None:
        if self.context != "true" and (self.controls or self.generate):
            flag = "--controls" if self.controls else "--generate"
            raise CotextError(
                f"--context {self.context} cannot be combined with {flag}; run the command once for each"
            )
