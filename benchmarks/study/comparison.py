"""Compare the systems of an experiment: figures over seeds, and tests over documents and seeds.

The folder of an experiment has translations and references (`own`, `ted`, `pdc`), decisions (`real`,
`contrapro`, `consistency`, `generated`, `written`) and CXMI; tests: `evaluation/statistics/significance.py`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotext.data.formats import read_documents
from cotext.evaluation.metrics.interface import Texts, measure
from cotext.evaluation.statistics.significance import (
    Difference,
    Resampling,
    Spread,
    compare_accuracies,
    corrected,
    flipped_sums,
    paired_test,
)
from cotext.evaluation.statistics.sufficient_statistics import Statistics
from cotext.evaluation.studies.contrastive.decisions import ALL_SUITES, Decisions, read_decisions
from cotext.runtime import CotextError, parse_json, read_text

TRANSLATIONS = dict.fromkeys(("own", "ted", "pdc"), ("s-bleu", "d-bleu", "chrf"))
DECIDED = {
    "real": "real.json",
    "contrapro": "contrapro.json",
    "consistency": "consistency.json",
    "written": "written.decisions.json",
    "generated": "generated.decisions.json",
}
MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ContextAdds:
    """CXMI of a system."""

    per_token: dict[str, float]  # nats per token by context, mean over seeds
    p: float  # of true against foreign context, the largest over seeds


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    return parse_json(read_text(path, max_bytes=MAX_BYTES), str(path))


class Comparison:
    """The results of an experiment, by system and seed; raises CotextError if the folder has none."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "results.json").is_file():
            raise CotextError(f"{folder}: no results.json; give the folder of an experiment")
        self.folder = folder
        self.results: dict[str, Any] = read_json(folder / "results.json")
        self.counts = dict(self._counts())
        self.decided = dict(self._decided())
        self.used = {system: self._used(system) for system in self.results["rows"]}

    def places(self, system: str, name: str) -> list[Path]:
        """Return the folders of the measures of a system, by seed, that have a file of this name."""
        seeds = sorted(self.results["rows"].get(system, {}), key=int)
        places = [self.folder / "measures" / f"{system}-{seed}" for seed in seeds]
        return [place for place in places if (place / name).is_file()]

    def systems(self, name: str) -> list[str]:
        """Return the systems that have a file of this name for some seed."""
        return [system for system in self.results["rows"] if self.places(system, name)]

    def figure(self, system: str, name: str) -> Spread | None:
        """Return a figure of results.json, such as `training.updates`, over seeds; None if there is none."""
        measure, _, figure = name.partition(".")
        entries = self.results["rows"].get(system, {}).values()
        found = [e.get("measures", {}).get(measure, {}).get("figures", {}).get(figure) for e in entries]
        values = tuple(float(value) for value in found if value is not None)
        return Spread(values) if values else None

    def curves(self, system: str, name: str) -> list[dict[int, float]]:
        """Return the figures whose names are `name` and an update, by update, for each seed."""
        measure, _, start = name.partition(".")
        entries = self.results["rows"].get(system, {}).values()
        found = [e.get("measures", {}).get(measure, {}).get("figures", {}) for e in entries]
        curves = [
            {int(key.removeprefix(start)): value for key, value in each.items() if key.startswith(start)}
            for each in found
        ]
        return [curve for curve in curves if curve]

    def values(self, name: str) -> dict[str, Spread]:
        """Return a score (`own.s-bleu`) or an accuracy in per cent (`real.mix-pronoun`) of all systems."""
        if name in self.counts:
            return {
                system: Spread(tuple(each.score for each in seeds))
                for system, seeds in self.counts[name].items()
            }
        return {
            system: Spread(tuple(100 * sum(d.right.values()) / len(d.right) for d in seeds))
            for system, seeds in self.decided.get(name, {}).items()
        }

    def examples(self, name: str) -> dict[str, set[int]]:
        """Return the numbers of decisions behind an accuracy, by system; empty for scores."""
        return {
            system: {len(each.right) for each in seeds}
            for system, seeds in self.decided.get(name, {}).items()
        }

    def differences(self, name: str, first: str, others: Sequence[str]) -> dict[str, Difference]:
        """Return the differences of systems from the first, corrected for their number, if testable."""
        there = [system for system in others if system in self.values(name)]
        if first not in self.values(name) or not there:
            return {}
        if name in self.counts:
            counts = {system: self.counts[name][system] for system in (first, *there)}
            if len(counts[first][0].by("document")[0]) < 2:
                return {}
            tests = paired_test(counts, first, Resampling()).differences
            return {system: tests[first, system] for system in there}
        return _decisions_apart(self.decided[name], first, there)

    def _counts(self) -> Iterator[tuple[str, dict[str, list[Statistics]]]]:
        for test, protocols in TRANSLATIONS.items():
            written = f"{test}-{test}.source.jsonl"
            found: dict[str, dict[str, list[Statistics]]] = defaultdict(lambda: defaultdict(list))
            for system in self.systems(written):
                for place in self.places(system, written):
                    hypothesis = list(read_documents(place / written, side="target"))
                    reference = list(read_documents(place / f"{test}.target.jsonl", side="target"))
                    for each in measure(Texts({"": hypothesis}, [reference]), protocols)[""]:
                        found[each.score.protocol][system].append(each.statistics)
            yield from ((f"{test}.{protocol}", dict(each)) for protocol, each in found.items())

    def _decided(self) -> Iterator[tuple[str, dict[str, list[Decisions]]]]:
        for kind, name in DECIDED.items():
            found: dict[str, dict[str, list[Decisions]]] = defaultdict(lambda: defaultdict(list))
            for system in self.systems(name):
                for place in self.places(system, name):
                    for suite, decisions in read_decisions(place / name).items():
                        if suite != ALL_SUITES:
                            found[suite][system].append(decisions)
            yield from ((f"{kind}.{suite}", dict(each)) for suite, each in found.items())

    def _used(self, system: str) -> dict[str, bool | None]:
        """Return by suite whether every seed uses context in some group of examples (docs/context-use.md).

        None: all groups have too few documents.
        """
        found: dict[str, bool | None] = {}
        for kind in ("real", "contrapro", "consistency"):
            name = DECIDED[kind]
            if system not in self.systems(name):
                continue
            seeds = [read_json(place / name) for place in self.places(system, name)]
            for suite in seeds[0]:
                groups = [each.get(suite, {}).get("use_of_context", []) for each in seeds]
                told = [[group["uses_context"] for group in each] for each in groups]
                if all(told):
                    shown = all(True in each for each in told)
                    testable = any(group is not None for each in told for group in each)
                    found[f"{kind}.{suite}"] = shown if testable else None
        return found

    def context(self) -> dict[str, ContextAdds]:
        """Return CXMI of every system with context."""
        return {system: self._context(system) for system in self.systems("cxmi.json")}

    def _context(self, system: str) -> ContextAdds:
        seeds = [read_json(place / "cxmi.json") for place in self.places(system, "cxmi.json")]
        conditions = seeds[0]["conditions"]
        means = {
            name: sum(each["conditions"][name]["per_token"] for each in seeds) / len(seeds)
            for name in conditions
        }
        p_values = []
        for each in seeds:
            by_document: dict[str, float] = defaultdict(float)
            for sentence in each["sentences"]:
                if sentence["context"]:
                    by_document[sentence["document"]] += sentence["cxmi"]["true"] - sentence["cxmi"]["random"]
            p_values.append(flipped_sums(list(by_document.values())))
        return ContextAdds(means, max(p_values))


def _decisions_apart(
    decided: Mapping[str, Sequence[Decisions]], first: str, others: Sequence[str]
) -> dict[str, Difference]:
    known = decided[first][0]
    documents = [known.documents.get(id, number) for number, id in enumerate(known.right)]
    rows = {
        system: [[each.right[id] for id in known.right] for each in decided[system]]
        for system in (first, *others)
        if all(each.right.keys() == known.right.keys() for each in decided[system])
    }
    there = [other for other in others if other in rows]
    tested = [compare_accuracies(rows[first], rows[other], documents) for other in there]
    return dict(zip(there, corrected(tested), strict=True))
