"""The documents of corpus files that are prepared: cut at gaps, on request split and cleaned, with counts."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace

from cotext.data.cleaning import Cleaned, Cleaner
from cotext.data.documents import ParallelDocument
from cotext.data.formats.records import Alignment
from cotext.data.languages import Languages
from cotext.data.length_alignment import Bead, align_lengths
from cotext.data.sentence_ends import several_warning
from cotext.data.splitting import Splitter, join_sentences

# A line is far too long if it has more than so many times the tokens of 99 in 100 training sentences.
LONG_TIMES = 2


@dataclass(slots=True)
class Prose:
    """Lines that look like several sentences, or are far longer than training sentences.

    `several`: pairs either side of which holds several sentences by punctuation; `long`: source sentences of
    a held-out set. `first`: side (0 source, 1 target) and text of the first. `split`: pairs that were split,
    into `sentences`; of these pairs, `aligned` have sides of unequal numbers of sentences, aligned by length,
    and of these sentences, `joined` are two on a side. `uneven`: left whole, as they cannot be aligned so.
    """

    pairs: int = 0
    several: int = 0
    long: int = 0
    first: tuple[int, str] | None = None
    split: int = 0
    sentences: int = 0
    aligned: int = 0
    joined: int = 0
    uneven: int = 0

    def found(self, side: int, text: str) -> None:
        """Note the first."""
        if self.first is None:
            self.first = side, text


@dataclass(slots=True)
class Selection:
    """One split of a corpus, read as often as needed; the counts are those of the last time.

    `read_files` is given what it counts into. `splitters` cut lines of either side, `rules` clean: see
    `cotext.data.cleaning`.
    """

    read_files: Callable[[Alignment], Iterator[ParallelDocument]]
    languages: Languages
    rules: dict[str, float] = field(default_factory=dict)
    splitters: tuple[Splitter, Splitter] | None = None
    alignment: Alignment = field(default_factory=Alignment)
    prose: Prose = field(default_factory=Prose)
    cleaned: Cleaned | None = None
    _lengths: tuple[int, int] | None = None

    def read(self, counting: bool = True) -> Iterator[ParallelDocument]:
        """The documents to be prepared; without `counting`, what is only looked for to be counted is not."""
        if "ratio" in self.rules and self._lengths is None:
            self._lengths = _characters(self._uncleaned(counting=False))
        documents = self._uncleaned(counting)
        if not self.rules:
            return documents
        cleaner = Cleaner(self.rules, self.languages, self._lengths or (1, 1))
        self.cleaned = cleaner.cleaned
        return cleaner.documents(documents)

    def note_lengths(self, document: ParallelDocument, tokens: Iterable[int], usual_tokens: int) -> None:
        """Count the source sentences, with their numbers of tokens, that are far longer than is usual."""
        for sentence, length in zip(document.source, tokens, strict=True):
            if length > LONG_TIMES * usual_tokens:
                self.prose.long += 1
                self.prose.found(0, sentence)

    def counts(self) -> dict[str, object]:
        """The counts, for the report."""
        cleaned = None if self.cleaned is None else asdict(self.cleaned)
        # Without the text of the first, which may be long; the notes say where it stands.
        prose = asdict(replace(self.prose, first=None))
        return {"alignment": asdict(self.alignment), "prose": prose, "cleaned": cleaned}

    def _uncleaned(self, counting: bool) -> Iterator[ParallelDocument]:
        self.alignment, self.prose = Alignment(), Prose()
        documents = self.read_files(self.alignment)
        return self._split(documents) if counting or self.splitters else documents

    def _split(self, documents: Iterable[ParallelDocument]) -> Iterator[ParallelDocument]:
        """Count lines of several sentences, and split those whose sentences can be aligned."""
        detectors = self.splitters or (Splitter(self.languages.source), Splitter(self.languages.target))
        for document in documents:
            pairs: list[tuple[str, str]] = []
            for pair in zip(document.source, document.target, strict=True):
                several = [side for side in (0, 1) if len(detectors[side].spans(pair[side])) > 1]
                if several:
                    self.prose.several += 1
                    self.prose.found(several[0], pair[several[0]])
                pairs += self._sentences(pair) if several else [pair]
            self.prose.pairs += len(document)
            if len(pairs) == len(document):
                yield document
            else:
                yield ParallelDocument(document.id, tuple(s for s, _ in pairs), tuple(t for _, t in pairs))

    def _sentences(self, pair: tuple[str, str]) -> list[tuple[str, str]]:
        if self.splitters is None:
            return [pair]
        source, target = (
            splitter.sentences(side) for splitter, side in zip(self.splitters, pair, strict=True)
        )
        if len(source) == len(target):
            beads: list[Bead] = [((index,), (index,)) for index in range(len(source))]
        else:
            beads = align_lengths([len(s) for s in source], [len(t) for t in target])
        if len(beads) <= 1:
            self.prose.uneven += len(source) != len(target)
            return [pair]
        self.prose.split += 1
        self.prose.sentences += len(beads)
        self.prose.aligned += len(source) != len(target)
        self.prose.joined += sum(len(of_source) + len(of_target) > 2 for of_source, of_target in beads)
        return [
            (
                join_sentences([source[index] for index in of_source], self.languages.source),
                join_sentences([target[index] for index in of_target], self.languages.target),
            )
            for of_source, of_target in beads
        ]


def _characters(documents: Iterable[ParallelDocument]) -> tuple[int, int]:
    """Those of all source and of all target sentences."""
    source = target = 0
    for document in documents:
        source += sum(map(len, document.source))
        target += sum(map(len, document.target))
    return source, target


def render(split: str, selection: Selection, location: Callable[[int, str], str]) -> list[str]:
    """The notes of a report on a split; `location` finds a sentence in the files."""
    lines = []
    if unequal := selection.alignment.unequal:
        lines.append(f"{split}: documents of unequal numbers of sentences left out: {unequal:,}")
    prose = selection.prose
    if prose.first is not None:
        found = []
        if prose.several:
            found.append(several_warning(prose.several, prose.pairs, "pairs"))
        if prose.long:
            found.append(
                f"{prose.long:,} source {'sentence has' if prose.long == 1 else 'sentences have'} more than "
                f"{LONG_TIMES} times the tokens of 99 in 100 training sentences"
            )
        hint = ""
        if selection.splitters is not None:
            hint = (
                f"; {prose.split:,} were split into {prose.sentences:,}, {prose.uneven:,} left whole, as "
                "their sides have unequal numbers of sentences"
            )
            if prose.aligned:
                hint += (
                    f"; {prose.aligned:,} of those split have such sides and were aligned by length, "
                    f"{prose.joined:,} of their sentences joined of two"
                )
        elif split == "train":
            hint = "; --split splits them"
        lines.append(
            f"{split}: {' and '.join(found)} (by punctuation and length alone), the first at "
            f"{location(*prose.first)}{hint}"
        )
    if selection.cleaned is not None:
        lines.append(selection.cleaned.render())
    return lines
