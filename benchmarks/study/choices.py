"""Choices in real text that need context: make contrastive suites, and judge translations.

    python -m benchmarks.study.choices make SOURCE TARGET FOLDER [--before 7] [--learn SOURCE TARGET]
    python -m benchmarks.study.choices judge FOLDER HYPOTHESIS OUT.json
    python -m benchmarks.study.choices generate RUN SUITE OUT.json

`make` finds choices of pronouns, registers and terms in a parallel corpus (docs/real-choices.md) and writes
FOLDER/pronoun.json and so on. Terms need `--learn`: text from which to learn translations of words. An
example has up to `--before` sentences before the choice.

`judge` reads a translation of the same corpus. OUT.json has, by phenomenon, the per cent of choices that are
`right`, `wrong`, `both` and `neither`. `kept` is the per cent of documents with several choices of a register
or term that all have the same outcome. `generate` translates the sources of a contrastive suite; OUT.json
has the outcomes in all and by distance. OUT.decisions.json of both is input for `cotext compare-decisions`;
all outcomes but `right` count as wrong.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.study.pronoun_choices import pronoun_choices
from benchmarks.study.register_choices import register_choices
from benchmarks.study.term_choices import Alternatives, learn, term_choices
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, documents_of, write_suite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, read_parallel
from cotext.data.suite_files import read_suite
from cotext.evaluation.metrics.contrastive import OUTCOMES, outcome
from cotext.evaluation.studies.contrastive.contrastive import write_suite_forms
from cotext.runtime import CotextError
from cotext.runtime.files import replacing
from cotext.translation.open import open_run, translation_entries

BEFORE = 7
REMEDY = "give a translation of the corpus from which the suite was made"
CONSISTENT = ("register", "term")  # the same in a whole document, unlike pronouns


def suites_of(
    name: str, documents: Iterable[ParallelDocument], alternatives: Alternatives, before: int = BEFORE
) -> dict[str, ContrastiveSuite]:
    """Return the suites of all choices by phenomenon; their names are NAME-PHENOMENON."""
    found: dict[str, list[ContrastiveExample]] = defaultdict(list)
    for document in documents:
        for example in examples_of(document, alternatives, before):
            found[example.phenomenon].append(example)
    return {
        phenomenon: ContrastiveSuite(f"{name}-{phenomenon}", "en", "de", tuple(examples))
        for phenomenon, examples in found.items()
    }


def examples_of(
    document: ParallelDocument, alternatives: Alternatives, before: int
) -> Iterator[ContrastiveExample]:
    """Yield an example for every choice of a document; its first candidate is right."""
    choices = chain(
        pronoun_choices(document), register_choices(document), term_choices(document, alternatives)
    )
    for choice in choices:
        window = slice(max(0, choice.sentence - before), choice.sentence)
        context, word = document.target[window], choice.tags.get("term")
        yield ContrastiveExample(
            id=":".join(filter(None, [document.id, choice.phenomenon, word, str(choice.sentence + 1)])),
            phenomenon=choice.phenomenon,
            distance=choice.distance,
            source=document.source[window.start : choice.sentence + 1],
            candidates=tuple((*context, last) for last in (choice.right, *choice.wrong)),
            correct=0,
            tags=choice.tags,
            document=document.id,
        )


def judge(
    suites: Iterable[ContrastiveSuite], hypothesis: Sequence[Document]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, Any]]]:
    """Return figures and decisions by suite for a translation of the corpus of the suites.

    Documents without a translation are skipped.
    """
    written = {document.id: document.sentences for document in hypothesis}
    figures, decisions = {}, {}
    for suite in suites:
        found: dict[str, str] = {}
        kept: dict[tuple[str, str], set[str]] = defaultdict(set)
        there = [example for example in suite.examples if example.document in written]
        if not there:
            raise CotextError(f"suite {suite.name}: the translation has none of its documents; {REMEDY}")
        for example in there:
            result = outcome(example, _sentences(example, written, suite.name))
            if result is None:
                continue
            found[example.id] = result
            if example.phenomenon in CONSISTENT and result in ("right", "wrong"):
                kept[example.document, example.tags.get("term", "")].add(result)
        of_all = list(found.values())
        figures[suite.name] = {name: 100 * of_all.count(name) / len(of_all) for name in OUTCOMES}
        figures[suite.name]["choices"] = len(of_all)
        if kept:
            alike = sum(len(each) == 1 for each in kept.values())
            figures[suite.name]["kept"] = 100 * alike / len(kept)
        signature = "reading:generative|case:folded|of:documents"
        decisions[suite.name] = _decisions(suite, found, signature)
    return figures, decisions


def _decisions(suite: ContrastiveSuite, outcomes: dict[str, str], signature: str) -> dict[str, Any]:
    """Return decisions by example id, in the format of `contrastive --out`."""
    numbers = zip(suite.examples, documents_of(suite.examples), strict=True)
    return {
        "signature": signature,
        "decisions": {id: "right" if each == "right" else "wrong" for id, each in outcomes.items()},
        "documents": {e.id: n for e, n in numbers if e.id in outcomes},
    }


def generate(run: Path, path: Path, out: Path) -> None:
    """Translate the sources of a suite, judge the translations, and write both files."""
    opened, suite = open_run(run), read_suite(path)
    report = write_suite_forms(opened.translator, suite, recipe=translation_entries(opened))
    groups = {"all": report.overall, **report.by_distance}
    figures = {
        name: {outcome: 100 * getattr(forms, outcome) / forms.total for outcome in OUTCOMES}
        for name, forms in groups.items()
    }
    outcomes = {
        e.id: each for e, each in zip(suite.examples, report.outcomes, strict=True) if each is not None
    }
    decisions = {suite.name: _decisions(suite, outcomes, report.signature)}
    write_json(out.with_suffix(".decisions.json"), decisions)
    write_json(out, figures)


def _sentences(
    example: ContrastiveExample, written: dict[str, tuple[str, ...]], suite: str
) -> tuple[str, ...]:
    """Return the sentences of a translation that correspond to an example."""
    place, document = int(example.id.rpartition(":")[2]), written[example.document]
    if len(document) < place:
        raise CotextError(
            f"suite {suite}, example {example.id}: its document has only {len(document)} sentences in the "
            f"translation; {REMEDY}"
        )
    return document[place - len(example.source) : place]


def write_json(path: Path, content: object) -> None:
    """Write a JSON file under a temporary name, then rename it."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def make_suites(
    source: Path, target: Path, folder: Path, learn_from: tuple[Path, Path] | None, before: int = BEFORE
) -> None:
    """Write the suites of a corpus; their names begin with the name of the folder."""
    pairs: Iterable[tuple[str, str]] = ()
    if learn_from is not None:
        pairs = (pair for d in read_parallel(*learn_from) for pair in zip(d.source, d.target, strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    for phenomenon, suite in suites_of(
        folder.name, read_parallel(source, target), learn(pairs), before
    ).items():
        write_suite(folder / f"{phenomenon}.json", suite)


def main(arguments: list[str] | None = None) -> None:
    """Make suites, or judge translations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make")
    for name in ("source", "target", "folder"):
        make.add_argument(name, type=Path)
    make.add_argument("--learn", nargs=2, type=Path, metavar=("SOURCE", "TARGET"))
    make.add_argument("--before", type=int, default=BEFORE)
    judging = commands.add_parser("judge")
    for name in ("folder", "hypothesis", "out"):
        judging.add_argument(name, type=Path)
    generating = commands.add_parser("generate")
    for name in ("run", "suite", "out"):
        generating.add_argument(name, type=Path)
    given = parser.parse_args(arguments)
    if given.command == "generate":
        generate(given.run, given.suite, given.out)
        return
    if given.command == "make":
        learn_from = given.learn and (given.learn[0], given.learn[1])
        make_suites(given.source, given.target, given.folder, learn_from, given.before)
        return
    suites = [read_suite(path) for path in sorted(given.folder.glob("*.json"))]
    figures, decisions = judge(suites, list(read_documents(given.hypothesis, side="target")))
    write_json(given.out.with_suffix(".decisions.json"), decisions)
    write_json(given.out, figures)


if __name__ == "__main__":
    main()
