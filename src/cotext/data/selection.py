"""Selection of data: held-out documents, cleaning by rules, splitting of lines with several sentences."""

import hashlib
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from itertools import accumulate, chain, groupby, islice
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cotext.data.alignment import KINDS, PRIORS, VARIANCE, Band, Bead, best_path
from cotext.data.documents import Languages, ParallelDocument, language_identifier
from cotext.data.formats.streams import numbered_lines
from cotext.data.splitting import Splitter, join_sentences, several_warning
from cotext.runtime import CotextError, nearest_known, optional_module, shown

# --- Random choice of development and test documents from a training corpus.

# Advice for a corpus without document boundaries.
BOUNDARIES: Final = (
    'put an empty line between documents, in TMX a <prop type="x-document"> into every <tu>, in tsv an id '
    "before every pair"
)
_PIECE: Final = re.compile(r"#[0-9]{1,9}$")
# Reads a corpus; the ids of skipped documents are added to the argument.
Read = Callable[[list[str]], Iterator[ParallelDocument]]


def set_aside(
    documents: Iterable[ParallelDocument], wanted: Mapping[str, int], seed: int
) -> dict[str, frozenset[int]]:
    """Draw documents for each part and return their numbers, from 0. All other documents are for training.

    Pieces of a document that was cut (d#1, d#2), and documents with the same id or source, are always in the
    same part.

    Raises CotextError if there are too few documents to leave one for training.
    """
    groups = _groups(documents)
    if len(groups) <= sum(wanted.values()):
        asked = " and ".join(f"{count} for {part} (--{part}-documents)" for part, count in wanted.items())
        total = sum(map(len, groups))
        available = f"{total:,} document{'s' if total > 1 else ''}"
        if total > len(groups):
            available += f" with only {len(groups):,} different ids and sources, which stay together"
        raise CotextError(
            f"the corpus has {available}, too few to set aside {asked} and leave one for training; set fewer "
            f"aside, or pass a larger corpus. If the corpus has no document boundaries: {BOUNDARIES}"
        )
    random.Random(seed).shuffle(groups)
    rest = iter(groups)
    return {part: frozenset(chain.from_iterable(islice(rest, count))) for part, count in wanted.items()}


def _groups(documents: Iterable[ParallelDocument]) -> list[list[int]]:
    """Return groups of numbers of documents that belong together, ordered by their first documents."""
    owner: dict[str | bytes, int] = {}  # name or digest -> group
    groups: dict[int, list[int]] = {}
    for number, document in enumerate(documents):
        digest = hashlib.sha256("\n".join(document.source).encode(errors="surrogatepass")).digest()
        keys = _PIECE.sub("", document.id), digest
        known = sorted({owner[key] for key in keys if key in owner})
        group = known[0] if known else number
        for other in known[1:]:
            groups[group] += groups.pop(other)
            owner.update({key: group for key, of in owner.items() if of == other})
        groups.setdefault(group, []).append(number)
        owner.update(dict.fromkeys(keys, group))
    return list(groups.values())


def part_of(read: Read, parts: Mapping[str, frozenset[int]], part: str) -> Read:
    """Return a reader of one part; "train" has all other documents, and alone reports skipped ones."""
    others = frozenset().union(*parts.values())

    def documents(skipped: list[str]) -> Iterator[ParallelDocument]:
        for number, document in enumerate(read(skipped if part == "train" else [])):
            if number in parts[part] if part in parts else number not in others:
                yield document

    return documents


# --- Cleaning: rules remove sentence pairs, and documents are cut there.
#
# A document is cut where a pair is removed, so that sentences that were not adjacent do not become adjacent.
# Its pieces are separate documents. All rules except `duplicates` look at a single pair.

# Rules with a number: default, smallest and largest number.
NUMBERS: Final[dict[str, tuple[float, float, float]]] = {
    "length": (1000, 1, 999_999),
    "ratio": (3, 1, 1000),
    "language": (0.95, 0.0, 1.0),
}
RULES: Final = ("empty", "length", "ratio", "copies", "language", "duplicates")
RATIO_CHARACTERS: Final = 10  # added to both sides, because lengths of short sentences vary by chance
COPY_LETTERS: Final = 10  # fewer letters may be a name, which is the same in both languages
LANGUAGE_LETTERS: Final = 40  # language identification is unreliable on shorter text
PASSAGE_SENTENCES: Final = 3  # length of a repeated passage; shorter passages recur by chance
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")

Pair = tuple[str, str]


