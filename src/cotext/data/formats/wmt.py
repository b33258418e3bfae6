"""The format wmt: JSON lines of the general task of WMT, one document per line, and submissions to it.

    2026  {doc_id, source_doc, tgt_lang, instruction}; after the task also {src_lang, src_text, refs}
    2025  {doc_id, src_lang, tgt_lang, src_text, prompt_instruction}; afterwards also {refs: {refA: {ref}}}
    submissions  {dataset_id, doc_id, tgt_lang, hypothesis, translation_granularity}; published: fewer keys

The sentences of a document are its paragraphs. From a file of several language pairs, one pair is read. It is
selected by the name of the format, such as `wmt:de_DE` or `wmt:cs-de_DE`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

from cotext.data.documents import Document, fitting_codes
from cotext.data.formats.streams import OUTER_SPACE, Record, numbered_lines, one_line, without_breaks
from cotext.runtime import CotextError, parse_json, shown

# --- Paragraphs of a document of the general task of WMT: HTML, JSON (fenced or not) or plain text.
#
# A paragraph is the text between `<p>` and `</p>` (or other block elements), a string value of JSON, or the
# text between empty lines. Line breaks and `<br>` inside a paragraph become spaces; other tags are removed.

_BLOCKS = """
address article aside blockquote body dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6
head header hr html li main nav ol p pre section table tbody td tfoot th thead title tr ul
"""
BLOCKS: Final = frozenset(_BLOCKS.split())
_FENCED: Final = re.compile(
    r"\s*```[ \t]*+(?:json|html|xml|text|markdown)?+[ \t]*+\n(.*)```\s*", re.IGNORECASE | re.DOTALL
)
_OPENING: Final = re.compile(
    rf"[ \t\r\n]*<(?:(?:{'|'.join(sorted(BLOCKS))})[\s/>]|!doctype|!--)", re.IGNORECASE
)
_PARAGRAPH_TAG: Final = re.compile(r"</?p(?:\s[^<>]*)?>", re.IGNORECASE)
_STRING: Final = re.compile(
    r'("[^"\\]*+(?:\\.[^"\\]*+)*+")(\s*:)?'
)  # of valid JSON; a key is followed by a colon
# Matches from a character to the last one before an empty line.
_TEXT_PARAGRAPH: Final = re.compile(r"[^ \t\r\n](?:[^\n]*\n[ \t\r]*(?=[^ \t\r\n]))*[^\n]*")


def paragraphs(text: str) -> tuple[str, ...]:
    """Split a text into paragraphs, each on one line; an empty text has one empty paragraph.

    Invalid JSON is treated as plain text, because systems may produce it.
    """
    fenced = _FENCED.fullmatch(text)
    body = fenced[1] if fenced else text
    if body.lstrip().startswith(("{", "[")):
        try:
            parse_json(body, "", numbers=False)
        except CotextError:
            pass
        else:
            strings = (match for match in _STRING.finditer(body) if not match[2])
            return _on_lines(json.loads(match[1]) for match in strings)
    if _OPENING.match(body) or _PARAGRAPH_TAG.search(body):
        reader = _Reader()
        reader.feed(body)
        reader.close()
        reader.end()
        return _on_lines(reader.found)
    return _on_lines(match[0] for match in _TEXT_PARAGRAPH.finditer(text))


def _on_lines(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(without_breaks, texts)) or ("",)


class _Reader(HTMLParser):
    """Collects the text between block elements; only `<p>` may be an empty paragraph.

    The text must be fed in one call.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._text: list[str] = []
        self._in_paragraph = False
        self._is_unclosed = False

    def parse_comment(self, i: int, report: bool = True) -> int:
        """Return the end of a comment, or -1; the end is searched only once, so that time is linear."""
        end = -1 if self._is_unclosed else super().parse_comment(i, report)
        self._is_unclosed = end < 0
        return end

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            self._text.append("\n")
        elif tag in BLOCKS:
            self.end()
            self._in_paragraph = tag == "p"

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            self.end()

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    def end(self) -> None:
        """End the paragraph at the tag of a block element."""
        text = without_breaks("".join(self._text))
        if text or self._in_paragraph:
            self.found.append(text)
        self._text.clear()
        self._in_paragraph = False


