"""Tests of context use in words and as a table."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from cotext.evaluation.statistics.flips import SIGNIFICANT
from cotext.evaluation.studies.contrastive.evidence import CONDITIONS, Evidence
from cotext.runtime.tables import listed, render_rows

LEGEND = (
    "*: accuracy and balanced accuracy above chance, the others below that in the true context;\n"
    f"p < {SIGNIFICANT:g} over "
    "documents, corrected for {groups}. Context is used where all five\n"
    "have a star. CXMI: log-probability that context adds to the correct candidates, nats per token;\n"
    "none: without context; foreign: with context from other documents"
)


def render_evidence(found: Sequence[Evidence]) -> str:
    """A line for every group, stars for the conditions that hold; without the legend."""
    rows = [
        (
            "context use",
            "distance",
            "docs",
            "accuracy",
            "balanced",
            "chance",
            "none",
            "foreign",
            "CXMI",
            "foreign",
        )
    ]
    for each in found:
        chance, balanced, none, foreign, cxmi = (each.conditions[name] for name in CONDITIONS)
        star = {name: "*" if condition.holds else " " for name, condition in each.conditions.items()}
        rows.append(
            (
                each.group.title,
                each.group.distance,
                f"{each.documents:,}{' (too few)' if each.too_few else ''}",
                f"{chance.own:.1f}{star['chance']}",
                f"{balanced.own:.1f}{star['balanced']}",
                f"{chance.other:.1f}",
                f"{none.other:.1f}{star['none']}",
                f"{foreign.other:.1f}{star['foreign']}",
                f"{cxmi.own:+.3f}",
                f"{cxmi.other:+.3f}{star['cxmi']}",
            )
        )
    return render_rows(rows, left=1)


def legend(found: Sequence[Evidence]) -> str:
    """The legend of the table."""
    count = max(each.groups for each in found)
    return LEGEND.format(groups=f"{count} group{'' if count == 1 else 's'}")


def conclusion(found: Sequence[Evidence]) -> str:
    """Whether a system is shown to use context, where, and if not, what is missing; a sentence or two."""
    used = [each for each in found if each.used]
    if used:
        rest = groups_in_words(each for each in found if not each.used)
        others = f" Not significant in {listed(rest)}." if rest else ""
        return f"Context is used in {listed(groups_in_words(used))}.{others}"
    if not found:
        return (
            "Whether context is used cannot be tested: no clue lies within the context window of the system."
        )
    if all(each.too_few for each in found):
        return f"Whether context is used cannot be tested: {too_few(found)}."
    return f"Context use is not significant: {shortfall(found)}."


def too_few(found: Sequence[Evidence]) -> str:
    """Why nothing can be significant, with the largest number of documents."""
    most = max(each.documents for each in found)
    corrected = f" in {found[0].groups} tests" if found[0].groups > 1 else ""
    return f"too few documents ({most}) for any significant difference{corrected}"


def shortfall(found: Sequence[Evidence]) -> str:
    """The failing conditions of the group that comes closest, of those with enough documents."""
    able = [each for each in found if not each.too_few]
    best = min(able, key=lambda each: (len(each.failing), max(c.p for c in each.conditions.values())))
    missing = listed([CONDITIONS[name] for name in best.failing])
    where = group_in_words(best.group.title, [best.group.distance])
    return f"{'at best, ' if len(found) > 1 else ''}in {where}: {missing}"


def groups_in_words(found: Iterable[Evidence]) -> list[str]:
    """Phenomena with their distances."""
    by_title = groupby(found, key=lambda each: each.group.title)
    return [group_in_words(title, [each.group.distance for each in members]) for title, members in by_title]


def group_in_words(title: str, distances: Sequence[str]) -> str:
    """As in "pronoun (1, 2, 3 back)"."""
    return f"{title} ({away(distances)})"


def away(distances: Sequence[str]) -> str:
    """Distances of clues, as in "1, 2, 3 back"."""
    names = {"ahead": "in the next sentence", "unknown": "distance unknown"}
    back = [distance for distance in distances if distance not in names]
    words = [f"{', '.join(back)} back"] if back else []
    return ", ".join([*words, *(names[d] for d in distances if d in names)])
