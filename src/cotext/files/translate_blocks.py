"""Translation of the blocks of a file, or of a stream of lines.

A document of a stream is translated when the empty line after it has arrived. Documents that have arrived are
translated together, without waiting for later ones.
"""

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from queue import Queue
from types import MappingProxyType
from typing import Final

from cotext.data.documents import Document, ParallelDocument
from cotext.data.faults import Checks, Fault
from cotext.data.formats.streams import OUTER_SPACE
from cotext.data.splitting import Splitter, words_of
from cotext.data.words import consists_of, occurrences
from cotext.files.block_sentences import (
    CutBlock,
    cut,
    is_unknown,
    shown,
    with_placeholders,
    without_placeholders,
)
from cotext.files.blocks import (
    Block,
    Contents,
    Copied,
    Piece,
    Point,
    empty_links,
    replaced,
    shown_text,
    substitutes,
)
from cotext.files.tags import project
from cotext.runtime import CotextError
from cotext.translation.alignment import align
from cotext.translation.open import OpenedRun, Terminology
from cotext.translation.prose import Prose
from cotext.translation.terms.terms import TermGuide, TermReport, term_report
from cotext.translation.terms.word_alignment import SentenceAlignment
from cotext.translation.translator import Translation

# --- The full stop that a model adds to a heading, list entry or table cell without one.

# Does not match a full stop after another one, a number (an ordinal in German) or a single letter (an
# initial). It is matched against reversed text, because a search from the left takes quadratic time.
_STOP: Final = re.compile(r"\. ?(?P<word>[^\W\d_]{2,}(?:\.[^\W\d_]+)*)|[。।።։۔]")
_ROMAN: Final = re.compile(r"[IVXLC]+")


