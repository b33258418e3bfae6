"""JSON lines of the general translation task of WMT: a document a line, and submissions to it.

Of 2026, a line is `{doc_id, source_doc, tgt_lang, instruction}`, of 2025 `{doc_id, src_lang, tgt_lang,
src_text, prompt_instruction}`. A document is JSON (alone or fenced, as in Markdown), HTML, or plain text, of
which every line is a block; the numbers of lines, paragraphs and entries are kept. Instructions are not
obeyed, and said.

What is written is a submission: of every line that is in the languages of the job
`{dataset_id, doc_id, tgt_lang, hypothesis, translation_granularity}`; lines of other languages are left out.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cotext.files.bilingual import ANY, Job, same_language
from cotext.files.blocks import Block, Contents, OpenedFile
from cotext.files.html import FORMAT as HTML
from cotext.files.json import FORMAT as JSON
from cotext.files.places import decoded
from cotext.files.text import TextFile
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

MAX_LINE_CHARACTERS: Final = 1 << 24
GRANULARITY: Final = "document-level"
_TEXT_KEYS: Final = ("source_doc", "src_text")
_INSTRUCTION_KEYS: Final = ("instruction", "prompt_instruction")
_DATASETS: Final = {"source_doc": "wmt26", "src_text": "wmt25"}  # where a line names none
_FENCE: Final = re.compile(r"\s*```(?:json)?[ \t]*\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wmt:
    """The format of the shared task."""

    job: Job = ANY
    name: str = "wmt"
    suffixes: tuple[str, ...] = (".jsonl",)

    def for_job(self, job: Job) -> "Wmt":
        """See `cotext.files.bilingual.BilingualFormat`."""
        return replace(self, job=job)

    def recognises(self, head: bytes) -> bool:
        """By the keys of the first line."""
        first = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0]
        if not first.startswith(b"{"):
            return False
        keys = set(re.findall(rb'"(doc_id|tgt_lang|source_doc|src_text)"\s*:', first))
        return keys >= {b"doc_id", b"tgt_lang"} and bool(keys & {b"source_doc", b"src_text"})

    def open(self, content: bytes, name: str) -> "WmtFile":
        """Read the lines; raises CotextError where one is not as the task has it, with its number."""
        return WmtFile(content, name, self.job)


FORMAT = Wmt()


@dataclass(frozen=True, slots=True)
class _Document:
    """A line: what a submission says of it, and its text, opened; what stands around that text."""

    dataset_id: str
    doc_id: str
    language: str
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
        value = {
            "dataset_id": self.dataset_id,
            "doc_id": self.doc_id,
            "tgt_lang": self.language,
            "hypothesis": hypothesis,
            "translation_granularity": GRANULARITY,
        }
        return json.dumps(value, ensure_ascii=False) + "\n"


class WmtFile:
    """Lines of the task, read."""

    def __init__(self, content: bytes, name: str, job: Job) -> None:
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
        seen: set[tuple[str, str]] = set()
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            where = f"{self._name}:{number}"
            if len(line) > MAX_LINE_CHARACTERS:
                raise CotextError(
                    f"{where}: a line of more than {MAX_LINE_CHARACTERS:,} characters; split it"
                )
            value = parse_json(line, where)
            document_id, language, key, source_text = _fields(value, where)
            if (document_id, language) in seen:
                raise CotextError(f"{where}: the document {document_id!r} for {language} came before")
            seen.add((document_id, language))
            source = value.get("src_lang")
            if not self._wanted(source if isinstance(source, str) else "", language):
                self._left_out[language] = self._left_out.get(language, 0) + 1
                continue
            self._instructions += any(value.get(each) for each in _INSTRUCTION_KEYS)
            self._languages.add(language)
            dataset = value.get("dataset_id") or value.get("collection_id") or _DATASETS[key]
            before, inner, after = self._opened(source_text, f"{where}, document {document_id}")
            yield _Document(str(dataset), document_id, language, before, inner, after)

    def _wanted(self, source: str, target: str) -> bool:
        found = ((source, self._job.source_language), (target, self._job.target_language))
        return all(not code or not wanted or same_language(code, wanted) for code, wanted in found)

    def _opened(self, text: str, where: str) -> tuple[str, OpenedFile, str]:
        """The text of a document as a file of its own, and what fences it."""
        before, body, after = _unfenced(text)
        content = body.encode()
        if JSON.recognises(content):
            try:
                inner: OpenedFile = JSON.open(content, where)
            except CotextError as error:
                # Systems see it as it is; so does this one.
                self.contents.messages.append(f"{error}; translated as plain text")
            else:
                self._hear(inner, where)
                return before, inner, after
        elif HTML.recognises(content):
            inner = HTML.open(content, where)
            self._hear(inner, where)
            return before, inner, after
        return "", TextFile(text.encode(), where, keep_lines=True), ""

    def _hear(self, inner: OpenedFile, where: str) -> None:
        self.contents.messages += [
            message if message.startswith(where) else f"{where}: {message}"
            for message in inner.contents.messages
        ]

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


def _unfenced(text: str) -> tuple[str, str, str]:
    """What opens a fence (```), what is in it, what closes it; without one, the text alone."""
    opening = _FENCE.match(text)
    bare = text.rstrip()
    if opening is None or not bare.endswith("```") or len(bare) < opening.end() + 3:
        return "", text, ""
    body = text[opening.end() : len(bare) - 3]
    return opening[0], body, text[len(bare) - 3 :]


def _fields(value: object, where: str) -> tuple[str, str, str, str]:
    """Id, target language, the key of the text, and the text."""
    if not isinstance(value, dict):
        raise CotextError(f"{where}: expected a JSON object, found {type(value).__name__}")
    key = next((key for key in _TEXT_KEYS if isinstance(value.get(key), str)), None)
    document_id, language = value.get("doc_id"), value.get("tgt_lang")
    if key is None or not isinstance(document_id, str) or not isinstance(language, str) or not language:
        raise CotextError(
            f"{where}: a line of the task has texts under doc_id, tgt_lang, and source_doc (or src_text)"
        )
    return document_id, language, key, value[key]
