"""Contrastive decisions of several systems: accuracies, and tests of their differences.

Decisions are read from files as `cotext contrastive --out` writes them; another tool's are welcome in the
same form (see docs/contrastive-format.md).

Contrastive accuracy over several suites together: Disc. of Lupo et al. (2022), appendix B.1.

Examples whose clue is in the sentence itself (distance 0) take no part, as in `disc` of a single suite.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of
from cotext.data.formats.streams import read_whole
from cotext.evaluation.metrics.contrastive import Accuracy, ContrastiveReport, Decision, Readings
from cotext.evaluation.statistics.significance import (
    SIGNIFICANT,
    McNemar,
    compared_pairs,
    holm,
    least_p,
    mcnemar_by_document,
)
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.files import replacing
from cotext.runtime.reading import parse_json
from cotext.runtime.tables import render_p, render_rows
from cotext.runtime.version import __version__


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of one system on one suite: right or not, by the id of the example.

    `documents` numbers the documents of the examples, where some share one; `readings` has what was decided
    without context and in foreign context, where that was asked for.
    """

    suite: str
    signature: str
    right: dict[str, bool]
    documents: dict[str, int] = field(default_factory=dict)
    readings: Readings | None = None

    @property
    def rules(self) -> dict[str, str]:
        """The choices that make decisions comparable, as far as the signature tells them."""
        entries = dict(part.split(":", 1) for part in self.signature.split("|") if ":" in part)
        return {key: entries[key] for key in ("tie", "score", "scored") if key in entries}


@dataclass(frozen=True, slots=True)
class DecisionTest:
    """One system against another on one suite; `p_corrected` is `p_mid` after Holm, over all of the suite."""

    baseline: str
    system: str
    test: McNemar
    p_corrected: float


@dataclass(frozen=True, slots=True)
class SuiteDifference:
    """Accuracies of all systems on one suite, in per cent, and tests of their differences."""

    suite: str
    examples: int
    documents: int
    accuracies: dict[str, float]
    signatures: dict[str, str]
    tests: tuple[DecisionTest, ...]

    @property
    def too_few(self) -> bool:
        """Whether so few documents could show no difference, however large."""
        return least_p(self.documents) * len(self.tests) >= SIGNIFICANT

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        return {
            "examples": self.examples,
            "documents": self.documents,
            "signature": f"test:mcnemar|unit:document|n:{self.documents}|sides:2"
            f"|correction:holm-{len(self.tests)}-mid-p|interval:bonett-price|version:cotext-{__version__}",
            "systems": {
                name: {"accuracy_percent": value, "signature": self.signatures[name]}
                for name, value in self.accuracies.items()
            },
            "comparisons": [
                {
                    "baseline": each.baseline,
                    "system": each.system,
                    **each.test.as_dict(),
                    "p_corrected": each.p_corrected,
                }
                for each in self.tests
            ],
        }

    def render(self) -> str:
        """Plain text: accuracies, and a table of tests."""
        rows = [(name, f"{value:.2f}") for name, value in self.accuracies.items()]
        share = "" if self.documents == self.examples else f" of {self.documents:,} documents"
        table = [("", "difference", "95 % interval", "lost", "won", "p exact", "p mid", "corrected")]
        for each in self.tests:
            low, high = each.test.interval_95
            table.append(
                (
                    f"{each.system} - {each.baseline}",
                    f"{each.test.difference:+.2f}",
                    f"[{low:+.2f}, {high:+.2f}]",
                    f"{each.test.only_baseline}",
                    f"{each.test.only_system}",
                    render_p(each.test.p_exact),
                    render_p(each.test.p_mid),
                    render_p(each.p_corrected),
                )
            )
        few = f"\n{self.documents} documents are too few for any significant difference"
        return (
            f"{self.suite}, {self.examples:,} examples{share}\n{render_rows(rows, left=1)}\n"
            f"{render_rows(table, left=1)}{few if self.too_few else ''}\n{self.as_dict()['signature']}\n"
        )


def keep_decisions(path: Path, suite: str, report: ContrastiveReport) -> Decisions:
    """Write a report as `cotext contrastive --out` does; the decisions as they are read again."""
    with replacing(path) as temporary:
        content = json.dumps({suite: report.as_dict()}, ensure_ascii=False)
        temporary.write_text(content, encoding="utf-8")
    return read_decisions(path)[suite]


