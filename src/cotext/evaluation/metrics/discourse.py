"""Discourse words marked by hand (TC, CP, PT, TCP; Sun et al., 2022), and glossary terms.

The authors marked words in the English references of the Chinese-English PDC test set, with all acceptable
renderings. They marked tenses (TC) in 50 documents, conjunctions (CP) in 46, pronouns (PT) in 52. A word is a
hit if one of its renderings occurs near the same relative position of the hypothesis. TC, CP and PT are hits
in per cent, TCP is their geometric mean. The rule is that of the authors' script (tcp.py of Doc2Doc_NMT).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from unicodedata import normalize

import numpy as np

from cotext.data.documents import Document
from cotext.data.formats.streams import numbered_lines, refuse_named_pipe
from cotext.evaluation.metrics.interface import Measurement, Texts
from cotext.evaluation.statistics.sufficient_statistics import Floats, Statistics, SumScorer, share
from cotext.runtime import CotextError, __version__, optional_module, shown

Tokens = Literal["none", "moses"]
PHENOMENA = ("TC", "CP", "PT")
PUBLISHED_DOCUMENTS = (50, 46, 52)  # for each phenomenon, in the order of the published file
WINDOW = 20  # tokens before the expected position, and tokens from the expected position on
_POSITION = re.compile("[0-9]{1,9}")
_LEAST_FIT = 0.9  # required share of marked words at their positions


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked word of the reference, by its position among the tokens, and all its correct renderings."""

    position: int
    renderings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MarkedDocument:
    """The marked words of one document, all of one phenomenon."""

    phenomenon: str  # of PHENOMENA
    marks: tuple[Mark, ...]


def read_marks(path: Path) -> list[MarkedDocument]:
    """Read the marked words of a test set: one document per line, words separated by tabs.

    Each word is written `position:rendering,other rendering`. A line may begin with TC, CP or PT and a tab.
    If no line does, the file must be the published one of 148 documents, whose order gives the phenomenon.
    Raises CotextError for any other content.
    """
    refuse_named_pipe(path)
    lines = list(numbered_lines(path))
    named = [line.split("\t", 1)[0] in PHENOMENA for _, line in lines]
    published = [
        name for name, count in zip(PHENOMENA, PUBLISHED_DOCUMENTS, strict=True) for _ in range(count)
    ]
    if not any(named) and len(lines) != len(published):
        raise CotextError(
            f"{path}: {len(lines)} lines, but the published set has {len(published)}; in another set, "
            f"begin every line with {', '.join(PHENOMENA)} and a tab"
        )
    documents = []
    for (number, line), has_name in zip(lines, named, strict=True):
        if any(named) and not has_name:
            raise CotextError(f"{path}:{number}: does not begin with {', '.join(PHENOMENA)} and a tab")
        name, _, rest = line.partition("\t") if has_name else (published[number - 1], "", line)
        marks = tuple(_parse_mark(path, number, part) for part in rest.split("\t") if part.strip())
        documents.append(MarkedDocument(name, marks))
    return documents


def _parse_mark(path: Path, number: int, text: str) -> Mark:
    position, colon, renderings = text.strip().partition(":")
    # A few published marks end in a comma.
    words = tuple(word.strip() for word in renderings.split(",") if word.strip())
    if not colon or not _POSITION.fullmatch(position) or not words:
        raise CotextError(
            f"{path}:{number}: {shown(text)} is not a mark; write position:rendering,other rendering"
        )
    return Mark(int(position), words)


