"""The report of `cotext prepare`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from cotext.data.corpora import CorpusSplit
from cotext.data.encoding import OUTLIER_RATIO, Distribution, Overlap, SplitStatistics, location_of
from cotext.data.languages import Languages
from cotext.data.selection import render
from cotext.data.shortlist import Coverage
from cotext.data.tokenizer import Tokenizer, TokenizerSettings, chosen_languages
from cotext.runtime.errors import CotextError


@dataclass(frozen=True, slots=True)
class Report:
    """The content of report.json: the prepared data, their sources and settings.

    `inputs` and `files` hold SHA-256 digests: of what was read, and of what was written. `selected`: see
    `cotext.data.selection`. `shortlist`: what lists lose, by candidates of a source token, where a table is.
    """

    cotext: str
    command: dict[str, Any]
    inputs: dict[str, str]
    languages: dict[str, str]
    tokenizer: dict[str, Any]
    splits: dict[str, SplitStatistics]
    notes: tuple[str, ...]
    files: dict[str, str]
    selected: dict[str, dict[str, Any]] = field(default_factory=dict)
    overlap: dict[str, Overlap] = field(default_factory=dict)
    shortlist: dict[str, Coverage] = field(default_factory=dict)

    @property
    def pair(self) -> Languages:
        """The languages; unknown where they were not told."""
        return Languages(self.languages.get("source", ""), self.languages.get("target", ""))

    def render(self) -> str:
        """Lay the main figures out as a table, one column a split."""
        columns = [
            [name, *(figure(split) for figure in _ROWS.values())] for name, split in self.splits.items()
        ]
        widths = [max(map(len, column)) + 2 for column in columns]
        lines = [
            f"{label:32}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            for label, *cells in zip(["", *_ROWS], *columns, strict=True)
        ]
        for name, split in self.splits.items():
            for example in split.ratio_examples:
                lines.append(
                    f"{name}: document {example.document!r}, sentence {example.sentence}: "
                    f"{example.source_tokens} source and {example.target_tokens} target tokens"
                )
        pair = str(self.pair) or "not told (--source-language, --target-language)"
        lines.append(f"languages: {pair}")
        lines.append(f"tokenizer: {self.tokenizer['kind']}, {self.tokenizer['pieces']} pieces")
        lines += [found.render(split) for split, found in self.overlap.items()]
        lines += [found.render(count) for count, found in self.shortlist.items()]
        return "\n".join([*lines, *self.notes])


def report_of(content: dict[str, Any], path: Path) -> Report:
    """The report that a file holds, whose content is given; what else stands there is left out.

    Raises:
        CotextError: it is no such report.
    """
    try:
        return TypeAdapter(Report).validate_python(content)
    except ValidationError:
        raise CotextError(f"{path}: damaged; prepare it again, with --overwrite") from None


def _percentiles(distribution: Distribution) -> str:
    return "/".join(str(value) for value in (*distribution.percentiles.values(), distribution.maximum))


_ROWS: Final[dict[str, Callable[[SplitStatistics], str]]] = {
    "documents": lambda s: f"{s.documents:,}",
    "sentence pairs": lambda s: f"{s.sentences:,}",
    "source tokens": lambda s: f"{s.source_tokens:,}",
    "target tokens": lambda s: f"{s.target_tokens:,}",
    "tokens a sentence, mean": lambda s: f"{s.mean_sentence_tokens:.1f}",
    "source, 50/90/99 %, longest": lambda s: _percentiles(s.sentence_tokens.source),
    "target, 50/90/99 %, longest": lambda s: _percentiles(s.sentence_tokens.target),
    "sentences a document": lambda s: _percentiles(s.document_sentences),
    "source tokens a document": lambda s: _percentiles(s.document_tokens.source),
    "target tokens a document": lambda s: _percentiles(s.document_tokens.target),
    "empty, source/target": lambda s: "/".join(map(str, s.empty_sentences)),
    "unknown tokens, source/target": lambda s: "/".join(f"{rate:.2%}" for rate in s.unknown_token_rate),
    f"lengths differ more than {OUTLIER_RATIO} times": lambda s: f"{s.ratio_outliers:,}",
    "repeated pairs, approximately": lambda s: f"{s.duplicate_pairs:,}",
}


# --- Notes of `cotext prepare`: what of a tokenizer and of a corpus is not as asked for.

MOSES_BPE: Final = "moses-bpe"  # which has the papers' number of merges
LONG_DOCUMENT: Final = 100  # sentences; a corpus of fewer may be one document


def tokenizer_notes(
    chosen: TokenizerSettings | Tokenizer, tokenizer: Tokenizer, sentences: int, texts: Sequence[str] = ()
) -> tuple[str, ...]:
    """Notes on the tokenizer of prepared data: of what it learned, where it is another than was asked for.

    `sentences`: those of the text that it could learn from; `texts`: its files, where it is not the corpus.
    """
    if not isinstance(chosen, TokenizerSettings):
        languages = chosen_languages(tokenizer)
        told = f"; rows begin with the symbols of {languages.strip('-')}" if languages else ""
        kept = (
            f", {tokenizer.pieces:,} of {chosen.pieces:,} pieces" if tokenizer.pieces < chosen.pieces else ""
        )
        return (f"the tokenizer is that of other data{kept}; nothing was learned here{told}",)
    notes: tuple[str, ...] = ()
    if texts:
        notes += (f"the tokenizer was trained on {', '.join(texts)} (--tokenizer-text)",)
    if chosen.sample_sentences is not None and chosen.sample_sentences < sentences:
        notes += (
            f"the tokenizer was trained on {chosen.sample_sentences:,} of {sentences:,} sentences, drawn "
            f"from the whole {'text' if texts else 'corpus'} (--tokenizer-sample)",
        )
    if chosen.vocabulary is None and chosen.kind != MOSES_BPE:
        notes += (
            f"the vocabulary has {tokenizer.pieces:,} pieces, by the size of the corpus ({sentences:,} "
            "sentences in both languages together) and what its text supports; --vocabulary N sets it",
        )
    return notes


def document_notes(statistics: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Notes on splits that are one long document, as a translation memory without names of documents is."""
    return tuple(
        f"note: {split} is one document of {found['sentences']:,} sentences: nothing says where documents "
        "end, so that sentences of unrelated texts may become context of each other. Put an empty line "
        'between documents, in TMX a <prop type="x-document"> into every <tu>; or train on single sentences'
        for split, found in statistics.items()
        if found["documents"] == 1 and found["sentences"] >= LONG_DOCUMENT
    )


def selection_notes(corpus: CorpusSplit) -> list[str]:
    """Notes on the documents and sentences left out of a corpus."""
    if corpus.selection is None:
        return []

    def location(side: int, sentence: str) -> str:
        return location_of(corpus.files, side, sentence).removesuffix(": ") or repr(sentence[:40])

    return render(corpus.split, corpus.selection, location)