def parse_rules(texts: Sequence[str]) -> dict[str, float]:
    """Parse rules such as `ratio`, `ratio=3` or `all`; return their numbers by name.

    Raises CotextError for an unknown rule or an invalid number.
    """
    rules: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name == "all" and not equals:
            rules = {**{rule: NUMBERS.get(rule, (0,))[0] for rule in RULES}, **rules}
            continue
        if name not in RULES:
            near = nearest_known(name, RULES)
            raise CotextError(f"--clean {shown(text)}: no such rule{near}; all are {', '.join(RULES)}")
        if equals and name not in NUMBERS:
            raise CotextError(f"--clean {shown(text)}: the rule {name} takes no number")
        rules[name], least, most = NUMBERS.get(name, (0, 0, 0))
        if equals:
            if not _NUMBER.fullmatch(value) or not least <= float(value) <= most:
                raise CotextError(f"--clean {shown(text)}: {name} needs a number from {least:g} to {most:g}")
            rules[name] = float(value)
    return rules


@dataclass(slots=True)
class Cleaned:
    """Numbers of removed pairs, by the first rule that matched, and of affected documents."""

    rules: dict[str, float]
    documents_before: int = 0
    pairs_before: int = 0
    pairs: dict[str, int] = field(default_factory=dict)
    cut: int = 0
    left_out: int = 0

    def render(self) -> str:
        reasons = ", ".join(f"{rule} {self.pairs.get(rule, 0):,}" for rule in self.rules)
        return (
            f"train: of {self.pairs_before:,} pairs, {sum(self.pairs.values()):,} left out ({reasons}); of "
            f"{self.documents_before:,} documents, {self.cut:,} cut into pieces, {self.left_out:,} left out"
        )


class PairFilter:
    """A Bloom filter (Bloom 1970) of pairs of texts: 32 MiB, four bits per pair."""

    def __init__(self, bits_log2: int = 28, hashes: int = 4) -> None:
        self._mask = np.uint64((1 << bits_log2) - 1)
        self._bits: NDArray[np.uint8] = np.zeros(1 << (bits_log2 - 3), np.uint8)
        self._steps = np.arange(hashes, dtype=np.uint64)[:, None]

    def add(self, pairs: Iterable[Pair]) -> list[bool]:
        """Add pairs; return for each pair whether the filter contained it before this call."""
        digests = (blake2b(f"{s}\0{t}".encode(), digest_size=16).digest() for s, t in pairs)
        words = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
        # Linear combinations of two hashes replace additional hashes (Kirsch and Mitzenmacher 2006).
        slots = (words[:, 0] + self._steps * words[:, 1]) & self._mask
        byte, bit = slots >> np.uint64(3), (1 << (slots & np.uint64(7))).astype(np.uint8)
        known: list[bool] = (self._bits[byte] & bit).astype(bool).all(axis=0).tolist()
        np.bitwise_or.at(self._bits, byte, bit)
        return known


