"""Contrastive suites of pronouns that Chinese drops and English needs.

    python -m benchmarks.study.dropped_choices balance RUN SUITES OUT.json
    python -m benchmarks.study.dropped_choices give SUITES OUT
    python -m benchmarks.study.dropped_choices check SOURCE RESTORED REFERENCE OUT.json

`suites_of` finds the choices of a corpus (docs/real-choices.md). `balance` reads the suites of a folder and
writes those examples to the folder OUT on which a sentence model is at chance; OUT.json has its accuracy
before and after. `give` writes the same suites with the dropped pronoun at the beginning of its line, to find
out how much the pronoun is worth. `check` compares the rule with lines whose pronouns people have restored.

A line has a choice if all conditions hold, decided by its words alone:

    target   exactly one of the two forms of a phenomenon, as a subject, and no other pronoun of its persons
    source   no pronoun of these persons, and no noun that replaces one
    text     no markup on either side
    swap     the other form fits if am, are, was, were or their short forms beside the pronoun change, too;
             a sentence that has one of these elsewhere is left out

*You* is a subject if the next word also follows *I* in text (`verbs_of`), and the word before takes no object
(_BEFORE_OBJECT).
"""

import argparse
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final
from zlib import crc32

from benchmarks.study.choices import BEFORE, write_json
from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite, read_suite, write_suite
from cotext.data.documents import ParallelDocument
from cotext.data.formats import read_parallel
from cotext.runtime import read_text
from cotext.translation.open import open_run


@dataclass(frozen=True, slots=True)
class Phenomenon:
    """Two forms and the Chinese pronouns of each; `target`, `source`: other words that exclude a line."""

    forms: tuple[str, str]
    clues: tuple[str, str]
    target: str
    source: str


_FIRST_AND_SECOND: Final = "i|me|my|mine|myself|you|your|yours|yourself|yourselves|ya|y'all"
_PLURAL: Final = "we|us|our|ours|ourselves|let's|they|them|their|theirs|themselves|'em"
_INSTEAD: Final = "|自己|本人|大家|人家|各位|诸位|双方|彼此|咱|俺"
PHENOMENA: Final = {
    "person": Phenomenon(
        ("I", "you"), ("我(?!们)", "[你妳您]"), f"{_FIRST_AND_SECOND}|{_PLURAL}", f"[我你妳您]{_INSTEAD}"
    ),
    "gender": Phenomenon(
        ("he", "she"),
        ("他(?!们)", "她(?!们)"),
        "he|him|his|himself|she|her|hers|herself",
        f"[他她它牠祂]{_INSTEAD}",
    ),
    "plural": Phenomenon(
        ("we", "they"), ("我们|咱们?", "[他她它]们"), _PLURAL, f"[我他她它牠祂们]{_INSTEAD}"
    ),
    "number": Phenomenon(
        ("I", "we"),
        ("我(?!们)", "我们|咱们?"),
        f"{_FIRST_AND_SECOND}|we|us|our|ours|ourselves|let's",
        f"[我你妳您们]{_INSTEAD}",
    ),
}
# Verb forms beside *I*, and the forms of the same verbs beside *you* and *we*.
_BE: Final = {"am": "are", "'m": "'re", "was": "were", "wasn't": "weren't"}
_OF_I: Final = {other: own for own, other in _BE.items()}
_BE_FORMS: Final = frozenset(_BE) | frozenset(_OF_I) | {"aren't", "ain't"}
_WORD: Final = re.compile(r"'(?:m|re|ve|ll|d|s)\b|\w+(?:'t)?", re.IGNORECASE)
_BEGINNING: Final = re.compile(r"(?:^|[.?!]\s)[^\w]*$")
_MARKUP: Final = re.compile(r"[<>{}]")
_PART_OF_WORD: Final = re.compile(r"[-.]\w")  # as in I.D.
# Words before an object: "let you go" has no subject.
_BEFORE_OBJECT: Final = re.compile(
    "lets?|ma[dk]e|makes|making|help(?:s|ed)?|see|saw|seen|watch(?:ed)?|hear|heard|have|had|get|got|"
    "to|for|with|of|at|on|in|about|from|by|than|like|thank"
)
LEAST_VERB = 20  # occurrences after each of I and you
LEAST_SHARE = 0.05  # of the occurrences after the other one


def verbs_of(targets: Iterable[str]) -> frozenset[str]:
    """Return words that follow both *I* and *you*, and therefore subjects."""
    behind: dict[str, Counter[str]] = {"i": Counter(), "you": Counter()}
    for line in targets:
        words = [word.lower() for word in _WORD.findall(line.replace("’", "'"))]
        for word, following in pairwise(words):
            if word in behind:
                behind[word][_OF_I.get(following, following)] += 1
    first, second = behind["i"], behind["you"]
    return frozenset(
        word
        for word in first.keys() & second.keys()
        if min(first[word], second[word]) >= max(LEAST_VERB, LEAST_SHARE * max(first[word], second[word]))
    )


