"""TMX 1.4: translation memories to be filled, looked up in, and written.

A memory that is given to be translated gets the target of every unit that lacks one; units of a document, as
properties name it, are a document (see `cotext.data.formats.tmx`). Codes of inline elements are kept.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cotext.data.formats.tmx import (
    FOOTER,
    HEADER,
    document_of,
    encode_unit,
)
from cotext.data.languages import best_language, same_language
from cotext.files.bilingual import ANY, Job
from cotext.files.blocks import Block
from cotext.files.inline import Kind, segments
from cotext.files.places import Edit, Lines, Slot, SplicedFile, no_edits
from cotext.files.strings import has_words
from cotext.files.xml_places import (
    Element,
    decoded_xml,
    escaped,
    has_root,
    opened_tag,
    printable,
    read_markup,
)
from cotext.runtime.errors import CotextError

_ROOT: Final = re.compile(rb"<tmx[\s>]")


def written(
    sentences: Iterable[tuple[str, str, Mapping[str, str]]], source_language: str, target_language: str
) -> bytes:
    """A memory of sentence pairs with their properties: `x-document` and `x-position` say where they stood.

    White space that a unit begins or ends with is kept; what XML cannot hold becomes a space.
    """
    units = (
        encode_unit(
            source_language,
            ((source_language, printable(source)), (target_language, printable(target))),
            {key: printable(value) for key, value in properties.items()},
        )
        for source, target, properties in sentences
    )
    return "".join((HEADER, *units, FOOTER)).encode()


@dataclass(frozen=True, slots=True)
class Tmx:
    """The format TMX."""

    job: Job = ANY
    name: str = "tmx"
    suffixes: tuple[str, ...] = (".tmx",)

    def for_job(self, job: Job) -> "Tmx":
        """See `cotext.files.bilingual.BilingualFormat`."""
        return replace(self, job=job)

    def recognises(self, head: bytes) -> bool:
        """By the root element."""
        return has_root(head, _ROOT)

    def open(self, content: bytes, name: str) -> SplicedFile:
        """Read a memory; raises CotextError for malformed XML, and where languages are not known."""
        source = decoded_xml(content, name)
        root = read_markup(source.text, name)
        if root.name != "tmx":
            raise CotextError(f"{name}: the root element is <{root.raw_name}>, not <tmx>")
        reader = _Reader(source.text, name, self.job, root)
        documents = reader.documents()
        encode = partial(source.encoded, name=name, errors="xmlcharrefreplace")
        return SplicedFile(source.text, encode, documents, reader.messages, bilingual=True)


FORMAT = Tmx()


class _Reader:
    """A memory on its way to slots."""

    def __init__(self, text: str, name: str, job: Job, root: Element) -> None:
        self._text, self._name = text, name
        self._lines = Lines(text)
        self._all = job.entries == "all"
        self._units = [unit for body in root.elements("body") for unit in body.elements("tu")]
        header = root.first("header")
        self._source = job.source_language or self._named_source(header)
        self._target = job.target_language or self._other_language()
        self.messages: list[str] = []

    def documents(self) -> list[list[Slot]]:
        """Slots of units that have a source; a unit of a document that was left comes in a new one."""
        documents: list[list[Slot]] = []
        current: str | None = None
        kept = without = 0
        for unit in self._units:
            languages = {_language(tuv): tuv for tuv in reversed(list(unit.elements("tuv")))}
            code = best_language(self._source, list(languages))
            source = languages[code].first("seg") if code else None
            if source is None or code is None:
                without += 1
                continue
            target_code = best_language(self._target, [each for each in languages if each != code])
            target = languages[target_code] if target_code else None
            segment = target.first("seg") if target is not None else None
            wanted = self._all or segment is None or not segment.text.strip()
            slot = self._slot(languages[code], source, target, wanted)
            if slot is None:
                continue
            kept += not wanted
            document = (
                document_of({p.attributes.get("type", ""): p.text for p in unit.elements("prop")}) or ""
            )
            if not documents or document != current:
                documents.append([])
                current = document
            documents[-1].append(slot)
        if kept:
            self.messages.append(f"{kept} units that have a target stay as they are, as context")
        if without:
            self.messages.append(f"{without} units have no text in {self._source}, and stay as they are")
        return documents

    def _slot(self, holder: Element, source: Element, target: Element | None, wanted: bool) -> Slot | None:
        contents = segments(self._text, source, _kind, keep_breaks=False)
        place = f"line {self._lines.of(source.start)}"
        blocks = tuple(
            Block(each.pieces, place, translate=wanted) for each in contents if has_words(each.pieces)
        )
        if not blocks:
            return None

        def edits(given: Sequence[Block]) -> Iterable[Edit]:
            [block] = given
            [segment] = contents
            yield self._edit(holder, target, f"<seg>{segment.written(block.pieces)}</seg>")

        return Slot(blocks, edits if wanted else no_edits)

    def _edit(self, holder: Element, target: Element | None, segment: str) -> Edit:
        if target is not None:
            old = target.first("seg")
            if old is not None:
                return old.start, old.stop, segment
            tag = opened_tag(self._text[target.start : target.inner])
            inner = self._text[target.inner : target.after]
            return target.start, target.stop, f"{tag}{inner}{segment}</{target.raw_name}>"
        indent = re.search(r"\r?\n[ \t]*$", self._text[max(0, holder.start - 200) : holder.start])
        made = f'<tuv xml:lang="{escaped(self._target)}">{segment}</tuv>'
        return holder.stop, holder.stop, (indent[0] if indent else "") + made

    def _named_source(self, header: Element | None) -> str:
        named = header.attributes.get("srclang", "") if header is not None else ""
        if not named or named == "*all*":
            raise CotextError(f"{self._name}: does not name its source language (srclang), nor does the job")
        return named

    def _other_language(self) -> str:
        codes = {_language(tuv): None for unit in self._units for tuv in unit.elements("tuv")}
        others = [code for code in codes if not same_language(code, self._source)]
        if not others or not all(same_language(others[0], other) for other in others):
            found = ", ".join(others) or "none"
            raise CotextError(
                f"{self._name}: which target language to fill is not clear (found: {found}); name it"
            )
        return others[0]


def _language(tuv: Element) -> str:
    return tuv.attributes.get("xml:lang") or tuv.attributes.get("lang", "")


def _kind(element: Element) -> Kind:
    """Inline elements of TMX."""
    name, attributes = element.name, element.attributes
    if name == "hi":
        return Kind("encloses")
    if name in ("bpt", "ept"):
        return Kind("begins" if name == "bpt" else "ends", attributes.get("i", ""))
    return Kind("stands", shown=element.text if name == "ph" else "")
