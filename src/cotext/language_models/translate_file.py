"""Corpus files translated by a language model into the same format, with a report of what it took beside.

Nothing half-written: the output appears when it is complete. An interrupted job goes on with the answers that
are kept, which the same command finds again.

Of lines of the task of WMT the output is a submission, and their instructions are handed on.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, write_translations
from cotext.data.formats.streams import atomic_sinks
from cotext.data.formats.table import find_format
from cotext.data.formats.wmt import WmtLine, in_order, joined, read_wmt_lines
from cotext.language_models.client import Client, Counts, Usage
from cotext.language_models.config import Endpoint
from cotext.language_models.signature import translation_signature
from cotext.language_models.translator import (
    KEPT,
    UNTRANSLATED,
    EndpointTranslation,
    EndpointTranslator,
    Repair,
)
from cotext.runtime.files import checksum
from cotext.runtime.locks import writing
from cotext.translation.written_beside import remove_lists

REPORT_ENDING: Final = ".report.json"
PLACES_SHOWN: Final = 5
REPAIRS: Final = "repairs"
REPORT: Final = "cotext-endpoint-report"
_BIDI_CONTROL: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # UAX 9, section 2


@dataclass(frozen=True, slots=True)
class DocumentRepair:
    """A repair, and the document that it is of."""

    document: str
    repair: Repair

    @property
    def place(self) -> str:
        """As in doc:3 or doc:3-5."""
        last = f"-{self.repair.last}" if self.repair.last > self.repair.first else ""
        return f"{self.document}:{self.repair.first}{last}"

    def as_dict(self) -> dict[str, Any]:
        """As it stands in a report."""
        return {"document": self.document, **asdict(self.repair)}


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """What a file was translated with, what that took, and which sentences a person should look at.

    `direction_controls`: bidirectional control characters in sentences that the model wrote.
    """

    format: str
    documents: int
    sentences: int
    signature: str
    endpoint: Endpoint
    counts: Counts
    repairs: tuple[DocumentRepair, ...]
    direction_controls: Mapping[str, int]

    @property
    def untranslated(self) -> list[str]:
        """The sentences that stand there in the source language."""
        return [each.place for each in self.repairs if each.repair.remedy == UNTRANSLATED]

    @property
    def kept(self) -> list[str]:
        """The sentences at which somebody should look: odd translations that the model insists on."""
        return [each.place for each in self.repairs if each.repair.remedy == KEPT]

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON."""
        return {
            "file_format": self.format,
            "documents": self.documents,
            "sentences": self.sentences,
            "untranslated": self.untranslated,
            "kept": self.kept,
            "direction_controls": dict(self.direction_controls),
            REPAIRS: [each.as_dict() for each in self.repairs],
            "usage": {
                "all": self._usage(self.counts.all),
                "now": self._usage(self.counts.now),
                "sent_again": self.counts.sent_again,
            },
            "prices": None if self.endpoint.prices is None else self.endpoint.prices.model_dump(),
            "answered": self.counts.period,
            "signature": self.signature,
        }

    def lines(self) -> list[str]:
        """What a person should know, without the signature."""
        told = [self.counts.in_words(self.endpoint.prices)]
        kinds: dict[tuple[str, str], list[str]] = {}
        for each in self.repairs:
            kinds.setdefault((each.repair.remedy, each.repair.problem), []).append(each.place)
        for (remedy, problem), places in sorted(kinds.items(), key=lambda kind: -len(kind[1])):
            which = ", ".join(places[:PLACES_SHOWN]) + (" ..." if len(places) > PLACES_SHOWN else "")
            told.append(f"{remedy}: {len(places):,} (the answer {problem}), {which}")
        return told

    def _usage(self, usage: Usage) -> dict[str, Any]:
        return {**asdict(usage), "cost": usage.cost(self.endpoint.prices)}