class Cleaner:
    """A filter of documents by rules, in one pass; `cleaned` contains the counts.

    `lengths`: characters of all source and of all target sentences. The rule `ratio` compares the length
    ratio of a pair with the ratio of these two.

    Raises CotextError if the rule `language` is used, but the languages or the package are missing.
    """

    def __init__(self, rules: dict[str, float], languages: Languages, lengths: tuple[int, int]) -> None:
        self.cleaned = Cleaned(rules)
        self._languages = languages
        self._expected = max(lengths[1], 1) / max(lengths[0], 1)
        self._seen = PairFilter()
        tests: dict[str, Callable[[Pair], bool]] = {
            "empty": lambda pair: bool(pair[0].strip()) != bool(pair[1].strip()),
            "length": lambda pair: max(map(len, pair)) > rules["length"],
            "ratio": self._out_of_proportion,
            "copies": _copied,
            "language": lambda pair: any(map(self._is_foreign, pair, (languages.source, languages.target))),
        }
        self._tests = {rule: test for rule, test in tests.items() if rule in rules}
        if "language" in rules:
            self._require_languages()

    def documents(self, documents: Iterable[ParallelDocument]) -> Iterator[ParallelDocument]:
        for document in documents:
            pairs = list(zip(document.source, document.target, strict=True))
            # The first rule that matches each pair; empty if no rule matches.
            matching = ((rule for rule, test in self._tests.items() if any(p) and test(p)) for p in pairs)
            reasons = [next(rules, "") for rules in matching]
            if "duplicates" in self.cleaned.rules:
                for i in self._repeated(pairs):
                    reasons[i] = reasons[i] or "duplicates"
            self.cleaned.documents_before += 1
            self.cleaned.pairs_before += len(pairs)
            for reason in filter(None, reasons):
                self.cleaned.pairs[reason] = self.cleaned.pairs.get(reason, 0) + 1
            runs = groupby(zip(pairs, reasons, strict=True), key=lambda row: not row[1])
            kept = [[pair for pair, _ in run] for is_kept, run in runs if is_kept]
            self.cleaned.cut += len(kept) > 1
            self.cleaned.left_out += not kept
            yield from pieces_of(document.id, kept)

    def _out_of_proportion(self, pair: Pair) -> bool:
        source = len(pair[0]) * self._expected + RATIO_CHARACTERS
        target = len(pair[1]) + RATIO_CHARACTERS
        return max(source, target) > self.cleaned.rules["ratio"] * min(source, target)

    def _is_foreign(self, text: str, language: str) -> bool:
        # A Chinese character carries as much information as several letters.
        weight = sum(3 if character >= "\u2e80" else character.isalpha() for character in text)
        if weight < LANGUAGE_LETTERS:
            return False
        identified, probability = language_identifier().classify(text)
        return bool(identified != language and probability >= self.cleaned.rules["language"])

    def _require_languages(self) -> None:
        if not str(self._languages):
            raise CotextError(
                "--clean language: the languages of the corpus are not known; name them with "
                "--source-language and --target-language"
            )
        optional_module("py3langid", "clean", "--clean language")
        known = set(language_identifier().labels)
        for language in (self._languages.source, self._languages.target):
            if language not in known:
                raise CotextError(
                    f"--clean language: the language {language} cannot be identified; remove the rule"
                )

    def _repeated(self, pairs: Sequence[Pair]) -> set[int]:
        """Return the indices of pairs in repeated passages; a shorter document counts as a passage."""
        length = min(PASSAGE_SENTENCES, len(pairs))
        starts = range(len(pairs) - length + 1)
        passages = [
            tuple("\n".join(side) for side in zip(*pairs[i : i + length], strict=True)) for i in starts
        ]
        known = self._seen.add([(p[0], p[1]) for p in passages])
        return {i + k for i, before in zip(starts, known, strict=True) if before for k in range(length)}


def _copied(pair: Pair) -> bool:
    source, target = (" ".join(side.casefold().split()) for side in pair)
    return source == target and sum(map(str.isalpha, source)) >= COPY_LETTERS


def pieces_of(document_id: str, runs: Sequence[Sequence[tuple[str, str]]]) -> Iterator[ParallelDocument]:
    """Yield the pieces of a document as documents d#1, d#2 and so on; a single piece keeps the id."""
    for number, run in enumerate(runs, 1):
        name = document_id if len(runs) == 1 else f"{document_id}#{number}"
        yield ParallelDocument(name, tuple(s for s, _ in run), tuple(t for _, t in run))


def align_lengths(source: Sequence[int], target: Sequence[int]) -> list[Bead]:
    """Return the most probable beads (1-1, 1-2, 2-1) of two texts, given the characters of each sentence.

    The expected length ratio is the ratio of the two texts. The result is empty if such beads cannot cover
    all sentences: a side is empty or has more than twice as many as the other.
    """
    # Number of characters before each sentence.
    before = [[0, *accumulate(side)] for side in (source, target)]
    ratio = max(1, before[1][-1]) / max(1, before[0][-1])
    width = len(target) + 1

    def row_scores(i: int) -> NDArray[np.float32]:
        scores = np.full((3, width), -np.inf, np.float32)
        for kind, (k, m) in enumerate(KINDS[:3]):
            for j in range(m, width if k <= i else 0):
                lengths = before[0][i] - before[0][i - k], before[1][j] - before[1][j - m]
                # The probability of a length difference (Gale and Church 1993, section 3.2, equation 2).
                mean, difference = (lengths[0] + lengths[1] / ratio) / 2, abs(lengths[1] - lengths[0] * ratio)
                deviation = difference / math.sqrt(max(1.0, mean) * VARIANCE)
                likely = max(math.erfc(deviation / math.sqrt(2)), 1e-300)
                scores[kind, j] = math.log(PRIORS[k, m]) + math.log(likely)
        return scores

    band = Band(np.zeros(len(source) + 1, np.int64), width)
    return best_path(len(source), len(target), band, row_scores, -math.inf)


