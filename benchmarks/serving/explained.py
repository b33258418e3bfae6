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
    elsewhere of the other words of the sentence, in which no candidate differs, those that a sentence decided
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
from cotext.data.words import Word, words_of
from cotext.runtime.tables import render_rows
from cotext.serving.own_api.explanations import Explanations, Question
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


def words_asked(example: ContrastiveExample) -> tuple[int, list[Word]]:
    """The sentence, its first word that another candidate has otherwise, and the words that all have."""
    right = example.candidates[example.correct]
    sentence = example.differing_sentences[0]
    words = words_of(right[sentence])
    others = [[word.text for word in words_of(each[sentence])] for each in example.candidates]
    differing = [i for i, word in enumerate(words) if any([word.text] != each[i : i + 1] for each in others)]
    common = [word for i, word in enumerate(words) if i not in differing and word.text.isalpha()]
    return sentence, [words[differing[0]], *common]


def asked(service: Service, system: System, examples: list[ContrastiveExample]) -> Iterator[list[float]]:
    """Of every example: the clue was named, none, another, the chances of two guesses, others, seconds."""
    explanations = Explanations()
    for example in examples:
        sentence, words = words_asked(example)
        target = example.candidates[example.correct]
        answers, seconds = [], []
        for word in words:
            question = Question(system, example.source, target, sentence, (word.start, word.stop))
            begun = time.perf_counter()
            answers.append(asyncio.run(explanations.answer(service, question, Client())))
            seconds.append(time.perf_counter() - begun)
        assert example.distance is not None
        clue, named = sentence - example.distance, answers[0]["decisive"]
        contexts = {context["number"] for context in answers[0]["contexts"]}
        assert clue in contexts
        elsewhere = [answer["decisive"] is not None for answer in answers[1:]]
        yield [
            named == clue,
            named is None,
            named not in (clue, None),
            1 / len(contexts),
            example.distance == 1,
            mean(elsewhere) if elsewhere else 0,
            seconds[0],
        ]


def main() -> None:
    """Print a row per suite and system."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suites", type=Path, nargs="+")
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    parser.add_argument("--documents", type=int, default=100)
    options = parser.parse_args()
    systems = open_systems(options.runs, "cpu")
    service = Service(systems, ServerSettings(state=Path("unused")))
    rows = [
        ("suite", "system", "documents", "clue", "none", "other", "chance", "before", "elsewhere", "seconds")
    ]
    for path in options.suites:
        examples = chosen(read_suite(path).examples, options.documents)
        for system in systems:
            columns = list(zip(*asked(service, system, examples), strict=True))
            shares = (f"{100 * mean(column):.0f} %" for column in columns[:6])
            rows.append((path.stem, system.name, str(len(examples)), *shares, f"{median(columns[6]):.2f}"))
    print(render_rows(rows, left=2))


if __name__ == "__main__":
    main()
