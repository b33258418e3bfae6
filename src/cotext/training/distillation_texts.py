"""The texts that a teacher translates, a corpus or monolingual documents, and the training data made of them.

A corpus keeps its documents, and its targets become the teacher's. Monolingual documents are added to a
corpus: as sources of what the teacher wrote (forward translation), or as targets of it (back-translation,
Sennrich et al. 2016, *Improving Neural Machine Translation Models with Monolingual PreparedData*).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import place_of_sentence, read_documents
from cotext.data.formats.docids import find_side_file
from cotext.data.formats.streams import is_regular, without_compression
from cotext.data.languages import Languages, check_pair
from cotext.data.sentence_ends import sentence_ends, several_warning
from cotext.data.tokenizer import Side, Tokenizer
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum
from cotext.training.prepared_data import PreparedData

CHUNK_DOCUMENTS: Final = 256  # encoded and written at once
SIDES: Final = ("source", "target")

Ids = list[list[int]]


@dataclass(frozen=True, slots=True)
class Entry:
    """The translation of one document; `sentences` is None where the teacher refuses it.

    Sentences are counted from 0: `cut`, `long` and `missing` as in
    `cotext.translation.translator.Translation`.
    """

    sentences: tuple[str, ...] | None
    cut: tuple[int, ...] = ()
    long: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()

    def content(self) -> dict[str, Any]:
        """As it is noted in the part of a shard."""
        return asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Entry":
        """Undo `content`."""
        sentences = content["sentences"]
        lists = {key: tuple(content[key]) for key in ("cut", "long", "missing")}
        return cls(None if sentences is None else tuple(sentences), **lists)


@dataclass(frozen=True, slots=True)
class Row:
    """A training document to be written; `entry` is the teacher's translation, `text` None if left out."""

    id: str
    entry: Entry | None
    text: ParallelDocument | None
    source: Ids
    target: Ids


class CorpusTexts:
    """The sources of a prepared corpus; a document that the teacher does not take keeps its target.

    Documents to translate have indices; `rows` training documents come of them in all.
    """

    def __init__(self, data: PreparedData) -> None:
        self._data = data

    @property
    def rows(self) -> int:
        """Count the documents of the corpus."""
        return len(self._data.train)

    def __len__(self) -> int:
        """Count the documents of the corpus."""
        return len(self._data.train)

    def sentences(self, index: int) -> int:
        """Count the sentences of a document."""
        return len(self._data.train.lengths(index)[0])

    def documents(self, indices: Iterable[int]) -> Iterator[tuple[int, Document]]:
        """The sources as text, which the teacher reads with its own tokenizer."""
        for index in indices:
            document = self._data.train[index]
            yield index, Document(document.id, _decoded(self._data, document.source, "source"))

    def chunks(self, read: Callable[[int], Entry], tokenizer: Tokenizer) -> Iterator[list[Row]]:
        """The documents of the corpus, each with what the teacher wrote."""
        for indices in _in_chunks(len(self)):
            entries = {index: read(index) for index in indices}
            written = [s for e in entries.values() for s in e.sentences or ()]
            encoded = iter(tokenizer.encode_batch(written, side="target"))
            chunk = []
            for index, entry in entries.items():
                before = _kept(self._data, index)
                if entry.sentences is None or before.text is None:
                    chunk.append(Row(before.id, entry, before.text, before.source, before.target))
                    continue
                text = ParallelDocument(before.id, before.text.source, entry.sentences)
                chunk.append(
                    Row(before.id, entry, text, before.source, [next(encoded) for _ in entry.sentences])
                )
            yield chunk

    def identity(self) -> dict[str, Any]:
        """Nothing beside the corpus."""
        return {}

    def inputs(self) -> list[Path]:
        """Nothing beside the corpus."""
        return []

    def messages(self) -> list[str]:
        """Nothing."""
        return []