@dataclass(slots=True)
class MultiSentenceCounts:
    """Counts of lines that look like several sentences.

    `pairs`: all pairs. `several`: pairs with several sentences on a side, by punctuation. `first`: side (0
    source, 1 target) and text of the first such line. `split`: pairs that were split. `sentences`: the
    resulting pairs. `uneven`: pairs that could not be aligned and were not split.
    """

    pairs: int = 0
    several: int = 0
    first: tuple[int, str] | None = None
    split: int = 0
    sentences: int = 0
    uneven: int = 0


@dataclass(slots=True)
class Selection:
    """One split of a corpus, which can be read several times; the counts refer to the last time.

    `read_files` reads the files and adds the ids of `skipped` documents to its argument. `splitters` split
    lines of source and target. `rules` are the rules of `Cleaner`.
    """

    read_files: Read
    languages: Languages
    rules: dict[str, float] = field(default_factory=dict)
    splitters: tuple[Splitter, Splitter] | None = None
    skipped: list[str] = field(default_factory=list)
    prose: MultiSentenceCounts = field(default_factory=MultiSentenceCounts)
    cleaned: Cleaned | None = None
    _lengths: tuple[int, int] | None = None

    def read(self, counting: bool = True) -> Iterator[ParallelDocument]:
        """Yield the documents; without `counting`, checks that only serve statistics are skipped."""
        if "ratio" in self.rules and self._lengths is None:
            source = target = 0
            for document in self._uncleaned(counting=False):
                source += sum(map(len, document.source))
                target += sum(map(len, document.target))
            self._lengths = source, target
        documents = self._uncleaned(counting)
        if not self.rules:
            return documents
        cleaner = Cleaner(self.rules, self.languages, self._lengths or (1, 1))
        self.cleaned = cleaner.cleaned
        return cleaner.documents(documents)

    def counts(self) -> dict[str, object]:
        cleaned = None if self.cleaned is None else asdict(self.cleaned)
        # The text of the first line is omitted, as it may be long; the notes contain its location.
        prose = asdict(replace(self.prose, first=None))
        return {"alignment": {"unequal": len(self.skipped)}, "prose": prose, "cleaned": cleaned}

    def _uncleaned(self, counting: bool) -> Iterator[ParallelDocument]:
        self.skipped, self.prose = [], MultiSentenceCounts()
        documents = self.read_files(self.skipped)
        return self._split(documents) if counting or self.splitters else documents

    def _split(self, documents: Iterable[ParallelDocument]) -> Iterator[ParallelDocument]:
        """Count lines with several sentences, and split those whose sentences can be aligned."""
        detectors = self.splitters or (Splitter(self.languages.source), Splitter(self.languages.target))
        for document in documents:
            pairs: list[tuple[str, str]] = []
            for pair in zip(document.source, document.target, strict=True):
                several = [side for side in (0, 1) if len(detectors[side].spans(pair[side])) > 1]
                if several:
                    self.prose.several += 1
                    self.prose.first = self.prose.first or (several[0], pair[several[0]])
                pairs += self._sentences(pair) if several else [pair]
            self.prose.pairs += len(document)
            yield from pieces_of(document.id, [pairs])

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
        return [
            (
                join_sentences([source[index] for index in of_source], self.languages.source),
                join_sentences([target[index] for index in of_target], self.languages.target),
            )
            for of_source, of_target in beads
        ]


def location_of(files: Sequence[Path], side: int, sentence: str) -> str:
    """Return file and line of a sentence, to begin a message."""
    path = files[min(side, len(files) - 1)]
    # The file is searched again, because line numbers are needed only for messages.
    line = next((number for number, line in numbered_lines(path) if sentence in line), None)
    return f"{path}: " if line is None else f"{path}:{line}: "


def render(split: str, files: Sequence[Path], selection: Selection) -> list[str]:
    """Return the notes of the report on a split."""
    lines = []
    if unequal := len(selection.skipped):
        documents = "document" if unequal == 1 else "documents"
        lines.append(f"{split}: {unequal:,} {documents} with unequal numbers of sentences left out")
    prose = selection.prose
    if prose.first is not None:
        hint = ""
        if selection.splitters is not None:
            hint = (
                f"; {prose.split:,} were split into {prose.sentences:,}, {prose.uneven:,} left whole, "
                "because their sentences cannot be aligned by length"
            )
        elif split == "train":
            hint = "; --split splits them"
        lines.append(
            f"{split}: {several_warning(prose.several, prose.pairs, 'pairs')} (by punctuation only), the "
            f"first at {location_of(files, *prose.first).removesuffix(': ')}{hint}"
        )
    if selection.cleaned is not None:
        lines.append(selection.cleaned.render())
    return lines
