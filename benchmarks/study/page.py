"""Write the page of the study from the results of its experiments.

    python -m benchmarks.study.page FOLDER ... --out docs/study.md

FOLDER is the folder of an experiment. A rule derives every
sentence of the page from figures. Pictures are written to `figures` next to the page.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.study.comparison import Comparison, ContextAdds
from cotext.data.convert import SUFFIX
from cotext.evaluation.statistics.significance import SIGNIFICANT, Difference, Spread, holm
from cotext.runtime.files import replacing
from cotext.runtime.rendering import listed

LEAST_BLEU = 15.0  # s-BLEU of the sentence model below which nothing is claimed about documents
BASELINE = "sentence"
STARTS = ("moved", "teacher")  # rows from which systems start; the first one in the results counts
HOLDS, FAILS, INCONCLUSIVE = "holds", "does not hold", "inconclusive"
LEAST_CHOICES = 10  # of a suite with a column of its own
CONSISTENCY = {
    "deixis_test": "deixis",
    "lex_cohesion_test": "lexical cohesion",
    "ellipsis_infl": "ellipsis, inflection",
    "ellipsis_vp": "ellipsis, verb phrase",
}  # titles of the sets of Voita et al. by file name


def consistency(name: str) -> str:
    """Return the name of the measure of a detokenised consistency set."""
    return f"consistency.voita-consistency/{name}{SUFFIX}"


TITLES = {
    "contrapro.contrapro-ctx1-part": "ContraPro",
    "generated.contrapro-ctx1-part": "ContraPro, as written",
    **{consistency(name): title for name, title in CONSISTENCY.items()},
    "own.s-bleu": "s-BLEU",
    "own.d-bleu": "d-BLEU",
    "own.chrf": "chrF",
    "ted.s-bleu": "TED, s-BLEU",
    "ted.d-bleu": "TED, d-BLEU",
    "pdc.s-bleu": "PDC, s-BLEU",
    "pdc.d-bleu": "PDC, d-BLEU",
}
SUITES = ("contrapro.contrapro-ctx1-part", *map(consistency, CONSISTENCY))
PICTURED = ("own.s-bleu", "own.d-bleu", "real.mix-pronoun", *SUITES)


@dataclass(frozen=True, slots=True)
class Ordering:
    """A claim of a paper: one system is better than another under a measure."""

    better: str
    worse: str
    measure: str
    source: str


ORDERINGS = (  # TED and ContraPro: English to German; consistency sets: English to Russian
    Ordering("s4to4-shift-cd", "s4to4", "contrapro.contrapro-ctx1-part", "Lupo et al. 2022, table 2"),
    Ordering("s4to4-cd", "s4to4", "contrapro.contrapro-ctx1-part", "Lupo et al. 2022, table 2"),
    Ordering("s4to4-shift-cd", "sentence", "contrapro.contrapro-ctx1-part", "Lupo et al. 2022, table 2"),
    *(
        Ordering("s4to4-shift-cd", worse, consistency(suite), "Lupo et al. 2022, table 1")
        for suite in ("lex_cohesion_test", "ellipsis_infl", "ellipsis_vp")
        for worse in ("s4to4", "sentence")
    ),
    *(
        Ordering(better, "sentence", consistency("deixis_test"), "Lupo et al. 2022, table 1")
        for better in ("s4to4", "s4to4-shift-cd")
    ),
    Ordering("docflat-c", "sentence", "own.s-bleu", "Wu et al. 2023, table 2"),
    Ordering("docflat-c", "s4to4", "own.s-bleu", "Wu et al. 2023, table 2"),
    Ordering("g-transformer", "s4to4", "own.s-bleu", "Wu et al. 2023, table 2"),
    Ordering("mcn", "sentence", "own.s-bleu", "Zheng et al. 2020, table 1"),
    Ordering("g-transformer", "sentence", "own.s-bleu", "Li et al. 2022, table II"),
    Ordering("p-transformer", "sentence", "own.s-bleu", "Li et al. 2022, table II"),
    Ordering("p-transformer", "g-transformer", "own.s-bleu", "Li et al. 2022, table II"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """HOLDS, FAILS or INCONCLUSIVE, and the reason."""

    word: str
    why: str


def verdict(difference: Difference, p: float, spread: float | None) -> Verdict:
    """Return whether one system is better than another.

    The claim holds, or its opposite does, if p is below 0.05 over documents and seeds and the difference
    exceeds the spread. Two single runs cannot be compared. `difference`: the first system minus the second;
    `p` is corrected for all orderings; `spread`: the larger standard deviation over seeds, or None.
    """
    size = f"{difference.difference:+.2f}, p {p:.3g}"
    if spread is None or difference.over_seeds is None:
        return Verdict(INCONCLUSIVE, f"{size}: two single runs")
    if abs(difference.difference) <= spread:
        return Verdict(INCONCLUSIVE, f"{size}: within the spread of seeds ({spread:.2f})")
    if p >= SIGNIFICANT:
        return Verdict(INCONCLUSIVE, f"{size}: not significant")
    return Verdict(HOLDS if difference.difference > 0 else FAILS, size)


def spread_of(*systems: Spread) -> float | None:
    """Return the largest standard deviation over seeds; None if all systems have a single seed."""
    return max((each.deviation for each in systems if each.deviation is not None), default=None)


def teacher_is_good(found: Comparison) -> Verdict:
    """Return whether the sentence model from which all start is good enough for claims about documents."""
    start = next((name for name in STARTS if name in found.results["rows"]), STARTS[-1])
    bleu = found.figure(start, "own.s-bleu")
    if bleu is None:
        return Verdict(INCONCLUSIVE, "the sentence model that all start from is not measured")
    word = HOLDS if bleu.mean >= LEAST_BLEU else FAILS
    return Verdict(word, f"{bleu.mean:.2f} s-BLEU on held-out documents ({LEAST_BLEU:.0f} are required)")


def orderings(found: Comparison) -> list[tuple[Ordering, Verdict]]:
    """Return the orderings whose systems are both measured, with verdicts corrected for their number."""
    tested = []
    for each in ORDERINGS:
        difference = found.differences(each.measure, each.worse, [each.better]).get(each.better)
        if difference is not None:
            values = found.values(each.measure)
            tested.append((each, difference, spread_of(values[each.better], values[each.worse])))
    good = teacher_is_good(found)
    p_values = holm([difference.p for _, difference, _ in tested])
    return [
        (
            each,
            _by_context(found, each, verdict(difference, p, spread))
            if good.word == HOLDS
            else Verdict(INCONCLUSIVE, good.why),
        )
        for (each, difference, spread), p in zip(tested, p_values, strict=True)
    ]


def _by_context(found: Comparison, ordering: Ordering, by_tests: Verdict) -> Verdict:
    """Return the verdict; for choices, an ordering holds only if the better system uses context for them.

    Without context, the forms that a system prefers may make it right more often.
    """
    of_choices = ordering.measure in found.decided
    if by_tests.word != HOLDS or not of_choices or found.used[ordering.better].get(ordering.measure):
        return by_tests
    return Verdict(INCONCLUSIVE, f"{by_tests.why}, but {ordering.better} is not shown to use context")


# ---------------------------------------------------------------------------------------------- the page


def render(found: Sequence[Comparison]) -> str:
    """Return the page in Markdown."""
    parts = ["# What document context is worth on real text", RULES.strip()]
    for each in found:
        parts += list(_section(each))
    return "\n\n".join(parts) + "\n"


RULES = """
For researchers who want to know what document context gives on real text at small size.
`python -m benchmarks.study.page` writes this page from the results of `benchmarks/experiments/*study*.yaml`.
Values are means over seeds, with the smallest and largest value in brackets if they differ.

