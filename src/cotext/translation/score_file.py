"""Scoring of translated files, complete or in shards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from cotext.data.documents import ParallelDocument, check_sides
from cotext.data.formats import read_parallel
from cotext.runtime import naming
from cotext.runtime.jobs.engine import Job, Joined
from cotext.runtime.jobs.journal import Journal, Shard
from cotext.translation.corpus_files import ScoredDocument, checksums_of, require_column
from cotext.translation.open import OpenedRun, scoring_signature, systems_of
from cotext.translation.scorer import SentenceScore


def score_file(
    opened: OpenedRun, source: Path, target: Path | None, *, format: str | None = None, columns: bool = True
) -> tuple[Iterator[ScoredDocument], str]:
    """Score a translation: yield documents with the scores of their sentences; also return the signature.

    The tokenizer splits the text into subwords, even if the system that wrote it used other subwords (`cotext
    translate --scores` writes the scores of those). `columns`: document ids must fit into a table.

    Raises CotextError if file names show swapped sides, the files have different lengths, a sentence is
    longer than allowed, or an id does not fit. The error is raised before any work or, for a pipe, when the
    document is reached.
    """
    translator = opened.translator
    check_sides(opened.languages, source, target, f"{opened.folder} translates")
    paths = [path for path in (source, target) if path is not None]

    documents = partial(_documents, source, target, format, columns)
    # A pipe can be read only once: it is checked while it is scored.
    if all(path.is_file() for path in paths):
        with naming(*paths):
            translator.check_pairs(documents())
    scored = ((document.id, translator.score([document])[0]) for document in documents())
    return scored, scoring_signature(opened)


def _documents(
    source: Path, target: Path | None, format: str | None, columns: bool
) -> Iterator[ParallelDocument]:
    for document in read_parallel(source, target, format):
        if columns:
            require_column(document.id)
        yield document


class ScoreJob(Job[None]):
    """The scoring of the documents of a shard of regular files, like `score_file`."""

    command, unit = "score", "documents"

    def __init__(
        self,
        opened: OpenedRun,
        source: Path,
        target: Path | None,
        out: Path,
        shard: Shard,
        *,
        format: str | None = None,
        columns: bool = True,
    ) -> None:
        self.out, self.shard = out, shard
        self._translator = opened.translator
        self._documents = partial(_documents, source, target, format, columns)
        check_sides(opened.languages, source, target, f"{opened.folder} translates")
        paths = [path for path in (source, target) if path is not None]
        self.identity = {"inputs": checksums_of(paths, format), "format": format or "", **systems_of(opened)}
        self.facts = {"signature": scoring_signature(opened)}
        self.sizes = [len(document.source) for document in self._documents()]
        with naming(*paths):
            self._translator.check_pairs(islice(self._documents(), self.units.start, self.units.stop))

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        remaining = set(todo)
        documents = islice(self._documents(), self.units.start, self.units.stop)
        for unit, document in enumerate(documents, self.units.start):
            if unit in remaining:
                [scores] = self._translator.score([document])
                numbers = [score.log_probability for score in scores], [score.tokens for score in scores]
                yield unit, {"id": document.id, "log_probabilities": numbers[0], "tokens": numbers[1]}
                on_size(self.sizes[unit])


def joined_scores(parts: Joined) -> tuple[Iterator[ScoredDocument], str]:
    """Return the scores of all shards, in the form of `score_file`."""
    scored = (
        (entry["id"], list(map(SentenceScore, entry["log_probabilities"], entry["tokens"])))
        for entry in parts.values()
    )
    return scored, parts.header.facts["signature"]