def measure_discourse(marked: Sequence[MarkedDocument], texts: Texts) -> dict[str, list[Measurement]]:
    """Measure each of TC, CP and PT that has marked words, and TCP if all three have marked words.

    Positions count words, if the reference has the marked words there; otherwise tokens of the Moses
    tokenizer, with hyphens split. Raises CotextError if the documents do not fit the marked words.
    """
    reference = texts.references[0]
    if len(marked) != len(reference):
        raise CotextError(
            f"there are marks for {len(marked)} documents, but the reference has {len(reference)} documents"
        )
    tokens, expected = _tokens_of_reference(marked, reference)
    phenomena = [name for name in PHENOMENA if any(d.phenomenon == name and d.marks for d in marked)]
    titles = [*phenomena, *(["TCP"] if len(phenomena) == len(PHENOMENA) else [])]
    split = f"case:mixed|tok:{'moses-en-hyphens' if tokens == 'moses' else 'none'}"
    measured: dict[str, list[Measurement]] = {}
    for name, hypothesis in texts.systems.items():
        if tokens == "none" and _is_tokenised(reference) and not _is_tokenised(hypothesis):
            raise CotextError(f"{name}: is not tokenised, but the reference is; tokenise both or neither")
        counts = np.zeros((len(marked), 2 * len(PHENOMENA)))
        written = tokenised(hypothesis, tokens)
        for row, (document, ours, theirs) in enumerate(zip(marked, written, expected, strict=True)):
            column = 2 * PHENOMENA.index(document.phenomenon)
            counts[row, column] = sum(hits(document.marks, ours, len(theirs)))
            counts[row, column + 1] = len(document.marks)
        measured[name] = []
        for title in titles:
            columns = range(len(PHENOMENA)) if title == "TCP" else [PHENOMENA.index(title)]
            statistics = Statistics(counts, np.arange(len(counts)), "document", _geometric_mean(columns))
            components = {}
            for column in columns:
                components[f"{PHENOMENA[column]}_hits"] = float(counts[:, 2 * column].sum())
                components[f"{PHENOMENA[column]}_marks"] = float(counts[:, 2 * column + 1].sum())
            key, window = title.lower(), f"window:{WINDOW}+{WINDOW}"
            signature = f"protocol:{key}|unit:document|{window}|{split}|version:cotext-{__version__}"
            counted = key, title, signature, statistics, hypothesis, components
            measured[name].append(Measurement.of(*counted, of_joined_text=True))
    return measured


def hits(marks: Sequence[Mark], hypothesis: Sequence[str], reference_tokens: int) -> list[bool]:
    """Return for every marked word whether one of its renderings is near its position in the hypothesis.

    The position is scaled by the ratio of lengths. The window has 20 tokens before this position, and 20 from
    it on. A rendering of one word must be one of these tokens; a longer one must occur in their text.
    """
    outcome = []
    for mark in marks:
        position = int(mark.position * (len(hypothesis) / max(reference_tokens, 1)))
        near = hypothesis[max(position - WINDOW, 0) : position + WINDOW]
        text = " ".join(near)
        outcome.append(any(word in text if " " in word else word in near for word in mark.renderings))
    return outcome


def tokenised(documents: Sequence[Document], tokens: Tokens) -> list[list[str]]:
    """Return the tokens of each document as one line; raise CotextError if the tokenizer is not installed."""
    lines = [" ".join(document.sentences) for document in documents]
    if tokens == "none":
        return [line.split() for line in lines]
    what = "finding discourse marks in text without Moses tokens (English rules, hyphens split)"
    moses = optional_module("sacremoses", "replication", what).MosesTokenizer(lang="en")
    return [moses.tokenize(line, escape=False, aggressive_dash_splits=True) for line in lines]


def _tokens_of_reference(
    marked: Sequence[MarkedDocument], reference: Sequence[Document]
) -> tuple[Tokens, list[list[str]]]:
    """Return the tokenisation that the positions refer to, and the tokens of the reference in it."""
    total = sum(len(document.marks) for document in marked)
    if not total:
        raise CotextError("discourse marks: the file contains none")
    shares = []
    for tokens in ("none", "moses"):
        lines = tokenised(reference, tokens)
        fitting = sum(
            any(line[mark.position :][: len(word.split())] == word.split() for word in mark.renderings)
            for document, line in zip(marked, lines, strict=True)
            for mark in document.marks
        )
        if fitting >= _LEAST_FIT * total:
            return tokens, lines
        shares.append(f"{100 * fitting / total:.0f} %")
    raise CotextError(
        f"discourse marks: only {shares[0]} of the {total} marked words are at their positions in the "
        f"reference, {shares[1]} after tokenisation; give the marked reference, in the order of the marks"
    )


