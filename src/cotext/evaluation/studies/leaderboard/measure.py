"""Outputs of many systems on one test set: scores, a ranking with clusters, omissions; and their page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Final

from cotext.evaluation.metrics.aligned_files import name_systems
from cotext.evaluation.metrics.comet import Progress
from cotext.evaluation.metrics.interface import Score, is_lower_better, measure_words
from cotext.evaluation.metrics.realign import AlignmentReport, document_lines
from cotext.evaluation.requests import LeaderboardRequest
from cotext.evaluation.statistics.significance import (
    SIGNIFICANT,
    Difference,
    PairedTest,
    Resampling,
    bootstrap_scores,
    paired_test,
    percentiles,
)
from cotext.evaluation.studies.evaluate.evaluate_files import read_texts, with_comet
from cotext.evaluation.studies.tables import Cell, Row, Table, interval, versions
from cotext.runtime import CotextError, __version__
from cotext.runtime.rendering import facts, folded, listed, render_p, render_rows, whole_page


@dataclass(frozen=True, slots=True)
class Place:
    """The rank of a system, from `first` to `last`, by its significant differences from other systems.

    Every system of a `cluster` (numbered from 1) is significantly better than all systems of later clusters.
    """

    system: str
    first: int
    last: int
    cluster: int

    @property
    def ranks(self) -> str:
        """Return the rank or range, such as 3 or 2-4."""
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


def ranked(scores: Mapping[str, float], protocol: str) -> list[str]:
    """Return the systems, the best first; systems with equal scores stay in the given order."""
    sign = 1 if is_lower_better(protocol) else -1
    return sorted(scores, key=lambda name: sign * scores[name])


def places(order: Sequence[str], test: PairedTest | None, protocol: str) -> list[Place]:
    """Return the ranks of systems in this order, from tests of all pairs; without tests, one cluster."""
    better = set()  # pairs in which the first system is significantly better than the second
    for (one, other), comparison in test.differences.items() if test is not None else ():
        if comparison.significant and comparison.difference:
            up = (comparison.difference > 0) != is_lower_better(protocol)
            better.add((other, one) if up else (one, other))
    count = len(order)
    ranks, cluster = [], 1
    for index, system in enumerate(order):
        apart = all((above, below) in better for above in order[:index] for below in order[index:])
        cluster += index > 0 and apart
        above = sum((other, system) in better for other in order)
        below = sum((system, other) in better for other in order)
        ranks.append(Place(system, 1 + above, count - below, cluster))
    return ranks


SAMPLES: Final = 10_000
# With this number, the smallest p of a randomisation test, corrected for all pairs, is at most 1 / 40.
_SAMPLES_FOR_EACH_PAIR: Final = 40
# Endings of files in a folder that are not outputs of systems.
_BESIDE: Final = (".nbest.jsonl", ".report.json", ".html", ".htm")


@dataclass(frozen=True, slots=True)
class Entry:
    """A system: its scores with their intervals, if there are enough documents, and its alignment."""

    name: str
    scores: tuple[Score, ...]
    intervals_95: tuple[tuple[float, float] | None, ...]
    path: Path
    aligned: AlignmentReport

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "file": str(self.path),
            "scores": [
                {**asdict(score), "interval_95": interval}
                for score, interval in zip(self.scores, self.intervals_95, strict=True)
            ],
            "alignment": self.aligned.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Systems, the best first; `ranking` is the index of the score by which they are ranked."""

    request: LeaderboardRequest
    documents: int
    sentences: int
    ranking: int
    systems: tuple[Entry, ...]
    places: tuple[Place, ...]
    test: PairedTest | None
    notes: tuple[str, ...]

    @property
    def ranks_by(self) -> Score:
        """Return the score by which systems are ranked, of the best system."""
        return self.systems[0].scores[self.ranking]

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": "cotext-leaderboard",
            "version": 1,
            "cotext": __version__,
            "references": [str(path) for path in self.request.reference],
            "source": None if self.request.source is None else str(self.request.source),
            "ranked_by": self.ranks_by.protocol,
            "documents": self.documents,
            "sentences": self.sentences,
            "places": [asdict(place) for place in self.places],
            "systems": [entry.as_dict() for entry in self.systems],
            "test": None if self.test is None else self.test.as_dict(),
            "notes": list(self.notes),
        }

    def render(self) -> str:
        titles = [score.title for score in self.systems[0].scores]
        rows = [("rank", "cluster", "", *titles, "omitted", "added")]
        for place, entry in zip(self.places, self.systems, strict=True):
            gaps = (f"{entry.aligned.omitted}", f"{entry.aligned.added}")
            values = (f"{score.value:.2f}" for score in entry.scores)
            rows.append((place.ranks, f"{place.cluster}", entry.name, *values, *gaps))
        return "\n".join([render_rows(rows, left=3), *self.notes])