def read_decisions(path: Path) -> dict[str, Decisions]:
    """Read the decisions of a system, by suite; CotextError where the file holds none."""
    content = parse_json(read_whole(path), str(path))
    if not isinstance(content, dict) or not content:
        raise CotextError(f"{path}: holds no suites; give a file written by `cotext contrastive --out`")
    return {suite: _parse(path, suite, entry) for suite, entry in content.items()}


def _parse(path: Path, suite: str, entry: Any) -> Decisions:
    decisions = entry.get("decisions") if isinstance(entry, dict) else None
    if decisions is None and isinstance(entry, dict) and "generative" in entry:
        raise CotextError(
            f"{path}: suite {shown(suite)} was judged by generation, as no log-probabilities were offered: "
            "what a model writes is no decision between candidates, and is not compared with one"
        )
    if not isinstance(decisions, dict) or not decisions:
        raise CotextError(
            f"{path}: suite {shown(suite)} has no 'decisions'; write the file again with "
            "`cotext contrastive --out`"
        )
    for example, outcome in decisions.items():
        if outcome not in ("right", "wrong"):
            raise CotextError(
                f"{path}: suite {shown(suite)}, example {shown(example)}: neither 'right' nor 'wrong'"
            )
    signature = entry.get("signature", "")
    if not isinstance(signature, str):
        raise CotextError(f"{path}: suite {shown(suite)}: its signature is no text")
    documents = entry.get("documents", {})
    if documents and (not isinstance(documents, dict) or documents.keys() != decisions.keys()):
        raise CotextError(f"{path}: suite {shown(suite)}: 'documents' are not those of the decided examples")
    right = {example: value == "right" for example, value in decisions.items()}
    return Decisions(suite, signature, right, documents, _parse_readings(path, suite, entry, right))


def _parse_readings(path: Path, suite: str, entry: dict[str, Any], right: dict[str, bool]) -> Readings | None:
    if "contexts" not in entry:
        return None
    try:
        readings = Readings.from_dict(entry["contexts"])
        complete = all(each.right.keys() == right.keys() == each.nats.keys() == readings.tokens.keys()
                       for each in readings.by_context.values())  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError):
        complete = False
    if not complete:
        raise CotextError(
            f"{path}: suite {shown(suite)}: 'contexts' are damaged; write the file again with "
            "`cotext contrastive --controls --out`"
        )
    return readings


def compare_decisions(
    systems: Mapping[str, Mapping[str, Decisions]], baseline: str | None = None
) -> list[SuiteDifference]:
    """Compare systems on every suite that all of them decided: with `baseline`, or, if None, all pairs.

    Raises CotextError where there is no such suite, or its examples or the rules of the decision differ.
    """
    pairs = compared_pairs(list(systems), baseline)
    first, *others = systems.values()
    shared = [suite for suite in first if all(suite in other for other in others)]
    if not shared:
        raise CotextError(
            f"no suite is decided by all systems; the first has {', '.join(first)}; decide the same suites "
            "with `cotext contrastive --out`"
        )
    return [_compare({name: each[suite] for name, each in systems.items()}, pairs) for suite in shared]


def _compare(systems: Mapping[str, Decisions], pairs: Sequence[tuple[str, str]]) -> SuiteDifference:
    (name, first), *others = systems.items()
    for other, decisions in others:
        if decisions.right.keys() != first.right.keys():
            raise CotextError(
                f"suite {first.suite!r}: {name} and {other} did not decide the same examples "
                f"({len(first.right)} and {len(decisions.right)}); use one version of the suite"
            )
        for key in first.rules.keys() & decisions.rules.keys():
            if first.rules[key] != decisions.rules[key]:
                raise CotextError(
                    f"suite {first.suite!r}: {name} was judged by {key}:{first.rules[key]}, {other} by "
                    f"{key}:{decisions.rules[key]}; judge both by the same rule"
                )
    right = {system: [each.right[key] for key in first.right] for system, each in systems.items()}
    # Any file that tells of documents tells of the same; of those that share none, each is one of its own.
    known = next((each.documents for each in systems.values() if each.documents), {})
    documents = [known.get(key, index) for index, key in enumerate(first.right)]
    tests = [mcnemar_by_document(right[one], right[other], documents) for one, other in pairs]
    corrected = holm([test.p_mid for test in tests])
    return SuiteDifference(
        suite=first.suite,
        examples=len(first.right),
        documents=len(set(documents)),
        accuracies={system: 100.0 * sum(each) / len(each) for system, each in right.items()},
        signatures={system: each.signature for system, each in systems.items()},
        tests=tuple(
            DecisionTest(one, other, test, p)
            for (one, other), test, p in zip(pairs, tests, corrected, strict=True)
        ),
    )


