"""Choices in real text between er, sie and es as the translation of `it`.

A sentence has such a choice if all conditions hold, decided by regular expressions:

    source       it once (it's, it'll count), and no other pronoun of the third person
    reference    exactly one of er, sie, es, and no other form of them (ihn, ihm, ihr ...); in lower case
                 or at the beginning of the sentence, which excludes the polite Sie
    no you       in the source if the sentence begins with Sie, which could be the polite form
    referring    it and es are not expletive and do not refer to what follows (EXPLETIVE_SOURCE,
                 EXPLETIVE_TARGET), as in: it is possible to, it seems, make it easy to; es gibt, erlaubt
                 es, es ist eine Welt, es, dass
    no noun      before the pronoun in the reference: no word with a capital letter, except a first word that
                 often begins sentences (OPENING)

The antecedent is therefore in another sentence, usually an earlier one; its distance is unknown. The wrong
candidates are the reference with the other two pronouns. Verbs agree with all three.
"""

import re
from collections.abc import Iterator
from typing import Final

from benchmarks.study.choice import Choice
from cotext.data.documents import ParallelDocument

PHENOMENON: Final = "pronoun"
FORMS: Final = ("er", "sie", "es")
_IT: Final = re.compile(r"\bit\b", re.IGNORECASE)
_OTHER_SOURCE: Final = re.compile(
    r"\b(?:itself|they|them|their|theirs|themselves|he|him|his|she|her|hers)\b", re.IGNORECASE
)
_YOU: Final = re.compile(r"\byou(?:r|rs|rself)?\b", re.IGNORECASE)
_PRONOUN: Final = re.compile(r"(?:^[\W_]*(?P<first>Er|Sie|Es)|\b(?P<inner>er|sie|es))\b")
_OTHER_TARGET: Final = re.compile(r"\b(?:ihn|ihm|ihr|ihnen|ihre[nmrs]?|Ihr)\b")
_ADJECTIVES: Final = (
    r"possible|impossible|necessary|unnecessary|important|recommended|advisable|likely|"
    r"unlikely|easy|easier|hard|harder|difficult|safe|unsafe|useful|helpful|wise|unwise|"
    r"common|customary|better|best|sufficient|enough|good|bad|crucial|essential|vital|"
    r"convenient|desirable|clear|obvious|true|worth|worthwhile|assumed|known|expected|"
    r"required|permitted|allowed|suggested|advised|unspecified|undefined|time|sensible|"
    r"reasonable|preferable|mandatory|illegal|legal|permissible|feasible|acceptable|"
    r"appropriate|up"
)
_ADJECTIVE: Final = rf"(?:{_ADJECTIVES})"
_BE: Final = (
    r"(?:'s|\s+(?:is|was|be|been|being|becomes?|became|remains?|seems?|appears?"
    r"|(?:will|would|should|may|might|can|could|must)\s+(?:\w+\s+)?be(?:come)?))"
)
EXPLETIVE_SOURCE: Final = re.compile(
    rf"\bit(?:{_BE}(?:\s+\w+){{0,3}}?\s+{_ADJECTIVE}\b"
    r"|\s+(?:(?:does|did|do|will|would|may|might|can|could)(?:n't|\s+not)?\s+)?(?:seems?|seemed|appears?|appeared"
    r"|turns?\s+out|turned\s+out|follows|happens?|happened|rains?|snows?|depends?|suffices?|takes?|took"
    r"|makes?\s+sense|looks?\s+(?:like|as))\b)"
    r"|\b(?:make|makes|made|making|find|finds|found|consider|considers|render|renders|think|keep|keeps)\s+it\s+"
    rf"(?:\w+\s+){{0,2}}?(?:{_ADJECTIVE}|\w+er)\b"
    r"|\bit(?:'s|\s+is|\s+was)\s+(?:not\s+|only\s+)*(?:\S+\s+){1,5}?(?:that|who)\b",
    re.IGNORECASE,
)
_GERMAN_ADJECTIVES: Final = (
    r"möglich|unmöglich|notwendig|nötig|wichtig|empfehlenswert|empfohlen|ratsam|sinnvoll|"
    r"üblich|einfach|einfacher|leicht|leichter|schwer|schwierig|sicher|nützlich|hilfreich|"
    r"besser|gut|genug|erforderlich|erlaubt|zulässig|wahrscheinlich|unwahrscheinlich|unklug|"
    r"klug|unerlässlich|essenziell|entscheidend|denkbar|klar"
)
EXPLETIVE_TARGET: Final = re.compile(
    r"\b(?:es\s+(?:gibt|gab|gäbe)|(?:gibt|gab|gäbe)\s+es|es\s+(?:sich\s+)?(?:handelt|geht|bedarf|heißt)|"
    r"(?:handelt|geht|bedarf|scheint|kommt)\s+es|es\s+(?:scheint|kommt|folgt)|"
    r"(?:erlaub|ermöglich|gestatt|erleichter|erschwer|vermeid|unterlass|vermöch)\w*\s+es)\b|"
    r"\bes\s*,|"
    r"\b(?:es\s+(?:dauert|liegt|reicht|genügt|braucht|stimmt|klappt|fehlt|regnet|schneit|stellt)|"
    r"(?:dauert|liegt|reicht|genügt|braucht|fehlt)\s+es)\w*\b|"
    r"\b(?:es\s+(?:ist|war|sind|waren|wird|wurde|sei|wäre)|(?:ist|war|sind|waren|wird|wurde|sei|wäre)\s+es)\s+"
    r"(?:\w+\s+)?(?:eine?|einer|einen|der|die|das|den|so|etwas|nichts|spät|Zeit|kein\w*|unser\w*|mein\w*)\b|"
    rf"\bes\b[^,.;:]*\b(?:{_GERMAN_ADJECTIVES})\b|"
    rf"\b(?:{_GERMAN_ADJECTIVES})\s+(?:ist|sei|wäre|wird)\s+es\b|"
    r"\bes\b[^,.;:]*,\s*(?:dass|ob|wenn|falls)\b",
    re.IGNORECASE,
)
OPENING: Final = re.compile(
    r"Wenn|Falls|Dann|Danach|Da|Weil|Wie|In|Im|Auf|An|Am|Aus|Bei|Beim|Mit|Von|Vom|"
    r"Zu|Zum|Zur|Nach|Vor|Für|Um|Als|Ob|Obwohl|Während|Bevor|Nachdem|Sobald|Solange|"
    r"Sofern|Damit|Dadurch|Dabei|Dazu|Daher|Darum|Deshalb|Deswegen|Dort|Hier|Hierzu|"
    r"Hierfür|Hiermit|Jetzt|Nun|Anschließend|Außerdem|Zudem|Ferner|Weiter|Weiterhin|"
    r"Ansonsten|Sonst|Andernfalls|Anderenfalls|Allerdings|Jedoch|Aber|Und|Oder|Denn|Doch|"
    r"Also|Somit|So|Trotzdem|Dennoch|Standardmäßig|Normalerweise|Üblicherweise|Gewöhnlich|"
    r"Beispielsweise|Insbesondere|Zuerst|Zunächst|Schließlich|Einmal|Auch|Nur|Ist|Sind|"
    r"Wird|Kann|Soll|Muss|Darf|Hat|Wurde|Dass|Manchmal|Oft|Meist|Meistens|Stattdessen|"
    r"Tatsächlich|Vielleicht|Wahrscheinlich|Möglicherweise|Wo|Warum|Was|Er|Sie|Es"
)
_WORD: Final = re.compile(r"[^\W\d_]+")


