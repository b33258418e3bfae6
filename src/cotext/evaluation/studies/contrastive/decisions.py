"""Contrastive decisions of several systems: accuracies, and tests of their differences.

Decisions are read from files of `cotext contrastive --out` (docs/contrastive-format.md). Several suites can
be pooled. Examples whose clue is in the sentence itself (distance 0) are then left out, as in the score Disc.
of Lupo et al. (2022), appendix B.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of
from cotext.data.formats.streams import read_whole
from cotext.evaluation.metrics.contrastive import ContrastiveReport, Decision, Readings, summarise
from cotext.evaluation.statistics.significance import McNemar, are_too_few, compared_pairs, holm, mcnemar
from cotext.runtime import CotextError, __version__, parse_json, shown
from cotext.runtime.rendering import render_p, render_rows


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions of one system on one suite: right or not, by example id.

    `documents`: the document number of each example; empty if every example is a separate document.
    `readings`: decisions in each kind of context. `digest`: digest of the examples; empty if unknown.
    """

    suite: str
    signature: str
    right: dict[str, bool]
    documents: dict[str, int] = field(default_factory=dict)
    readings: Readings | None = None
    digest: str = ""

    @property
    def rules(self) -> dict[str, str]:
        """Return the rules that must agree for a comparison, as far as they are in the signature."""
        entries = dict(part.split(":", 1) for part in self.signature.split("|") if ":" in part)
        return {key: entries[key] for key in ("tie", "score", "scored") if key in entries}


@dataclass(frozen=True, slots=True)
class SuiteDifference:
    """Accuracies on one suite, in per cent, and tests of their differences.

    `tests`: for each (baseline, system), McNemar's test and its mid-p value after Holm's correction.
    """

    suite: str
    examples: int
    documents: int
    accuracies: dict[str, float]
    signatures: dict[str, str]
    tests: dict[tuple[str, str], tuple[McNemar, float]]

    @property
    def too_few(self) -> bool:
        return are_too_few(self.documents, len(self.tests), mid_p=True)

    def as_dict(self) -> dict[str, Any]:
        return {
            "examples": self.examples,
            "documents": self.documents,
            "signature": f"test:mcnemar|unit:document|n:{self.documents}|sides:2"
            f"|correction:holm-{len(self.tests)}-mid-p|interval:bootstrap-percentile"
            f"|version:cotext-{__version__}",
            "systems": {
                name: {"accuracy_percent": value, "signature": self.signatures[name]}
                for name, value in self.accuracies.items()
            },
            "comparisons": [
                {"baseline": one, "system": other, **asdict(test), "p_corrected": p}
                for (one, other), (test, p) in self.tests.items()
            ],
        }

    def render(self) -> str:
        rows = [(name, f"{value:.2f}") for name, value in self.accuracies.items()]
        share = "" if self.documents == self.examples else f" of {self.documents:,} documents"
        table = [("", "difference", "95 % interval", "lost", "won", "p mid", "corrected")]
        for (one, other), (test, p) in self.tests.items():
            interval = "[{:+.2f}, {:+.2f}]".format(*test.interval_95)
            counts = f"{test.only_baseline}", f"{test.only_system}"
            p_values = render_p(test.p_mid), render_p(p)
            table.append((f"{other} - {one}", f"{test.difference:+.2f}", interval, *counts, *p_values))
        few = f"\n{self.documents} documents are too few for any significant difference"
        return (
            f"{self.suite}, {self.examples:,} examples{share}\n{render_rows(rows, left=1)}\n"
            f"{render_rows(table, left=1)}{few if self.too_few else ''}\n{self.as_dict()['signature']}\n"
        )


def read_decisions(path: Path) -> dict[str, Decisions]:
    """Read the decisions of a system, by suite; raise CotextError if the file has none."""
    content = parse_json(read_whole(path), str(path))
    if not isinstance(content, dict) or not content:
        raise CotextError(f"{path}: contains no suites; give a file written by `cotext contrastive --out`")
    return {suite: _parse(path, suite, entry) for suite, entry in content.items()}


def _parse(path: Path, suite: str, entry: Any) -> Decisions:
    where, entry = f"{path}: suite {shown(suite)}", entry if isinstance(entry, dict) else {}
    decisions = entry.get("decisions")
    if decisions is None and "generative" in entry:
        raise CotextError(
            f"{where} was evaluated by generation, because the API has no log-probabilities; translations "
            "cannot be compared with decisions between candidates"
        )
    if not isinstance(decisions, dict) or not decisions:
        raise CotextError(f"{where} has no 'decisions'; write the file again with `cotext contrastive --out`")
    for example, outcome in decisions.items():
        if outcome not in ("right", "wrong"):
            raise CotextError(f"{where}, example {shown(example)}: neither 'right' nor 'wrong'")
    signature = entry.get("signature", "")
    if not isinstance(signature, str):
        raise CotextError(f"{where}: its signature is not a string")
    documents = entry.get("documents", {})
    numbered = isinstance(documents, dict) and all(type(number) is int for number in documents.values())
    if not numbered or (documents and documents.keys() != decisions.keys()):
        raise CotextError(f"{where}: 'documents' needs a number for each example; write the file again")
    right = {example: value == "right" for example, value in decisions.items()}
    readings = _parse_readings(where, entry, right)
    return Decisions(suite, signature, right, documents, readings, str(entry.get("digest", "")))


