"""The influence of context sentences on one word of a translation (the values of `cotext context`)."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from itertools import accumulate, takewhile
from typing import Any, Final

from pydantic import StrictInt, StrictStr

from cotext.data.context_edits import Excerpt, without
from cotext.data.documents import Document, ParallelDocument
from cotext.data.words import TokenWord, token_words, words_of
from cotext.evaluation.studies.context.context_use import (
    SentenceInfluences,
    counterfactuals,
    excerpts,
    influences_of,
    score_excerpts,
)
from cotext.evaluation.studies.context.page import STRONG_NATS
from cotext.runtime import CotextError
from cotext.serving.record import CURRENT, RequestError
from cotext.serving.requests import Body
from cotext.serving.service import Service
from cotext.serving.sharing import Work
from cotext.serving.systems import System

STEP_CHARACTERS: Final = 8_000  # scored at once, while other requests wait for the model
MAX_FIGURES: Final = 1_000_000  # maximum of cached numbers


class Question(Body):
    """A word of a translated document: its sentence, and its characters (start, stop) in it.

    Characters are Unicode code points, as in `Array.from` of JavaScript.
    """

    system: StrictStr
    sources: list[StrictStr]
    targets: list[StrictStr]
    sentence: StrictInt
    characters: tuple[StrictInt, StrictInt]

    def check(self) -> None:
        """Raise RequestError 400 if the sides have unequal lengths, or the sentence does not exist."""
        if len(self.sources) != len(self.targets):
            counts = f"{len(self.sources)} sources and {len(self.targets)} targets"
            raise RequestError(400, f"{counts}: give a target for every source")
        if not 0 <= self.sentence < len(self.sources):
            raise RequestError(400, f"sentence {self.sentence} of {len(self.sources)}: numbers begin at 0")


@dataclass(frozen=True, slots=True)
class _Found:
    """The words of a sentence, and changes of the log-probabilities of their tokens.

    `without`: translations without a context sentence, by its number, computed on demand.
    """

    words: list[TokenWord]
    influences: SentenceInfluences
    without: dict[int, str] = field(default_factory=dict)

    @property
    def figures(self) -> int:
        return len(self.influences.cxmi) * (1 + len(self.influences.influences))


class Explanations:
    """Computes the influence of context sentences on a word; caches scores of sentences, per client."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str, int], _Found] = OrderedDict()

    async def answer(
        self, service: Service, system: System, question: Question, client: str
    ) -> dict[str, Any]:
        """Return the word, all words of its sentence, and the influence of each context sentence in nats.

        Raises RequestError: 400, the system has no context or no word probabilities, or there is no word;
        503, the computation takes too long.
        """
        CURRENT.get().system = system.name
        question.check()
        if refusal := unexplained(system):
            raise RequestError(400, refusal)
        text = repr((question.sources, question.targets)).encode("utf-8", "surrogatepass")
        key = (client, system.name, hashlib.sha256(text).hexdigest(), question.sentence)
        work = Work(client)
        async with service.in_time():
            scored = self._known.pop(key, None)
            if scored is None:
                scored = await service.in_thread(partial(_find, service, system, question, work), work)
            self._known[key] = scored  # the last is the most recent
            while sum(entry.figures for entry in self._known.values()) > MAX_FIGURES:
                self._known.popitem(last=False)
            answer = _described(system, question, scored)
            decisive = answer["decisive"]
            if decisive is not None:
                if decisive not in scored.without:
                    search = partial(_translated_without, service, system, scored, decisive, work)
                    scored.without[decisive] = await service.in_thread(search, work)
                target = question.targets[question.sentence]
                answer["alternative"] = _in_place(answer["word"]["first"], target, scored.without[decisive])
        return answer


def unexplained(system: System) -> str:
    """Return why a system cannot explain words; an empty string if it can."""
    plan = system.opened.translator.plan
    if plan.config.view.kind == "sentence":
        return f"{system.name} translates each sentence alone, so no context affects its words"
    try:
        plan.require_token_probabilities()
    except CotextError as error:
        return str(error)
    return ""


