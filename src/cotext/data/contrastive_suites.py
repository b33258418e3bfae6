"""Contrastive suites: documents with one right and several wrong targets, and where to read them from.

The project's own format is described in docs/contrastive-format.md; two published suites are read as they
come: ContraPro with one sentence of context (Müller et al., 2018) and the consistency sets of Voita et al.
(2019).
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cotext.data.formats.streams import atomic_sinks, read_whole
from cotext.data.languages import Languages
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

CONTROLLED = "controlled/"  # how the names of suites begin in which guessing gives exactly chance
FORMAT_NAME = "cotext-contrastive"
FORMAT_VERSION = 1
_HEADING_KEYS = frozenset({"format", "version", "name", "source_language", "target_language", "examples"})
_EXAMPLE_KEYS = frozenset(
    {"id", "phenomenon", "distance", "source", "candidates", "correct", "tags", "document"}
)
_CONTRAPRO_SENTENCES = ("src_context", "src", "ref_context", "ref")
_VOITA_PHENOMENA = ("deixis", "lex_cohesion", "ellipsis_infl", "ellipsis_vp")
_VOITA_SEPARATOR = " _eos "


@dataclass(frozen=True, slots=True)
class ContrastiveExample:
    """A document with several candidate targets, of which exactly one is meant to be right.

    `distance` counts the sentences between clue and choice: 0 in the same sentence, negative when the clue
    comes after the choice, None when the suite does not say. A wrong candidate may be spelled like the right
    one (published suites have a few): no model can tell them apart. `document` names the document that the
    example is of, where the suite does. Raises CotextError when the parts do not fit.
    """

    id: str
    phenomenon: str
    distance: int | None
    source: tuple[str, ...]
    candidates: tuple[tuple[str, ...], ...]
    correct: int
    tags: dict[str, str] = field(default_factory=dict)
    document: str = ""

    def __post_init__(self) -> None:
        where = f"contrastive example {self.id!r}"
        if not self.source:
            raise CotextError(f"{where}: the source has no sentence; give at least one")
        if len(self.candidates) < 2:
            raise CotextError(f"{where}: {len(self.candidates)} candidate(s); a choice needs at least two")
        for number, candidate in enumerate(self.candidates):
            if len(candidate) != len(self.source):
                raise CotextError(
                    f"{where}: candidate {number} has {len(candidate)} sentences, the source has "
                    f"{len(self.source)}; each candidate is a whole target document, sentence by sentence"
                )
        if not 0 <= self.correct < len(self.candidates):
            raise CotextError(
                f"{where}: 'correct' is {self.correct}; the candidates are numbered from 0 to "
                f"{len(self.candidates) - 1}"
            )

    @property
    def differing_sentences(self) -> tuple[int, ...]:
        """Indices of the target sentences that are not the same in all candidates."""
        columns = zip(*self.candidates, strict=True)
        return tuple(index for index, column in enumerate(columns) if len(set(column)) > 1)

    @property
    def identical_to_correct(self) -> tuple[int, ...]:
        """Indices of the wrong candidates that are spelled exactly like the right one."""
        right = self.candidates[self.correct]
        return tuple(n for n, each in enumerate(self.candidates) if n != self.correct and each == right)


@dataclass(frozen=True, slots=True)
class ContrastiveSuite:
    """A named set of contrastive examples in one language pair; CotextError when an id occurs twice."""

    name: str
    source_language: str
    target_language: str
    examples: tuple[ContrastiveExample, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for example in self.examples:
            if example.id in seen:
                raise CotextError(
                    f"contrastive suite {self.name!r}: example id {example.id!r} occurs twice; ids are unique"
                )
            seen.add(example.id)

    @property
    def languages(self) -> Languages:
        """As codes; a language that is told in another way fits every code."""
        return Languages(*(language.lower() for language in (self.source_language, self.target_language)))


def read_suite(path: Path) -> ContrastiveSuite:
    """Read a contrastive suite whose format is recognised by its content, plain or compressed (gzip, xz).

    Formats: the project's own JSON; ContraPro with one context sentence (JSON lines); a consistency set of
    Voita et al. (a JSON list, whose file name tells the phenomenon). Sentences that occur several times share
    one string in memory. Raises CotextError with file, example and reason.
    """
    text = read_whole(path)
    if _is_contrapro(text):
        return _read_contrapro(path, text)
    content = parse_json(text, str(path))
    if isinstance(content, list):
        return _read_voita(path, content)
    if isinstance(content, dict):
        return _read_own(path, content)
    raise CotextError(
        f'{path}: not a contrastive suite; expected a JSON object with "format": "{FORMAT_NAME}", ContraPro '
        "as JSON lines, or a consistency set as a JSON list (see docs/contrastive-format.md)"
    )


def write_suite(path: Path, suite: ContrastiveSuite) -> None:
    """Write a suite as the project's own JSON, one example a line; a name in .gz or .xz is compressed."""
    heading = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "name": suite.name,
        "source_language": suite.source_language,
        "target_language": suite.target_language,
    }
    try:
        with atomic_sinks([path]) as [stream]:
            stream.write(json.dumps(heading, ensure_ascii=False)[:-1] + ', "examples": [')
            for number, example in enumerate(suite.examples):
                entry = {
                    "id": example.id,
                    "phenomenon": example.phenomenon,
                    "distance": example.distance,
                    "source": example.source,
                    "candidates": example.candidates,
                    "correct": example.correct,
                    "tags": example.tags,
                    **({"document": example.document} if example.document else {}),
                }
                stream.write((",\n" if number else "\n") + json.dumps(entry, ensure_ascii=False))
            stream.write("\n]}\n")
    except UnicodeEncodeError as error:
        raise CotextError(f"{path}: cannot be written: {error}") from None