@dataclass(frozen=True, slots=True)
class Found:
    """The form in a line, and the line with the other form."""

    form: str
    other: str


def found_in(phenomenon: Phenomenon, source: str, target: str, verbs: frozenset[str]) -> Found | None:
    """Return the choice of a line, or None."""
    target = target.replace("’", "'")
    if re.search(phenomenon.source, source) or _MARKUP.search(source + target):
        return None
    if len(re.findall(rf"(?<!\w)(?:{phenomenon.target})(?!\w)", target, re.IGNORECASE)) != 1:
        return None
    words = list(_WORD.finditer(target))
    plain = [word[0].lower() for word in words]
    own = next((form for form in phenomenon.forms if form.lower() in plain), None)
    if own is None:
        return None
    other = phenomenon.forms[own == phenomenon.forms[0]]
    place = plain.index(own.lower())
    written = words[place][0]
    if _PART_OF_WORD.match(target, words[place].end()) or (own == "I" != written):
        return None
    following = plain[place + 1] if place + 1 < len(words) else ""
    joined = following and not target[words[place].end() : words[place + 1].start()].strip()
    if own == "you" and not (joined and _OF_I.get(following, following) in verbs):
        return None
    if own == "you" and place and _BEFORE_OBJECT.fullmatch(plain[place - 1]):
        return None
    capital = _BEGINNING.search(target[: words[place].start()]) if own == "I" else written[0].isupper()
    changed = {place: other.capitalize() if capital else other}
    if "I" in phenomenon.forms:
        there = [index for index, word in enumerate(plain) if word in _BE_FORMS]
        beside = place + 1 if joined and following in _BE_FORMS else place - 1
        if there and there != [beside]:
            return None
        if there:
            change = _BE if own == "I" else _OF_I
            if plain[beside] not in change:
                return None
            verb = change[plain[beside]]
            changed[beside] = verb.capitalize() if words[beside][0][0].isupper() else verb
    for index in sorted(changed, reverse=True):
        target = target[: words[index].start()] + changed[index] + target[words[index].end() :]
    return Found(own, target)


def suites_of(
    documents: Iterable[ParallelDocument], verbs: frozenset[str], before: int = BEFORE
) -> dict[str, ContrastiveSuite]:
    """Return a suite for every phenomenon, without choices in first sentences; the first candidate is right.

    The tag `nearest` is the form whose pronoun the nearest earlier source line has, or `none`. `distance` is
    the distance of that line if its form is the right one, else None.
    """
    found: dict[str, list[ContrastiveExample]] = {name: [] for name in PHENOMENA}
    for document in documents:
        for number in range(1, len(document.source)):
            source, target = document.source[number], document.target[number]
            for name, phenomenon in PHENOMENA.items():
                choice = found_in(phenomenon, source, target, verbs)
                if choice is None:
                    continue
                window = range(max(0, number - before), number + 1)
                back, nearest = _nearest(phenomenon, [document.source[i] for i in window[:-1]])
                context = tuple(document.target[i] for i in window[:-1])
                found[name].append(
                    ContrastiveExample(
                        id=f"{document.id}:{name}:{number + 1}",
                        phenomenon=name,
                        distance=back if nearest == choice.form else None,
                        source=tuple(document.source[i] for i in window),
                        candidates=((*context, target), (*context, choice.other)),
                        correct=0,
                        tags={"form": choice.form, "nearest": nearest},
                        document=document.id,
                    )
                )
    return {
        name: ContrastiveSuite(f"dropped-{name}", "zh", "en", tuple(examples))
        for name, examples in found.items()
    }


def _nearest(phenomenon: Phenomenon, before: Sequence[str]) -> tuple[int | None, str]:
    """Return the distance and the form of the nearest line with pronouns of exactly one form."""
    for back, line in enumerate(reversed(before), 1):
        there = [
            form
            for form, clue in zip(phenomenon.forms, phenomenon.clues, strict=True)
            if re.search(clue, line)
        ]
        if len(there) == 1:
            return back, there[0]
    return None, "none"


def write_suites(source: Path, target: Path, folder: Path, learn: tuple[Path, Path]) -> None:
    """Write the suites of a corpus; `learn`: text from which the words after subjects are learned."""
    verbs = verbs_of(line for document in read_parallel(*learn) for line in document.target)
    folder.mkdir(parents=True, exist_ok=True)
    for name, suite in suites_of(read_parallel(source, target), verbs).items():
        write_suite(folder / f"{name}.json", suite)


WIDTH = 1.0  # nats of a bin
WIDEST = 4.0  # nats between both forms; beyond, the sentence alone decides
MOST = 2000  # examples of a suite
PRONOUNS: Final = {"I": "我", "you": "你", "he": "他", "she": "她", "we": "我们", "they": "他们"}
PARTS = 3  # one part of the documents is for learning the shares, and not reported


def set_aside(document: str) -> bool:
    """Return whether a document is in the third from which `balanced` learns."""
    return crc32(document.encode()) % PARTS == 0


