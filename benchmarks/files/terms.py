"""Terms, words that are kept, placeholders and words of the reference on the controlled corpus.

    python -m benchmarks.files.terms runs/a runs/b [--documents 40] [--split test]

Each task has references that hold what is asked for, so that a translation can be as good as any:

    terms          every noun for a thing is to be another of its gender, and so it is in the references
    kept           a third of these nouns are not translated
    placeholders   {0} in place of one content word of every other sentence, on both sides
    words          so many words of the reference in each sentence, of three letters and more, at random

`met`: of the phrases asked for; copied text exactly as often as asked. `beside`: share of the sentences with
such phrases in which the corpus' own rendering of a noun stands, where the reference has it not. BLEU and
chrF are sacrebleu's.
"""

import argparse
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from benchmarks.files.word_links import linked_documents
from cotext.data.controlled.lexicon import THINGS_BY_GENDER
from cotext.data.documents import Document
from cotext.data.words import occurrences
from cotext.files.block_sentences import shown
from cotext.files.blocks import Copied
from cotext.files.tags import shown_text
from cotext.runtime.tables import render_rows
from cotext.search.guide import Guide, SentenceConstraints
from cotext.translation.open import open_run
from cotext.translation.terms.glossary import Glossary, Term
from cotext.translation.terms.terms import TermGuide
from cotext.translation.translator import DocumentTranslator

KEPT = 3  # every so many nouns
Texts = list[list[str]]


@dataclass(frozen=True, slots=True)
class Task:
    """What is translated, and the ideal result; `outer` makes the output what is compared with it.

    `others`: words of which one that the reference lacks is a rendering beside the one asked for.
    """

    name: str
    sources: Texts
    references: Texts
    guide: Guide | None
    outer: Callable[[str], str] = str
    others: tuple[str, ...] = ()


class Asked:
    """Words of the reference, as a guide."""

    def __init__(self, wanted: Mapping[tuple[int, int], Sequence[str]]) -> None:
        self._wanted = wanted

    def constraints(self, document: int, sentence: int) -> SentenceConstraints:
        """As `Guide.constraints`."""
        return SentenceConstraints(tuple((word,) for word in self._wanted[document, sentence]))


def swapped(texts: Texts, words: Mapping[str, str]) -> Texts:
    """Texts with other words in place of some."""
    pattern = re.compile(rf"\b({'|'.join(words)})\b")
    return [[pattern.sub(lambda found: words[found[0]], text) for text in texts_] for texts_ in texts]


def tasks(split: str, documents: int, seed: int, translator: DocumentTranslator) -> Iterator[Task]:
    """All tasks."""
    linked = list(linked_documents("test" if split == "test" else "development", documents, seed))
    sources = [list(document.source) for document, _ in linked]
    references = [list(document.target) for document, _ in linked]
    things = [thing for own in THINGS_BY_GENDER.values() for thing in own]
    following = {
        one.en: other.de for own in THINGS_BY_GENDER.values() for one, other in pairwise([*own, own[0]])
    }
    nouns = tuple(thing.de for thing in things)
    yield Task("free", sources, references, None)
    glossary = Glossary(tuple(Term(en, (de,)) for en, de in following.items()))
    ideal = swapped(references, {thing.de: following[thing.en] for thing in things})
    yield Task("terms", sources, ideal, TermGuide(sources, glossary), others=nouns)
    kept = things[::KEPT]
    ideal = swapped(references, {thing.de: thing.en for thing in kept})
    guide = TermGuide(sources, keep=[thing.en for thing in kept])
    yield Task("kept", sources, ideal, guide, others=nouns)
    yield placeholders(linked, translator)
    for count in (1, 2, 4):
        chooser = random.Random(seed)
        wanted = {}
        for d, of_document in enumerate(references):
            for s, text in enumerate(of_document):
                long = re.findall(r"\w{3,}", text)
                wanted[d, s] = [
                    long[i] for i in sorted(chooser.sample(range(len(long)), min(count, len(long))))
                ]
        yield Task(f"words {count}", sources, references, Asked(wanted))


def placeholders(linked: Sequence, translator: DocumentTranslator) -> Task:  # type: ignore[type-arg]
    """The task in which content words are placeholders, which the model reads as `shown` says."""
    sources, references, copied = [], [], []
    texts = {}
    for document, links in linked:
        rows: list[tuple[str, str, list[str]]] = []
        for number, (source, target, own) in enumerate(
            zip(document.source, document.target, links, strict=True)
        ):
            pairs = [
                (i, j)
                for i, j in sorted(own.sure)
                if i in own.content
                and sum(i == a for a, _ in own.possible) == sum(j == b for _, b in own.possible) == 1
            ]
            if number % 2 or not pairs:
                rows.append((source, target, []))
                continue
            (a, b), (c, d) = own.source[pairs[-1][0]], own.target[pairs[-1][1]]
            pieces = (source[:a], Copied(1, "{0}"), source[b:])
            made = shown(pieces, translator.tokenizer)
            texts[made[1]] = "{0}"
            rows.append((shown_text(pieces, made), f"{target[:c]}{{0}}{target[d:]}", [made[1]]))
        for found, part in zip((sources, references, copied), zip(*rows, strict=True), strict=True):
            found.append(list(part))

    def outer(text: str) -> str:
        for own, outside in texts.items():
            text = text.replace(own, outside)
        return text

    return Task("placeholders", sources, references, TermGuide(sources, copied=copied), outer)


def measured(translator: DocumentTranslator, task: Task) -> tuple[str, ...]:
    """A line of the table."""
    documents = [Document(str(d), tuple(texts)) for d, texts in enumerate(task.sources)]
    started = time.perf_counter()
    found = dict(translator.translate(documents, guide=task.guide))
    seconds = time.perf_counter() - started
    asked = met = with_phrases = beside = 0
    for d, of_document in enumerate(task.references):
        for s, reference in enumerate(of_document):
            text = found[d].document.sentences[s]
            wanted = task.guide.constraints(d, s) if task.guide else SentenceConstraints()
            asked += len(wanted.required) + len(wanted.copied)
            met += sum(any(occurrences(text, each)) for each in wanted.required)
            met += sum(sum(1 for _ in occurrences(text, [own])) == 1 for own in wanted.copied)
            with_phrases += bool(wanted)
            held = {word for _, word in occurrences(reference, task.others)}
            beside += bool(wanted) and any(w not in held for _, w in occurrences(text, task.others))
    texts = [task.outer(text) for d in range(len(documents)) for text in found[d].document.sentences]
    ideal = [text for of_document in task.references for text in of_document]
    scores = (metric.corpus_score(texts, [ideal]).score for metric in (BLEU(), CHRF()))
    rate = f"{100 * beside / with_phrases:.1f}" if task.others else ""
    return task.name, f"{met} of {asked}", *(f"{score:.1f}" for score in scores), rate, f"{seconds:.1f}"


def main() -> None:
    """Print a table for every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--split", choices=("development", "test"), default="test")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for run in options.runs:
        translator = open_run(run, device="cpu", threads=1).translator
        every = tasks(options.split, options.documents, options.seed, translator)
        rows = [
            ("task", "met", "BLEU", "chrF", "beside, %", "seconds"),
            *(measured(translator, t) for t in every),
        ]
        print(f"{run}\n{render_rows(rows, left=1)}\n", flush=True)


if __name__ == "__main__":
    main()