def without_added_stop(source: str, target: str, language: str, endings: tuple[str, ...] = ()) -> str:
    """Return the translation without its full stop if the source ends in a letter or a digit.

    Models trained only on sentences end every text with a full stop. It is kept after abbreviations of the
    target `language`, numbers, initials, Roman numerals, words with inner full stops, and terms (`endings`: a
    space and a term, case-folded). A text without letters is unchanged.
    """
    match = _STOP.match(target[::-1])
    if match is None or not source.rstrip()[-1:].isalnum() or f" {target}".casefold().endswith(endings):
        return target
    word = (match["word"] or "")[::-1]
    is_abbreviation = any(
        word.lower() in words_of(kind, language) for kind in ("leading", "numbered", "often")
    )
    if "." in word or _ROMAN.fullmatch(word) or is_abbreviation:
        return target
    shortened = target[:-1].rstrip()
    return shortened if any(map(str.isalpha, shortened)) else target


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of a block: its pieces, and the text that the model reads."""

    pieces: tuple[Piece, ...]
    shown: dict[int, str]
    text: str
    place: str

    @property
    def copied(self) -> list[str]:
        """The copied texts, as the model reads them."""
        return [self.shown[piece.key] for piece in self.pieces if isinstance(piece, Copied)]

    def for_people(self, text: str) -> str:
        """Return a text that the model read or wrote, with copied texts instead of their substitutes."""
        return replaced(text, substitutes(self.pieces, self.shown))

    def for_model(self, text: str) -> str:
        """Return a translation by a person, with the substitutes of copied texts."""
        return replaced(text, [(own, substitute) for substitute, own in substitutes(self.pieces, self.shown)])


@dataclass(frozen=True, slots=True)
class _CutDocument:
    """A document of a file: its blocks, each block divided into sentences (`cut`), and all sentences."""

    blocks: Sequence[Block]
    cut: list[CutBlock]
    sentences: list[_Sentence] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PairedSentence:
    """A sentence of a file and its translation, without inline elements.

    `document` is an index into `BlockDocuments.documents`; `block` and `number` are indices of the block and
    the sentence in the document. `confidence`: see `Translation.confidences`; None if the translation
    was `taken` from a translation memory or contains no word chosen by the model. `terms`: glossary terms in
    the translation. `visible`: sentences that the translation may depend on.
    """

    document: int
    block: int
    number: int
    source: str
    target: str
    confidence: float | None = None
    taken: bool = False
    terms: tuple[str, ...] = ()
    visible: range = range(0)
    faults: Sequence[Fault] = ()


class BlockDocuments:
    """The documents of a file as sentences to translate.

    `documents` are the documents with at least one sentence, in order, and `numbers` their numbers in the
    file. They include blocks that are only context. Without a splitter, each block is one sentence. `alone`
    returns a context manager that reserves the model while words are aligned. `given`: fixed translations, by
    document in the file and sentence in the document.
    """

    def __init__(
        self,
        opened: OpenedRun,
        contents: Contents,
        splitter: Splitter | None,
        terminology: Terminology | None = None,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
        given: Mapping[int, Mapping[int, str]] | None = None,
    ) -> None:
        self._translator, self._alone = opened.translator, alone
        self._languages = opened.languages.source, opened.languages.target
        self._terminology = Terminology() if terminology is None else terminology
        self._phrases, self._given = self._terminology.phrases, given or {}
        terms = self._terminology.glossary.terms if self._terminology.glossary else ()
        self._endings = tuple(f" {t}".casefold() for term in terms for t in term.targets if t[-1:] == ".")
        self._empty_links: dict[tuple[int, int], int] = {}  # by document and sentence, set by `blocks`
        spans = splitter.spans if splitter is not None else None
        self._whole = [self._cut(blocks, spans) for blocks in contents.documents]
        self.numbers = [number for number, document in enumerate(self._whole) if document.sentences]
        self.documents = [
            Document(str(number + 1), tuple(s.text for s in self._whole[number].sentences))
            for number in self.numbers
        ]

    def _cut(
        self, blocks: Sequence[Block], spans: Callable[[str], list[tuple[int, int]]] | None
    ) -> _CutDocument:
        tokenizer = self._translator.tokenizer
        marked = (
            replace(block, pieces=with_placeholders(block.pieces, tokenizer, self._phrases))
            for block in blocks
        )
        cut_blocks = [cut(block, spans) for block in marked]
        document = _CutDocument(blocks, cut_blocks)
        for block in cut_blocks:
            for pieces in block.sentences:
                texts = shown(pieces, tokenizer)
                sentence = _Sentence(pieces, texts, shown_text(pieces, texts), block.block.place)
                document.sentences.append(sentence)
        return document

    @property
    def blocks_split(self) -> tuple[int, int]:
        """The number of blocks with several sentences, and the number of sentences in them."""
        counts = [len(block.sentences) for document in self._whole for block in document.cut]
        several = [count for count in counts if count > 1]
        return len(several), sum(several)

    @property
    def unknown_words(self) -> list[str]:
        """The different words with characters that the model does not know, in order; they are copied."""
        blocks = chain.from_iterable(document.cut for document in self._whole)
        parts = chain.from_iterable((*block.sentences, *block.between) for block in blocks)
        copied = (piece.text for pieces in parts for piece in pieces if isinstance(piece, Copied))
        return [text for text in dict.fromkeys(copied) if is_unknown(text, self._translator.tokenizer)]

    @property
    def sentences(self) -> Iterator[tuple[int, int, int, str, str]]:
        """Yield document, block and sentence number (from 0), text, and preceding text of all sentences.

        The preceding text is between the sentence and the previous sentence of its block.
        """
        for number, document in enumerate(self._whole):
            cut_blocks = enumerate(document.cut)
            places = ((n, pieces) for n, block in cut_blocks for pieces in block.between[:-1])
            for j, ((n, before), sentence) in enumerate(zip(places, document.sentences, strict=True)):
                yield number, n, j, sentence.for_people(sentence.text), shown_text(before)

    def place(self, document: int, sentence: int) -> str:
        """Return the place of a sentence of `documents` in the file."""
        return self._whole[self.numbers[document]].sentences[sentence].place

    def check(self) -> int:
        """Check that all sentences can be translated, and return their number.

        Raises CotextError if a sentence or a given translation is too long, or the system does not support
        terms.
        """
        self._terminology.check(self._translator)
        sentences = 0
        for number, given in self._given.items():
            targets = [given.get(j, "") for j in range(len(self._whole[number].sentences))]
            self._translator.encoded_target(str(number + 1), targets)
        for index, document in enumerate(self.documents):
            try:
                sentences += self._translator.check([document])
            except CotextError as error:
                raise CotextError(f"{self._first_refused(index)}{error}") from None
        return sentences

    def _first_refused(self, document: int) -> str:
        """Return the place of the first sentence that is rejected even without context."""
        for j, sentence in enumerate(self.documents[document].sentences):
            try:
                self._translator.check([Document("", (sentence,))])
            except CotextError:
                return f"{self.place(document, j)}: "
        return ""

    def guide(self, chosen: Sequence[int]) -> TermGuide | None:
        """Return the terms and copied texts of the `documents` with these indices; None if there are none."""
        documents = [self._whole[self.numbers[index]].sentences for index in chosen]
        return self._terminology.guide(
            self._translator,
            [[sentence.text for sentence in sentences] for sentences in documents],
            [[sentence.copied for sentence in sentences] for sentences in documents],
        )

    def taken(self, chosen: Sequence[int]) -> Mapping[int, Mapping[int, str]]:
        """Return {index into `chosen`: {sentence: text}}: given translations, else those of the memory."""
        memory = self._terminology.memory
        documents = [self._whole[self.numbers[index]].sentences for index in chosen]
        texts = ([each.for_people(each.text) for each in sentences] for sentences in documents)
        translations: dict[int, Mapping[int, str]] = dict(memory.taken(texts)) if memory else {}
        for position, index in enumerate(chosen):
            if given := self._given.get(self.numbers[index]):
                translations[position] = {**translations.get(position, {}), **given}
        return {
            position: {j: documents[position][j].for_model(text) for j, text in fixed.items()}
            for position, fixed in translations.items()
        }

    def for_people(self, index: int, sentence: int, text: str) -> str:
        """Return a translation of a sentence of `documents` without substitutes of copied texts."""
        return self._whole[self.numbers[index]].sentences[sentence].for_people(text)

    def paired(
        self,
        translations: Mapping[int, Translation],
        faults: Mapping[tuple[int, int], Sequence[Fault]] = MappingProxyType({}),
    ) -> list[PairedSentence]:
        """Return all sentences with their translations, in the order of the file.

        `faults`: the result of the method `faults`; by default, no sentence has faults.
        """
        all_indices = range(len(self.documents))
        guide = self.guide(all_indices) if self._terminology.of_terms else None
        taken, pairs = self.taken(all_indices), []
        for index, document in enumerate(self.documents):
            blocks = self._whole[self.numbers[index]].cut
            of_block = [n for n, block in enumerate(blocks) for _ in block.sentences]
            scores = translations[index].confidences
            visible = self._translator.visible_sentences(document)
            for j, target in enumerate(self._targets(index, translations[index])):
                expected = guide.occurrences(index, j) if guide else ()
                matches = (islice(occurrences(target, guide.alternatives(o)), 1) for o in expected if guide)
                terms = tuple(phrase for match in matches for _, phrase in match)
                is_taken, own = j in taken.get(index, ()), self._whole[self.numbers[index]].sentences[j]
                confidence = None if is_taken or consists_of(target, [*terms, *own.copied]) else scores[j]
                about = (confidence, is_taken, terms, visible[j], faults.get((index, j), ()))
                source, target = own.for_people(own.text), own.for_people(target)
                pairs.append(PairedSentence(index, of_block[j], j, source, target, *about))
        return pairs

    def faults(self, translations: Mapping[int, Translation]) -> dict[tuple[int, int], list[Fault]]:
        """Return faults by (document, translated sentence). Call `blocks` first: it counts empty links."""
        written: dict[tuple[int, int], str] = {}  # sources without copied text
        pairs = []
        for index, translation in translations.items():
            document = self._whole[self.numbers[index]]
            is_written = (block.block.translate for block in document.cut for _ in block.sentences)
            sides = zip(document.sentences, self._targets(index, translation), is_written, strict=True)
            for j, (own, target, is_own) in enumerate(sides):
                if is_own:
                    texts = (
                        p if isinstance(p, str) else " " * isinstance(p, Copied | Point) for p in own.pieces
                    )
                    written[index, j] = "".join(texts)
                    pairs.append((own.text, target))
        checks = Checks(pairs, self._languages)
        return {
            place: checks.faults(number, own_text, self._empty_links.get(place, 0))
            for number, (place, own_text) in enumerate(written.items())
        }

    def terms(self, translations: Mapping[int, Translation]) -> TermReport | None:
        """Return the term accuracy of translations of all `documents`; None without glossary terms."""
        texts = {index: translated.document.sentences for index, translated in sorted(translations.items())}
        guide = self.guide(range(len(self.documents))) if self._terminology.of_terms else None
        return None if guide is None else term_report(guide, texts)

    def blocks(self, translations: Mapping[int, Translation]) -> list[list[Block]]:
        """Return the translated blocks of the file; `translations` by the index of the document."""
        blocks = [list(document.blocks) for document in self._whole]
        for index, number in enumerate(self.numbers):
            targets = self._targets(index, translations[index])
            blocks[number] = list(self._translated(index, targets))
        return blocks

    def _targets(self, index: int, translation: Translation) -> list[str]:
        """Return the translated sentences of one of `documents`, as they are written to the file."""
        taken, targets = self.taken([index]).get(0, {}), []
        for j, target in enumerate(translation.document.sentences):
            is_written = j not in taken and j not in translation.missing
            targets.append(self.written(index, j, target) if is_written else taken.get(j, target))
        return targets

    def written(self, index: int, sentence: int, target: str) -> str:
        """Return a translation found by search, as it is written to the file; see `without_added_stop`."""
        source, translator = self._whole[self.numbers[index]].sentences[sentence].text, self._translator
        if target:
            return without_added_stop(source, target, self._languages[1], self._endings)
        # Free search can omit a sentence, which then stays empty. Otherwise, only a source without visible
        # characters has an empty translation; then the source is written.
        may_miss = translator.plan.options.align == "free" and translator.tokenizer.encode(source)
        return "" if may_miss else source

    def _translated(self, index: int, targets: Sequence[str]) -> Iterator[Block]:
        document = self._whole[self.numbers[index]]
        alignments = self._alignments(document, targets)
        j = 0
        for original, block in zip(document.blocks, document.cut, strict=True):
            pieces = []
            for _ in block.sentences:
                sentence = document.sentences[j]
                pieces.append(project(sentence.pieces, targets[j], alignments.get(j), sentence.shown))
                self._empty_links[index, j] = empty_links(sentence.pieces, pieces[-1])
                j += 1
            if not original.translate:
                yield original
                continue
            joined = block.joined(pieces, self._languages[1])
            yield replace(joined, pieces=without_placeholders(joined.pieces, original.pieces))

    def _alignments(self, document: _CutDocument, targets: Sequence[str]) -> dict[int, SentenceAlignment]:
        """Align the words of sentences with inline elements; return {} if a sentence is too long to score."""
        sentences = document.sentences
        having = [any(not isinstance(piece, str) for piece in sentence.pieces) for sentence in sentences]
        chosen = [j for j, has_elements in enumerate(having) if has_elements and targets[j]]
        if not chosen:
            return {}
        pair = ParallelDocument("", tuple(sentence.text for sentence in sentences), tuple(targets))
        try:
            with self._alone():
                [found] = align(self._translator, [pair], [chosen])
        except CotextError:
            # Without an alignment, elements are placed in proportion to length.
            return {}
        return dict(zip(chosen, found, strict=True))


BYTE_ORDER_MARK = "\ufeff"
DOCUMENTS_AHEAD = 256  # maximum number that are read in advance, or translated together


@dataclass(frozen=True, slots=True)
class _Part:
    """A document of the stream with its line endings, or an empty line that is copied."""

    document: Document | None
    endings: tuple[str, ...]


_Arrived = _Part | CotextError | None


class StreamTranslation:
    """Translation of a stream of numbered lines, each into one line with the same line ending.

    `splitter` splits lines with several sentences; None: each line is one sentence. Raises CotextError for
    `decode.align = free`, terms that are not supported, or an error of `DecodingPlan.check_passes`.
    """

    def __init__(self, opened: OpenedRun, splitter: Splitter | None, terminology: Terminology) -> None:
        self._terminology = terminology
        terminology.check(opened.translator)
        # Numbers of documents and sentences, and of sentences cut off (truncated) or longer than in training.
        self.counts = Counter[str]()
        self._translator = opened.translator
        self.prose = Prose(splitter, opened.languages)
        self._translator.plan.check_passes()
        if self._translator.plan.options.align == "free":
            raise CotextError(
                "decode.align = free may leave sentences without a translation, and an empty line ends a "
                "document; choose decode.align = constrained, or translate a file"
            )

    def run(self, lines: Iterable[tuple[int, str]], write: Callable[[str], None]) -> None:
        """Translate the stream; `write` is called with complete documents and the empty lines after them.

        Raises CotextError if a sentence is too long, or lines cannot be read; earlier documents are written.
        """
        arriving: Queue[_Arrived] = Queue(DOCUMENTS_AHEAD)
        # A daemon thread, because it may wait for a line forever, and must not keep the process alive.
        threading.Thread(target=self._read, args=(lines, arriving), daemon=True).start()
        last: _Arrived = _Part(None, ())
        while last is not None:
            # All parts that have arrived are translated together.
            parts: list[_Part] = []
            while isinstance(last := arriving.get(), _Part):
                parts.append(last)
                if len(parts) == DOCUMENTS_AHEAD or arriving.empty():
                    break
            self._translate(parts, write)
            if isinstance(last, CotextError):
                raise last

    def _read(self, lines: Iterable[tuple[int, str]], arriving: "Queue[_Arrived]") -> None:
        try:
            for part in self._parts(iter(lines)):
                arriving.put(part)
        except CotextError as error:
            arriving.put(error)
        else:
            arriving.put(None)

    def _parts(self, lines: Iterator[tuple[int, str]]) -> Iterator[_Part]:
        """Yield documents, named by the number of their first line, and the empty lines that end them."""
        lines_of_document: list[str] = []
        first = 1
        for number, line in chain(lines, [(0, "")]):  # the last document may have no empty line after it
            if number == 1 and line.startswith(BYTE_ORDER_MARK):
                yield _Part(None, (BYTE_ORDER_MARK,))
                line = line.removeprefix(BYTE_ORDER_MARK)
            if _text_and_ending(line)[0]:
                first = first if lines_of_document else number
                lines_of_document.append(line)
                continue
            if lines_of_document:
                sentences, endings = zip(*map(_text_and_ending, lines_of_document), strict=True)
                yield _Part(Document(f"of line {first}", sentences), endings)
            yield _Part(None, (line,))
            lines_of_document = []

    def _translate(self, parts: list[_Part], write: Callable[[str], None]) -> None:
        documents: list[Document] = []
        problem: CotextError | None = None
        for part in parts:
            if part.document is not None:
                try:
                    self._translator.check([self.prose.count(part.document)])
                except CotextError as error:
                    problem, parts = error, parts[: parts.index(part)]
                    break
                documents.append(part.document)
        split = [self.prose.split(document) for document in documents]
        guide = self._terminology.guide(self._translator, [document.sentences for document in split])
        translations = dict(self._translator.translate(split, guide=guide))
        number = 0
        for part in parts:
            if part.document is None:
                write("".join(part.endings))
                continue
            translation = self.prose.join(part.document, translations[number])
            # A sentence without visible characters has no translation, and an empty line would end the
            # document.
            targets = translation.document.sentences
            lines = zip(targets, part.document.sentences, part.endings, strict=True)
            write("".join(f"{target or source}{ending}" for target, source, ending in lines))
            done = translations[number]
            self.counts.update(documents=1, sentences=len(done.document))
            self.counts.update(truncated=len(done.truncated), long=len(done.long))
            number += 1
        if problem is not None:
            raise problem


def _text_and_ending(line: str) -> tuple[str, str]:
    """Return a line without outer space, and its line ending."""
    text = line.removesuffix("\n").removesuffix("\r")
    return text.strip(OUTER_SPACE), line[len(text) :]
