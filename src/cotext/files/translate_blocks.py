"""Translation of the blocks of a file: as sentences of documents, in context, and as blocks again."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from cotext.data.documents import Document, ParallelDocument
from cotext.data.sentence_ends import LEADING, NUMBERED, OFTEN, words_of
from cotext.data.splitting import Splitter, Splitting
from cotext.data.words import consists_of, occurrences
from cotext.files.block_sentences import CutBlock, cut, shown, with_placeholders, without_placeholders
from cotext.files.blocks import Block, Contents, Copied, Piece, Point, empty_links
from cotext.files.tags import project, shown_text
from cotext.runtime.errors import CotextError
from cotext.translation.alignment import align
from cotext.translation.confidence import confidences
from cotext.translation.dropped import NOTHING, Dropped, dropped
from cotext.translation.open import OpenedRun
from cotext.translation.terms.terms import TermGuide, TermReport
from cotext.translation.terms.word_alignment import SentenceAlignment
from cotext.translation.translator import DocumentTranslator, Translation
from cotext.translation.wishes import Wishes

# --- The full stop that a model writes behind a heading, an entry of a list or a cell that has none.

# Not behind a second one, a number (an ordinal in German) or a letter alone (an initial). Of a text read
# backwards, so that its letters are looked at once.
_STOP: Final = re.compile(r"\. ?(?P<word>[^\W\d_]{2,}(?:\.[^\W\d_]+)*)|[。।።։۔]")
_ROMAN: Final = re.compile(r"[IVXLC]+")


def without_added_stop(source: str, target: str, language: str) -> str:
    """A translation without its full stop where its source ends in a letter or a digit.

    Models that were trained on sentences alone end everything with one. An abbreviation of the target
    `language` keeps its own, and nothing is left without a letter.
    """
    found = _STOP.match(target[::-1])
    if found is None or not source.rstrip()[-1:].isalnum():
        return target
    word = (found["word"] or "")[::-1]
    if "." in word or _ROMAN.fullmatch(word) or _is_abbreviation(word.lower(), language):
        return target
    shortened = target[:-1].rstrip()
    return shortened if any(map(str.isalpha, shortened)) else target


def _is_abbreviation(word: str, language: str) -> bool:
    return any(word in words_of(table, language) for table in (LEADING, NUMBERED, OFTEN))


BY_THE_RULES: Final = Splitting()


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of a block: its pieces, and the text that the model reads."""

    pieces: tuple[Piece, ...]
    shown: dict[int, str]
    text: str
    place: str

    @property
    def copied(self) -> list[str]:
        """The texts in it that are copied, as the model reads them."""
        return [self.shown[piece.key] for piece in self.pieces if isinstance(piece, Copied)]

    @property
    def own_text(self) -> str:
        """The text without what is copied."""
        return "".join(p if isinstance(p, str) else " " * isinstance(p, Copied | Point) for p in self.pieces)

    @property
    def is_plain(self) -> bool:
        return all(isinstance(piece, str) for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class _CutDocument:
    """A document of a file: its own blocks, the same cut, and their sentences."""

    blocks: Sequence[Block]
    cut: list[CutBlock]
    sentences: list[_Sentence] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PairedSentence:
    """A sentence of a file and its translation, as the model read and wrote them.

    `document`, `block` and `number` count from 0, the block and the sentence within their document.
    `confidence`: see `decoding.confidence`; None where it was `taken` from a memory, or has no word that the
    model chose. `terms` are those of a glossary that the translation has, `visible` the sentences that it may
    depend on. `faults` are what a reader is told of `cotext.files.mechanical`.
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
    dropped: Dropped = NOTHING
    faults: tuple[str, ...] = ()


class BlockDocuments:
    """The documents of a file as sentences to be translated.

    `documents` are those that have a sentence, in order; `numbers` say which of the file each is. Blocks that
    are context alone are sentences of them too. Without a splitter, a block is a sentence. `alone`: the right
    to use the model, taken where elements are placed by alignment. `given`: translations of sentences that
    are not searched, by the numbers of documents in the file and of sentences in each.
    """

    def __init__(
        self,
        opened: OpenedRun,
        contents: Contents,
        splitter: Splitter | None,
        wishes: Wishes | None = None,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
        given: Mapping[int, Mapping[int, str]] | None = None,
    ) -> None:
        self._translator, self._alone = opened.translator, alone
        self._language = opened.languages.target
        self._wishes = Wishes() if wishes is None else wishes
        self._given = given or {}
        self._empty_links: dict[tuple[int, int], int] = {}  # by document and sentence, once written
        spans = splitter.spans if splitter is not None else None
        self._whole = [self._cut(blocks, spans) for blocks in contents.documents]
        self.numbers = [number for number, each in enumerate(self._whole) if each.sentences]
        self.documents = [
            Document(str(number + 1), tuple(s.text for s in self._whole[number].sentences))
            for number in self.numbers
        ]

    def _cut(
        self, blocks: Sequence[Block], spans: Callable[[str], list[tuple[int, int]]] | None
    ) -> _CutDocument:
        found = [cut(replace(block, pieces=with_placeholders(block.pieces)), spans) for block in blocks]
        document = _CutDocument(blocks, found)
        for block in found:
            for pieces in block.parts.sentences:
                texts = shown(pieces, self._translator.tokenizer)
                sentence = _Sentence(pieces, texts, shown_text(pieces, texts), block.block.place)
                document.sentences.append(sentence)
        return document

    @property
    def blocks_split(self) -> tuple[int, int]:
        """How many blocks hold several sentences, and how many sentences these are."""
        counts = [len(block.parts.sentences) for document in self._whole for block in document.cut]
        several = [count for count in counts if count > 1]
        return len(several), sum(several)

    @property
    def sentences(self) -> Iterator[tuple[int, int, int, str, str]]:
        """The sentences of all documents: document, block and sentence, from 0; the text, and what is before.

        That is the text between the sentence and the one before it in its block.
        """
        for number, document in enumerate(self._whole):
            cut_blocks = enumerate(document.cut)
            places = ((n, pieces) for n, block in cut_blocks for pieces in block.parts.between[:-1])
            for j, ((n, before), sentence) in enumerate(zip(places, document.sentences, strict=True)):
                yield number, n, j, sentence.text, Block(before).text

    def place(self, document: int, sentence: int) -> str:
        """Where a sentence of `documents` stands in the file."""
        return self._whole[self.numbers[document]].sentences[sentence].place

    def check(self) -> int:
        """The number of sentences, all of which can be translated.

        Raises:
            CotextError: one is over the limit; terms that the system cannot keep; a translation that is given
                for a sentence that is not there, or is over the limit.
        """
        self._wishes.check(self._translator)
        self._check_given()
        sentences = 0
        for index, document in enumerate(self.documents):
            try:
                sentences += self._translator.check([document])
            except CotextError as error:
                raise CotextError(f"{self._first_refused(index)}{error}") from None
        return sentences

    def _check_given(self) -> None:
        for number, given in self._given.items():
            sentences = self._whole[number].sentences if 0 <= number < len(self._whole) else []
            for j in given:
                if not 0 <= j < len(sentences):
                    raise CotextError(
                        f"a translation is given for sentence {j} of document {number}, which is not there: "
                        "both count from 0"
                    )
            targets = [given.get(j, "") for j in range(len(sentences))]
            self._translator.encoded_target(str(number + 1), targets)

    def _first_refused(self, document: int) -> str:
        """The place of the first sentence of a document that is refused even alone."""
        for j, sentence in enumerate(self.documents[document].sentences):
            try:
                self._translator.check([Document("", (sentence,))])
            except CotextError:
                return f"{self.place(document, j)}: "
        return ""

    def guide(self, chosen: Sequence[int]) -> TermGuide | None:
        """What these of `documents` are to hold, for search; None where there is nothing."""
        sentences = [self._whole[self.numbers[index]].sentences for index in chosen]
        return self._wishes.guide(
            self._translator,
            [[each.text for each in of_document] for of_document in sentences],
            [[each.copied for each in of_document] for of_document in sentences],
        )

    def taken(self, chosen: Sequence[int]) -> Mapping[int, Mapping[int, str]]:
        """The translations of sentences of these of `documents` that are given, or that the memory has."""
        memory = self._wishes.memory
        texts = [self.documents[index].sentences for index in chosen]
        found: dict[int, Mapping[int, str]] = dict(memory.taken(texts)) if memory else {}
        for place, index in enumerate(chosen):
            if given := self._given.get(self.numbers[index]):
                found[place] = {**found.get(place, {}), **given}
        return found

    def paired(self, translations: Mapping[int, Translation]) -> list[PairedSentence]:
        """All sentences beside their translations, in the order of the file."""
        everything = range(len(self.documents))
        guide = self.guide(everything) if self._wishes.of_terms else None
        taken, found = self.taken(everything), []
        for index, document in enumerate(self.documents):
            blocks = self._whole[self.numbers[index]].cut
            of_block = [n for n, block in enumerate(blocks) for _ in block.parts.sentences]
            sure, visible = confidences(translations[index]), self._translator.visible_sentences(document)
            lacking = self.dropped(index, translations[index])
            for j, target in enumerate(self._targets(index, translations[index])):
                terms = tuple(_terms_met(guide, index, j, target)) if guide else ()
                is_taken, source = j in taken.get(index, ()), document.sentences[j]
                copied = self._whole[self.numbers[index]].sentences[j].copied
                confidence = None if is_taken or consists_of(target, [*terms, *copied]) else sure[j]
                about = (confidence, is_taken, terms, visible[j], lacking[j])
                found.append(PairedSentence(index, of_block[j], j, source, target, *about))
        return found

    def dropped(self, index: int, translation: Translation) -> list[Dropped]:
        """What the translation of each sentence of one of `documents` lacks; of links, once it is written."""
        document = self._whole[self.numbers[index]]
        written = [block.block.translate for block in document.cut for _ in block.parts.sentences]
        triples = zip(document.sentences, self._targets(index, translation), written, strict=True)
        links = self._empty_links
        return [
            dropped(sentence.own_text, target, links.get((index, j), 0)) if is_written else NOTHING
            for j, (sentence, target, is_written) in enumerate(triples)
        ]

    def terms(self, translations: Mapping[int, Translation]) -> TermReport | None:
        """The term accuracy of translations of all `documents`; None where no terms were asked for."""
        texts = {index: each.document.sentences for index, each in sorted(translations.items())}
        return self._wishes.report(
            self.guide(range(len(self.documents))) if self._wishes.of_terms else None, texts
        )

    def blocks(self, translations: Mapping[int, Translation]) -> list[list[Block]]:
        """The blocks of the file, with the translations of all `documents` by their index."""
        found = [list(document.blocks) for document in self._whole]
        for index, number in enumerate(self.numbers):
            targets = self._targets(index, translations[index])
            found[number] = list(self._translated(index, targets))
        return found

    def _targets(self, index: int, translation: Translation) -> list[str]:
        """The sentences of the translation of one of `documents`, as they are written."""
        taken, found = self.taken([index]).get(0, {}), []
        for j, target in enumerate(translation.document.sentences):
            is_written = j not in taken and j not in translation.missing
            found.append(self.written(index, j, target) if is_written else taken.get(j, target))
        return found

    def written(self, index: int, sentence: int, target: str) -> str:
        """A translation, found by search, as it is written: see `without_added_stop`."""
        source, translator = self._whole[self.numbers[index]].sentences[sentence].text, self._translator
        if target:
            return without_added_stop(source, target, self._language)
        # Without a visible character there is no translation; what free search left out stays empty.
        may_miss = translator.plan.options.align == "free" and translator.tokenizer.encode(source)
        return "" if may_miss else source

    def _translated(self, index: int, targets: Sequence[str]) -> Iterator[Block]:
        document = self._whole[self.numbers[index]]
        alignments = _alignments(self._translator, document.sentences, targets, self._alone)
        at = 0
        for own, block in zip(document.blocks, document.cut, strict=True):
            pieces = []
            for _ in block.parts.sentences:
                sentence = document.sentences[at]
                pieces.append(project(sentence.pieces, targets[at], alignments.get(at), sentence.shown))
                self._empty_links[index, at] = empty_links(sentence.pieces, pieces[-1])
                at += 1
            if not own.translate:
                yield own
                continue
            joined = block.joined(pieces, self._language)
            yield replace(joined, pieces=without_placeholders(joined.pieces, own.pieces))


def _terms_met(guide: TermGuide, document: int, sentence: int, target: str) -> Iterator[str]:
    """What a translation has of the terms in its source."""
    for occurrence in guide.occurrences(document, sentence):
        yield from (phrase for _, phrase in islice(occurrences(target, guide.alternatives(occurrence)), 1))


def _alignments(
    translator: DocumentTranslator,
    sentences: Sequence[_Sentence],
    targets: Sequence[str],
    alone: Callable[[], AbstractContextManager[object]],
) -> dict[int, SentenceAlignment]:
    """Those of the sentences that hold inner elements; none of them where one cannot be read."""
    chosen = [j for j, sentence in enumerate(sentences) if not sentence.is_plain and targets[j]]
    if not chosen:
        return {}
    pair = ParallelDocument("", tuple(sentence.text for sentence in sentences), tuple(targets))
    try:
        with alone():
            [found] = align(translator, [pair], [chosen])
    except CotextError:
        # Too long to be read as a translation: elements are placed in proportion to length.
        return {}
    return dict(zip(chosen, found, strict=True))


def translate_blocks(
    opened: OpenedRun,
    contents: Contents,
    *,
    splitting: Splitting | None = BY_THE_RULES,
    wishes: Wishes | None = None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> list[list[Block]]:
    """Translate blocks, each document as one, in reading order; as many blocks in as many documents.

    `splitting`: how blocks that may hold several sentences are split into them; None: they are not.

    Raises:
        CotextError: a sentence over the limit; terms that the system cannot keep.
    """
    splitter = splitting.splitter(opened.languages.source) if splitting else None
    texts = BlockDocuments(opened, contents, splitter, wishes)
    texts.check()
    everything = range(len(texts.documents))
    guide = texts.guide(everything)
    return texts.blocks(
        dict(opened.translator.translate(texts.documents, on_sentences, guide, texts.taken(everything)))
    )
