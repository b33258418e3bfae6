"""Translation of documents by a language model; the number of sentences is kept whatever it answers.

If an answer is unusable, the request is repeated with a description of the problem. Then its sentences are
requested in two halves, and so on down to single sentences; then with Cotext's prompt, if another is set.
Other sentences stay in the source language. Each of these steps is a repair, which is reported.
A suspicious translation (far too long, damaged, a refusal, or the source text) is requested again alone. If
most are suspicious or one is empty, the answer is unusable. The source text, and lengths as if sentences were
merged and divided, are accepted if the model repeats them.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from cotext.data.documents import Document, ParallelDocument, primary_language
from cotext.data.faults import checked, faults_in_words, shown_places
from cotext.data.formats import find_format, read_documents, write_translations
from cotext.data.formats.streams import atomic_sinks
from cotext.data.formats.wmt import in_order, read_wmt_lines
from cotext.data.nbest_lists import lists_beside
from cotext.data.selection import align_lengths
from cotext.language_models.client import Client, Counts, RefusedRequestError
from cotext.language_models.config import (
    DEFAULT_CONTEXT,
    TEMPLATE,
    Piece,
    Prompt,
    UnusableError,
    one_line,
)
from cotext.runtime import CotextError, __version__, shown
from cotext.runtime.files import checksum, writing
from cotext.runtime.progress import Meter

# A translation is too long above LONGEST_TIMES times the characters of its source, plus LONGEST_MORE.
LONGEST_TIMES: Final = 8
LONGEST_MORE: Final = 200
ECHO_WORDS: Final = 4  # fewer words may be a name ...
ECHO_COMMON: Final = 2  # ... unless at least this many begin with a lower-case letter
ECHO_LETTERS: Final = 10  # in languages without spaces

MOST_ALIGNED: Final = 600  # sentences; time and memory are quadratic

EMPTY: Final = "is empty"
LONG: Final = "is far longer than its source"
DAMAGED: Final = "has a damaged character (U+FFFD)"
REFUSAL: Final = "is a refusal"
ECHO: Final = "is the source"  # may be right, such as a title or a quotation
MOVED: Final = "seems to have merged some sentences and divided others, by their lengths"

_CONTENT: Final = re.compile(r"[^\W_]")  # a letter or a digit
_SPACE: Final = re.compile(r"\s+")
_REFUSAL: Final = re.compile(
    r"(?i)(i['’]m|i am) (very )?sorry\b|sorry, (but )?i(['’]m| am| can| cannot| won['’]t| will)\b|as an ai\b"
    r"|(i['’]m|i am) (unable|not able)\b|i (cannot|can['’]t|won['’]t|will not)\b|unfortunately, i\b"
)


def suspicion(source: str, translation: str, target_language: str = "") -> str:
    """Return the problem of a translation, one of the constants above; an empty string if there is none."""
    if not translation or (_CONTENT.search(source) and not _CONTENT.search(translation)):
        return EMPTY
    if len(translation) > LONGEST_TIMES * len(source) + LONGEST_MORE:
        return LONG
    if "\ufffd" in translation and "\ufffd" not in source:
        return DAMAGED
    if is_echo([source], [translation]):
        return ECHO
    is_english = primary_language(target_language) == "en" or "english" in target_language.casefold()
    return REFUSAL if not is_english and _REFUSAL.match(translation) else ""


def is_echo(sources: Sequence[str], translations: Sequence[str]) -> bool:
    """Return whether translations equal their sources, and the sources are more than a name or a number."""
    text = " ".join(sources)
    letters = sum(map(str.isalpha, text))
    words = [word for word in text.split() if any(map(str.isalpha, word))]
    common = sum(word[0].islower() for word in words)  # names begin with a capital
    unspaced = not text.isascii() and letters >= ECHO_LETTERS
    several = len(words) >= ECHO_WORDS or common >= ECHO_COMMON
    return (several or unspaced) and _folded(text) == _folded(" ".join(translations))


def moved(sources: Sequence[str], translations: Sequence[str]) -> range | None:
    """Return the range of sentences that seem merged and divided; None if there are none.

    Decided only by lengths (Gale and Church 1993): whether merging two sentences and dividing another
    explains the lengths of the translations far better. docs/results/scores.md has the measured accuracy.
    """
    if len(sources) > MOST_ALIGNED:
        return None
    beads = align_lengths([len(text) for text in sources], [len(text) for text in translations])
    odd = [sources for sources, targets in beads if len(sources) != len(targets)]
    return range(odd[0][0], odd[-1][-1] + 1) if odd else None


def _folded(text: str) -> str:
    return _SPACE.sub(" ", text).strip().casefold()


# Remedies.
AGAIN: Final = "requested again"
HALVED: Final = "requested in halves"
OWN_PROMPT: Final = "requested with Cotext's own prompt"
LEFT_OUT: Final = "removed from the answer"
KEPT: Final = "kept, because the model repeated it"
UNTRANSLATED: Final = "untranslated: the source text is kept"

# Words in error messages for a request that is too long; few APIs have a code for it.
TOO_LONG: Final = (
    "context_length_exceeded",
    "context length",
    "context window",
    "too long",
    "too many tokens",
)
TOO_LONG_ANSWER: Final = ("length", "max_tokens", "model_length")  # values of finish_reason in several APIs
UNFINISHED: Final = ("abort", "error", "insufficient_system_resource")
FILTERED: Final = ("content_filter", "content_policy", "data_inspection_failed")


@dataclass(frozen=True, slots=True)
class Repair:
    """The problem of sentences `first` to `last` (from 1), and its remedy."""

    first: int
    last: int
    problem: str
    remedy: str

    def place(self, document: str) -> str:
        """Return document and sentences, such as doc:3 or doc:3-5."""
        last = f"-{self.last}" if self.last > self.first else ""
        return f"{document}:{self.first}{last}"


@dataclass(frozen=True, slots=True)
class EndpointTranslation:
    """The translation of a document, and its repairs."""

    document: Document
    repairs: tuple[Repair, ...]

    @property
    def untranslated(self) -> tuple[int, ...]:
        """Indices of sentences that stay in the source language."""
        return tuple(repair.first - 1 for repair in self.repairs if repair.remedy == UNTRANSLATED)


@dataclass(slots=True)
class _Work:
    """A document in work; `translated` is empty for sentences that are not translated."""

    document: Document
    translated: list[str]
    instruction: str = ""
    repairs: list[Repair] = field(default_factory=list)

    def note(self, sentences: Sequence[int], problem: str, remedy: str) -> None:
        self.repairs.append(Repair(sentences[0] + 1, sentences[-1] + 1, problem, remedy))

    def finished(self) -> EndpointTranslation:
        repairs = sorted(self.repairs, key=lambda repair: (repair.first, repair.last))
        pairs = zip(self.document.sentences, self.translated, strict=True)
        document = Document(self.document.id, tuple(target or source for source, target in pairs))
        return EndpointTranslation(document, tuple(repairs))


class EndpointTranslator:
    """Translates documents through a client, with concurrent requests."""

    def __init__(self, client: Client) -> None:
        self._client, self.endpoint = client, client.endpoint
        self.own_prompt = Prompt(self.endpoint, TEMPLATE)
        self.prompt = Prompt(self.endpoint, self.endpoint.template or TEMPLATE)
        limits = {"temperature": self.endpoint.temperature, "max_tokens": self.endpoint.max_tokens}
        given = {key: value for key, value in limits.items() if value is not None}
        self._fields = {**self.endpoint.parameters, "model": self.endpoint.model, **given}

    def translate(
        self,
        documents: Iterable[Document],
        on_sentences: Callable[[int], None] = lambda count: None,
        instructions: Mapping[str, str] = MappingProxyType({}),
    ) -> list[EndpointTranslation]:
        """Translate documents, in order; `on_sentences` is called with numbers of translated sentences.

        `instructions`: by document id, added to all prompts of the document. Requests without context are
        concurrent also within a document. Raises the errors of `Client.post`, after responses in flight have
        arrived; all are cached.
        """
        works = [_Work(d, [""] * len(d), instructions.get(d.id, "")) for d in documents]
        counted = threading.Lock()

        def count(sentences: int) -> None:
            with counted:
                on_sentences(sentences)

        pool = ThreadPoolExecutor(self.endpoint.at_once)
        try:
            futures = [pool.submit(self._chain, work, s, count) for work in works for s in self._chains(work)]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except CotextError:
            self._client.stop()  # no retries; responses in flight are cached
            raise
        except BaseException:
            self._client.close()  # on an interrupt, do not wait for responses
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return [work.finished() for work in works]

    def _chains(self, work: _Work) -> Iterator[list[range]]:
        """Yield lists of spans that have to be translated one after the other."""
        count = len(work.document)
        size = self.endpoint.piece_sentences or max(count, 1)
        spans = [range(start, min(start + size, count)) for start in range(0, count, size)]
        if self.endpoint.context_sentences and spans:
            yield spans
        else:
            yield from ([span] for span in spans)

    def _chain(self, work: _Work, spans: Sequence[range], on_sentences: Callable[[int], None]) -> None:
        translation = _ChainTranslation(self, work, spans[0].start)
        for span in spans:
            # Sentences without a visible character are copied.
            if sentences := [index for index in span if work.document.sentences[index].strip()]:
                translation.translate(sentences, self.endpoint.context_sentences, self.endpoint.repeats)
            on_sentences(len(span))

    def translate_piece(
        self, prompt: Prompt, piece: Piece, repeat: int, problem: str
    ) -> tuple[list[str], list[str]]:
        """Translate a piece by one request; also return the kinds of text removed from the answer.

        Raises UnusableError if the answer is not usable. Raises the errors of `Client.post`.
        """
        try:
            answer = self._client.post({**self._fields, "messages": prompt.messages(piece, problem)}, repeat)
        except RefusedRequestError as error:
            message = f"{error.code} {error.said}".casefold()
            if any(words in message for words in TOO_LONG):
                raise UnusableError("was refused, as the request is too long", smaller=True) from None
            if any(words in message for words in FILTERED):
                raise UnusableError("is a refusal of the API's filter", smaller=True) from None
            raise
        return prompt.read(text_of(answer), piece)


class _ChainTranslation:
    """Translates a document from sentence `start` on; earlier sentences are not context."""

    def __init__(self, translator: EndpointTranslator, work: _Work, start: int) -> None:
        self._translator, self._work, self._start = translator, work, start
        endpoint = translator.endpoint
        self._repeats = endpoint.repeats
        context = max(endpoint.context_sentences, DEFAULT_CONTEXT)
        self._repair_context = 0 if endpoint.mode == "sentence" else context

    def translate(self, sentences: Sequence[int], context: int, repeats: int) -> None:
        """Translate sentences by one request, and by repairs if needed."""
        prompt, own = self._translator.prompt, self._translator.own_prompt
        problem = self._request(prompt, sentences, context, repeats)
        if not problem:
            return
        if len(sentences) > 1:
            self._work.note(sentences, problem, HALVED)
            middle = (len(sentences) + 1) // 2
            for half in (sentences[:middle], sentences[middle:]):
                self.translate(half, self._repair_context, self._repeats if len(half) == 1 else 0)
            return
        if prompt != own:
            self._work.note(sentences, problem, OWN_PROMPT)
            problem = self._request(own, sentences, context, 0)
        if problem:
            self._work.note(sentences, problem, UNTRANSLATED)

    def _request(self, prompt: Prompt, sentences: Sequence[int], context: int, repeats: int) -> str:
        """Request sentences, repeatedly if needed; return the problem of the last answer, or ""."""
        source, translated = self._work.document.sentences, self._work.translated
        shown = range(max(self._start, sentences[0] - context), sentences[0])
        # Untranslated sentences are not context.
        before = tuple((source[index], translated[index]) for index in shown if translated[index])
        piece = Piece(tuple(source[index] for index in sentences), before, self._work.instruction)
        first = problem = ""
        for repeat in range(repeats + 1):
            try:
                translations, left_out = self._translator.translate_piece(prompt, piece, repeat, problem)
                wrong = self._wrong(sentences, translations, insisted=repeat == repeats)
            except UnusableError as error:
                problem = str(error)
                first = first or problem
                if error.smaller and len(sentences) > 1:
                    break
                continue
            if first:
                self._work.note(sentences, first, AGAIN)
            for thing in left_out:
                self._work.note(sentences, f"has {thing}", LEFT_OUT)
            for index, text in zip(sentences, translations, strict=True):
                if index not in wrong:
                    translated[index] = text
            for index, doubt in wrong.items():
                self._work.note([index], doubt, AGAIN)
                self.translate([index], self._repair_context, self._repeats)
            return ""
        return problem

    def _wrong(self, sentences: Sequence[int], translations: Sequence[str], insisted: bool) -> dict[int, str]:
        """Return the problems of translations, by sentence.

        `insisted`: accept translations that may be right, and note them. Raises UnusableError if one
        translation is empty, most have a problem, all are the source, or sentences seem to be merged.
        """
        source = self._work.document.sentences
        if len(sentences) > 1 and is_echo([source[index] for index in sentences], translations):
            raise UnusableError(ECHO)
        pairs = zip(sentences, translations, strict=True)
        language = self._translator.endpoint.target_language
        wrong = {i: problem for i, text in pairs if (problem := suspicion(source[i], text, language))}
        if len(sentences) == 1 and insisted:
            for index in [index for index, problem in wrong.items() if problem == ECHO]:
                self._work.note([index], wrong.pop(index), KEPT)
        # If there is nothing after a number, its sentence may be with the previous number.
        if 2 * len(wrong) > len(sentences) or EMPTY in wrong.values():
            which = "" if len(sentences) == 1 else f"has {len(wrong)} numbers whose translation "
            raise UnusableError(which + next(iter(wrong.values())))
        if not wrong and (between := moved([source[index] for index in sentences], translations)):
            if not insisted:
                raise UnusableError(MOVED)
            self._work.note([sentences[index] for index in between], MOVED, KEPT)
        return wrong


def text_of(answer: Mapping[str, Any]) -> str:
    """Return the text of a response; raise UnusableError if it is missing, cut off or a refusal."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UnusableError("has no message of the form that chat completions have")
    reason = str(choice.get("finish_reason")).casefold()
    if reason in TOO_LONG_ANSWER:
        raise UnusableError("was cut off at the limit of its length", smaller=True)
    if reason in UNFINISHED:
        raise UnusableError(f"was not finished ({reason})")
    if reason == "content_filter" or message.get("refusal"):
        raise UnusableError(REFUSAL, smaller=True)
    content = message.get("content")
    if not isinstance(content, str):
        raise UnusableError(f"has a message whose content is {shown(type(content).__name__)} and no text")
    return content


# --- Translation of corpus files into the same format, with a usage report.
#
# The output is written when it is complete. The same command resumes an interrupted job from cached
# responses. For a WMT task, prompts contain the instructions of the task.

REPORT_ENDING: Final = ".report.json"
REPORT: Final = "cotext-endpoint-report"


@dataclass(frozen=True, slots=True)
class EndpointReport:
    """The usage of a translated file, and its repairs, each with the id of its document.

    `faults`: places by kind of fault (`cotext.data.faults`).
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


def translate_file(client: Client, source: Path, out: Path, format: str, progress: Meter) -> EndpointReport:
    """Translate a corpus file into the same format, and write a report next to the output.

    Raises CotextError: the input cannot be read; the output cannot be written, or another process writes it;
    the errors of `EndpointTranslator.translate`.
    """
    find_format(format).require_written()
    documents = list(read_documents(source, format))
    instructions = _instructions(source, format, documents)
    progress.restart(sum(map(len, documents)))
    translator = EndpointTranslator(client)
    with writing(out) as lock:
        translations = translator.translate(documents, progress.advance, instructions)
        lock.require()
        lists_beside(out).unlink(missing_ok=True)
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
