"""Choices of real text that need context, as a contrastive suite, and decided in translations.

    python -m benchmarks.study.choices make SOURCE TARGET OUT.json [--before 7]
        [--learn SOURCE TARGET]
    python -m benchmarks.study.choices judge SUITE.json HYPOTHESIS OUT.json

`make` finds pronouns, registers and, with text to learn renderings from, terms (docs/real-choices.md) in a
parallel corpus. An example has so many sentences before the choice, fewer at the beginning of a document.
`judge` reads the translation of the same corpus, and decides every choice in what stands there. OUT.json:
`right`, `wrong`, `both`, `neither` in per cent by phenomenon, and `kept`: of the documents with a register or
a term to keep, those in which all that is decided is decided alike, in per cent. OUT.decisions.json beside it
is what `cotext evaluate --decisions` takes.
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
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, write_suite
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, read_parallel
from cotext.data.suite_documents import documents_of
from cotext.data.suite_files import read_suite
from cotext.metrics.generative import OUTCOMES, outcome
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing

BEFORE = 7
CONSISTENT = ("register", "term")  # what a document keeps; of pronouns each has its own


def suite_of(
    name: str, documents: Iterable[ParallelDocument], alternatives: Alternatives, before: int = BEFORE
) -> ContrastiveSuite:
    """The suite of all choices of some documents.

    Raises:
        CotextError: two documents have one id.
    """
    examples = [example for d in documents for example in examples_of(d, alternatives, before)]
    return ContrastiveSuite(name, "en", "de", tuple(examples))


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


def judge(suite: ContrastiveSuite, hypothesis: Sequence[Document]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures, and decisions by phenomenon, of the translation of the corpus that a suite was made of.

    Raises:
        CotextError: a document is missing, or has too few sentences.
    """
    written = {document.id: document.sentences for document in hypothesis}
    numbers = dict(zip((e.id for e in suite.examples), documents_of(suite.examples), strict=True))
    found: dict[str, dict[str, str]] = defaultdict(dict)
    kept: dict[str, dict[tuple[str, str], set[str]]] = defaultdict(lambda: defaultdict(set))
    for example in suite.examples:
        result = outcome(example, _sentences(example, written, suite.name))
        if result is None:
            continue
        found[example.phenomenon][example.id] = result
        if example.phenomenon in CONSISTENT and result in ("right", "wrong"):
            kept[example.phenomenon][example.document, example.tags.get("term", "")].add(result)
    figures, decisions = {}, {}
    for phenomenon, results in found.items():
        of_all = [*results.values()]
        figures[phenomenon] = {name: 100 * of_all.count(name) / len(of_all) for name in OUTCOMES}
        figures[phenomenon]["choices"] = len(of_all)
        if several := [each for each in kept[phenomenon].values() if each]:
            figures[phenomenon]["kept"] = 100 * sum(len(each) == 1 for each in several) / len(several)
        decisions[f"{suite.name}/{phenomenon}"] = {
            "signature": "reading:generative|case:folded|of:documents",
            "decisions": {id: "right" if each == "right" else "wrong" for id, each in results.items()},
            "documents": {id: numbers[id] for id in results},
        }
    return figures, decisions


def _sentences(
    example: ContrastiveExample, written: dict[str, tuple[str, ...]], suite: str
) -> tuple[str, ...]:
    """What stands in a translation where an example is."""
    place = int(example.id.rpartition(":")[2])
    document = written.get(example.document, ())
    if len(document) < place:
        raise CotextError(
            f"suite {suite}, example {example.id}: the translation has {len(document)} sentences of document "
            f"{example.document}; give the translation of the corpus that the suite was made of"
        )
    return document[place - len(example.source) : place]


def write_json(path: Path, content: object) -> None:
    """Write a file that appears whole."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def make_suite(
    source: Path, target: Path, out: Path, learn_from: tuple[Path, Path] | None, before: int = BEFORE
) -> None:
    """Write the suite of a corpus, called by the name of its file."""
    pairs: Iterable[tuple[str, str]] = ()
    if learn_from is not None:
        pairs = (pair for d in read_parallel(*learn_from) for pair in zip(d.source, d.target, strict=True))
    write_suite(out, suite_of(out.stem, read_parallel(source, target), learn(pairs), before))


def main(arguments: list[str] | None = None) -> None:
    """Make a suite, or judge a translation by one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make")
    for name in ("source", "target", "out"):
        make.add_argument(name, type=Path)
    make.add_argument("--learn", nargs=2, type=Path, metavar=("SOURCE", "TARGET"))
    make.add_argument("--before", type=int, default=BEFORE)
    judging = commands.add_parser("judge")
    for name in ("suite", "hypothesis", "out"):
        judging.add_argument(name, type=Path)
    given = parser.parse_args(arguments)
    if given.command == "make":
        make_suite(given.source, given.target, given.out, given.learn and tuple(given.learn), given.before)
        return
    figures, decisions = judge(read_suite(given.suite), list(read_documents(given.hypothesis)))
    write_json(given.out.with_suffix(".decisions.json"), decisions)
    write_json(given.out, figures)


if __name__ == "__main__":
    main()