def balanced(examples: Sequence[ContrastiveExample], margins: Sequence[float]) -> list[ContrastiveExample]:
    """Return examples on which a sentence model is at chance: both forms are equally frequent in each bin.

    `margins`: log-probability of the right candidate minus that of the wrong one. Bins are ranges of the
    margin. The share of a form to keep in a bin is learned from documents that are set aside. The id of an
    example decides whether it is kept.
    """
    first = examples[0].tags["form"] if examples else ""
    bins: dict[tuple[int, str], int] = defaultdict(int)
    places = []
    for example, margin in zip(examples, margins, strict=True):
        form = example.tags["form"]
        for_first = margin if form == first else -margin
        place = int((for_first + WIDEST) // WIDTH) if abs(for_first) < WIDEST else None
        places.append(place)
        if place is not None and set_aside(example.document):
            bins[place, form] += 1
    forms = {example.tags["form"] for example in examples}
    kept = []
    for example, at in zip(examples, places, strict=True):
        if at is None or set_aside(example.document):
            continue
        least, own = min(bins[at, form] for form in forms), bins[at, example.tags["form"]]
        if own and Random(crc32(example.id.encode())).random() < least / own:
            kept.append(example)
    return kept


def balance(run: Path, folder: Path, out: Path) -> None:
    """Write balanced suites, and the accuracy of the sentence model."""
    translator = open_run(run).translator
    folder_out = out.with_suffix("")
    folder_out.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        suite = read_suite(path)
        single = [
            ParallelDocument("1", (example.source[-1],), (candidate[-1],))
            for example in suite.examples
            for candidate in example.candidates
        ]
        scores = [sentence.log_probability for [sentence] in translator.score(single)]
        margins = [right - wrong for right, wrong in zip(scores[::2], scores[1::2], strict=True)]
        by_id = {example.id: margin for example, margin in zip(suite.examples, margins, strict=True)}
        kept = balanced(suite.examples, margins)
        chosen = set(Random(1).sample([example.id for example in kept], min(MOST, len(kept))))
        kept = [example for example in kept if example.id in chosen]
        write_suite(
            folder_out / path.name, ContrastiveSuite(f"{suite.name}-balanced", "zh", "en", tuple(kept))
        )
        figures[path.stem] = {"before": _accuracy(suite.examples, by_id), "after": _accuracy(kept, by_id)}
    write_json(out, figures)


def _accuracy(examples: Sequence[ContrastiveExample], margins: dict[str, float]) -> dict[str, float]:
    """Return how often the sentence model and the nearest pronoun are right; without one, it is chance."""
    forms = Counter(example.tags["form"] for example in examples)
    right = sum(margins[example.id] > 0 for example in examples)
    near = sum({e.tags["form"]: 1.0, "none": 0.5}.get(e.tags["nearest"], 0.0) for e in examples)
    of = max(len(examples), 1) / 100
    return {"examples": len(examples), "accuracy_percent": right / of, "nearest_percent": near / of, **forms}


def give(folder: Path, out: Path) -> None:
    """Write the suites of a folder with the dropped pronouns at the beginning of their source lines."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.json")):
        suite = read_suite(path)
        told = (
            replace(each, source=(*each.source[:-1], PRONOUNS[each.tags["form"]] + each.source[-1]))
            for each in suite.examples
        )
        write_suite(out / path.name, replace(suite, name=f"{suite.name}-given", examples=tuple(told)))


def check(source: Path, restored: Path, reference: Path, out: Path) -> None:
    """Count by phenomenon how often people restored the pronoun that the rule predicts.

    The files are parallel: source, source with restored pronouns, and tokenised translation. `same`: they
    restored a pronoun of the right form; `other`: of the wrong form; `nothing`: of neither.
    """
    lines = zip(*(read_text(path).splitlines() for path in (source, restored, reference)), strict=True)
    found: dict[str, Counter[str]] = {name: Counter() for name in PHENOMENA}
    triples = [
        (one.replace(" ", ""), other.replace(" ", ""), re.sub(r" ('\w)", r"\1", text.replace(" n't", "n't")))
        for one, other, text in lines
    ]
    verbs = verbs_of(text for _, _, text in triples)
    for plain, full, text in triples:
        for name, phenomenon in PHENOMENA.items():
            choice = found_in(phenomenon, plain, text, verbs)
            if choice is not None:
                there = [
                    form
                    for form, clue in zip(phenomenon.forms, phenomenon.clues, strict=True)
                    if re.search(clue, full)
                ]
                found[name]["same" if choice.form in there else "other" if there else "nothing"] += 1
    write_json(out, {name: dict(counts) for name, counts in found.items()})


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for command in (balance, give, check):
        sub = commands.add_parser(command.__name__)
        sub.set_defaults(command=command)
        for name in inspect.signature(command).parameters:
            sub.add_argument(name, type=Path)
    given = vars(parser.parse_args())
    given.pop("command")(**given)


if __name__ == "__main__":
    main()