ID: Final = "doc_id"
SOURCES: Final = ("source_doc", "src_text", "source")
HYPOTHESIS: Final = "hypothesis"
INSTRUCTIONS: Final = ("instruction", "prompt_instruction")
DATASETS: Final = ("dataset_id", "collection_id")
_TEXTS: Final = (*SOURCES, HYPOTHESIS)
_CODE = r"[a-z]{2,3}(?:_[A-Za-z]{2,4})*"
# Ids contain the languages: WMT26_###_domain_###_source_###_target_###_id, source-target_#_domain.
_PAIR_IN_ID: Final = re.compile(
    rf"(?:[^#]+_###_){{2}}({_CODE})_###_({_CODE})_###_.|({_CODE})-({_CODE})_#_.", re.DOTALL
)
_BEGINNING: Final = re.compile(rf'\{{\s*"(?:{"|".join((ID, *DATASETS))})"\s*:')


@dataclass(frozen=True, slots=True)
class WmtLine:
    """A line of the task or of a submission. Missing texts are None, unknown languages empty."""

    number: int
    doc_id: str
    source_language: str = ""
    target_language: str = ""
    source: str | None = None
    hypothesis: str | None = None
    reference: str | None = None
    instruction: str = ""

    @property
    def pair(self) -> str:
        """The languages, as in "cs-de_DE" or "de_DE"."""
        return f"{self.source_language}-{self.target_language}".removeprefix("-").removesuffix("-")


def begins_wmt(line: str) -> bool:
    """Return whether a first line, which may be cut off, is a line of the task or of a submission."""
    try:
        value = parse_json(line, "", numbers=False)
    except CotextError:
        return bool(_BEGINNING.match(line)) and any(re.search(rf'"{key}"\s*:\s*"', line) for key in _TEXTS)
    if not isinstance(value, dict) or not isinstance(value.get(ID), str):
        return False
    return "sentences" not in value and any(isinstance(value.get(key, 0), str | None) for key in _TEXTS)


def read_wmt_lines(path: Path, wanted: str = "") -> Iterator[WmtLine]:
    """Read the lines of the language or pair `wanted`, such as `cs-de_DE`; lines of unknown language match.

    If `wanted` is empty, the file must have only one language pair.

    Raises CotextError if a line is not a line of the task, the wanted pair is missing, or several pairs are
    possible.
    """
    pairs = _chosen(path, wanted) if wanted else None
    first: WmtLine | None = None
    for line in all_wmt_lines(path):
        if pairs is not None:
            if (line.source_language, line.target_language) in pairs:
                yield line
            continue
        first = first or line
        if line.pair != first.pair:
            raise CotextError(
                f"{path}:{line.number}: a document of {line.pair or 'an unknown language'}, after others of "
                f"{first.pair or 'an unknown language'}: choose a pair, "
                f"for example --format wmt:{line.pair or 'de_DE'}"
            )
        yield line


def all_wmt_lines(path: Path) -> Iterator[WmtLine]:
    for number, text in numbered_lines(path):
        if text.strip(OUTER_SPACE):
            yield wmt_line(parse_json(text, f"{path}:{number}", numbers=False), number, f"{path}:{number}")


def languages_of_wmt(path: Path, wanted: str = "") -> tuple[str, str]:
    """Return the codes of source and target of the first line that `read_wmt_lines` reads."""
    line = next(read_wmt_lines(path, wanted), None)
    return (line.source_language, line.target_language) if line else ("", "")


def _chosen(path: Path, wanted: str) -> set[tuple[str, str]]:
    """Return the pairs of source and target codes in a file that match a code or pair."""
    pairs = list(dict.fromkeys((line.source_language, line.target_language) for line in all_wmt_lines(path)))
    source, dash, target = wanted.partition("-")
    if not dash:
        source, target = "", wanted
    targets = fitting_codes(target, [code for _, code in pairs])
    sources = fitting_codes(source, [code for code, other in pairs if other in targets])
    if (not targets and any(code for _, code in pairs)) or (
        source and not sources and any(code for code, other in pairs if other in targets)
    ):
        available = ", ".join("-".join(filter(None, pair)) for pair in pairs)
        raise CotextError(f"{path}: no document has the language {shown(wanted)}; there are {available}")
    chosen = {
        (first, second)
        for first, second in pairs
        if (not second or second in targets) and (not first or not source or first in sources)
    }
    named = sorted({f"{first}-{second}" for first, second in chosen if first and second})
    if len(named) > 1 or len({second for _, second in chosen if second}) > 1:
        matches = ", ".join(named or sorted(second for _, second in chosen))
        raise CotextError(
            f"{path}: {shown(wanted)} may be {matches}; choose a pair, for example --format wmt:{named[0]}"
        )
    return chosen