def _find(service: Service, system: System, question: Question, work: Work) -> _Found:
    """Score the sentence with its context and without each part of it."""
    translator = system.opened.translator
    document = ParallelDocument("1", tuple(question.sources), tuple(question.targets))
    words = token_words(translator.tokenizer, question.targets[question.sentence], "target")
    if not words:
        raise RequestError(400, "the sentence has no words")
    translator.check_pairs([document])
    [excerpt] = excerpts(translator, document, [question.sentence])
    variants = counterfactuals(excerpt)
    scores = _score(service, system, work, variants)
    if len(scores[0]) < words[-1].tokens.stop:
        raise RequestError(400, "the system cannot produce this sentence in any context")
    influences = influences_of(list(zip(variants, scores, strict=True)))
    return _Found(words, influences)


def _score(service: Service, system: System, work: Work, given: Sequence[Excerpt]) -> list[tuple[float, ...]]:
    """Return the log-probabilities of tokens, scored a few excerpts at a time."""
    shared = service.shared(system)
    scores: list[tuple[float, ...]] = []
    while rest := given[len(scores) :]:
        # A step has at least one excerpt; several have at most STEP_CHARACTERS.
        characters = accumulate(sum(map(len, (*e.document.source, *e.document.target))) for e in rest)
        fitting = sum(1 for _ in takewhile(lambda count: count <= STEP_CHARACTERS, characters))
        with shared.exclusively(work):
            scores += score_excerpts(system.opened.translator, rest[: max(1, fitting)])
    return scores


def _translated_without(service: Service, system: System, found: _Found, number: int, work: Work) -> str:
    """Translate the sentence without a context sentence; all other sentences keep their translations."""
    excerpt = found.influences.excerpt
    less = without(excerpt, excerpt.numbers.index(number))
    pairs = less.pairs()
    given = {j: target for j, (_, target) in enumerate(pairs) if j != less.sentence and target.strip()}
    document = Document("1", tuple(source for source, _ in pairs))
    translator = service.shared(system).opened_for(work).translator
    [(_, translation)] = translator.translate([document], taken={0: given})
    return translation.document.sentences[less.sentence]


def _in_place(first: int, target: str, other: str) -> str | None:
    """Return the word of another translation at the position of the target word that begins at `first`.

    Return None if it is the same word, or if the words that differ here are not equal in number.
    """
    words, others = words_of(target), words_of(other)
    place = next(i for i, word in enumerate(words) if word.start == first)
    texts, other_texts = [word.text for word in words], [word.text for word in others]
    matcher = SequenceMatcher(None, texts, other_texts, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if a <= place < b and tag == "replace" and b - a == d - c:
            return other_texts[c + place - a]
    return None


def _described(system: System, question: Question, found: _Found) -> dict[str, Any]:
    """Return the response for one word."""
    word = _clicked(question, found.words)

    def place(of: TokenWord) -> dict[str, Any]:
        return {"text": of.text, "first": of.start, "stop": of.stop}

    plan = system.opened.translator.plan
    view = plan.config.view
    source_windows = view.kind == "window" and view.target_before == 0
    source_only = source_windows or view.kind == "cumulative" or plan.kind.path is not None
    side = "source" if source_only else "both"
    changes = {one.number: round(word.total(one.tokens), 4) + 0.0 for one in found.influences.influences}
    contexts = [
        {
            "number": number,
            "side": side,
            "text": question.sources[number],
            "change": change,
            "meant": abs(change) >= STRONG_NATS,
        }
        for number, change in changes.items()
    ]
    most = max(changes, key=lambda number: changes[number], default=None)
    return {
        "word": place(word),
        "words": [
            {**place(other), "change": round(other.total(found.influences.cxmi), 4) + 0.0}
            for other in found.words
        ],
        "contexts": contexts,
        "decisive": most if most is not None and changes[most] >= STRONG_NATS else None,
        "alternative": None,
        "signature": system.opened.signature,
    }


def _clicked(question: Question, words: Sequence[TokenWord]) -> TokenWord:
    """Return the words that overlap the characters as one word; raise RequestError 400 if there are none."""
    first, stop = question.characters
    touched = [word for word in words if word.start < max(stop, first + 1) and first < word.stop]
    if not touched:
        raise RequestError(400, f"characters: no word at {first} to {stop} of sentence {question.sentence}")
    start, end = touched[0].start, touched[-1].stop
    text = question.targets[question.sentence][start:end]
    return TokenWord(text, start, end, range(touched[0].tokens.start, touched[-1].tokens.stop))