ALL_SUITES: Final = "all suites"  # how the figures of several suites together are called


def of_other_sentences(examples: Sequence[ContrastiveExample]) -> list[int]:
    """The indices of the examples whose clue is not known to be in the sentence itself."""
    return [index for index, example in enumerate(examples) if example.distance != 0]


def pooled_aggregates(right: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Accuracies in per cent over suites, given the decisions of each, or shares of seeds that are right.

    `disc`: every example counts the same. `disc_avg`: every suite does.
    """
    shares = [100.0 * sum(each) / len(each) for each in right.values()]
    total = sum(map(len, right.values()))
    return {
        "disc": 100.0 * sum(map(sum, right.values())) / total,
        "disc_avg": sum(shares) / len(shares),
    }


def documents_of_suites(suites: Sequence[ContrastiveSuite]) -> list[list[int]]:
    """The number of its document for every example of every suite; no two suites share a document."""
    numbers = [documents_of(suite.examples) for suite in suites]
    counts = [max(each, default=-1) + 1 for each in numbers]
    return [
        [first + number for number in each]
        for first, each in zip(accumulate(counts, initial=0), numbers, strict=False)
    ]


def to_pool(suites: Mapping[str, ContrastiveSuite]) -> dict[str, ContrastiveSuite]:
    """The suites with an example that takes part; none where that is fewer than two."""
    found = {name: suite for name, suite in suites.items() if of_other_sentences(suite.examples)}
    return found if len(found) > 1 else {}


def pool(
    suites: Mapping[str, ContrastiveSuite], reports: Mapping[str, ContrastiveReport]
) -> ContrastiveReport:
    """The reports of one system on the suites of `to_pool` as one; its groups are the suites."""
    parts: dict[str, Accuracy] = {}
    right: dict[str, list[bool]] = {}
    examples: list[str] = []
    documents: list[int] = []
    decisions: list[Decision] = []
    numbers = documents_of_suites(list(suites.values()))
    for (name, suite), of_documents in zip(suites.items(), numbers, strict=True):
        chosen = of_other_sentences(suite.examples)
        decided = [reports[name].decisions[index] for index in chosen]
        right[name] = [each.right for each in decided]
        parts[name] = Accuracy(
            correct=sum(right[name]),
            total=len(chosen),
            ties=sum(each.tied for each in decided),
            chance=sum(1 / len(suite.examples[index].candidates) for index in chosen) / len(chosen),
        )
        examples += [f"{name}: {suite.examples[index].id}" for index in chosen]
        documents += [of_documents[index] for index in chosen]
        decisions += decided
    total = len(examples)
    return ContrastiveReport(
        signature=_signature(reports[next(iter(parts))].signature, list(parts), total),
        overall=Accuracy(
            correct=sum(each.correct for each in parts.values()),
            total=total,
            ties=sum(each.ties for each in parts.values()),
            chance=sum(each.chance * each.total for each in parts.values()) / total,
        ),
        by_phenomenon=parts,
        by_distance={},
        by_tag={},
        aggregates=pooled_aggregates(right),
        undecidable=sum(reports[name].undecidable for name in parts),
        examples=tuple(examples),
        documents=tuple(documents),
        decisions=tuple(decisions),
    )


def _signature(of_one: str, names: Sequence[str], total: int) -> str:
    """That of a suite with the names and the examples of all."""
    rest = [part for part in of_one.split("|") if not part.startswith(("suite:", "n:"))]
    return "|".join([f"suite:{'+'.join(names)}", f"n:{total}", *rest])
