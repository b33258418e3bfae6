"""Does `/api/explain` name the sentence that a word depends on? Suites of the controlled corpus, whose clues
are known.

    python -m benchmarks.serving.explained SUITE.json... --runs RUN... [--documents 100]

Of every document, the example is taken whose clue is the farthest of those up to three sentences before (so
that every system here sees it), with its right translation; asked is which sentence decided the first word in
which a wrong one differs.

    clue      the answer is the sentence with the clue
    none      no sentence is clear of noise
    other     the answer is another sentence
    chance    a context sentence drawn at random has the clue
    before    the sentence just before has the clue
    seconds   until the answer to the first click on a sentence (median)
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

from cotext.data.contrastive_suites import ContrastiveExample
from cotext.data.suite_files import read_suite
from cotext.files.words import words_of
from cotext.runtime.tables import render_rows
from cotext.serving.own_api_explain import Explanations, Question
from cotext.serving.service import Client, Service
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import System, open_systems

MOST_DISTANT = 3


def chosen(examples: tuple[ContrastiveExample, ...], documents: int) -> list[ContrastiveExample]:
    """One example of each document that has one in reach."""
    found: dict[str, ContrastiveExample] = {}
    for example in examples:
        distance = example.distance or 0
        if not 1 <= distance <= MOST_DISTANT:
            continue
        before = found.get(example.document)
        if before is None or (before.distance or 0) < distance:
            found[example.document] = example
    return list(found.values())[:documents]


def question(system: System, example: ContrastiveExample) -> Question:
    """The first word of the right translation that a wrong one has otherwise."""
    right = example.candidates[example.correct]
    wrong = example.candidates[1 if example.correct == 0 else 0]
    sentence = example.differing_sentences[0]
    words, others = words_of(right[sentence]), [word.text for word in words_of(wrong[sentence])]
    place = next(i for i, word in enumerate(words) if [word.text] != others[i : i + 1])
    return Question(system, example.source, right, sentence, (words[place].start, words[place].stop))


def asked(service: Service, system: System, examples: list[ContrastiveExample]) -> Iterator[list[float]]:
    """Of every example: the clue was named, none, another, the chances of two guesses, and seconds."""
    explanations = Explanations()
    for example in examples:
        question_ = question(system, example)
        begun = time.perf_counter()
        found = asyncio.run(explanations.answer(service, question_, Client()))
        seconds = time.perf_counter() - begun
        assert example.distance is not None
        clue, named = question_.sentence - example.distance, found["decisive"]
        contexts = {context["number"] for context in found["contexts"]}
        assert clue in contexts
        yield [
            named == clue,
            named is None,
            named not in (clue, None),
            1 / len(contexts),
            example.distance == 1,
            seconds,
        ]


def main() -> None:
    """Print a row per suite and system."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suites", type=Path, nargs="+")
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    parser.add_argument("--documents", type=int, default=100)
    options = parser.parse_args()
    systems = open_systems(options.runs, "cpu")
    service = Service(systems, ServerSettings(Path("unused")))
    rows = [("suite", "system", "documents", "clue", "none", "other", "chance", "before", "seconds")]
    for path in options.suites:
        examples = chosen(read_suite(path).examples, options.documents)
        for system in systems:
            columns = list(zip(*asked(service, system, examples), strict=True))
            shares = (f"{100 * mean(column):.0f} %" for column in columns[:5])
            rows.append((path.stem, system.name, str(len(examples)), *shares, f"{median(columns[5]):.2f}"))
    print(render_rows(rows, left=2))


if __name__ == "__main__":
    main()
