"""Contrastive suites in shards: examples that share batches are never divided, so that scores stay equal."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.documents import Document
from cotext.data.formats.streams import is_regular
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
from cotext.runtime.addresses import absolute
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.runtime.joining import JoinedParts
from cotext.runtime.shards import Part, Shard, ShardedJob, ShardReport
from cotext.runtime.version import __version__
from cotext.translation.open import OpenedRun
from cotext.translation.signature import translation_entries
from cotext.translation.translate_file import systems_of

COMMAND = "contrastive"


def contrastive_shard(
    opened: OpenedRun,
    suites: Sequence[tuple[Path, ContrastiveSuite]],
    out: Path,
    shard: Shard,
    rules: SuiteRules,
    generate: bool = False,
    on_start: Callable[[int], None] = lambda total: None,
    on_candidates: Callable[[int], None] = lambda count: None,
) -> ShardReport:
    """Score the candidates of one shard of some suites; `generate`: translate its sources, too.

    Raises:
        CotextError: as `run_suite` and `Part`.
    """
    translator = opened.translator
    units = _units(suite for _, suite in suites)
    sizes = [_candidates(chunk) for _, chunk in units]
    chosen = shard.units(sizes)
    scorers = {
        number: suite_scorer(translator, suite, rules)
        for number, (_, suite) in enumerate(suites)
        if any(units[unit][0] == number for unit in chosen)
    }
    if generate:
        translator.check(Document(e.id, e.source) for unit in chosen for e in units[unit][1])
    signature = opened.signature
    joining: dict[str, Any] = {
        "suites": [str(absolute(path)) for path, _ in suites],
        "named": [str(path) for path, _ in suites],
        "recipe": suite_recipe(opened),
        "written": translation_entries(opened) if generate else None,
        "window": asdict(context_window_of(translator)),
    }
    job = ShardedJob(COMMAND, "groups of examples", _identity(opened, suites, rules, generate), joining)
    with Part(out, shard, sizes, job) as part:
        done = part.done()
        on_start(sum(sizes[unit] for unit in chosen))
        on_candidates(sum(sizes[unit] for unit in done))
        for unit in chosen:
            if unit in part:
                continue
            number, chunk = units[unit]
            found: dict[str, Any] = {
                context: [[each.log_probabilities, each.tokens] for each in of_examples]
                for context, of_examples in scorers[number](chunk).items()
            }
            texts = [document.sentences for document in written(translator, chunk)] if generate else []
            part.add(unit, {"scores": found, "written": texts})
            on_candidates(sizes[unit])
    sentences = sum(len(e.source) for unit in chosen for e in units[unit][1])
    return part.report(sentences, len(done), signature)


class JoinedSuites:
    """The suites of a job, with what its shards have found.

    Raises CotextError where a suite is not where it was, or has changed.
    """

    def __init__(self, parts: JoinedParts) -> None:
        facts = parts.joining
        self._parts = parts
        self.rules = SuiteRules(**parts.job["rules"])
        self.window = ContextWindow(**facts["window"])
        self.suites: list[tuple[Path, ContrastiveSuite]] = []
        for name, stands_at, digest in zip(facts["named"], facts["suites"], parts.job["suites"], strict=True):
            path = Path(stands_at)
            if not is_regular(path) or checksum(path) != digest:
                raise CotextError(f"{path}: is not the suite that the shards have scored; put it back")
            self.suites.append((Path(name), read_suite(path)))

    def found(self) -> Iterator[tuple[ContrastiveReport, GenerativeReport | None]]:
        """The reports on all suites, and on their translations where the job has those."""
        units = _units(suite for _, suite in self.suites)
        facts = self._parts.joining
        for number, (_, suite) in enumerate(self.suites):
            scores: dict[str, list[CandidateScores]] = {}
            texts: list[Document] = []
            for unit in [unit for unit, (whose, _) in enumerate(units) if whose == number]:
                entry = self._parts.read(unit)
                for context, of_examples in entry["scores"].items():
                    scores.setdefault(context, []).extend(
                        CandidateScores(tuple(values), tuple(tokens)) for values, tokens in of_examples
                    )
                texts += [Document(str(unit), tuple(sentences)) for sentences in entry["written"]]
            report = judged(suite, scores, self.rules, facts["recipe"])
            generated = self._parts.job["generate"]
            yield report, generative_accuracy(suite, texts, facts["written"]) if generated else None


def _units(suites: Iterable[ContrastiveSuite]) -> list[tuple[int, Sequence[ContrastiveExample]]]:
    """The chunks of all suites, each with the number of its suite."""
    return [(number, chunk) for number, suite in enumerate(suites) for chunk in chunks_of(suite)]


def _candidates(chunk: Sequence[ContrastiveExample]) -> int:
    return sum(len(example.candidates) for example in chunk)


def _identity(
    opened: OpenedRun,
    suites: Sequence[tuple[Path, ContrastiveSuite]],
    rules: SuiteRules,
    generate: bool,
) -> dict[str, Any]:
    return {
        "cotext": __version__,
        "suites": [checksum(path) for path, _ in suites],
        "rules": asdict(rules),
        "generate": generate,
        **systems_of(opened),
    }