def make_leaderboard(request: LeaderboardRequest, on_comet: Progress | None = None) -> Leaderboard:
    """Read, realign, measure and rank the outputs of systems; `on_comet` receives the progress of COMET.

    Raises CotextError if documents do not correspond, or a protocol is unknown.
    """
    paths = name_systems(output_files(request))
    comet = request.comet_model(request.comet_context)
    ranking = _ranking(request)
    enough = max(SAMPLES, _SAMPLES_FOR_EACH_PAIR * (len(paths) * (len(paths) - 1) // 2))
    samples = enough if request.samples is None else request.samples
    resampling = Resampling(samples=samples, seed=request.seed)
    texts, reports = read_texts(paths, request)
    measured = measure_words(None, texts, request.protocols, request.target_language)
    measured = with_comet(measured, texts, comet, on_comet, reports)
    values = {name: measured[name][ranking].score.value for name in paths}
    protocol = measured[next(iter(paths))][ranking].score.protocol
    order = ranked(values, protocol)
    test, several = None, len(texts.references[0]) > 1
    if several and len(order) > 1:
        counts = {name: [measured[name][ranking].statistics] for name in order}
        test = paired_test(counts, resampling=resampling)
    # The interval of every score of every system; None unless there are several documents.
    drawing = replace(resampling, samples=min(samples, SAMPLES))
    columns: list[list[tuple[float, float] | None]] = []
    for of_score in zip(*measured.values(), strict=True):
        drawn = bootstrap_scores([each.statistics for each in of_score], drawing) if several else []
        columns.append([percentiles(scores) for scores in drawn] or [None] * len(of_score))
    intervals = dict(zip(measured, zip(*columns, strict=True), strict=True))
    scores = {name: tuple(item.score for item in items) for name, items in measured.items()}
    return Leaderboard(
        request=request,
        documents=len(texts.references[0]),
        sentences=sum(map(len, texts.references[0])),
        ranking=ranking,
        systems=tuple(Entry(n, scores[n], intervals[n], paths[n], reports[n]) for n in order),
        places=tuple(places(order, test, protocol)),
        test=test,
        notes=tuple(_notes(reports, test, samples)),
    )


def output_files(request: LeaderboardRequest) -> list[Path]:
    """Return the files of systems: named files, and the files in folders.

    In folders, these are omitted: hidden files, document ids, files that `translate` writes next to its
    output, pages, source and references. Raises CotextError for a folder without outputs.
    """
    others = (*request.reference, request.source)
    beside = [path.resolve() for path in others if path is not None]
    files: list[Path] = []
    for path in request.systems:
        if not path.is_dir():
            files.append(path)
            continue
        inside = [
            file
            for file in sorted(path.iterdir())
            if file.is_file()
            and not file.name.startswith(".")
            and ".docids" not in file.suffixes
            and not file.name.lower().endswith(_BESIDE)
        ]
        outputs = [file for file in inside if file.resolve() not in beside]
        if not outputs:
            raise CotextError(f"{path}: contains no outputs of systems; add a file for each system")
        files += outputs
    return files


def _ranking(request: LeaderboardRequest) -> int:
    """Return the index of the score by which systems are ranked; raise CotextError if it is not measured."""
    measured = list(request.protocols)
    if request.comet is not None:
        measured += ["comet", *(["doc-comet"] if request.comet_context else [])]
    if request.rank_by is None:
        return 0
    if request.rank_by not in measured:
        raise CotextError(
            f"--rank-by {request.rank_by}: is not measured; the measured scores are {', '.join(measured)}"
        )
    return measured.index(request.rank_by)


def _notes(reports: Mapping[str, AlignmentReport], test: PairedTest | None, samples: int) -> list[str]:
    notes = [f"{name}: {note}" for name, report in reports.items() for note in report.notes]
    if test is None:
        what = "system" if len(reports) == 1 else "document"
        return [*notes, f"only one {what}: differences cannot be tested for significance"]
    pairs = len(test.differences)
    if test.too_few:
        notes.append(f"{test.units} documents are too few: no difference can be significant (tests: {pairs})")
    if pairs / (samples + 1) >= SIGNIFICANT:
        notes.append(f"{samples} samples are too few for {pairs} tests; remove --samples, or use more")
    return notes


def render_leaderboard(board: Leaderboard) -> str:
    body = [
        f"<h1>Leaderboard</h1>\n<p>{_lead(board)}</p>",
        *(f'<p class="soft">{escape(note)}</p>' for note in board.notes),
        "<h2>Ranking</h2>",
        _ranking_table(board),
    ]
    if board.test is not None:
        body += ["<h2>Every difference, tested</h2>", _differences(board, board.test)]
    gaps = [(entry.name, document_lines(entry.aligned)) for entry in board.systems]
    title = "documents with omissions or additions"
    if lists := [folded(f"{name}: {title}", "\n".join(lines)) for name, lines in gaps if lines]:
        body += ["<h2>Omissions and additions</h2>", *lists]
    body += ["<h2>How these values were computed</h2>", _facts(board)]
    return whole_page("Cotext: leaderboard", body)


def _lead(board: Leaderboard) -> str:
    title = escape(board.ranks_by.title)
    words = (
        f"{len(board.systems)} systems on {board.documents:,} documents ({board.sentences:,} sentences), "
        f"ranked by {title}"
    )
    if board.test is None:
        return f"{words}; differences could not be tested."
    clusters = board.places[-1].cluster
    apart = (
        f"{clusters} clusters: every system is significantly better than all systems of the clusters below"
        if clusters > 1
        else "No clusters: wherever the ranking is cut, some difference across the cut is not significant"
    )
    return (
        f"{words}. {apart}. Ranks are ranges: for 2-4 of 6, one system is significantly better, and two are "
        f"significantly worse. Tests are over documents, p &lt; {SIGNIFICANT:g} after correction for all "
        f"{len(board.test.differences):,} pairs."
    )


def _ranking_table(board: Leaderboard) -> str:
    rows: list[Row] = [
        (
            place.ranks,
            f"{place.cluster}",
            entry.name,
            *(
                Cell(f"{score.value:.2f}", () if ends is None else (interval(ends, ".1f"),))
                for score, ends in zip(entry.scores, entry.intervals_95, strict=True)
            ),
            f"{entry.aligned.omitted:,}",
            f"{entry.aligned.added:,}",
            f"{entry.aligned.length_ratio:.2f}",
        )
        for place, entry in zip(board.places, board.systems, strict=True)
    ]
    titles = [score.title for score in board.systems[0].scores]
    header = ("rank", "cluster", "system", *titles, "omitted", "added", "length")
    return Table(header, rows, _caption(board), left=3, heads=3).html()


def _caption(board: Leaderboard) -> str:
    scored = board.systems[0].intervals_95[board.ranking] is not None
    intervals = " With 95 % intervals by bootstrap over documents." if scored else ""
    lower = [score.title for score in board.systems[0].scores if is_lower_better(score.protocol)]
    direction = f" {listed(lower)}: lower is better." if lower else ""
    return (
        f"Ranked by {board.ranks_by.title}.{intervals}{direction} "
        "Omitted: sentences of the reference; added: lines of the system (as `evaluate --realign` reports "
        "them); length: words for every word of the reference."
    )


def _differences(board: Leaderboard, test: PairedTest) -> str:
    caption = (
        f"{board.ranks_by.title} of the row minus the value of the column, and p after correction. Bold: "
        "significant."
    )
    # The lower half is empty: the last system has no row.
    rows = [
        (f"{n}. {row.name}", *(_tested(test.differences.get((row.name, s.name))) for s in board.systems[1:]))
        for n, row in enumerate(board.systems[:-1], 1)
    ]
    header = ("", *(f"{n}." for n in range(2, len(board.systems) + 1)))
    return Table(header, rows, caption).html()


def _tested(test: Difference | None) -> str | Cell:
    if test is None:
        return ""
    small = (f"p {render_p(test.p_corrected)}",)
    return Cell(f"{0 - test.difference:+.2f}", small, test.significant)


def _facts(board: Leaderboard) -> str:
    request = board.request
    entries = [("references", escape(", ".join(map(str, request.reference))))]
    if request.source is not None:
        entries.append(("source", escape(str(request.source))))
    entries += [(entry.name, f"<code>{escape(str(entry.path))}</code>") for entry in board.systems]
    if board.test is not None:
        entries.append(("tests", f"<code>{escape(board.test.signature)}</code>"))
    entries += [(name, escape(value)) for name, value in versions().items()]
    signatures = [f"{entry.name}: {score.signature}" for entry in board.systems for score in entry.scores]
    return f"{facts(entries)}\n{folded('Signatures of all scores', chr(10).join(signatures))}"