def wmt_line(value: object, number: int, where: str) -> WmtLine:
    """Check the JSON value of a line; raises CotextError unless it is an object with id and text."""
    if not isinstance(value, dict):
        raise CotextError(f"{where}: expected a JSON object, found {type(value).__name__}")
    document_id = value.get(ID)
    if not isinstance(document_id, str) or not document_id:
        raise CotextError(f"{where}: the key {ID!r} must contain a text that is not empty")
    for key in (*_TEXTS, *INSTRUCTIONS, "src_lang", "tgt_lang"):
        if not isinstance(value.get(key), str | None):
            raise CotextError(f"{where}: document {document_id!r}: the key {key!r} must contain a text")
    source = next((value[key] for key in SOURCES if value.get(key) is not None), None)
    hypothesis = value.get(HYPOTHESIS)
    if source is None and hypothesis is None:
        raise CotextError(
            f"{where}: document {document_id!r} has none of the keys {', '.join(_TEXTS)}; a line needs a text"
        )
    first, second = _languages(value, document_id)
    return WmtLine(
        number=number,
        doc_id=document_id,
        source_language=value.get("src_lang") or first,
        target_language=value.get("tgt_lang") or second,
        source=source,
        hypothesis=hypothesis,
        reference=_reference(value.get("refs")),
        instruction=next((value[key] for key in INSTRUCTIONS if value.get(key)), ""),
    )


def _languages(value: dict[str, Any], document_id: str) -> tuple[str, str]:
    """Return source and target language from the key `direction`, otherwise from the id."""
    direction = value.get("direction")  # in synthetic references: "ces_Latn---deu_Latn"
    if isinstance(direction, str) and "---" in direction:
        first, _, second = direction.partition("---")
        return first, second
    match = _PAIR_IN_ID.match(document_id)
    return (match[1] or match[3], match[2] or match[4]) if match else ("", "")


def _reference(refs: object) -> str | None:
    """Return the first reference, sorted by name: a text, or an object with the text under `ref`."""
    for _, reference in sorted(refs.items()) if isinstance(refs, dict) else ():
        text = reference.get("ref") if isinstance(reference, dict) else reference
        if isinstance(text, str) and text:
            return text
    return None


def read_wmt(path: Path, wanted: str = "") -> Iterator[Record]:
    """Read a document from every line: the paragraphs of source, and of hypothesis or reference.

    A line with only a hypothesis is a document in one language. An empty text is an empty sentence.
    """
    for line in read_wmt_lines(path, wanted):
        written = line.hypothesis if line.hypothesis is not None else line.reference
        source, target = (None if text is None else paragraphs(text) for text in (line.source, written))
        if source is None:
            yield Record(line.doc_id, line.number, 0, target)
        else:
            yield Record(line.doc_id, line.number, 0, None, source, target)


def in_order(path: Path, documents: Sequence[Document], ids: Sequence[str]) -> list[Document]:
    """Sort documents by the order of `ids`, because a submission may have any order.

    Raises CotextError unless there are exactly these documents, each once.
    """
    by_id = {document.id: document for document in documents}
    twice = next((id for id, count in Counter(ids).items() if count > 1), None)
    if twice is not None:
        raise CotextError(f"{path}: cannot be matched with the task, which has two documents {shown(twice)}")
    for problem, wrong in (
        ("lacks {} of the documents of the task, such as {}", [id for id in ids if id not in by_id]),
        ("has {} documents that are not in the task, such as {}", sorted(by_id.keys() - set(ids))),
    ):
        if wrong:
            raise CotextError(f"{path}: {problem.format(len(set(wrong)), shown(wrong[0]))}")
    if len(documents) != len(ids):
        raise CotextError(f"{path}: has documents twice")
    return [by_id[id] for id in ids]


def encode_wmt(record: Record) -> str:
    """Return a line with paragraphs as HTML, from which they can be read back unchanged.

    Raises CotextError for an empty id or a paragraph of several lines.
    """
    if not record.id:
        raise CotextError("a document has an empty id, which cannot be written")
    value = {ID: record.id}
    for key, side in (("source", record.source), (HYPOTHESIS, record.sentences or record.target)):
        if side is not None:
            lines = (one_line(record.id, i, text).strip(OUTER_SPACE) for i, text in enumerate(side))
            value[key] = "\n".join(f"<p>{escape(line, quote=False)}</p>" for line in lines)
    return json.dumps(value, ensure_ascii=False) + "\n"
