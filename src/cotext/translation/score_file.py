"""Scoring of translations of files, as a whole or in shards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel
from cotext.data.languages import check_sides
from cotext.runtime.jobs.engine import Job, Joined
from cotext.runtime.jobs.journal import Journal, Shard
from cotext.runtime.version import __version__
from cotext.translation.open import OpenedRun
from cotext.translation.scorer import SentenceScore
from cotext.translation.signature import scoring_signature, systems_of
from cotext.translation.translate_file import checksums_of, naming
from cotext.translation.written_beside import ScoredDocument, require_column


def score_file(
    opened: OpenedRun,
    source: Path,
    target: Path | None,
    *,
    format: str | None = None,
    columns: bool = True,
) -> tuple[Iterator[ScoredDocument], str]:
    """Score a translation: the documents with the scores of their sentences, and the signature of these.

    The text is split into subwords by the tokenizer, whatever subwords a system that wrote it chose
    (`translate_file(scores=...)` has the scores of those). `columns`: ids must fit into a table.

    Raises:
        CotextError: files named for the languages of the run the wrong way round; unequal files, a sentence
            over the limit, on either side, or an id that does not fit, before any work is done, or where a
            pipe, which can be read only once, has come to it.
    """
    translator = opened.translator
    check_sides(opened.languages, source, target, f"{opened.folder} translates")
    paths = [path for path in (source, target) if path is not None]

    def documents() -> Iterator[ParallelDocument]:
        for document in read_parallel(source, target, format):
            if columns:
                require_column(document.id)
            yield document

    if all(path.is_file() for path in paths):
        with naming(*paths):
            translator.check_pairs(documents())
    scored = ((document.id, translator.score([document])[0]) for document in documents())
    return scored, scoring_signature(opened)


class ScoreJob(Job[None]):
    """The scoring of the documents of a shard, each as `score_file` does.

    Raises:
        CotextError: as `score_file`, or an input that is not a regular file.
    """

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
        self._translator, self._files, self._columns = opened.translator, (source, target, format), columns
        check_sides(opened.languages, source, target, f"{opened.folder} translates")
        paths = [path for path in (source, target) if path is not None]
        self.identity = {
            "cotext": __version__,
            "inputs": checksums_of(paths, format),
            "format": format or "",
            **systems_of(opened),
        }
        self.facts = {"signature": scoring_signature(opened)}
        self.sizes = [len(document.source) for document in read_parallel(*self._files)]
        with naming(*paths):
            self._translator.check_pairs(document for _, document in self._documents())

    def _documents(self) -> Iterator[tuple[int, ParallelDocument]]:
        units = self.units
        documents = islice(read_parallel(*self._files), units.start, units.stop)
        for unit, document in enumerate(documents, units.start):
            if self._columns:
                require_column(document.id)
            yield unit, document

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Score one document after the other."""
        left = set(todo)
        for unit, document in self._documents():
            if unit in left:
                [scores] = self._translator.score([document])
                numbers = [score.log_probability for score in scores], [score.tokens for score in scores]
                yield unit, {"id": document.id, "log_probabilities": numbers[0], "tokens": numbers[1]}
                on_size(self.sizes[unit])


def joined_scores(parts: Joined) -> tuple[Iterator[ScoredDocument], str]:
    """The scores of all shards, as `score_file` gives those of one process."""
    scored = (
        (each["id"], list(map(SentenceScore, each["log_probabilities"], each["tokens"])))
        for each in parts.values()
    )
    return scored, parts.header.facts["signature"]
