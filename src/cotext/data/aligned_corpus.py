"""A corpus from documents aligned by sentence: which documents are excluded, and where they are cut.

Up to two successive unaligned sentences of a side are dropped, and the document is not cut. Longer unaligned
passages are removed, and so are passages in which the words of the two sides are unrelated. There, documents
are cut, and their parts become separate documents, as in cleaning (`cotext.data.selection`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np

from cotext.data.alignment import Bead, Probabilities, align_documents
from cotext.data.documents import Document, Languages, ParallelDocument, languages_of_texts
from cotext.data.selection import COPY_LETTERS, pieces_of
from cotext.data.splitting import join_sentences
from cotext.data.words import word_texts

SHORT_GAP: Final = 2  # unaligned sentences of a side that do not cut the document
WINDOW: Final = 5  # beads over which the evidence of words is averaged
USUAL_SHARE: Final = 0.1  # share of the median evidence below which a bead is doubtful
LEAST_EVIDENCE: Final = 0.3  # median evidence in nats below which the corpus is too small for a lexicon
MOST_BY_LENGTHS: Final = 30  # source sentences of the largest corpus that is aligned without a lexicon
COVERED: Final = 0.75  # share of the sentences of each side that must be aligned in such a corpus
SHOWN: Final = 10  # cases of each kind in the report
EMPTY: Final = "one side is empty"
COPIED: Final = "both sides are the same text"
SWAPPED: Final = "the languages are swapped"
UNRELATED: Final = "the sides are not translations of each other"
ALONE: Final = "no document of this name on the other side"


@dataclass(frozen=True, slots=True)
class Gap:
    """A removed stretch: first and last sentence of each side, counted from 1.

    `doubtful`: the stretch has aligned sentences, whose words are unrelated. `cut`: the document is cut here.
    """

    document: str
    source: tuple[int, ...]
    target: tuple[int, ...]
    doubtful: bool
    cut: bool

    def __str__(self) -> str:
        sides = [
            f"{side} {'-'.join(map(str, dict.fromkeys(numbers)))}"
            for side, numbers in (("source", self.source), ("target", self.target))
            if numbers
        ]
        return f"{self.document}: {', '.join(sides)}{' (doubtful)' if self.doubtful else ''}"


@dataclass(slots=True)
class AlignedCorpus:
    """The aligned documents, and a report.

    `beads`: number of kept beads by kind, such as "1-2". `left_out`: reasons of excluded documents, by id.
    `by_lengths`: documents that were aligned mainly by lengths, because the words gave too little evidence.
    """

    documents: list[ParallelDocument] = field(default_factory=list)
    beads: dict[str, int] = field(default_factory=dict)
    sentences: tuple[int, int] = (0, 0)
    gaps: list[Gap] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    by_lengths: list[str] = field(default_factory=list)

    def render(self) -> str:
        """Return the report as text, with the first cases of each kind."""
        kinds = ", ".join(f"{kind}: {count:,}" for kind, count in sorted(self.beads.items()))
        lines = []
        if self.documents:
            lines.append(
                f"{sum(self.beads.values()):,} pairs ({kinds}) of {self.sentences[0]:,} source and "
                f"{self.sentences[1]:,} target sentences; documents: {len(self.documents):,}"
            )
        dropped, cut = ([gap for gap in self.gaps if gap.cut == is_cut] for is_cut in (False, True))
        left_out = [f"{name}: {reason}" for name, reason in self.left_out.items()]
        for what, places in (
            ("short stretches without counterpart, dropped", dropped),
            ("stretches where the document was cut", cut),
            ("documents left out", left_out),
            ("documents too short for a lexicon, aligned mainly by lengths: check them", self.by_lengths),
        ):
            if places:
                lines.append(f"{what}: {len(places):,}")
                lines += [f"  {place}" for place in places[:SHOWN]]
                lines += ["  ..."] * (len(places) > SHOWN)
        return "\n".join(lines)


def align_corpus(
    documents: Sequence[tuple[Document, Document]],
    languages: Languages,
    probabilities: Probabilities | None = None,
) -> AlignedCorpus:
    """Align the sentences of documents (source, target); `languages` determine how sentences are joined."""
    corpus, kept = AlignedCorpus(), []
    for (source, target), reason in zip(documents, _reasons(documents, languages), strict=True):
        if reason:
            corpus.left_out[source.id] = reason
        else:
            kept.append((source, target))
    alignments = align_documents([(s.sentences, t.sentences) for s, t in kept], probabilities) if kept else []
    both = [e for a in alignments for e, bead in zip(a.evidence, a.beads, strict=True) if all(bead)]
    usual, total = float(np.median(both or [0.0])), sum(len(source) for source, _ in kept)
    for (source, target), alignment in zip(kept, alignments, strict=True):
        sizes = len(source), len(target)
        # Doubtful beads: the mean evidence of the aligned beads around them is low.
        aligned = np.array([all(bead) for bead in alignment.beads], float)
        window = np.ones(min(WINDOW, len(aligned)))
        sums, count = (np.convolve(x, window, mode="same") for x in (alignment.evidence, aligned))
        doubtful = [bool(doubt) for doubt in sums < USUAL_SHARE * usual * count]
        judged = [e for e, bead in zip(alignment.evidence, alignment.beads, strict=True) if all(bead)]
        if not judged or np.mean(judged) < USUAL_SHARE * usual:
            doubtful = [True] * len(doubtful)
        if usual < LEAST_EVIDENCE:
            covered = [sum(len(bead[side]) for bead in alignment.beads if all(bead)) for side in (0, 1)]
            if total > MOST_BY_LENGTHS or min(np.divide(covered, sizes)) < COVERED:
                doubtful = [True] * len(doubtful)
            else:
                doubtful = [False] * len(doubtful)
                corpus.by_lengths.append(source.id)
        good = [all(bead) and not doubt for bead, doubt in zip(alignment.beads, doubtful, strict=True)]
        if not any(good):
            corpus.left_out[source.id] = UNRELATED
            continue
        corpus.sentences = corpus.sentences[0] + sizes[0], corpus.sentences[1] + sizes[1]
        _add(corpus, (source, target), alignment.beads, good, languages)
    return corpus


def _add(
    corpus: AlignedCorpus,
    sides: tuple[Document, Document],
    beads: Sequence[Bead],
    good: Sequence[bool],
    languages: Languages,
) -> None:
    """Add the good beads of a document, and cut it at long or doubtful gaps."""
    runs: list[list[tuple[str, str]]] = [[]]
    codes = languages.source, languages.target
    for is_good, group in groupby(zip(beads, good, strict=True), key=itemgetter(1)):
        stretch = [bead for bead, _ in group]
        if not is_good:
            missing = [[number + 1 for skipped in stretch for number in skipped[side]] for side in (0, 1)]
            doubtful = any(map(all, stretch))
            cut = doubtful or max(map(len, missing)) > SHORT_GAP
            ends = [tuple(numbers[:1] + numbers[-1:]) for numbers in missing]
            corpus.gaps.append(Gap(sides[0].id, ends[0], ends[1], doubtful, cut))
            if cut:
                runs.append([])
            continue
        for bead in stretch:
            source, target = (
                join_sentences([side.sentences[i] for i in numbers], code)
                for side, numbers, code in zip(sides, bead, codes, strict=True)
            )
            runs[-1].append((source, target))
            kind = "-".join(str(len(numbers)) for numbers in bead)
            corpus.beads[kind] = corpus.beads.get(kind, 0) + 1
    corpus.documents += pieces_of(sides[0].id, [run for run in runs if run])


def _reasons(documents: Sequence[tuple[Document, Document]], languages: Languages) -> list[str]:
    """Return the reason why each document is excluded before alignment; empty if it is not excluded."""
    words = [
        [Counter(word for text in side.sentences for word in word_texts(text.lower())) for side in both]
        for both in documents
    ]
    totals = [sum((counts[side] for counts in words), Counter[str]()) for side in (0, 1)]
    reasons = []
    for (source, target), (of_source, of_target) in zip(documents, words, strict=True):
        targets = {"".join(sentence.casefold().split()) for sentence in target.sentences}
        sources = ["".join(sentence.casefold().split()) for sentence in source.sentences]
        long = [sentence for sentence in sources if sum(map(str.isalpha, sentence)) >= COPY_LETTERS]
        if not source.sentences or not target.sentences:
            reasons.append(EMPTY)
        elif 2 * sum(sentence in targets for sentence in long) > len(long):
            reasons.append(COPIED)
        elif _leaning(of_source, totals) < 0 < _leaning(of_target, totals) or (
            str(languages)
            and languages_of_texts((source.sentences, target.sentences)) == languages.reversed != languages
        ):
            reasons.append(SWAPPED)
        else:
            reasons.append("")
    return reasons


def _leaning(words: Counter[str], totals: Sequence[Counter[str]]) -> float:
    """Return a score above 0 if words are more frequent in the sources of the corpus than in the targets."""
    sizes = [total.total() + 1 for total in totals]
    return float(
        sum(
            count * np.log((totals[0][word] + 1) / sizes[0] * sizes[1] / (totals[1][word] + 1))
            for word, count in words.items()
        )
    )
