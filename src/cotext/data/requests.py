"""Requests of the commands that prepare, align, convert and print corpora."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cotext.data.documents import Languages, language_code
from cotext.runtime import CotextError, shown
from cotext.runtime.request import Request, option

if TYPE_CHECKING:
    from cotext.data.splitting import Splitter
    from cotext.data.tokenizer import TokenizerSettings


class CorpusFormat(Request):
    """The format of the input corpora."""

    format: str | None = option(
        "Corpus format: text, docids, d-lines, wmt-xml, tmx, tsv, jsonl or wmt (wmt:cs-de_DE picks one "
        "language pair). Default: detected from the content.",
        default=None,
    )


class SentenceSplitting(Request):
    """How text is split into sentences."""

    abbreviations: Path | None = option(
        "File of additional abbreviations, one per line. Their full stops do not end sentences.", default=None
    )

    def require_split(self, used: bool, remedy: str) -> None:
        """Check the splitting options.

        Raises CotextError if abbreviations are given, but not `used`; `remedy` says how to use them. Also
        the errors of `splitting`.
        """
        if not used and self.abbreviations:
            raise CotextError(
                f"--abbreviations applies to text that is split into sentences: {remedy}, or remove this "
                "option"
            )
        if used:
            self.splitting()

    def splitting(self) -> frozenset[str]:
        """Return the additional abbreviations; raises CotextError if the file of abbreviations is invalid."""
        from cotext.data.splitting import read_abbreviations

        return frozenset() if self.abbreviations is None else read_abbreviations(self.abbreviations)


class LanguagePair(Request):
    """The languages of a corpus."""

    source_language: str = option("Language code such as en. Default: from file names.", default="")
    target_language: str = option("Language code such as de. Default: from file names.", default="")

    @property
    def languages(self) -> Languages:
        """The given languages as codes; empty if they are to be guessed."""
        source, target = self.source_language, self.target_language
        return Languages(
            language_code(source, "--source-language") if source else "",
            language_code(target, "--target-language") if target else "",
        )


class AlignmentRequest(SentenceSplitting, LanguagePair):
    """Documents and translations to align by sentence; see `cotext.data.aligned_corpus`."""

    source: Sequence[Path] = option(
        "Source document (text or any file that `translate` reads), or a folder; may be repeated."
    )
    target: Sequence[Path] = option(
        "Translation of the source, or a folder. Several documents are paired by their names, without "
        "suffixes and language codes."
    )
    out: Path = option("Corpus to write: .tsv, .jsonl or .tmx, also compressed (.xz, .gz).")
    run: Path | None = option("Run whose probabilities improve the alignment.", default=None, is_run=True)

    def check(self) -> None:
        """Raise CotextError unless the output is TSV, JSON lines or TMX."""
        if self.format not in ("tsv", "jsonl", "tmx"):
            raise CotextError(f"{self.out}: the name must end in .tsv, .jsonl or .tmx")

    @property
    def format(self) -> str:
        """The format of the output, by its file name."""
        return re.sub(r"\.(xz|gz)$", "", self.out.name.lower()).rpartition(".")[2]


class PreparationRequest(SentenceSplitting, LanguagePair, CorpusFormat):
    """Corpora to encode into the data folder `out`; see `cotext.prepare`."""

    out: Path = option("Data folder to make.")
    source: Path = option(
        "Training corpus, source side (or both sides). `prepare` converts XLIFF, PO and documents to TMX."
    )
    target: Path | None = option("Training corpus, target side.", default=None)
    max_characters: int = option("Longest allowed sentence, in characters.", default=10_000)
    split: bool = option("Split training lines with several sentences into aligned sentences.", default=False)
    clean: Sequence[str] = option(
        "Remove training pairs by a rule; documents are divided at removed pairs: empty, length=1000, "
        "ratio=3, copies, language=0.95, duplicates, or all (docs/data-as-found.md); may be repeated.",
        default=(),
    )
    skip_unequal: bool = option("Skip documents whose sides differ in number of sentences.", default=False)
    workers: int = option("Processes that encode text. 0: one for each processor.", default=0, least=0)
    dev_source: Path | None = option("Development corpus, source side.", default=None)
    dev_target: Path | None = option("Development corpus, target side.", default=None, needs="dev_source")
    dev_documents: int = option("Whole training documents to set aside for development.", default=0, least=0)
    test_source: Path | None = option("Test corpus, source side.", default=None)
    test_target: Path | None = option("Test corpus, target side.", default=None, needs="test_source")
    test_documents: int = option("Whole training documents to set aside for the test.", default=0, least=0)
    vocabulary: int | None = option("Vocabulary size. Default: by size of corpus, up to 32000.", default=None)
    tokenizer: str = option(
        "Tokenizer to train: sentencepiece, sentencepiece-bpe or moses-bpe. Or a run, a data folder or a "
        "downloaded model, to use its tokenizer (needed for `train --init`). Names of its languages, such as "
        "eng_Latn, can then be given as --source-language and --target-language.",
        default="sentencepiece",
        is_run=True,
    )
    tokenizer_sample: str | None = option(
        "Sentences to train the tokenizer on, drawn at random, or all. Default: 100000.", default=None
    )
    language: str = option("With moses-bpe: target language for the Moses tokenizer.", default="en")
    truecase: bool = option(
        "With moses-bpe: train on truecased text; translations are recased.",
        default=False,
        needs="tokenizer=moses-bpe",
    )
    jieba: bool = option(
        "With moses-bpe: split Chinese into words with Jieba.", default=False, needs="tokenizer=moses-bpe"
    )
    paragraphs: bool = option(
        "Lines are paragraphs: split all sets, including held-out sets, as with --split.", default=False
    )
    seed: int = option("Seed of the tokenizer's training sample and of documents set aside.", default=1)
    overwrite: bool = option("Replace a folder that exists, also of an interrupted job.", default=False)

    def check(self) -> None:
        """Raise CotextError for options that contradict each other."""
        from cotext.data.tokenizer import KINDS

        self.require_split(self.splits, "add --split or --paragraphs")
        if (self.dev_source is None) == (not self.dev_documents):
            raise CotextError(
                "development data: give --dev-source, or --dev-documents N to set N documents of the "
                "training corpus aside"
            )
        if self.test_source is not None and self.test_documents:
            raise CotextError("--test-source and --test-documents: give one of the two")
        taken, given = self.tokenizer_folder is not None, f"--tokenizer {shown(self.tokenizer)}"
        if taken and self.vocabulary is not None:
            raise CotextError(f"{given} has its own vocabulary; leave out --vocabulary")
        if taken and self.tokenizer_sample is not None:
            raise CotextError(f"{given} is already trained; remove --tokenizer-sample")
        if not taken and self.tokenizer not in KINDS:
            raise CotextError(
                f"{given}: not a run or data folder with a tokenizer; give one, or choose {', '.join(KINDS)}"
            )
        sample = self.tokenizer_sample
        if sample is not None and not re.fullmatch("all|0*[1-9][0-9]{0,11}", sample):
            raise CotextError(f"--tokenizer-sample {shown(sample)}: must be a number of sentences, or all")

    @property
    def splits(self) -> bool:
        """Whether lines with several sentences are split."""
        return self.split or self.paragraphs

    def splitters(self, languages: Languages) -> "tuple[Splitter, Splitter] | None":
        """Return the splitters of source and target; None if lines are not split."""
        if not self.splits:
            return None
        from cotext.data.splitting import Splitter

        abbreviations = self.splitting()
        return Splitter(languages.source, abbreviations), Splitter(languages.target, abbreviations)

    @property
    def set_aside(self) -> dict[str, int]:
        """Number of training documents to set aside, by part (dev, test)."""
        counts = {"dev": self.dev_documents, "test": self.test_documents}
        return {part: count for part, count in counts.items() if count}

    @property
    def tokenizer_folder(self) -> Path | None:
        """The run or data folder whose tokenizer is used, or None."""
        folder = Path(self.tokenizer)
        return folder if (folder / "tokenizer").is_dir() else None

    @property
    def tokenizer_settings(self) -> "TokenizerSettings":
        """The settings for training the tokenizer."""
        from cotext.data.tokenizer import TokenizerSettings

        sample = self.tokenizer_sample
        return TokenizerSettings(
            kind=self.tokenizer,
            vocabulary=self.vocabulary,
            language=self.language,
            seed=self.seed,
            truecase=self.truecase,
            jieba=self.jieba,
            sample_sentences=100_000 if sample is None else None if sample == "all" else int(sample),
        )


class ControlledRequest(Request):
    """The synthetic corpus to generate and prepare; see `cotext.data.prepare.prepare_controlled`.

    `mentions`: sentences per training document that mention its main person; None: a random number.
    """

    size: str = option("Number of training documents, or small, medium or large.", argument=True)
    out: Path = option("Data folder to make.")
    word_order: Literal["verb-second", "verb-final", "reversed"] = option(
        "Word order of the target side: verb-second (as in German main clauses; the default), verb-final, or "
        "reversed.",
        default="verb-second",
    )
    vocabulary: int = option("Vocabulary size.", default=1500)
    seed: int = option("Seed of the corpus and of the tokenizer's training sample.", default=1)
    overwrite: bool = option("Replace a folder that exists, also of an interrupted job.", default=False)
    contrastive_examples: int = 600
    mentions: int | None = None

    def check(self) -> None:
        """Raise CotextError for a number of examples or mentions that is too small."""
        for what, number, least in (
            ("contrastive examples", self.contrastive_examples, 1),
            ("mentions of a hero", self.mentions, 2),
        ):
            if number is not None and number < least:
                raise CotextError(f"{number} {what}; the number must be at least {least}")

    @property
    def documents(self) -> int:
        """The number of training documents; raises CotextError for an unknown size."""
        from cotext.data.controlled import SIZES

        number = int(self.size) if re.fullmatch("[0-9]{1,12}", self.size) else SIZES.get(self.size, 0)
        if number < 1:
            raise CotextError(
                f"unknown size {shown(self.size)}; choose one of {', '.join(SIZES)}, or a number of documents"
            )
        return number


class BeginningRequest(CorpusFormat):
    """A corpus whose first documents are printed; see `cotext.data.convert.beginning`."""

    corpus: Path = option("Corpus file, in any format, or a folder made by `prepare`.", argument=True)
    target: Path | None = option("Target side, if it is a separate file.", default=None, argument=True)
    documents: int = option("Number of documents to show.", default=3, least=1)
    sentences: int = option("Sentences to show per document.", default=10, least=1)
    characters: int = option("Characters to show per sentence.", default=200, least=1)
    split: Literal["train", "dev", "test"] = option("Split of a data folder.", default="train")

    def check(self) -> None:
        kind, useless = ("folder", ("target", "format")) if self.corpus.is_dir() else ("file", ("split",))
        if given := [name for name in useless if self.is_given(name)]:
            raise CotextError(f"{self.corpus}: {given[0]} has no effect for a {kind}; remove it")


class Detokenisation(Request):
    """Options for undoing Moses tokenisation."""

    detokenise: bool = option(
        "Undo Moses tokenisation. Languages are guessed from the file names or read from the suite; "
        "otherwise, give them. The name of a suite gets the suffix -detokenised.",
        default=False,
    )
    source_language: str | None = option(
        "With --detokenise: language of the source side, such as en. Default: see --detokenise.",
        default=None,
        needs="detokenise",
    )
    target_language: str | None = option(
        "With --detokenise: language of the target side.", default=None, needs="detokenise"
    )


class ConversionRequest(Detokenisation, CorpusFormat):
    """A corpus to write in another format; see `cotext.data.convert.convert`."""

    source: Path = option("Corpus file, in any format; one side or both.", argument=True)
    target: Path | None = option("Target side, if it is a separate file.", default=None, argument=True)
    to: str = option("Format to write: one of those listed at --format.")
    out: Path = option("File to write; if there are two, the one for the source side.")
    out_target: Path | None = option("File for the target side, if there are two.", default=None)


class SuiteConversionRequest(Detokenisation):
    """A contrastive suite to write in the format of Cotext; see `contrastive_suites.read_suite`."""

    source: Path = option("Suite, as published.", argument=True)
    out: Path = option("File to write.")
    documents: Path | None = option(
        "For ContraPro as published: folder of OpenSubtitles documents, from which the context is taken.",
        default=None,
    )
    context: int | None = option("For ContraPro: context sentences. Default: 3.", default=None, least=0)
