"""The format iwslt-tags: training files of the IWSLT talks (`train.tags.en-de.en`), a sentence a line.

Lines of metadata stand before the sentences of a talk (`<url>`, `<talkid>`, `<title>` and so on) and behind
them (`<reviewer>`, `<translator>`); editions differ in whether `<doc docid=..>` and `</doc>` surround both.
Metadata are no sentences. Lines are text, not XML: entities stay as they are written.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from cotext.data.formats.records import OUTER_SPACE, Gathered, Record
from cotext.data.formats.streams import numbered_lines
from cotext.runtime.errors import CotextError

_BEFORE = ("url", "keywords", "speaker", "talkid", "title", "description")
_BEHIND = ("reviewer", "translator")
_METADATA = re.compile(rf"<({'|'.join(_BEFORE + _BEHIND)})(?:\s[^<>]*)?>(.*)")
_DOC = re.compile(r"<doc(\s[^<>]*)?>")
_DOC_ID = re.compile(r"""\sdocid\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_DOC_END = "</doc>"
# A talk begins with these. A sentence may begin so too, but not as the first line of a file.
_BEGINNING = re.compile(r"<(?:url>\s*https?:|talkid>)|<url>.*</url>$")


def begins_talks(lines: list[str]) -> bool:
    """Whether the first lines that are not blank open a talk."""
    stripped = (line.strip(OUTER_SPACE) for line in lines)
    for line in (line for line in stripped if line):
        if _BEGINNING.match(line):
            return True
        if not (_DOC.fullmatch(line) or _METADATA.fullmatch(line)):
            return False
    return False


def read_iwslt_tags(path: Path) -> Iterator[Record]:
    """Read talks, each a document with the id of its `<doc>`, or else of its `<talkid>`.

    An empty line inside a talk is an empty sentence. Raises CotextError for text outside of talks, metadata
    that are not closed on their line, and `<doc>` that is not closed.
    """
    talk: _Talk | None = None
    count = 0
    for number, line in numbered_lines(path):
        text = line.strip(OUTER_SPACE)
        where = f"{path}:{number}"
        opening = _DOC.fullmatch(text)
        metadata = _METADATA.fullmatch(text)
        if opening or (metadata and metadata[1] in _BEFORE and (talk is None or talk.has_text)):
            if talk is not None:
                talk.require_no_doc(where)
                yield talk.record()
            count += 1
            talk = _Talk(path, number, str(count), _doc_id(opening[1]) if opening else None)
        if metadata:
            _add_metadata(talk, metadata, where)
        elif text == _DOC_END:
            if talk is None or not talk.in_doc:
                raise CotextError(f"{where}: {_DOC_END} without the <doc> that it closes")
            yield talk.record()
            talk = None
        elif not opening and talk is not None:
            talk.add(text, number)
        elif not opening and text:
            raise CotextError(
                f"{where}: text outside of a talk; in the format iwslt-tags, talks begin with lines as <url> "
                "and <talkid>"
            )
    if talk is not None:
        talk.require_no_doc(f"{path}: the end")
        yield talk.record()


class _Talk:
    """A talk that is being read; `doc_id` is None where no `<doc>` opens it, empty where that has none."""

    def __init__(self, path: Path, line: int, number: str, doc_id: str | None) -> None:
        self.in_doc = doc_id is not None
        self.talk_id = ""
        self._path = path
        self._opened = line
        self._line = 0
        self._number = number
        self._doc_id = doc_id
        self._sentences = Gathered(path)
        self._behind = ""

    @property
    def has_text(self) -> bool:
        """Whether its sentences, or the metadata behind them, have begun."""
        return bool(self._sentences or self._behind)

    def add(self, sentence: str, line: int) -> None:
        """Add a sentence; an empty line behind closing metadata is none."""
        if self._behind and sentence:
            raise CotextError(
                f"{self._path}:{line}: text behind <{self._behind}>, which closes the talk that began at "
                f"line {self._opened}; every talk begins with lines as <url> and <talkid>"
            )
        if not self._behind:
            self._line = self._line or line
            self._sentences.append(sentence)

    def close(self, element: str) -> None:
        """Note metadata that stand behind sentences, where there are sentences."""
        self._behind = element if self._sentences else ""

    def require_no_doc(self, where: str) -> None:
        """Raise CotextError where `<doc>` has opened the talk, and `</doc>` is missing before this place."""
        if self.in_doc:
            raise CotextError(
                f"{where} comes before the {_DOC_END} of the <doc> that began at line {self._opened}"
            )

    def record(self) -> Record:
        """The talk as a document."""
        identifier = self._doc_id or self.talk_id or self._number
        return Record(identifier, self._line or self._opened, 1, sentences=tuple(self._sentences))


def _doc_id(attributes: str | None) -> str:
    found = _DOC_ID.search(attributes or "")
    return (found[1] or found[2] or "").strip(OUTER_SPACE) if found else ""


def _add_metadata(talk: _Talk | None, metadata: re.Match[str], where: str) -> None:
    element, content = metadata[1], metadata[2]
    closing = f"</{element}>"
    if not content.endswith(closing):
        raise CotextError(f"{where}: <{element}> without {closing} at the end of its line; put it there")
    if talk is None:
        raise CotextError(f"{where}: <{element}> outside of a talk; it belongs behind the sentences of one")
    if element in _BEHIND:
        talk.close(element)
    elif element == "talkid":
        talk.talk_id = content.removesuffix(closing).strip(OUTER_SPACE)
