"""Translation of corpus files by a language model into the same format, with a usage report.

The output is written when it is complete. The same command resumes an interrupted job from cached responses.
For a WMT task, prompts contain the instructions of the task.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, write_translations
from cotext.data.formats.streams import atomic_sinks
from cotext.data.formats.table import find_format
from cotext.data.formats.wmt import in_order, read_wmt_lines
from cotext.language_models.client import Client, Counts
from cotext.language_models.prompts import Prompt, one_line
from cotext.language_models.translator import UNTRANSLATED, EndpointTranslator, Repair
from cotext.runtime import __version__
from cotext.runtime.files import checksum, writing
from cotext.translation.corpus_files import remove_lists
from cotext.translation.faults import checked, faults_in_words, shown_places

REPORT_ENDING: Final = ".report.json"
REPORT: Final = "cotext-endpoint-report"


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """The usage of a translated file, and its repairs, each with the id of its document.

    `faults`: places by kind of fault (`cotext.translation.faults`).
    """

    format: str
    documents: int
    sentences: int
    signature: str
    counts: Counts
    repairs: Sequence[tuple[str, Repair]]
    faults: Mapping[str, Sequence[str]]

    @property
    def untranslated(self) -> list[str]:
        return [repair.place(id) for id, repair in self.repairs if repair.remedy == UNTRANSLATED]

    def as_dict(self) -> dict[str, Any]:
        return {
            "file_format": self.format,
            "documents": self.documents,
            "sentences": self.sentences,
            "untranslated": self.untranslated,
            "faults": dict(self.faults),
            "repairs": [{"document": id, **asdict(repair)} for id, repair in self.repairs],
            "usage": {
                "all": asdict(self.counts.all),
                "now": asdict(self.counts.now),
                "sent_again": self.counts.sent_again,
            },
            "answered": self.counts.period,
            "signature": self.signature,
        }

    def lines(self) -> list[str]:
        """Return messages for the user, without the signature."""
        messages = [str(self.counts)]
        kinds: dict[tuple[str, str], list[str]] = {}
        for id, repair in self.repairs:
            kinds.setdefault((repair.remedy, repair.problem), []).append(repair.place(id))
        for (remedy, problem), places in sorted(kinds.items(), key=lambda kind: -len(kind[1])):
            which = shown_places(places)
            messages.append(f"{remedy}: {len(places):,} (the answer {problem}), {which}")
        return [*messages, *filter(None, [faults_in_words(self.faults)])]


def report_of(out: Path) -> Path:
    return out.with_name(f"{out.name}{REPORT_ENDING}")


def translate_file(
    client: Client,
    source: Path,
    out: Path,
    format: str,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> EndpointReport:
    """Translate a corpus file into the same format, and write a report next to the output.

    `on_start` is called with the number of sentences, `on_sentences` with numbers of translated ones.

    Raises:
        CotextError: the input cannot be read; the output cannot be written, or another process writes it; the
            errors of `EndpointTranslator.translate`.
    """
    find_format(format).require_written()
    documents = list(read_documents(source, format))
    instructions = _instructions(source, format, documents)
    on_start(sum(map(len, documents)))
    translator = EndpointTranslator(client)
    with writing(out) as lock:
        translations = translator.translate(documents, on_sentences, instructions)
        lock.require()
        remove_lists(out)
        sides = zip(documents, translations, strict=True)
        pairs = (ParallelDocument(d.id, d.sentences, t.document.sentences) for d, t in sides)
        languages, faults = client.endpoint.languages, dict[str, list[str]]()
        write_translations(out, checked(pairs, (languages.source, languages.target), faults), format)
        report = EndpointReport(
            format=format,
            documents=len(documents),
            sentences=sum(map(len, documents)),
            signature=translation_signature(client, translator.prompt, len(instructions)),
            counts=client.counts,
            repairs=[(t.document.id, repair) for t in translations for repair in t.repairs],
            faults=faults,
        )
        content = {"format": REPORT, "version": 1, "output": checksum(out), **report.as_dict()}
        with atomic_sinks([report_of(out)]) as [sink]:
            sink.write(f"{json.dumps(content, indent=1, ensure_ascii=False)}\n")
    return report


def _instructions(source: Path, format: str, documents: Sequence[Document]) -> dict[str, str]:
    """Return the instructions of a WMT task by document; raise CotextError for duplicate documents."""
    name, _, languages = format.partition(":")
    if name != "wmt":
        return {}
    lines = [line for line in read_wmt_lines(source, languages) if line.instruction]
    if lines:
        in_order(source, documents, [document.id for document in documents])
    return {line.doc_id: line.instruction for line in lines}


def translation_signature(client: Client, prompt: Prompt, instructed: int = 0) -> str:
    """Return the signature of translations; the dates are those of all their responses.

    `instructed`: number of documents with their own instructions.
    """
    endpoint = client.endpoint
    entries = [f"endpoint:{urlsplit(endpoint.endpoint).netloc}", f"model:{endpoint.model}"]
    # These names come from the server: remove line breaks and terminal commands.
    names = {one_line(name).replace("|", "/") for name in client.counts.models}
    if others := sorted(names - {endpoint.model, ""}):
        entries.append(f"answered_by:{','.join(others)}")
    temperature = "default" if endpoint.temperature is None else f"{endpoint.temperature:g}"
    entries.append(f"temperature:{temperature}")
    if endpoint.max_tokens is not None:
        entries.append(f"max_tokens:{endpoint.max_tokens}")
    if endpoint.parameters:
        written = json.dumps(endpoint.parameters, sort_keys=True)
        entries.append(f"parameters:{hashlib.sha256(written.encode()).hexdigest()[:8]}")
    pair = "-".join(name.replace("-", "_") for name in endpoint.language_names)
    size = f"-{endpoint.piece_sentences}" if endpoint.mode == "chunk" else ""
    entries += [f"languages:{str(endpoint.languages) or pair}", f"mode:{endpoint.mode}{size}"]
    if endpoint.context_sentences:
        entries.append(f"context:{endpoint.context_sentences}")
    entries += [f"prompt:{prompt.digest}", f"repeats:{endpoint.repeats}"]
    if instructed:
        entries.append(f"instructions:{instructed}")
    if client.counts.period:
        entries.append(f"answered:{client.counts.period}")
    return "|".join([*entries, f"version:{__version__}"])