def report_of(out: Path) -> Path:
    """Where the report on an output stands."""
    return out.with_name(f"{out.name}{REPORT_ENDING}")


def translate_file(
    client: Client,
    source: Path,
    out: Path,
    format: str,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> EndpointReport:
    """Translate a corpus file into the same format, with a report beside the output.

    `on_start` is called with the number of sentences, `on_sentences` with each few that are done.

    Raises:
        CotextError: unreadable input, an output that cannot be written or that another process writes; as
            `EndpointTranslator.translate`.
    """
    find_format(format).require_written()
    documents = list(read_documents(source, format))
    task = _task_of(source, format, documents)
    instructions = {line.doc_id: line.instruction for line in task if line.instruction}
    on_start(sum(map(len, documents)))
    translator = EndpointTranslator(client)
    with writing(out) as lock:
        translations = translator.translate(documents, on_sentences, instructions)
        lock.require()
        remove_lists(out)
        if task:
            with atomic_sinks([out]) as [sink]:
                for line in joined(source, [each.document for each in translations], source, _wanted(format)):
                    sink.write(line)
        else:
            write_translations(out, _pairs(documents, translations), format)
        controls, places = _direction_controls(translations)
        report = EndpointReport(
            format=format,
            documents=len(documents),
            sentences=sum(map(len, documents)),
            signature=translation_signature(client, translator.prompt, len(instructions)),
            endpoint=client.endpoint,
            counts=client.counts,
            repairs=tuple(_repairs(translations)),
            direction_controls=controls,
        )
        _write_report(out, report)
    if controls:
        client.tell(
            f"{out}: {sum(controls.values()):,} bidirectional control characters, which can change the order "
            f"in which text is shown, in {places[0]}{' and other sentences' if places[1:] else ''} ("
            f"{', '.join(f'{name}: {count:,}' for name, count in controls.items())}); they are left as the "
            "model wrote them"
        )
    return report


def _task_of(source: Path, format: str, documents: Sequence[Document]) -> list[WmtLine]:
    """The lines of a task of WMT; none of any other file.

    Raises:
        CotextError: a document that comes twice.
    """
    if find_format(format).name != "wmt":
        return []
    lines = list(read_wmt_lines(source, _wanted(format)))
    if any(line.source is None or not line.target_language for line in lines):
        return []
    in_order(source, documents, [line.doc_id for line in lines])
    return lines


def _wanted(format: str) -> str:
    """The languages that the name of a format has, as in wmt:cs-de."""
    return format.partition(":")[2]


def _pairs(
    documents: Sequence[Document], translations: Sequence[EndpointTranslation]
) -> Iterable[ParallelDocument]:
    for document, translation in zip(documents, translations, strict=True):
        yield ParallelDocument(document.id, document.sentences, translation.document.sentences)


def _repairs(translations: Iterable[EndpointTranslation]) -> Iterable[DocumentRepair]:
    for translation in translations:
        yield from (DocumentRepair(translation.document.id, repair) for repair in translation.repairs)


def _direction_controls(translations: Iterable[EndpointTranslation]) -> tuple[dict[str, int], list[str]]:
    """The characters of Unicode's Bidi_Control in what a model wrote, as in U+202E, and the sentences."""
    counts: Counter[str] = Counter()
    places = []
    for translation in translations:
        for number, sentence in enumerate(translation.document.sentences):
            found = [] if number in translation.untranslated else _BIDI_CONTROL.findall(sentence)
            counts.update(f"U+{ord(character):04X}" for character in found)
            if found:
                places.append(f"{translation.document.id}:{number + 1}")
    return dict(sorted(counts.items())), places


def _write_report(out: Path, report: EndpointReport) -> None:
    content = {"format": REPORT, "version": 1, "output": checksum(out), **report.as_dict()}
    with atomic_sinks([report_of(out)]) as [sink]:
        sink.write(f"{json.dumps(content, indent=1, ensure_ascii=False)}\n")