def _is_tokenised(documents: Sequence[Document]) -> bool:
    """Return whether most punctuation marks follow a space, as in tokenised text."""
    text = "\n".join(sentence for document in documents for sentence in document.sentences)
    before = re.findall(r"(\w?)[.,;!?](?!\S)", text)
    return 2 * sum(map(bool, before)) <= len(before)


def _geometric_mean(columns: Sequence[int]) -> SumScorer:
    """Return a scorer: geometric mean of the shares of hits in per cent; 0 without marks."""

    def score(sums: Floats) -> Floats:
        shares = [sums[:, 2 * c] / np.maximum(sums[:, 2 * c + 1], 1.0) for c in columns]
        product: Floats = np.prod(shares, axis=0)
        return 100.0 * product ** (1 / len(shares))

    return score


# --- Glossary terms in translations, after the document track of WMT's terminology task of 2025.
#
#     success       The mean over the terms of each document that have a translation in a reference. The
#                   value of a term is the count of its translations in the hypothesis, divided by its count
#                   in the source, at most 1.
#     consistency   For terms that occur in several sentences of a document: the share of these sentences with
#                   the most frequent translation of the term.
#
# Success is that of the task's scorer (https://github.com/wmt-conference/wmt25-terminology): text is
# lower-cased, and matches inside words count. Consistency is not that of the scorer, which finds translations
# with a language model, a word aligner and lemmatisers. That scorer counts over a whole submission, with
# terms that occur once. Here, only listed translations are found, and a sentence without one is inconsistent.

Terms = Sequence[tuple[str, Sequence[str]]]  # a source term and its translations


def measure_terms(terms: Terms, texts: Texts) -> dict[str, list[Measurement]]:
    """Measure success and, if defined, consistency, in per cent; raise CotextError without terms to count."""
    lower = [(term.lower(), [target.lower() for target in targets]) for term, targets in terms]
    measured = {}
    for name, documents in texts.systems.items():
        sides = zip(documents, texts.source, *texts.references, strict=True)
        counts = np.array([_counts(lower, *each) for each in sides])
        if not counts[:, 1].sum():
            raise CotextError("no term of the list is in the source and has a translation in a reference")
        measured[name] = [
            Measurement.of(
                f"term-{what}",
                f"term {what}",
                f"protocol:term-{what}|unit:document{refs}|case:lower|match:text|version:cotext-{__version__}",
                Statistics(counts, np.arange(len(counts)), "document", share(column, column + 1)),
                documents,
                {what: float(counts[:, column].sum()), "of": float(counts[:, column + 1].sum())},
            )
            for what, column, refs in (
                ("success", 0, f"|nrefs:{len(texts.references)}"),
                ("consistency", 2, ""),
            )
            if counts[:, column + 1].sum()
        ]
    return measured


def _counts(terms: Terms, hypothesis: Document, source: Document, *references: Document) -> tuple[float, ...]:
    """Return numerator and denominator of success, then of consistency, for one document."""
    sides = [[normalize("NFC", s).lower() for s in d.sentences] for d in (hypothesis, source, *references)]
    output, original, *right = map("\n".join, sides)
    success = valid = consistent = several = 0.0
    for term, targets in terms:
        if term in original and any(target in text for target in targets for text in right):
            valid += 1
            longest_first = sorted(targets, key=len, reverse=True)  # overlapping translations count once
            found = re.findall("|".join(map(re.escape, longest_first)), output)
            success += min(1.0, len(found) / original.count(term))
        where = [number for number, sentence in enumerate(sides[1]) if term in sentence]
        if len(where) > 1:
            several += len(where)
            consistent += max(sum(target in sides[0][n] for n in where) for target in targets)
    return success, valid, consistent, several
