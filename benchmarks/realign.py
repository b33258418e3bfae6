"""What realigning finds again: outputs made of a reference, whose sentences are known, joined, cut and holed.

    python -m benchmarks.realign REFERENCE [--target-language de] [--rates 0.2 0.4 0.6] [--mweralign PROGRAM]

Of the words of each sentence, a share (the rate) is replaced by words of other sentences, left out, or
followed by one; a twentieth of the sentences is left out, after a twentieth stands one of another document,
and a fifth of all lines goes on the line before. Tables: sentences that come back as they were, and what
scores of sentences gain by being cut where edits are fewest; what is said to be omitted and added, with what
was; documents of as many lines by accident that are told, and others that are. With --mweralign: its edits
beside ours, on the same tokens of documents in one line each.
"""

import argparse
import random
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cotext.data.documents import Document
from cotext.data.formats import read_documents
from cotext.evaluation.metrics.interface import evaluate
from cotext.evaluation.metrics.realign import AlignmentReport, realign
from cotext.evaluation.metrics.token_cuts import Cutter
from cotext.runtime.tables import render_rows


@dataclass
class Output:
    """A document as a system might write it, and what is true of it: its sentences, and the numbers, from 1,
    of sentences left out and of lines that are added and stand alone."""

    id: str
    lines: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    omitted: set[int] = field(default_factory=set)
    added: set[int] = field(default_factory=set)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--target-language")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.2, 0.4, 0.6])
    parser.add_argument("--mweralign", help="the program, version 1.4.1 say")
    given = parser.parse_args()
    reference = list(read_documents(given.reference, side="target"))
    print(f"{len(reference)} documents, {sum(map(len, reference))} sentences")
    cutter = Cutter(given.target_language)
    rows = [("rate", "as lines", "in one line", "s-BLEU true", "realigned", "omitted", "added", "seconds")]
    told = [("rate", "shifted, told", "not shifted, told")]
    for rate in given.rates:
        outputs = [written(document, reference, rate, random.Random(1)) for document in reference]
        begun = time.process_time()
        found, report = realign([Document(o.id, tuple(o.lines)) for o in outputs], [reference], cutter, "all")
        seconds = time.process_time() - begun
        joined = [Document(o.id, (" ".join(o.lines),)) for o in outputs]
        whole, _ = realign(joined, [reference], cutter, "all")
        true = [Document(o.id, tuple(o.sentences)) for o in outputs]
        scores = [evaluate(each, reference, ["s-bleu"])[0].value for each in (true, found)]
        rows.append(
            (
                f"{rate:g}",
                same(found, true),
                same(whole, true),
                *(f"{score:.2f}" for score in scores),
                *gaps(outputs, report),
                f"{seconds:.1f}",
            )
        )
        told.append((f"{rate:g}", *doubts(reference, rate, cutter)))
    print(render_rows(rows, left=0))
    print(render_rows(told, left=0))
    if given.mweralign:
        beside(given.mweralign, reference, given.rates, cutter)


def written(document: Document, others: Sequence[Document], rate: float, generator: random.Random) -> Output:
    """A document with everything that may be wrong with it."""
    found = Output(document.id)
    for number, sentence in enumerate(document.sentences, 1):
        if generator.random() < 0.05:
            found.omitted.add(number)
            found.sentences.append("")
            continue
        line = garbled(sentence, document, rate, generator)
        found.sentences.append(line)
        if found.lines and generator.random() < 0.2:
            found.lines[-1] += f" {line}"
        else:
            found.lines.append(line)
        if generator.random() < 0.05:
            other = generator.choice([each for each in others if each.id != document.id])
            found.lines.append(generator.choice(other.sentences))
            found.sentences[-1] += f" {found.lines[-1]}"
            found.added.add(len(found.lines))
    return found


def garbled(sentence: str, document: Document, rate: float, generator: random.Random) -> str:
    words = []
    for word in sentence.split():
        drawn = generator.random() / rate
        other = generator.choice(generator.choice(document.sentences).split() or [word])
        words += [other] if drawn < 0.6 else [] if drawn < 0.8 else [word, other] if drawn < 1 else [word]
    return " ".join(words) or "."


def same(found: Sequence[Document], true: Sequence[Document]) -> str:
    pairs = [
        (ours, theirs)
        for one, other in zip(found, true, strict=True)
        for ours, theirs in zip(one.sentences, other.sentences, strict=True)
    ]
    return f"{100 * sum(ours == theirs for ours, theirs in pairs) / len(pairs):.1f} %"


def gaps(outputs: Sequence[Output], report: AlignmentReport) -> list[str]:
    """Precision and recall of what is said to be omitted and added."""
    cells = []
    for what in ("omitted", "added"):
        right = said = true = 0
        for output, document in zip(outputs, report.documents, strict=True):
            own, theirs = set(getattr(document, what)), getattr(output, what)
            right, said, true = right + len(own & theirs), said + len(own), true + len(theirs)
        cells.append(f"{right / max(1, said):.2f} / {right / max(1, true):.2f}")
    return cells


def doubts(reference: Sequence[Document], rate: float, cutter: Cutter) -> list[str]:
    """How many documents are told to have as many lines by accident: of those that do, and of all others."""
    cells = []
    for shifted in (True, False):
        generator, documents = random.Random(2), []
        for document in reference:
            lines = [garbled(sentence, document, rate, generator) for sentence in document.sentences]
            if shifted and len(lines) > 1:
                first, last = sorted(generator.sample(range(len(lines)), 2))
                other = generator.choice([each for each in reference if each.id != document.id])
                added = generator.choice(other.sentences)
                lines = [*lines[:first], *lines[first + 1 : last + 1], added, *lines[last + 1 :]]
            documents.append(Document(document.id, tuple(lines)))
        _, report = realign(documents, [reference], cutter)
        cells.append(f"{sum(document.doubtful for document in report.documents)} of {len(documents)}")
    return cells


def beside(program: str, reference: Sequence[Document], rates: Sequence[float], cutter: Cutter) -> None:
    rows = [("rate", "edits", "mweralign", "same pieces")]
    tokens = [[" ".join(cutter.tokens(s)) for s in document.sentences] for document in reference]
    plain = [Document(d.id, tuple(lines)) for d, lines in zip(reference, tokens, strict=True)]
    for rate in rates:
        outputs = [written(document, plain, rate, random.Random(1)) for document in plain]
        joined = [Document(o.id, (" ".join(o.lines),)) for o in outputs]
        ours, report = realign(joined, [plain], cutter, "all")
        theirs = run(program, joined, plain)
        _, of_theirs = realign(theirs, [plain], cutter)
        edits = (sum(d.edits for d in each.documents) for each in (report, of_theirs))
        rows.append((f"{rate:g}", *map(str, edits), same(ours, theirs)))
    print(render_rows(rows, left=0))


def run(program: str, joined: Sequence[Document], reference: Sequence[Document]) -> list[Document]:
    """The pieces of mweralign, document by document."""
    texts = {
        "r": [sentence for document in reference for sentence in document.sentences],
        "t": [document.sentences[0] for document in joined],
        "d": [str(number) for number, document in enumerate(reference) for _ in document.sentences],
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in texts.items():
            (Path(folder) / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = [program, "-m", "none", "-r", "r", "-t", "t", "-d", "d", "-o", "out"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        lines = iter((Path(folder) / "out").read_text(encoding="utf-8").split("\n"))
    return [Document(d.id, tuple(next(lines).strip() for _ in d.sentences)) for d in reference]


if __name__ == "__main__":
    main()
