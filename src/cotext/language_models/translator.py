"""Documents translated by a language model: as many sentences as they have, whatever it answers.

A request whose answer is not usable is repeated with what was wrong; then its sentences are asked for in two
halves, and so on down to single ones; then with Cotext's own prompt, where another is set. What still has no
translation stays in the source language. Every such step is a repair, which the report names.

A sentence of a usable answer that cannot be right by itself (nothing, text run wild, the source again) is
asked for again alone. What may be right, a translation that is the source, or lengths that tell of sentences
merged and divided, is kept where the model insists.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from cotext.data.documents import Document
from cotext.data.selection import align_lengths
from cotext.language_models.client import Client, RefusedRequestError
from cotext.language_models.config import DEFAULT_CONTEXT, TEMPLATE, Endpoint
from cotext.language_models.numbered import UnusableError
from cotext.language_models.prompts import Piece, Prompt, piece_of, prompt_of
from cotext.runtime.errors import CotextError, shown

# A translation of more than so many times the characters of its source, and some, is text run wild.
LONGEST_TIMES: Final = 8
LONGEST_MORE: Final = 200
ECHO_WORDS: Final = 4  # fewer may be a name ...
ECHO_COMMON: Final = 2  # ... but for so many words that begin with a small letter
ECHO_LETTERS: Final = 10  # of languages without spaces

# Sentences of context for what is asked again in smaller pieces, where the mode shows none before a piece.
_REPAIR_CONTEXT: Final = DEFAULT_CONTEXT

MOST_ALIGNED: Final = 600  # time and memory go by the square

EMPTY: Final = "is empty"
LONG: Final = "is far longer than its source"
ECHO: Final = "is the source"
MOVED: Final = "seems to have merged some sentences and divided others, by their lengths"
# What may be right: a title, a quotation.
POSSIBLE: Final = frozenset({ECHO})

_CONTENT: Final = re.compile(r"[^\W_]")
_SPACE: Final = re.compile(r"\s+")


def has_content(text: str) -> bool:
    """Whether a text holds a letter or a digit."""
    return _CONTENT.search(text) is not None


def suspicion(source: str, translation: str) -> str:
    """What is wrong with the translation of a sentence, one of the constants above; empty if nothing is."""
    if not translation or (has_content(source) and not has_content(translation)):
        return EMPTY
    if len(translation) > LONGEST_TIMES * len(source) + LONGEST_MORE:
        return LONG
    return ECHO if is_echo([source], [translation]) else ""


def is_echo(sources: Sequence[str], translations: Sequence[str]) -> bool:
    """Whether translations are their sources again, and these are more than a name or a number."""
    text = " ".join(sources)
    letters = sum(map(str.isalpha, text))
    words = [word for word in text.split() if any(map(str.isalpha, word))]
    common = sum(word[0].islower() for word in words)  # not of a name
    unspaced = not text.isascii() and letters >= ECHO_LETTERS
    several = len(words) >= ECHO_WORDS or common >= ECHO_COMMON
    return (several or unspaced) and _folded(text) == _folded(" ".join(translations))


def moved(sources: Sequence[str], translations: Sequence[str]) -> range | None:
    """The sentences, by their indices, between one that seems merged and one that seems divided; else None.

    By lengths alone (Gale and Church 1993): translations of as many sentences as were asked for are taken for
    others where merging two and dividing another explains their lengths far better. How often that is so, and
    rightly: docs/results/scores.md.
    """
    if len(sources) > MOST_ALIGNED:
        return None
    beads = align_lengths([len(text) for text in sources], [len(text) for text in translations])
    odd = [of_source for of_source, of_target in beads if len(of_source) != len(of_target)]
    return range(odd[0][0], odd[-1][-1] + 1) if odd else None


def _folded(text: str) -> str:
    return _SPACE.sub(" ", text).strip().casefold()


# How repairs end.
AGAIN: Final = "asked for again"
HALVED: Final = "asked for in halves"
OWN_PROMPT: Final = "asked for with Cotext's own prompt"
LEFT_OUT: Final = "left out of the answer"
KEPT: Final = "kept, as the model insists"
UNTRANSLATED: Final = "untranslated: the source stands there"

# Words by which APIs say that a request is too long; few have a code for it.
TOO_LONG: Final = (
    "context_length_exceeded",
    "context length",
    "context window",
    "too long",
    "too many tokens",
)
FILTERED: Final = ("content_filter", "content_policy", "data_inspection_failed")


@dataclass(frozen=True, slots=True)
class Repair:
    """What was wrong with the translation of sentences `first` to `last`, from 1, and what was done."""

    first: int
    last: int
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class EndpointTranslation:
    """The translation of a document, and its repairs; `untranslated` are indices from 0."""

    document: Document
    repairs: tuple[Repair, ...]
    untranslated: tuple[int, ...]


@dataclass(slots=True)
class _Work:
    """A document on its way; a sentence has no text until it is translated."""

    document: Document
    translated: list[str]
    instruction: str = ""
    repairs: list[Repair] = field(default_factory=list)
    untranslated: list[int] = field(default_factory=list)

    def note(self, sentences: Sequence[int], problem: str, remedy: str) -> None:
        self.repairs.append(Repair(sentences[0] + 1, sentences[-1] + 1, problem, remedy))

    def finished(self) -> EndpointTranslation:
        repairs = sorted(self.repairs, key=lambda repair: (repair.first, repair.last))
        pairs = zip(self.document.sentences, self.translated, strict=True)
        document = Document(self.document.id, tuple(target or source for source, target in pairs))
        return EndpointTranslation(document, tuple(repairs), tuple(sorted(self.untranslated)))


class EndpointTranslator:
    """Translation of documents through a client, with as many requests at once as its endpoint says."""

    def __init__(self, client: Client) -> None:
        self._client, self._endpoint = client, client.endpoint
        self.prompt = prompt_of(client.endpoint)
        self._own = replace(self.prompt, template=TEMPLATE)

    def translate(
        self,
        documents: Iterable[Document],
        on_sentences: Callable[[int], None] = lambda count: None,
        instructions: Mapping[str, str] = MappingProxyType({}),
    ) -> list[EndpointTranslation]:
        """The translations of documents, in order; `on_sentences` is called with each few that are done.

        `instructions`, by the ids of documents, stand before the prompts of all their requests.

        Requests that show no sentences before theirs are sent side by side within a document, too.

        Raises:
            CotextError: as `Client.post`, once what is under way has been answered; all answers are kept.
        """
        works = [
            _Work(document, [""] * len(document), instructions.get(document.id, "")) for document in documents
        ]
        counted = threading.Lock()

        def count(sentences: int) -> None:
            with counted:
                on_sentences(sentences)

        pool = ThreadPoolExecutor(self._endpoint.at_once)
        try:
            futures = [
                pool.submit(self._chain, work, spans, count) for work in works for spans in self._chains(work)
            ]
            _raise_first(futures)
        except CotextError:
            self._client.stop()  # whoever waits to send again ends; answers that are under way are kept
            raise
        except BaseException:
            self._client.close()  # an interrupt waits for no answer
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return [work.finished() for work in works]

    def _chains(self, work: _Work) -> Iterator[list[range]]:
        """The spans of a document that have to be translated one after the other."""
        spans = spans_of(len(work.document), self._endpoint)
        if self._endpoint.context_sentences and spans:
            yield spans
        else:
            yield from ([span] for span in spans)

    def _chain(self, work: _Work, spans: Sequence[range], on_sentences: Callable[[int], None]) -> None:
        translation = _ChainTranslation(self, work, spans[0].start)
        for span in spans:
            # A sentence without a visible character is copied, as it is by every system.
            if sentences := [index for index in span if work.document.sentences[index].strip()]:
                translation.translate(sentences, self._endpoint.context_sentences, self._endpoint.repeats)
            on_sentences(len(span))

    def answered(
        self, prompt: Prompt, piece: Piece, repeat: int, problem: str
    ) -> tuple[list[str], list[str]]:
        """The translations of a piece by one request, and what was left out of its answer.

        Raises:
            UnusableError: it has none.
            CotextError: as `Client.post`.
        """
        try:
            answer = self._client.post(
                PATH, payload_of(self._endpoint, prompt.messages(piece, problem)), repeat
            )
        except RefusedRequestError as error:
            said = f"{error.code} {error.said}".casefold()
            if any(words in said for words in TOO_LONG):
                raise UnusableError("was refused, as the request is too long", smaller=True) from None
            if any(words in said for words in FILTERED):
                raise UnusableError("is a refusal of the API's filter", smaller=True) from None
            raise
        return prompt.read(text_of(answer), piece)

    def prompts(self) -> list[Prompt]:
        """The prompts for a single sentence, one after the other."""
        return [self.prompt] if self.prompt == self._own else [self.prompt, self._own]

    @property
    def repeats(self) -> int:
        """How often a request is repeated."""
        return self._endpoint.repeats

    @property
    def repair_context(self) -> int:
        """The sentences before a smaller piece."""
        return repair_context(self._endpoint)


class _ChainTranslation:
    """The translation of the part of a document from sentence `start` on, which sees none before it."""

    def __init__(self, translator: EndpointTranslator, work: _Work, start: int) -> None:
        self._translator, self._work, self._start = translator, work, start

    def translate(self, sentences: Sequence[int], context: int, repeats: int) -> None:
        """Translate sentences by one request, and by whatever more it takes."""
        [first, *others] = self._translator.prompts()
        problem = self._asked(first, sentences, context, repeats)
        if not problem:
            return
        if len(sentences) > 1:
            self._work.note(sentences, problem, HALVED)
            middle = (len(sentences) + 1) // 2
            for half in (sentences[:middle], sentences[middle:]):
                single = len(half) == 1
                self.translate(
                    half, self._translator.repair_context, self._translator.repeats if single else 0
                )
            return
        for prompt in others:
            self._work.note(sentences, problem, OWN_PROMPT)
            problem = self._asked(prompt, sentences, context, 0)
            if not problem:
                return
        self._work.note(sentences, problem, UNTRANSLATED)
        self._work.untranslated += sentences

    def _asked(self, prompt: Prompt, sentences: Sequence[int], context: int, repeats: int) -> str:
        """Ask for sentences, again if it must be; what was wrong with the last answer, empty if nothing."""
        source = self._work.document.sentences
        context = min(context, sentences[0] - self._start)
        shown = piece_of(source, self._work.translated, sentences, context)
        piece = replace(shown, instruction=self._work.instruction)
        first = problem = ""
        for repeat in range(repeats + 1):
            try:
                translations, left_out = self._translator.answered(prompt, piece, repeat, problem)
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
            self._take(sentences, translations, wrong)
            return ""
        return problem

    def _wrong(self, sentences: Sequence[int], translations: Sequence[str], insisted: bool) -> dict[int, str]:
        """The sentences whose translation cannot be right by itself, and what is wrong with it.

        `insisted`: what may be right is taken, and noted.

        Raises:
            UnusableError: most of them, or sentences without any.
        """
        source = self._work.document.sentences
        if len(sentences) > 1 and is_echo([source[index] for index in sentences], translations):
            raise UnusableError(ECHO)
        pairs = zip(sentences, translations, strict=True)
        wrong = {index: found for index, text in pairs if (found := suspicion(source[index], text))}
        if len(sentences) == 1 and insisted:
            for index in [index for index, found in wrong.items() if found in POSSIBLE]:
                self._work.note([index], wrong.pop(index), KEPT)
        # Where there is nothing behind a number, its sentence may be behind the one before.
        if 2 * len(wrong) > len(sentences) or EMPTY in wrong.values():
            which = "" if len(sentences) == 1 else f"has {len(wrong)} numbers whose translation "
            raise UnusableError(which + next(iter(wrong.values())))
        if not wrong and (between := moved([source[index] for index in sentences], translations)):
            if not insisted:
                raise UnusableError(MOVED)
            self._work.note([sentences[index] for index in between], MOVED, KEPT)
        return wrong

    def _take(self, sentences: Sequence[int], translations: Sequence[str], wrong: dict[int, str]) -> None:
        for index, text in zip(sentences, translations, strict=True):
            if index not in wrong:
                self._work.translated[index] = text
        for index, found in wrong.items():
            self._work.note([index], found, AGAIN)
            self.translate([index], self._translator.repair_context, self._translator.repeats)


def _raise_first(futures: Sequence[Future[None]]) -> None:
    """Wait for all, or for the first that fails; raises what it does."""
    done, _ = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()


PATH: Final = "chat/completions"


def payload_of(endpoint: Endpoint, messages: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The body of a request."""
    limits = {"temperature": endpoint.temperature, "max_tokens": endpoint.max_tokens}
    given = {key: value for key, value in limits.items() if value is not None}
    return {**endpoint.parameters, "model": endpoint.model, "messages": list(messages), **given}


def text_of(answer: Mapping[str, Any]) -> str:
    """The text of an answer.

    Raises:
        UnusableError: there is none, it was cut off, or it is a refusal.
    """
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UnusableError("has no message of the form that chat completions have")
    reason = choice.get("finish_reason")
    if reason == "length":
        raise UnusableError("was cut off at the limit of its length", smaller=True)
    if reason == "content_filter" or message.get("refusal"):
        raise UnusableError("is a refusal", smaller=True)
    content = message.get("content")
    if not isinstance(content, str):
        raise UnusableError(f"has a message whose content is {shown(type(content).__name__)} and no text")
    return content


def spans_of(count: int, endpoint: Endpoint) -> list[range]:
    """The sentences of each request for a document of `count` sentences, in order."""
    size = endpoint.piece_sentences or max(count, 1)
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


def repair_context(endpoint: Endpoint) -> int:
    """The sentences before a piece that is smaller than the mode's."""
    if endpoint.mode == "sentence":
        return 0
    return max(endpoint.context_sentences, _REPAIR_CONTEXT)