* **holds**, **does not hold**: p below 0.05 over documents and over seeds, corrected (Holm) for all orderings
  below, and the difference larger than the standard deviation of seeds. For choices, the better system must
  also use context for them. **inconclusive**: anything else, and always between two single runs, because
  other seeds may differ.
* **bold**: differs from the sentence system that was trained as long, by the same rule, corrected for the
  column.
* *uses context*: all five [conditions](context-use.md#is-context-used) hold for every seed.
* Documents are compared only if the sentence model has at least 15 s-BLEU on held-out documents.
* Choices are explained in [real-choices.md](real-choices.md). References have 100 everywhere.
"""


def _section(found: Comparison) -> Iterator[str]:
    yield f"## {title_of(found)}"
    yield about_of(found)
    good = teacher_is_good(found)
    yield "### In short"
    yield "\n".join(f"* {each}" for each in _summary(found, good))
    yield "### Translation"
    scores = [name for name in TITLES if name in found.counts]
    yield _table(found, {_title(name): name for name in scores}, good)
    yield "### Choices, right in per cent"
    yield from _choices(found, [name for name in found.decided if not name.startswith("written.")], good)
    yield from _use(found)
    if written := [name for name in found.decided if name.startswith("written.")]:
        yield "### The same choices, in translations by the systems"
        yield from _choices(found, written, good)
    yield from _context(found)
    yield from _cost(found)
    yield "### Orderings of the papers"
    yield _markdown(
        [
            ["ordering", "measure", "source", "here", "why"],
            *(
                [f"{o.better} > {o.worse}", _title(o.measure), o.source, f"**{v.word}**", v.why]
                for o, v in orderings(found)
            ),
        ]
    )
    yield f"![Differences from the sentence system]({picture_of(found)})"


def title_of(found: Comparison) -> str:
    """Return the title of the page of the experiment, or else the name of its folder."""
    return _head(found)[0] or found.folder.name


def about_of(found: Comparison) -> str:
    """Return the introduction of the page of the experiment, and the rows that are not measured yet."""
    measured = found.systems("own-own.source.jsonl")
    planned = re.findall(r"^\* \*\*(.+?)\*\*: ", _tables(found).partition("\n## Rows")[2], re.MULTILINE)
    missing = [name for name in planned if name not in measured]
    unmeasured = f"**Not measured yet**: {', '.join(missing)}." if missing else ""
    return "\n\n".join(filter(None, (_head(found)[1], unmeasured)))


def _head(found: Comparison) -> tuple[str, str]:
    title, _, about = _tables(found).partition("\n## ")[0].partition("\n")
    return title.removeprefix("# "), about.strip()


def _tables(found: Comparison) -> str:
    page = found.folder / "tables.md"
    return page.read_text(encoding="utf-8") if page.is_file() else ""


def _number(value: Spread, digits: int = 2) -> str:
    mean = f"{value.mean:.{digits}f}"
    low, high = f"{min(value.values):.{digits}f}", f"{max(value.values):.{digits}f}"
    return mean if low == high else f"{mean} ({low}-{high})"


def _table(found: Comparison, columns: dict[str, str], good: Verdict) -> str:
    """Return a table with a row per system; values that differ from the baseline are bold."""
    values = {name: found.values(name) for name in columns.values()}
    different = {name: _different(found, name, good) for name in columns.values()}
    systems = [s for s in found.results["rows"] if any(s in each for each in values.values())]
    numbers = {name: found.examples(name) for name in columns.values()}
    # The number of choices is in the header if all systems share it, else in each cell.
    alike = {
        name: next(iter(each)) for name, of in numbers.items() if len(each := set().union(*of.values())) == 1
    }
    rows = [
        [
            "",
            *(f"{title} (of {alike[name]:,})" if name in alike else title for title, name in columns.items()),
        ]
    ]
    for system in systems:
        cells = []
        for name in columns.values():
            cell = _number(values[name][system]) if system in values[name] else ""
            cell = f"**{cell}**" if system in different[name] else cell
            of = sorted(numbers[name].get(system, ())) if name not in alike else []
            cells.append(f"{cell} of {'-'.join(dict.fromkeys((str(of[0]), str(of[-1]))))}" if of else cell)
        rows.append([system, *cells])
    return _markdown(rows)


def _title(name: str) -> str:
    return TITLES.get(name, name.partition(".")[2])


def _choices(found: Comparison, names: Sequence[str], good: Verdict) -> Iterator[str]:
    """Yield a table of suites, and a line that names suites with too few choices."""
    most = {name: max((max(of) for of in found.examples(name).values()), default=0) for name in names}
    yield _table(found, {_title(name): name for name in names if most[name] >= LEAST_CHOICES}, good)
    few = [f"{_title(name)} ({count})" for name, count in most.items() if count < LEAST_CHOICES]
    if few:
        yield f"Omitted, because there are fewer than {LEAST_CHOICES} such choices: {', '.join(few)}."


def _different(found: Comparison, name: str, good: Verdict) -> set[str]:
    """Return the systems that differ from the baseline by the rule of `verdict`."""
    if good.word != HOLDS:
        return set()
    values = found.values(name)
    others = [system for system in values if system not in (BASELINE, *STARTS)]
    return {
        system
        for system, each in found.differences(name, BASELINE, others).items()
        if verdict(each, each.p_corrected, spread_of(values[BASELINE], values[system])).word != INCONCLUSIVE
    }


def _use(found: Comparison) -> Iterator[str]:
    used = {s: suites for s, suites in found.used.items() if suites}
    if not used:
        return
    suites = list(dict.fromkeys(suite for each in used.values() for suite in each))
    if not any(any(each.values()) for each in used.values()):
        few = [_title(suite) for suite in suites if all(each.get(suite) is None for each in used.values())]
        if few:
            yield f"In too few documents to test whether context is used: {listed(few)}."
        return
    words = {True: "uses context", False: "not shown", None: "too few documents"}
    yield "Whether context is used, against controls without context and with foreign context:"
    yield _markdown(
        [
            ["", *map(_title, suites)],
            *(
                [s, *(words[each[suite]] if suite in each else "" for suite in suites)]
                for s, each in used.items()
            ),
        ]
    )


def _context(found: Comparison) -> Iterator[str]:
    adds = found.context()
    if not adds:
        return
    yield "### What context adds to the reference (CXMI, nats per token)"
    kinds = list(next(iter(adds.values())).per_token)
    rows = [["", *kinds, "p, true against random"]]
    for system, each in adds.items():
        rows.append([system, *(f"{each.per_token[kind]:+.4f}" for kind in kinds), f"{each.p:.3g}"])
    yield _markdown(rows)


def _cost(found: Comparison) -> Iterator[str]:
    columns = {
        "updates": ("training.updates", 0),
        "loss at the start, single sentences": ("training.start.sentences", 3),
        "longer sequences": ("training.start.rows", 3),
        "at the end": ("training.best", 3),
    }
    rows = [["", *columns, "decrease in the second half"]]
    for system in found.results["rows"]:
        cells = [(found.figure(system, name), digits) for name, digits in columns.values()]
        if any(value is not None for value, _ in cells):
            fell = _fell(found, system)
            last = "" if fell is None else f"{fell:.3f}"
            rows.append([system, *("" if v is None else _number(v, digits) for v, digits in cells), last])
    yield "### Losses"
    yield (
        "Losses in nats per token. At the start: the model from which training starts, before the first "
        "update, on a part of the development set. At the end: the best loss of current sentences on the "
        "complete set."
    )
    yield _markdown(rows)


def _fell(found: Comparison, system: str) -> float | None:
    """Return by how much the best development loss fell from the first to the second half of the updates.

    Mean over seeds; None if a half has no losses. If it fell by much, the system was still learning.
    """
    fallen = []
    for curve in found.curves(system, "training.nll_current.at."):
        half = max(curve) / 2
        first, second = ([v for u, v in curve.items() if (u <= half) is early] for early in (True, False))
        if first and second:
            fallen.append(min(first) - min(second))
    return Spread(tuple(fallen)).mean if fallen else None


def _summary(found: Comparison, good: Verdict) -> Iterator[str]:
    """Yield sentences that state the results."""
    yield f"The sentence model: {good.why}."
    if good.word != HOLDS:
        yield "**No claim about documents is made here**: the sentence model is not good enough."
        return
    titles = {"own.s-bleu": "s-BLEU on held-out documents", **{name: _title(name) for name in SUITES}}
    differences: dict[str, list[str]] = {}  # measures by what is said of them
    unexplained = []
    for name, what in titles.items():
        values, different = found.values(name), _different(found, name, good)
        if BASELINE not in values:
            continue
        higher = sorted(s for s in different if values[s].mean > values[BASELINE].mean)
        better = [s for s in higher if name not in found.decided or found.used[s].get(name)]
        worse = sorted(different.difference(higher))
        said = f"{_named(better, 'better')} and {_named(worse, 'worse')}"
        differences.setdefault(said, []).append(what)
        unexplained += [(s, what) for s in higher if s not in better]
    for said, whats in differences.items():
        yield f"In {listed(whats)}, {said} than the sentence system that was trained as long."
    for system, what in unexplained:
        yield (
            f"In {what}, {system} is right more often, but is not shown to use context: the forms that a "
            "system prefers matter, too."
        )
    adds = found.context()
    if adds:
        p_values = dict(zip(adds, holm([each.p for each in adds.values()]), strict=True))
        gains = [s for s, p in p_values.items() if p < SIGNIFICANT and _true_beats_foreign(adds[s])]
        helped = [s for s in gains if adds[s].per_token["true"] > 0]
        yield (
            "True context makes references more probable than foreign context does for "
            f"{listed(gains) or 'no system'}, and more probable than no context does for "
            f"{listed(helped) or 'none'} of these (p < {SIGNIFICANT}, corrected for the number of systems)."
        )
    used = {s: [suite for suite, each in suites.items() if each] for s, suites in found.used.items()}
    users = [f"{s} ({listed(list(map(_title, suites)))})" for s, suites in used.items() if suites]
    yield f"Choices show use of context by {listed(users) or 'no system'}."
    falls = {
        s: fell for s in found.results["rows"] if s not in STARTS and (fell := _fell(found, s)) is not None
    }
    if BASELINE in falls and len(falls) > 1:
        own = falls.pop(BASELINE)
        most = max(falls, key=falls.__getitem__)
        yield (
            "In the second half of the updates, the development loss of the sentence system fell by "
            f"{own:.3f} nats per token, that of others by {min(falls.values()):.3f} to {falls[most]:.3f} "
            f"({most}). Systems whose loss fell further than that of the sentence system were still learning."
        )
    verdicts = [verdict.word for _, verdict in orderings(found)]
    counts = {word: verdicts.count(word) for word in (HOLDS, FAILS, INCONCLUSIVE)}
    yield (
        f"Of {len(verdicts)} orderings in the papers, {counts[HOLDS]} hold, {counts[FAILS]} do not hold and "
        f"{counts[INCONCLUSIVE]} are inconclusive."
    )


def _true_beats_foreign(adds: ContextAdds) -> bool:
    return adds.per_token["true"] > adds.per_token["random"]


def _named(systems: Sequence[str], how: str) -> str:
    if not systems:
        return f"no system is shown to be {how}"
    return f"{listed(systems)} {'is' if len(systems) == 1 else 'are'} {how}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    if len(rows) == 1 or len(rows[0]) == 1:
        return "Nothing measured yet."
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def picture_of(found: Comparison) -> str:
    """Return the path of the picture, relative to the page."""
    return f"figures/study-{re.sub(r'[^a-z0-9]+', '-', found.folder.name.lower()).strip('-')}.png"


def draw(found: Comparison, path: Path) -> None:
    """Draw differences from the sentence system with 95 % intervals, one panel per measure."""
    panels = {}
    for name in PICTURED:
        others = [s for s in found.values(name) if s not in (BASELINE, *STARTS)]
        if each := found.differences(name, BASELINE, others):
            panels[name] = each
    figure = Figure(figsize=(4 * max(1, len(panels)), 4), layout="constrained")
    axes = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
    for axis, (name, differences) in zip(axes, panels.items(), strict=False):
        for place, (_, each) in enumerate(differences.items()):
            low, high = each.interval_95
            axis.plot([low, high], [place, place], color="tab:blue")
            axis.plot([each.difference], [place], "o", color="tab:blue")
        axis.axvline(0, color="grey", linewidth=0.8)
        axis.set_yticks(range(len(differences)), list(differences))
        axis.set_xlabel(f"{_title(name)}\nless {BASELINE}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=160)


def main(arguments: list[str] | None = None) -> None:
    """Write the page and its pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    found = [Comparison(folder) for folder in given.folders]
    for each in found:
        draw(each, given.out.parent / picture_of(each))
    with replacing(given.out) as temporary:
        temporary.write_text(render(found), encoding="utf-8")


if __name__ == "__main__":
    main()
