"""Write the texts of chosen documents of a corpus, and the suites of an experiment.

    python -m benchmarks.study.parts texts PARTS TEXTS
    python -m benchmarks.study.parts suites PARTS TEXTS DATA

PARTS is the section `parts` of an experiment in JSON. `texts` writes train, dev and test of the chosen
documents to the folder TEXTS; `suites` writes DATA/suites. Do not publish the output: licences of corpora
may forbid it.
"""

import sys
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from random import Random

from benchmarks.experiments.plan_data import Parts, Sampled
from benchmarks.study import dropped_choices
from benchmarks.study.choices import make_suites
from cotext.data.contrastive_suites import ContrastiveSuite, documents_of, read_suite, write_suite
from cotext.data.convert import Detokenisers
from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel, write_parallel
from cotext.runtime import CotextError, read_text

SPLITS = ("train", "dev", "test")
HELD = "held"  # split of training documents for suites
SEED = 1  # of draws


def write_texts(parts: Parts, texts: Path) -> None:
    """Write the chosen documents of every split, one sentence per line, with a file of document ids."""
    texts.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        chosen = list(islice(_chosen(parts, split), parts.documents))
        if not chosen:
            raise CotextError(
                f"{parts.corpus}: no document id of {split} begins with {', '.join(parts.prefixes)}"
            )
        if split == "train" and parts.held_out is not None:
            chosen, held = apart(chosen, parts.held_out)
            write_parallel(*text_files(parts, texts, HELD), held, "docids")
        if split == "train":
            chosen = [d for d in chosen for _ in range(parts.repeated.get(d.id[: d.id.find(":") + 1], 1))]
        write_parallel(*text_files(parts, texts, split), chosen, "docids")
    for name, (source, target, sizes) in parts.grouped.items():
        write_parallel(*text_files(parts, texts, name), grouped(*map(Path, (source, target, sizes))), "text")


def apart(
    documents: list[ParallelDocument], number: int
) -> tuple[list[ParallelDocument], list[ParallelDocument]]:
    """Draw `number` documents; return the others and the drawn ones, both in order."""
    if number >= len(documents):
        raise CotextError(f"held_out: {number} of {len(documents)} documents leave none to learn from")
    drawn = set(Random(SEED).sample(range(len(documents)), number))
    sides: tuple[list[ParallelDocument], list[ParallelDocument]] = ([], [])
    for index, document in enumerate(documents):
        sides[index in drawn].append(document)
    return sides


def grouped(source: Path, target: Path, sizes: Path) -> list[ParallelDocument]:
    """Read documents from files of lines and a file with the number of lines of each document."""
    sides = [read_text(path, max_bytes=1 << 28).splitlines() for path in (source, target)]
    numbers = [int(line) for line in read_text(sizes).split()]
    if not sum(numbers) == len(sides[0]) == len(sides[1]):
        raise CotextError(
            f"{sizes}: {sum(numbers)} sentences, but {len(sides[0])} lines in {source} and {len(sides[1])} "
            f"in {target}"
        )
    ends = list(accumulate(numbers))
    return [
        ParallelDocument(str(n), *(tuple(side[end - size : end]) for side in sides))
        for n, (end, size) in enumerate(zip(ends, numbers, strict=True), 1)
    ]


def _chosen(parts: Parts, split: str) -> Iterator[ParallelDocument]:
    for corpus in (parts.corpus, *parts.further):
        files = [corpus / f"{split}.{language}.xz" for language in (parts.source, parts.target)]
        for document in read_parallel(*files):
            if not parts.prefixes or document.id.startswith(parts.prefixes):
                yield document


def text_files(parts: Parts, texts: Path, split: str) -> tuple[Path, Path]:
    """Return the files of both sides of a split."""
    return texts / f"{split}.{parts.source}", texts / f"{split}.{parts.target}"


def write_suites(parts: Parts, texts: Path, data: Path) -> None:
    """Write the suites of choices, and the drawn suites."""
    folder = data / "suites"
    folder.mkdir(exist_ok=True)
    splits = {split: text_files(parts, texts, split) for split in (*SPLITS, HELD)}
    make = dropped_choices.write_suites if parts.source == "zh" else make_suites
    for name, (source, target) in parts.choices.items():
        corpus = splits[source] if source == target else (Path(source), Path(target))
        make(*corpus, folder / name, splits["train"])
    for name, sampled in parts.sampled.items():
        write_suite(folder / f"{name}.json", drawn(sampled))


def drawn(sampled: Sampled) -> ContrastiveSuite:
    """Return a suite, detokenised if requested, with all or some of its documents, in their order."""
    suite = read_suite(Path(sampled.suite))
    if sampled.detokenise:
        suite = Detokenisers(suite.languages).suite(suite)
    if sampled.documents is None:
        return suite
    numbers = documents_of(suite.examples)
    there = sorted(set(numbers))
    chosen = set(Random(SEED).sample(there, min(sampled.documents, len(there))))
    examples = tuple(e for e, number in zip(suite.examples, numbers, strict=True) if number in chosen)
    return ContrastiveSuite(f"{suite.name}-part", suite.source_language, suite.target_language, examples)


def main() -> None:
    """Write texts, or suites."""
    command, given, *paths = sys.argv[1:]
    {"texts": write_texts, "suites": write_suites}[command](
        Parts.model_validate_json(given), *map(Path, paths)
    )


if __name__ == "__main__":
    main()
