"""JSON lines of the general translation task of WMT: a document a line, and submissions to it.

Lines are those of `cotext.data.formats.wmt`. A document is JSON (alone or fenced, as in Markdown), HTML, or
plain text, of which every line is a block; the numbers of lines, paragraphs and entries are kept.
Instructions are not obeyed, and said.

What is written is a submission: of every line that is in the languages of the job
`{dataset_id, doc_id, tgt_lang, hypothesis, translation_granularity}`; lines of other languages are left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cotext.data.formats.wmt import Paragraphs, WmtLine, paragraphs, submission_line, unfenced, wmt_line
from cotext.data.languages import fitting_codes, same_language
from cotext.files.blocks import ANY, BilingualFormat, Block, Contents, Job, OpenedFile
from cotext.files.html import FORMAT as HTML
from cotext.files.places import decoded, without_halves
from cotext.files.strings import has_letters
from cotext.files.text import TextFile
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

MAX_LINE_CHARACTERS: Final = 1 << 24
_JSON: Final = re.compile(r'\s*(?:\{\s*"|\[\s*[\[{"])')


def _recognises(head: bytes) -> bool:
    """By the keys of the first line."""
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0]
    if not first.startswith(b"{"):
        return False
    keys = set(re.findall(rb'"(doc_id|tgt_lang|source_doc|src_text)"\s*:', first))
    return keys >= {b"doc_id", b"tgt_lang"} and bool(keys & {b"source_doc", b"src_text"})


@dataclass(frozen=True, slots=True)
class _Document:
    """A line and its text, opened; what stands around that text."""

    line: WmtLine
    before: str
    inner: OpenedFile
    after: str

    @property
    def blocks(self) -> list[Block]:
        return [block for blocks in self.inner.contents.documents for block in blocks]

    def submission(self, blocks: Sequence[Block]) -> str:
        given, start = [], 0
        for own in self.inner.contents.documents:
            given.append(blocks[start : start + len(own)])
            start += len(own)
        hypothesis = self.before + self.inner.written(given).decode() + self.after
        return submission_line(self.line, hypothesis)


class _JsonValues:
    """A JSON document, opened: each string value with a letter is a block."""

    def __init__(self, text: str, values: Paragraphs, where: str) -> None:
        self._text, self._values = text, values
        blocks = [Block((value,), where) for value in values.texts if has_letters(value)]
        self.contents = Contents([blocks])

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """The document with these blocks in the places of its values."""
        [blocks] = documents
        given = iter(blocks)
        texts = [next(given).text if has_letters(value) else value for value in self._values.texts]
        return self._values.replaced(self._text, [without_halves(text) for text in texts]).encode()


class WmtFile:
    """Lines of the task, read; raises CotextError where one is not as the task has it, with its number."""

    def __init__(self, content: bytes, name: str, job: Job = ANY) -> None:
        self._content, self._name, self._job = content, name, job
        self.contents = Contents()
        self._left_out: dict[str, int] = {}
        self._instructions = 0
        self._languages: set[str] = set()
        self._documents = list(self._read(decoded(content, name).text))
        self._say()
        self.contents.documents = [document.blocks for document in self._documents]

    def written(self, documents: Sequence[Sequence[Block]]) -> bytes:
        """A submission; the file as it was where no block was replaced."""
        pairs = list(zip(self._documents, documents, strict=True))
        if all(own is new for d, blocks in pairs for own, new in zip(d.blocks, blocks, strict=True)):
            return self._content
        return "".join(document.submission(blocks) for document, blocks in pairs).encode()

    def _read(self, text: str) -> Iterator[_Document]:
        lines = list(self._lines(text))
        target = self._job.target_language
        ours = (line for line in lines if self._from_source(line.source_language))
        targets = set(fitting_codes(target, (line.target_language for line in ours)))
        for line in lines:
            language = line.target_language
            if (target and language not in targets) or not self._from_source(line.source_language):
                self._left_out[line.pair] = self._left_out.get(line.pair, 0) + 1
                continue
            self._instructions += bool(line.instruction)
            self._languages.add(language)
            where = f"{self._name}:{line.number}, document {line.doc_id}"
            yield _Document(line, *self._opened(line.source or "", where))

    def _lines(self, text: str) -> Iterator[WmtLine]:
        seen: set[tuple[str, str]] = set()
        for number, content in enumerate(text.split("\n"), 1):
            if not content.strip():
                continue
            where = f"{self._name}:{number}"
            if len(content) > MAX_LINE_CHARACTERS:
                raise CotextError(
                    f"{where}: a line of more than {MAX_LINE_CHARACTERS:,} characters; split it"
                )
            line = wmt_line(parse_json(content, where), number, where)
            if line.source is None or not line.target_language:
                raise CotextError(
                    f"{where}: a line of the task has texts under tgt_lang, and source_doc (or src_text)"
                )
            if (line.doc_id, line.target_language) in seen:
                raise CotextError(
                    f"{where}: the document {line.doc_id!r} for {line.target_language} came before"
                )
            seen.add((line.doc_id, line.target_language))
            yield line

    def _from_source(self, code: str) -> bool:
        wanted = self._job.source_language
        return not code or not wanted or same_language(code, wanted)

    def _opened(self, text: str, where: str) -> tuple[str, OpenedFile, str]:
        """The text of a document as a file of its own, and what fences it."""
        before, body, after = unfenced(text)
        content = body.encode()
        values = paragraphs(body)
        if values.kind == "json":
            return before, _JsonValues(body, values, where), after
        if _JSON.match(body):
            # Other systems see it as it is, too.
            self.contents.messages.append(f"{where}: not valid JSON; translated as plain text")
        elif HTML.recognises(content):
            inner = HTML.open(content, where)
            self.contents.messages += [
                message if message.startswith(where) else f"{where}: {message}"
                for message in inner.contents.messages
            ]
            return before, inner, after
        return "", TextFile(text.encode(), where, keep_lines=True), ""

    def _say(self) -> None:
        if not self._documents:
            found = ", ".join(self._left_out) or "none"
            raise CotextError(
                f"{self._name}: no line is in the languages of the run (target languages: {found}); "
                "take another run"
            )
        if len(self._languages) > 1 and not self._job.target_language:
            raise CotextError(
                f"{self._name}: has several target languages ({', '.join(sorted(self._languages))}); name one"
            )
        if self._left_out:
            found = ", ".join(f"{language} ({count})" for language, count in self._left_out.items())
            self.contents.messages.append(f"lines of other languages than the run's are left out: {found}")
        if self._instructions:
            self.contents.messages.append(
                f"{self._instructions} lines have instructions, which are not obeyed"
            )


FORMAT: Final = BilingualFormat("wmt", (".jsonl",), _recognises, WmtFile, WmtFile)
