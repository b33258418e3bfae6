"""N-best lists: JSON lines with one translation per line, the best of each sentence first.

    {"format": "cotext-nbest", "version": 1, "nbest": 2, "signature": "..."}
    {"document": "a", "sentence": 1, "rank": 1, "text": "...", "log_probability": -3.1, "score": -0.9}
    {"document": "a", "sentence": 1, "rank": 2, "text": "...", "log_probability": -3.6, "score": -1.1}
    {"document": "a", "sentence": 2, "rank": 1, ...

Sentences and ranks count from 1. `log_probability` is the log-probability of the translation, including its
end symbol, or null if unknown. `score` is the value by which the search ranks translations.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from cotext.data.contrastive_suites import Entry, Line
from cotext.data.formats.streams import TextSink, numbered_lines
from cotext.runtime import CotextError, parse_json, shown

FORMAT: Final = "cotext-nbest"
VERSION: Final = 1


class Candidate(NamedTuple):
    """A translation of a sentence; `score` is its log-probability, usually normalised by length."""

    text: str
    log_probability: float
    score: float


Candidates = tuple[Candidate, ...]  # of one sentence, best first


class _Line(Entry):
    document: Line
    sentence: int
    rank: int
    text: Line
    log_probability: float | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document with a non-empty list of translations for every sentence."""

    id: str
    sentences: tuple[Candidates, ...]


def write_documents(sink: TextSink, documents: Iterable[ListedDocument], nbest: int, signature: str) -> None:
    """Write a header and the lists of documents; `nbest` is the requested length of the lists."""
    head = {"format": FORMAT, "version": VERSION, "nbest": nbest, "signature": signature}
    sink.write(f"{json.dumps(head, ensure_ascii=False)}\n")
    for document in documents:
        for number, candidates in enumerate(document.sentences, start=1):
            for rank, candidate in enumerate(candidates, start=1):
                line = {
                    "document": document.id,
                    "sentence": number,
                    "rank": rank,
                    "text": candidate.text,
                    "log_probability": finite(candidate.log_probability),
                    "score": finite(candidate.score),
                }
                sink.write(f"{json.dumps(line, ensure_ascii=False)}\n")


def finite(value: float) -> float | None:
    """Return a number for JSON, which has no infinity."""
    return value if math.isfinite(value) else None


def is_lists(path: Path) -> bool:
    """Return whether a file begins like n-best lists; raise the same errors as `numbered_lines`."""
    _, first = next(numbered_lines(path), (1, ""))
    try:
        return _is_head(parse_json(first, str(path)))
    except CotextError:
        return False


def _is_head(value: object) -> bool:
    return isinstance(value, dict) and value.get("format") == FORMAT


def read_lists(path: Path) -> tuple[str, Iterator[ListedDocument]]:
    """Return the signature of n-best lists, and an iterator over their documents.

    Raises CotextError for other files, another version, or a line out of order, with its number.
    """
    lines = numbered_lines(path)
    _, first = next(lines, (1, ""))
    head = parse_json(first, f"{path}:1")
    if not _is_head(head):
        raise CotextError(
            f'{path}:1: not n-best lists: the first line must begin with {{"format": "{FORMAT}"'
        )
    if head.get("version") != VERSION:
        raise CotextError(
            f"{path}:1: version {shown(head.get('version'))} of the format; this version of Cotext reads "
            f"{VERSION}; write the lists again"
        )
    signature = head.get("signature")
    return signature if isinstance(signature, str) else "", _documents(path, lines)


def _documents(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[ListedDocument]:
    """Yield documents; each begins with rank 1 of sentence 1."""
    name, sentences = "", list[list[Candidate]]()
    for number, line in lines:
        if not line.strip():
            continue
        where = f"{path}:{number}"
        entry = _Line.of(parse_json(line, where), where)
        document, sentence, rank = entry.document, entry.sentence, entry.rank
        numbers = (math.nan if each is None else each for each in (entry.log_probability, entry.score))
        candidate = Candidate(entry.text, *numbers)
        if (sentence, rank) == (1, 1):
            if sentences:
                yield ListedDocument(name, tuple(map(tuple, sentences)))
            name, sentences = document, [[candidate]]
        elif sentences and document == name and (sentence, rank) == (len(sentences) + 1, 1):
            sentences.append([candidate])
        elif sentences and document == name and (sentence, rank) == (len(sentences), len(sentences[-1]) + 1):
            sentences[-1].append(candidate)
        else:
            before = "at the beginning"
            if sentences:
                before = f"after rank {len(sentences[-1])} of sentence {len(sentences)} of {shown(name)}"
            raise CotextError(
                f"{where}: rank {rank} of sentence {sentence} of document {shown(document)}, {before}; lines "
                "must be in the order of documents, sentences and ranks, without gaps"
            )
    if not sentences:
        raise CotextError(f"{path}: contains no translations; write the lists again")
    yield ListedDocument(name, tuple(map(tuple, sentences)))


LISTS: Final = ".nbest.jsonl"


def lists_beside(out: Path) -> Path:
    """Return the file with the n-best lists of an output."""
    return out.with_name(f"{out.name}{LISTS}")
