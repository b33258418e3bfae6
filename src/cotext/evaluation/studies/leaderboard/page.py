"""The page of `cotext leaderboard`: the ranking with its clusters first, then details."""

from collections.abc import Iterable, Iterator
from html import escape

from cotext.evaluation.metrics.interface import is_lower_better
from cotext.evaluation.metrics.realign import document_lines
from cotext.evaluation.statistics.significance import SIGNIFICANT, Difference, PairedTest
from cotext.evaluation.studies.leaderboard.measure import Entry, Leaderboard
from cotext.evaluation.studies.tables import Cell, Row, Table, interval, versions
from cotext.runtime.rendering import facts, folded, listed, render_p, whole_page


def render_leaderboard(board: Leaderboard) -> str:
    body = [
        f"<h1>Leaderboard</h1>\n<p>{_lead(board)}</p>",
        *(f'<p class="soft">{escape(note)}</p>' for note in board.notes),
        "<h2>Ranking</h2>",
        _ranking(board),
    ]
    if board.test is not None:
        body += ["<h2>Every difference, tested</h2>", _differences(board, board.test)]
    if lists := list(_gap_lists(board)):
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
        f"{words}. {apart}. Ranks are ranges: 2-4 is significantly worse than one system, and significantly "
        f"better than all systems after the fourth. Tests are over documents, p &lt; {SIGNIFICANT:g} after "
        f"correction for all {len(board.test.differences):,} pairs."
    )


def _ranking(board: Leaderboard) -> str:
    rows: list[Row] = [
        (
            place.ranks,
            f"{place.cluster}",
            entry.name,
            *_score_cells(entry),
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


def _score_cells(entry: Entry) -> Iterator[Cell]:
    for score, ends in zip(entry.scores, entry.intervals_95, strict=True):
        yield Cell(f"{score.value:.2f}", () if ends is None else (interval(ends, ".1f"),))


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
    return Cell(f"{-test.difference:+.2f}", small, test.significant)


def _gap_lists(board: Leaderboard) -> Iterable[str]:
    for entry in board.systems:
        if lines := document_lines(entry.aligned):
            yield folded(f"{entry.name}: documents with omissions or additions", "\n".join(lines))


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
