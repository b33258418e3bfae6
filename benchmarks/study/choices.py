"""Choices of real text that need context, as contrastive suites, and decided in translations.

    python -m benchmarks.study.choices make SOURCE TARGET FOLDER [--before 7] [--learn SOURCE TARGET]
    python -m benchmarks.study.choices judge FOLDER HYPOTHESIS OUT.json

`make` finds pronouns, registers and, with text to learn renderings from, terms (docs/real-choices.md) in a
parallel corpus: FOLDER/pronoun.json and so on. An example has so many sentences before the choice, fewer at
the beginning of a document. `judge` reads the translation of the same corpus, and decides every choice by
what stands there. OUT.json: `right`, `wrong`, `both`, `neither` in per cent by phenomenon, and `kept`: of the
documents with a register or a term to keep, those in which all that is decided is decided alike, in per cent.
OUT.decisions.json beside it is what `cotext compare-decisions` takes.
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
from cotext.evaluation.metrics.generative import OUTCOMES, outcome
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing

BEFORE = 7
REMEDY = "give the translation of the corpus that the suite was made of"
CONSISTENT = ("register", "term")  # what a document keeps; of pronouns each has its own


def suites_of(
    name: str, documents: Iterable[ParallelDocument], alternatives: Alternatives, before: int = BEFORE
) -> dict[str, ContrastiveSuite]:
    """The suites of all choices of some documents by phenomenon, each called NAME-PHENOMENON.

    Raises:
        CotextError: two documents have one id.
    """
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
    """One example for every choice; the right candidate comes first."""
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
    """Figures and decisions by suite, of the translation of the corpus that the suites were made of.

    Of documents that are not there nothing is decided.

    Raises:
        CotextError: none is there, or one has too few sentences.
    """
    written = {document.id: document.sentences for document in hypothesis}
    figures, decisions = {}, {}
    for suite in suites:
        numbers = documents_of(suite.examples)
        found: dict[str, str] = {}
        kept: dict[tuple[str, str], set[str]] = defaultdict(set)
        there = [example for example in suite.examples if example.document in written]
        if not there:
            raise CotextError(f"suite {suite.name}: of its documents the translation has none; {REMEDY}")
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
        decisions[suite.name] = {
            "signature": "reading:generative|case:folded|of:documents",
            "decisions": {id: "right" if each == "right" else "wrong" for id, each in found.items()},
            "documents": {e.id: n for e, n in zip(suite.examples, numbers, strict=True) if e.id in found},
        }
    return figures, decisions


def _sentences(
    example: ContrastiveExample, written: dict[str, tuple[str, ...]], suite: str
) -> tuple[str, ...]:
    """What stands in a translation where an example is."""
    place, document = int(example.id.rpartition(":")[2]), written[example.document]
    if len(document) < place:
        raise CotextError(
            f"suite {suite}, example {example.id}: the translation has {len(document)} sentences of that "
            f"document; {REMEDY}"
        )
    return document[place - len(example.source) : place]


def write_json(path: Path, content: object) -> None:
    """Write a file that appears whole."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def make_suites(
    source: Path, target: Path, folder: Path, learn_from: tuple[Path, Path] | None, before: int = BEFORE
) -> None:
    """Write the suites of a corpus, called by the name of their folder."""
    pairs: Iterable[tuple[str, str]] = ()
    if learn_from is not None:
        pairs = (pair for d in read_parallel(*learn_from) for pair in zip(d.source, d.target, strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    for phenomenon, suite in suites_of(
        folder.name, read_parallel(source, target), learn(pairs), before
    ).items():
        write_suite(folder / f"{phenomenon}.json", suite)


def main(arguments: list[str] | None = None) -> None:
    """Make suites, or judge a translation by them."""
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
    given = parser.parse_args(arguments)
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