def pronoun_choices(document: ParallelDocument) -> Iterator[Choice]:
    """Yield the choices of a document in order, without its first sentence, which has no context."""
    for number, (source, target) in enumerate(zip(document.source, document.target, strict=True)):
        form = pronoun_of(source, target)
        if form is not None and number:
            start, stop, written = form
            others = [each for each in FORMS if each != written.lower()]
            wrong = (
                target[:start] + (each.capitalize() if written[0].isupper() else each) + target[stop:]
                for each in others
            )
            yield Choice(PHENOMENON, number, target, tuple(wrong), None, {"pronoun": written.lower()})


def pronoun_of(source: str, target: str) -> tuple[int, int, str] | None:
    """Return start, end and form of the pronoun in the target, or None if there is no choice."""
    if len(_IT.findall(source)) != 1 or _OTHER_SOURCE.search(source) or EXPLETIVE_SOURCE.search(source):
        return None
    found = list(_PRONOUN.finditer(target))
    if len(found) != 1 or _OTHER_TARGET.search(target):
        return None
    [pronoun] = found
    name = "first" if pronoun["first"] else "inner"
    written = pronoun[name]
    if written == "Sie" and _YOU.search(source):
        return None
    if written.lower() == "es" and EXPLETIVE_TARGET.search(target):
        return None
    if _has_noun(target[: pronoun.start(name)]):
        return None
    return pronoun.start(name), pronoun.end(name), written


def _has_noun(before: str) -> bool:
    words = _WORD.findall(before)
    return any(word[0].isupper() for word in words[1:]) or any(
        word[0].isupper() and not OPENING.fullmatch(word) for word in words[:1]
    )
