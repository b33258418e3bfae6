"""Glossaries and translation memories: source terms or sentences with their translations."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cotext.data.documents import Languages, same_language
from cotext.data.formats.xml_formats import DOCUMENT, pairs
from cotext.runtime import CotextError, read_bytes, shown
from cotext.runtime.xml import local_name, parse

if TYPE_CHECKING:
    from lxml import etree

MAX_BYTES: Final = 64 << 20
_ALTERNATIVES: Final = "|"
# Values of the status of a term in TBX (ISO 30042) that forbid its use.
_NOT_USED: Final = ("deprecated", "superseded", "forbidden", "obsolete")
_XML_LANGUAGE: Final = "{http://www.w3.org/XML/1998/namespace}lang"


@dataclass(frozen=True, slots=True)
class Term:
    """A source term with alternative preferred translations, and forbidden ones."""

    source: str
    targets: tuple[str, ...]
    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Glossary:
    """The terms of one language pair."""

    terms: tuple[Term, ...]

    @classmethod
    def of(cls, terms: Mapping[str, str | Sequence[str]]) -> "Glossary":
        """Create a glossary from source terms with one or more translations each, none of them empty."""
        pairs = ((source, (t,) if isinstance(t, str) else tuple(t)) for source, t in terms.items())
        return cls(tuple(_term(source, targets, (), "glossary") for source, targets in pairs))

    @classmethod
    def read(cls, path: Path, source_language: str = "", target_language: str = "") -> "Glossary":
        """Read a table or TBX; only TBX needs the languages.

        A line of a table has source, target and, optionally, forbidden translations; further columns are
        notes. Alternatives are separated by |. Lines that begin with # are comments; a first line "source,
        target" is a header. Columns are separated by tabs, in .csv files by commas.

        Raises:
            CotextError: the file is unreadable, a line has no translation, or TBX lacks terms in a language.
        """
        content = read_bytes(path, MAX_BYTES)
        if content[:1024].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
            return cls(tuple(_of_tbx(content, str(path), source_language, target_language)))
        return cls(tuple(_of_table(_text(content, path), path)))


def read_words(path: Path) -> tuple[str, ...]:
    """Read words and phrases, one per line, with comments after #; raise CotextError if unreadable."""
    lines = _text(read_bytes(path, MAX_BYTES), path).splitlines()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CotextError(f"{path}: not a text in UTF-8 (byte {error.start}); save it as UTF-8") from None


def _of_table(text: str, path: Path) -> Iterator[Term]:
    comma = path.suffix.lower() == ".csv"
    lines = io.StringIO(text, newline="")
    rows = csv.reader(lines) if comma else (line.rstrip("\r\n").split("\t") for line in lines)
    header_may_follow = True
    try:
        for number, row in enumerate(rows, start=1):
            if not "".join(row).strip() or row[0].startswith("#"):
                continue
            cells = [cell.strip() for cell in row]
            may_be_header, header_may_follow = header_may_follow, False
            if may_be_header and [cell.lower() for cell in cells[:2]] == ["source", "target"]:
                continue
            forbidden = _several(cells[2]) if len(cells) > 2 else ()
            where = f"{path}, line {number}"
            if len(cells) < 2:
                separator = "comma" if comma else "tab"
                raise CotextError(f"{where}: there is no {separator} between a term and its translation")
            yield _term(cells[0], _several(cells[1]), forbidden, where)
    except csv.Error as error:
        raise CotextError(f"{path}: not a table in CSV: {error}") from None


def _several(cell: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in cell.split(_ALTERNATIVES) if part.strip())


def _term(source: str, targets: tuple[str, ...], forbidden: tuple[str, ...], where: str) -> Term:
    source, targets = source.strip(), tuple(target.strip() for target in targets)
    if not source or not all(targets) or not (targets or forbidden):
        raise CotextError(f"{where}: the term {shown(source)} needs a text and a translation")
    return Term(source, targets, forbidden)