def _parse_readings(where: str, entry: dict[str, Any], right: dict[str, bool]) -> Readings | None:
    if "contexts" not in entry:
        return None
    try:
        readings = Readings.from_dict(entry["contexts"])
        complete = all(reading.right.keys() == right.keys() == reading.nats.keys() == readings.tokens.keys()
                       for reading in readings.by_context.values())  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError):
        complete = False
    if not complete:
        raise CotextError(f"{where}: 'contexts' are damaged; repeat `cotext contrastive --controls --out`")
    return readings


def compare_decisions(
    systems: Mapping[str, Mapping[str, Decisions]], baseline: str | None = None
) -> list[SuiteDifference]:
    """Compare every system with `baseline`, or all pairs if it is None, on each suite that all decided.

    Pooled suites are compared only if all systems pooled the same examples. Raises CotextError if there is no
    suite to compare, or if systems decided different examples or used different rules.
    """
    pairs = compared_pairs(list(systems), baseline)
    first, *others = systems.values()
    shared = [suite for suite in first if all(suite in other for other in others)]
    if ALL_SUITES in shared and len({frozenset(found[ALL_SUITES].right) for found in systems.values()}) > 1:
        shared.remove(ALL_SUITES)
    if not shared:
        raise CotextError(
            f"no suite was decided by all systems; the first system decided {', '.join(first)}; run `cotext "
            "contrastive --out` with the same suites for each system"
        )
    return [
        _compare({name: decisions[suite] for name, decisions in systems.items()}, pairs) for suite in shared
    ]


def require_comparable(systems: Mapping[str, Decisions]) -> None:
    """Raise CotextError if systems decided different examples of a suite, or used different rules."""
    (name, first), *others = systems.items()
    for other, decisions in others:
        if decisions.right.keys() != first.right.keys():
            raise CotextError(
                f"suite {first.suite!r}: {name} and {other} did not decide the same examples "
                f"({len(first.right)} and {len(decisions.right)}); use one version of the suite"
            )
        if decisions.digest != first.digest and decisions.digest and first.digest:
            raise CotextError(
                f"suite {first.suite!r}: the examples of {name} and {other} have the same ids but different "
                "texts; use one version of the suite"
            )
        for key in first.rules.keys() & decisions.rules.keys():
            if first.rules[key] != decisions.rules[key]:
                raise CotextError(
                    f"suite {first.suite!r}: {name} uses {key}:{first.rules[key]}, {other} "
                    f"{key}:{decisions.rules[key]}; use the same rule for both"
                )


def _compare(systems: Mapping[str, Decisions], pairs: Sequence[tuple[str, str]]) -> SuiteDifference:
    require_comparable(systems)
    first = next(iter(systems.values()))
    right = {system: [decisions.right[key] for key in first.right] for system, decisions in systems.items()}
    # If systems number documents differently, the numbering with the fewest documents is conservative.
    numbered = (decisions.documents for decisions in systems.values() if decisions.documents)
    numbers = min(numbered, key=lambda numbers: len(set(numbers.values())), default={})
    documents = [numbers.get(key, index) for index, key in enumerate(first.right)]
    tests = [mcnemar(right[one], right[other], documents) for one, other in pairs]
    corrected = zip(tests, holm([test.p_mid for test in tests]), strict=True)
    return SuiteDifference(
        suite=first.suite,
        examples=len(first.right),
        documents=len(set(documents)),
        accuracies={system: 100.0 * sum(decisions) / len(decisions) for system, decisions in right.items()},
        signatures={system: decisions.signature for system, decisions in systems.items()},
        tests=dict(zip(pairs, corrected, strict=True)),
    )


ALL_SUITES: Final = "all suites"  # name of the pooled suites in tables


def pooled_aggregates(right: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return accuracies in per cent: `disc` is the mean over examples, `disc_avg` the mean over suites."""
    shares = [100.0 * sum(decisions) / len(decisions) for decisions in right.values()]
    disc = 100.0 * sum(map(sum, right.values())) / sum(map(len, right.values()))
    return {"disc": disc, "disc_avg": sum(shares) / len(shares)}


def pool(judged: Mapping[str, tuple[ContrastiveSuite, ContrastiveReport]]) -> ContrastiveReport | None:
    """Combine the reports of a system into one, with a group for each suite; None without two suites."""
    pooled: list[tuple[ContrastiveExample, Decision, int]] = []
    right: dict[str, list[bool]] = {}
    first = 0  # number of the first document of a suite: no two suites share a document
    for name, (suite, report) in judged.items():
        numbers = documents_of(suite.examples)
        for example, number, decision in zip(suite.examples, numbers, report.decisions, strict=True):
            if example.distance != 0:
                id = f"{name}: {example.id}"
                renamed = replace(example, id=id, phenomenon=name, distance=None, tags={})
                pooled.append((renamed, decision, first + number))
                right.setdefault(name, []).append(decision.right)
        first += max(numbers) + 1
    if len(right) < 2:
        return None
    signature = judged[next(iter(right))][1].signature.split("|")
    rest = [part for part in signature if not part.startswith(("suite:", "n:"))]
    signature = [f"suite:{'+'.join(right)}", f"n:{len(pooled)}", *rest]
    examples, decisions, documents = zip(*pooled, strict=True)
    pooled_report = summarise("|".join(signature), examples, decisions, documents)
    return replace(pooled_report, by_distance={}, aggregates=pooled_aggregates(right))