class MonolingualTexts:
    """Documents of one language, translated and added behind those of a corpus.

    `side` is theirs in the new training documents: `source` with the teacher's translations as targets,
    `target` with them as sources. A document with a sentence that the teacher does not take is left out.
    `warning`: what there is to say of the name of the file.

    Raises CotextError for what the readers refuse, and for what cannot be read twice.
    """

    def __init__(
        self, data: PreparedData, path: Path, format: str | None, side: str, warning: str = ""
    ) -> None:
        self._data = data
        self._warning = warning
        self._path = path
        self._format = format
        self._side = side
        self._name = without_compression(path).stem
        self.lines = self.several = 0
        self._first: tuple[int, int] | None = None
        counted = read_documents(path, format)
        if not is_regular(path):
            raise CotextError(f"{path}: is no regular file, and it is read more than once; copy it to one")
        self._sentences = np.fromiter(self._counts(counted), np.int32)

    def _counts(self, documents: Iterable[Document]) -> Iterator[int]:
        for number, document in enumerate(documents):
            self.lines += len(document)
            for index, line in enumerate(document.sentences):
                if sentence_ends(line):
                    self.several += 1
                    self._first = self._first or (number, index)
            yield len(document)

    @property
    def rows(self) -> int:
        """Count the documents of the corpus and these."""
        return len(self._data.train) + len(self)

    def __len__(self) -> int:
        """Count the monolingual documents."""
        return len(self._sentences)

    def sentences(self, index: int) -> int:
        """Count the sentences of a document."""
        return int(self._sentences[index])

    def documents(self, indices: Iterable[int]) -> Iterator[tuple[int, Document]]:
        """The documents at the indices, as the file has them."""
        read = enumerate(read_documents(self._path, self._format))
        for wanted in indices:
            yield next((index, document) for index, document in read if index == wanted)

    def chunks(self, read: Callable[[int], Entry], tokenizer: Tokenizer) -> Iterator[list[Row]]:
        """The documents of the corpus as they are, then these with what the teacher wrote."""
        for indices in _in_chunks(len(self._data.train)):
            yield [_kept(self._data, index) for index in indices]
        documents = self.documents(range(len(self)))
        for indices in _in_chunks(len(self)):
            chunk = []
            for index in indices:
                _, document = next(documents)
                entry, name = read(index), f"{self._name}/{document.id}"
                if entry.sentences is None:
                    chunk.append(Row(name, entry, None, [], []))
                    continue
                sides = (document.sentences, entry.sentences)
                text = ParallelDocument(name, *(sides if self._side == "source" else sides[::-1]))
                source = tokenizer.encode_batch(text.source)
                target = tokenizer.encode_batch(text.target, side="target")
                chunk.append(Row(name, entry, text, source, target))
            yield chunk

    def identity(self) -> dict[str, Any]:
        """The file, and on which side it stands."""
        return {"monolingual": [checksum(path) for path in self.inputs()], "side": self._side}

    def inputs(self) -> list[Path]:
        """The file, and its side file where it has one."""
        side_file = find_side_file(self._path) if self._format in (None, "docids") else None
        return [self._path, *([side_file] if side_file else [])]

    def messages(self) -> list[str]:
        """A name that tells another language, and lines of several sentences."""
        messages = [self._warning] if self._warning else []
        if self._first is not None:
            where = place_of_sentence(self._path, self._format, *self._first)
            messages.append(
                f"{self._path}: {several_warning(self.several, self.lines, 'lines')} (by punctuation alone), "
                f"the first is {where}; a system trained on a sentence a line may leave some of such a line "
                "out"
            )
        return messages


Texts = CorpusTexts | MonolingualTexts


def choose_side(side: str, teacher: Languages, data: Languages, folder: str) -> str:
    """The side of monolingual documents in new training data: the given one, or as the languages say.

    Documents that a teacher of the same direction reads are sources; of the other direction, targets.

    Raises:
        CotextError: no such side, languages that do not tell, or that tell another.
    """
    if side and side not in SIDES:
        raise CotextError(f"--side {side}: choose source or target")
    if not side:
        if not str(teacher) or not str(data):
            raise CotextError(
                f"{folder}: teacher and data do not both tell their languages; say with --side source or "
                "--side target which side of the data the monolingual documents are"
            )
        side = "target" if teacher.reversed == data else "source"
    direction = teacher if side == "source" else teacher.reversed
    check_pair(data, direction, f"a teacher for the side {side}", f"{folder} is")
    return side


def _kept(data: PreparedData, index: int) -> Row:
    """A document of the corpus as it is."""
    document = data.train[index]
    source, target = ([tokens.tolist() for tokens in side] for side in (document.source, document.target))
    return Row(document.id, None, data.texts(index), source, target)


def _in_chunks(count: int) -> Iterator[range]:
    return (range(start, min(start + CHUNK_DOCUMENTS, count)) for start in range(0, count, CHUNK_DOCUMENTS))


def _decoded(data: PreparedData, sentences: Iterable[Any], side: Side) -> tuple[str, ...]:
    return tuple(data.tokenizer.decode(tokens, side) for tokens in sentences)