def _of_tbx(content: bytes, where: str, source_language: str, target_language: str) -> Iterator[Term]:
    """Yield the terms of each concept in TBX (ISO 30042:2008 and 2019), by language and status."""
    concepts = 0
    for node in parse(content, where).iter():
        if local_name(node) not in ("termEntry", "conceptEntry"):
            continue
        concepts += 1
        used: dict[str, list[str]] = {source_language: [], target_language: []}
        unused: dict[str, list[str]] = {source_language: [], target_language: []}
        for section in node:
            if local_name(section) not in ("langSet", "langSec"):
                continue
            language = section.get(_XML_LANGUAGE, section.get("lang", ""))
            own = next((code for code in used if same_language(language, code)), None)
            if own is None:
                continue
            for group in section:
                term = next((part for part in group.iter() if local_name(part) == "term"), None)
                text = "" if term is None else _normal("".join(term.itertext()))
                if text:
                    status = " ".join("".join(part.itertext()) for part in group.iter() if _is_status(part))
                    (unused if any(word in status.lower() for word in _NOT_USED) else used)[own].append(text)
        for source in (*used[source_language], *unused[source_language]):
            if used[target_language] or unused[target_language]:
                yield Term(source, tuple(used[target_language]), tuple(unused[target_language]))
    if not concepts:
        raise CotextError(f"{where}: has no termEntry or conceptEntry; give a glossary in TBX, TSV or CSV")


def _is_status(node: "etree._Element") -> bool:
    name, kind = local_name(node), (node.get("type") or "").lower()
    return name == "administrativeStatus" or (name == "termNote" and "administrativestatus" in kind)


# --- Translation memory: sentences that were translated before in the same context.
#
# A translation is used only if the memory has the sentence after the same sentence, ignoring white space. In
# another context, the sentence may need another translation. The first sentence of a document must also be
# the first in the memory. Of several translations in one context, the last counts.


@dataclass(slots=True)
class TranslationMemory:
    """Translations by source sentence and the sentence before it; `units` counts them."""

    units: int = 0
    _found: dict[tuple[str, str | None], str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, languages: Languages) -> "TranslationMemory":
        """Read a TMX file; raise CotextError if it is unreadable or has no unit in both languages."""
        if not languages.source or not languages.target:
            raise CotextError(
                f"{path}: the languages of the run are unknown, so no languages of the memory can be chosen"
            )
        memory = cls.of(
            (source, target, properties.get(DOCUMENT, ""))
            for source, target, properties in pairs(path, languages.source, languages.target)
        )
        if not memory.units:
            raise CotextError(
                f"{path}: no unit in {languages.source} and {languages.target}; give a memory that has both"
            )
        return memory

    @classmethod
    def of(cls, sentences: Iterable[tuple[str, str, str]]) -> "TranslationMemory":
        """Create a memory from sentence pairs in order, each with the name of its document."""
        memory = cls()
        before: str | None = None
        of_document: str | None = None
        for source, target, document in sentences:
            # The first sentence of a document has no sentence before it.
            if document != of_document:
                before, of_document = None, document
            text = _normal(source)
            if text and target.strip():
                memory._found[text, before] = _normal(target)
                memory.units += 1
            before = text
        return memory

    def lookup(self, source: str, previous_source: str | None) -> str | None:
        """Return the translation of a sentence after another (None: it is the first), if there is one."""
        before = None if previous_source is None else _normal(previous_source)
        return self._found.get((_normal(source), before))

    def taken(self, documents: Iterable[Sequence[str]]) -> Mapping[int, Mapping[int, str]]:
        """Return the sentences of documents that the memory contains, by document and sentence."""
        translations: dict[int, dict[int, str]] = {}
        for index, sentences in enumerate(documents):
            for j, source in enumerate(sentences):
                target = self.lookup(source, sentences[j - 1] if j else None)
                if target is not None:
                    translations.setdefault(index, {})[j] = target
        return translations


def _normal(text: str) -> str:
    """Return the text with single spaces between words."""
    return " ".join(text.split())
