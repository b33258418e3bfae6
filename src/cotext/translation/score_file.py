"""Scoring of translations of files, as a whole or in shards."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel
from cotext.data.formats.streams import is_regular
from cotext.data.languages import check_sides
from cotext.runtime.joining import JoinedParts
from cotext.runtime.shards import Part, Shard, ShardedJob, ShardReport
from cotext.runtime.version import __version__
from cotext.translation.open import OpenedRun
from cotext.translation.score_table import ScoredDocument, require_column
from cotext.translation.scorer import SentenceScore
from cotext.translation.signature import scoring_signature
from cotext.translation.source_file import checksums_of
from cotext.translation.translate_file import naming, systems_of

COMMAND = "score"


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

    if all(is_regular(path) for path in paths):
        with naming(*paths):
            translator.check_pairs(documents())
    scored = ((document.id, translator.score([document])[0]) for document in documents())
    return scored, scoring_signature(opened)


def score_shard(
    opened: OpenedRun,
    source: Path,
    target: Path | None,
    out: Path,
    shard: Shard,
    *,
    format: str | None = None,
    columns: bool = True,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> ShardReport:
    """Score the documents of one shard, each as `score_file` does; what it has scored before stays.

    Raises:
        CotextError: as `score_file` and `Part`, or an input that is no regular file.
    """
    translator = opened.translator
    check_sides(opened.languages, source, target, f"{opened.folder} translates")
    paths = [path for path in (source, target) if path is not None]
    identity = {
        "cotext": __version__,
        "inputs": checksums_of(paths, format),
        "format": format or "",
        **systems_of(opened),
    }
    sizes = [len(document.source) for document in read_parallel(source, target, format)]
    units = shard.units(sizes)
    signature = scoring_signature(opened)

    def documents() -> Iterator[tuple[int, ParallelDocument]]:
        found = islice(read_parallel(source, target, format), units.start, units.stop)
        for index, document in enumerate(found, units.start):
            if columns:
                require_column(document.id)
            yield index, document

    with naming(*paths):
        translator.check_pairs(document for _, document in documents())
    job = ShardedJob(COMMAND, "documents", identity, {"signature": signature})
    with Part(out, shard, sizes, job) as part:
        resumed = part.done()
        on_start(sum(sizes[index] for index in units))
        on_sentences(sum(sizes[index] for index in resumed))
        for index, document in documents():
            if index not in part:
                [scores] = translator.score([document])
                numbers = {
                    "log_probabilities": [score.log_probability for score in scores],
                    "tokens": [score.tokens for score in scores],
                }
                part.add(index, {"id": document.id, **numbers})
                on_sentences(sizes[index])
    return part.report(sum(sizes[index] for index in units), len(resumed), signature)


def joined_scores(parts: JoinedParts) -> tuple[Iterator[ScoredDocument], str]:
    """The scores of all shards, as `score_file` gives those of one process."""

    def documents() -> Iterator[ScoredDocument]:
        for index in range(parts.total):
            found = parts.read(index)
            yield found["id"], list(map(SentenceScore, found["log_probabilities"], found["tokens"]))

    return documents(), parts.joining["signature"]