def _read_own(path: Path, document: dict[str, Any]) -> ContrastiveSuite:
    found = document.get("format")
    if found != FORMAT_NAME:
        raise CotextError(
            f"{path}: not a contrastive suite: 'format' is {shown(found)}, expected {FORMAT_NAME!r}"
        )
    if document.get("version") != FORMAT_VERSION:
        raise CotextError(
            f"{path}: format version {shown(document.get('version'))}; this program reads version "
            f"{FORMAT_VERSION}"
        )
    _refuse_unknown_keys(document, _HEADING_KEYS, f"{path}")
    name = _text(document, "name", f"{path}")
    share = _sharing()
    entries = document.get("examples")
    if not isinstance(entries, list):
        raise CotextError(f"{path}: 'examples' must be a list of objects")
    return _suite(
        path,
        name,
        _text(document, "source_language", f"{path}"),
        _text(document, "target_language", f"{path}"),
        (_own_example(entry, f"{path}: example number {n}", share) for n, entry in enumerate(entries)),
    )


def _own_example(entry: Any, where: str, share: Callable[[str], str]) -> ContrastiveExample:
    if not isinstance(entry, dict):
        raise CotextError(f"{where}: must be an object, found {_kind(entry)}")
    identifier = _text(entry, "id", where)
    where = f"{where} (id {identifier!r})"
    _refuse_unknown_keys(entry, _EXAMPLE_KEYS, where)
    distance = entry.get("distance")
    if distance is not None and (not isinstance(distance, int) or isinstance(distance, bool)):
        raise CotextError(f"{where}: 'distance' must be a whole number or null, found {shown(distance)}")
    correct = entry.get("correct")
    if not isinstance(correct, int) or isinstance(correct, bool):
        raise CotextError(
            f"{where}: 'correct' must be the index of the right candidate, found {shown(correct)}"
        )
    candidates = entry.get("candidates")
    if not isinstance(candidates, list):
        raise CotextError(
            f"{where}: 'candidates' must be a list of lists of sentences, found {_kind(candidates)}"
        )
    tags = entry.get("tags", {})
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        raise CotextError(f"{where}: 'tags' must be an object whose values are strings")
    document = entry.get("document", "")
    if not isinstance(document, str):
        raise CotextError(f"{where}: 'document' must be a string, found {_kind(document)}")
    return ContrastiveExample(
        id=identifier,
        phenomenon=share(_text(entry, "phenomenon", where)),
        distance=distance,
        source=_sentences(entry.get("source"), "source", where, share),
        candidates=tuple(
            _sentences(each, f"candidates[{number}]", where, share) for number, each in enumerate(candidates)
        ),
        correct=correct,
        tags={share(key): share(value) for key, value in tags.items()},
        document=share(document),
    )


def _read_contrapro(path: Path, text: str) -> ContrastiveSuite:
    """Read ContraPro grouped as one JSON object a line, with the sentence before on both sides.

    The candidates are the reference followed by the contrastive ones. Where both context sentences are empty
    the document begins here, and the example has one sentence.
    """
    share = _sharing()

    def examples() -> Iterator[ContrastiveExample]:
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            entry = parse_json(line, where)
            if not isinstance(entry, dict):
                raise CotextError(f"{where}: must be an object, found {_kind(entry)}")
            identifier = str(entry.get("id", number - 1))
            where = f"{where}: example {identifier!r}"
            fields = {key: _sentence(entry.get(key), key, where, share) for key in _CONTRAPRO_SENTENCES}
            wrong = _sentences(entry.get("contrastive"), "contrastive", where, share)
            begins = not (fields["src_context"].strip() or fields["ref_context"].strip())
            source_context, target_context = (
                ((), ()) if begins else ((fields["src_context"],), (fields["ref_context"],))
            )
            distance, tags = _contrapro_meta(entry.get("meta"), where)
            if entry.get("ref_pronoun") is not None:
                tags = {"pronoun": share(_text(entry, "ref_pronoun", where)), **tags}
            yield ContrastiveExample(
                id=identifier,
                phenomenon="pronoun",
                distance=distance,
                source=(*source_context, fields["src"]),
                candidates=tuple((*target_context, sentence) for sentence in (fields["ref"], *wrong)),
                correct=0,
                tags=tags,
            )

    return _suite(path, "contrapro-ctx1", "en", "de", examples())


