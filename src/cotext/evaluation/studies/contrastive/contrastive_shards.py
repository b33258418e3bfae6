"""Contrastive suites in shards: examples that share batches are never divided, so that scores stay equal."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Document
from cotext.data.suite_files import read_suite
from cotext.evaluation.metrics.contrastive import CandidateScores, ContrastiveReport
from cotext.evaluation.metrics.generative import GenerativeReport, generative_accuracy
from cotext.evaluation.studies.contrastive.contrastive import (
    SuiteRules,
    chunks_of,
    context_window_of,
    judged,
    suite_recipe,
    suite_scorer,
    written,
)
from cotext.evaluation.studies.contrastive.contrastive_rows import ContextWindow
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.jobs.engine import Job, Joined
from cotext.runtime.jobs.journal import Journal, Shard
from cotext.runtime.version import __version__
from cotext.translation.open import OpenedRun
from cotext.translation.signature import systems_of, translation_entries


class SuitesJob(Job[None]):
    """The scoring of the candidates of a shard of some suites; `generate`: its sources are translated, too.

    Raises:
        CotextError: as `run_suite`.
    """

    command, unit = "contrastive", "groups of examples"

    def __init__(
        self,
        opened: OpenedRun,
        suites: Sequence[tuple[Path, ContrastiveSuite]],
        out: Path,
        shard: Shard,
        rules: SuiteRules,
        generate: bool = False,
    ) -> None:
        self.out, self.shard = out, shard
        self._translator, self._generate = opened.translator, generate
        self._groups = _groups(suite for _, suite in suites)
        self.sizes = [sum(len(example.source) for example in group) for _, group in self._groups]
        chosen = [self._groups[unit] for unit in self.units]
        self._scorers = {
            number: suite_scorer(opened.translator, suites[number][1], rules)
            for number in dict.fromkeys(number for number, _ in chosen)
        }
        if generate:
            opened.translator.check(Document(e.id, e.source) for _, group in chosen for e in group)
        self.identity = {
            "cotext": __version__,
            "suites": [checksum(path) for path, _ in suites],
            "rules": asdict(rules),
            "generate": generate,
            **systems_of(opened),
        }
        self.facts = {
            "suites": [str(path.absolute()) for path, _ in suites],
            "named": [str(path) for path, _ in suites],
            "recipe": suite_recipe(opened),
            "written": translation_entries(opened) if generate else None,
            "window": asdict(context_window_of(opened.translator)),
            "signature": opened.signature,
        }

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Score one group after the other."""
        for unit in todo:
            number, group = self._groups[unit]
            found = {
                context: [[each.log_probabilities, each.tokens] for each in of_examples]
                for context, of_examples in self._scorers[number](group).items()
            }
            texts = written(self._translator, group) if self._generate else []
            yield unit, {"scores": found, "written": [document.sentences for document in texts]}
            on_size(self.sizes[unit])


class JoinedSuites:
    """The suites of a job, with what its shards have found.

    Raises CotextError where a suite is not where it was, or has changed.
    """

    def __init__(self, parts: Joined) -> None:
        job, facts = parts.header.identity, parts.header.facts
        self._parts = parts
        self.rules = SuiteRules(**job["rules"])
        self.window = ContextWindow(**facts["window"])
        self.suites: list[tuple[Path, ContrastiveSuite]] = []
        for name, stands_at, digest in zip(facts["named"], facts["suites"], job["suites"], strict=True):
            path = Path(stands_at)
            if not path.is_file() or checksum(path) != digest:
                raise CotextError(f"{path}: is not the suite that the shards have scored; put it back")
            self.suites.append((Path(name), read_suite(path)))

    def found(self) -> Iterator[tuple[ContrastiveReport, GenerativeReport | None]]:
        """The reports on all suites, and on their translations where the job has those."""
        units = _groups(suite for _, suite in self.suites)
        header = self._parts.header
        for number, (_, suite) in enumerate(self.suites):
            scores: dict[str, list[CandidateScores]] = {}
            texts: list[Document] = []
            for unit in [unit for unit, (whose, _) in enumerate(units) if whose == number]:
                entry = self._parts[unit]
                for context, of_examples in entry["scores"].items():
                    scores.setdefault(context, []).extend(
                        CandidateScores(tuple(values), tuple(tokens)) for values, tokens in of_examples
                    )
                texts += [Document(str(unit), tuple(sentences)) for sentences in entry["written"]]
            report = judged(suite, scores, self.rules, header.facts["recipe"])
            generated = header.identity["generate"]
            yield report, generative_accuracy(suite, texts, header.facts["written"]) if generated else None


def _groups(suites: Iterable[ContrastiveSuite]) -> list[tuple[int, Sequence[ContrastiveExample]]]:
    """The chunks of all suites, each with the number of its suite."""
    return [(number, chunk) for number, suite in enumerate(suites) for chunk in chunks_of(suite)]