def _contrapro_meta(meta: Any, where: str) -> tuple[int | None, dict[str, str]]:
    """Antecedent distance and further tags; most examples have no meta: unknown then."""
    if meta is None:
        return None, {}
    if not isinstance(meta, dict):
        raise CotextError(f"{where}: 'meta' must be an object, found {_kind(meta)}")
    distance = meta.get("ante distance")
    if distance is not None and (not isinstance(distance, int) or isinstance(distance, bool)):
        raise CotextError(f"{where}: 'ante distance' must be a whole number, found {shown(distance)}")
    gender = meta.get("ref ante head gender")
    return distance, {} if gender is None else {"antecedent_gender": str(gender).lower()[:1]}


def _read_voita(path: Path, entries: list[Any]) -> ContrastiveSuite:
    """Read a consistency set: src and dst hold the sentences of a group, joined by ` _eos `."""
    stem = path.name.partition(".")[0]
    phenomenon = next((known for known in _VOITA_PHENOMENA if stem.startswith(known)), "unknown")
    share = _sharing()

    def examples() -> Iterator[ContrastiveExample]:
        for number, entry in enumerate(entries):
            where = f"{path}: example {number}"
            if not isinstance(entry, dict) or not {"src", "dst", "true_ind"} <= entry.keys():
                raise CotextError(f"{where}: expected an object with 'src', 'dst' and 'true_ind'")
            distance = entry.get("ctx_dist")
            if not all(value is None or isinstance(value, int) for value in (distance, entry["true_ind"])):
                raise CotextError(f"{where}: 'true_ind' and 'ctx_dist' must be whole numbers")
            groups = _sentences(entry["dst"], "dst", where, share)
            source = _sentence(entry["src"], "src", where, share).split(_VOITA_SEPARATOR)
            yield ContrastiveExample(
                id=str(number),
                phenomenon=phenomenon,
                distance=distance,
                source=tuple(share(sentence) for sentence in source),
                candidates=tuple(
                    tuple(share(sentence) for sentence in group.split(_VOITA_SEPARATOR)) for group in groups
                ),
                correct=entry["true_ind"],
            )

    return _suite(path, f"voita-consistency/{stem}", "en", "ru", examples())


def _suite(
    path: Path, name: str, source_language: str, target_language: str, examples: Iterable[ContrastiveExample]
) -> ContrastiveSuite:
    """Gather the examples; what the types refuse is reported with the file it stands in."""
    try:
        return ContrastiveSuite(name, source_language, target_language, tuple(examples))
    except CotextError as error:
        message = str(error)
        raise CotextError(message if message.startswith(str(path)) else f"{path}: {message}") from None


def _sharing() -> Callable[[str], str]:
    """A function that gives equal strings back as one object: candidates repeat their document."""
    seen: dict[str, str] = {}
    return lambda sentence: seen.setdefault(sentence, sentence)


def _sentences(value: Any, key: str, where: str, share: Callable[[str], str]) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise CotextError(f"{where}: {key!r} must be a list of sentences, found {_kind(value)}")
    return tuple(_sentence(each, f"{key}[{number}]", where, share) for number, each in enumerate(value))


def _sentence(value: Any, key: str, where: str, share: Callable[[str], str]) -> str:
    if not isinstance(value, str):
        raise CotextError(f"{where}: {key!r} must be a string, found {_kind(value)}")
    if "\n" in value or "\r" in value:
        raise CotextError(f"{where}: {key!r} contains a line break; a sentence is one line")
    return share(value)


def _text(entry: dict[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise CotextError(f"{where}: {key!r} must be a string that is not empty, found {shown(value)}")
    return value


def _refuse_unknown_keys(entry: dict[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(entry.keys() - known)
    if unknown:
        raise CotextError(f"{where}: unknown key {shown(unknown[0])}; known: {', '.join(sorted(known))}")


def _kind(value: Any) -> str:
    names = {type(None): "nothing", str: "a string", list: "a list", dict: "an object", bool: "true or false"}
    return names.get(type(value), "a number")


def _is_contrapro(text: str) -> bool:
    """Whether the first line is a JSON object with a reference and contrastive translations of it."""
    first = text.lstrip().partition("\n")[0]
    if '"contrastive"' not in first:  # most often, without parsing a whole suite that stands on one line
        return False
    try:
        entry = parse_json(first, "")
    except CotextError:
        return False
    return isinstance(entry, dict) and {"ref", "contrastive"} <= entry.keys()
