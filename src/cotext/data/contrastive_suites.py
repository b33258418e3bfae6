"""Contrastive suites: documents with one correct and several incorrect targets, and readers of suites."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from sys import intern
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cotext.data.documents import Languages
from cotext.data.formats.streams import OUTER_SPACE, atomic_sinks, numbered_lines, read_whole
from cotext.runtime import CotextError, naming, parse_json, shown

CONTROLLED = "controlled/"  # prefix of suites in which any system without context has chance accuracy
FORMAT_NAME = "cotext-contrastive"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ContrastiveExample:
    """A document with several candidate targets, of which exactly one is correct.

    `distance`: number of sentences from the disambiguating words (the clue) to the words that differ between
    candidates (the choice). It is 0 in the same sentence, negative if the clue follows the choice, and None
    if unknown. In a few examples of published suites, an incorrect candidate is equal to the correct one.
    `document`: name of the original document, if the suite contains it.

    Raises CotextError if the candidates do not match the source.
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
            raise CotextError(f"{where}: the source has no sentence; it needs at least one")
        if len(self.candidates) < 2:
            raise CotextError(f"{where}: a choice needs at least two candidates")
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
        """Indices of the target sentences that differ between candidates."""
        columns = zip(*self.candidates, strict=True)
        return tuple(index for index, column in enumerate(columns) if len(set(column)) > 1)

    @property
    def identical_to_correct(self) -> tuple[int, ...]:
        """Indices of the incorrect candidates that are equal to the correct candidate."""
        right = self.candidates[self.correct]
        return tuple(n for n, target in enumerate(self.candidates) if n != self.correct and target == right)


@dataclass(frozen=True, slots=True)
class ContrastiveSuite:
    """A named set of contrastive examples in one language pair. Duplicate ids raise CotextError."""

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
        """The language pair in lower case."""
        return Languages(*(language.lower() for language in (self.source_language, self.target_language)))


def write_suite(path: Path, suite: ContrastiveSuite) -> None:
    """Write a suite in the JSON of Cotext, one example per line; .gz and .xz files are compressed."""
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
                entry = asdict(example)
                if not example.document:
                    del entry["document"]
                stream.write((",\n" if number else "\n") + json.dumps(entry, ensure_ascii=False))
            stream.write("\n]}\n")
    except UnicodeEncodeError as error:
        raise CotextError(f"{path}: cannot be written: {error}") from None


def documents_of(examples: Sequence[ContrastiveExample]) -> list[int]:
    """Return the number of the document of every example, counted from 0.

    Examples of the same document are not independent in significance tests. In suites without document names,
    examples belong together if they have the same source, or are consecutive and share a source sentence.
    """
    numbers: list[int] = []
    known: dict[str | tuple[str, ...], int] = {}
    count = 0
    for i, example in enumerate(examples):
        key = example.document or example.source
        if key not in known and i and _continues(examples[i - 1], example):
            known[key] = numbers[-1]
        elif key not in known:
            known[key] = count
            count += 1
        numbers.append(known[key])
    return numbers


def _continues(before: ContrastiveExample, example: ContrastiveExample) -> bool:
    named = bool(before.document or example.document)
    return not named and any(s.strip() and s in before.source for s in example.source)


# --- Pydantic models that check suites read from JSON.


def _one_line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError("contains a line break; a sentence is one line")
    return intern(text)


# Equal sentences share one string, because candidates repeat them.
Line = Annotated[str, AfterValidator(_one_line)]  # a sentence, which may be empty
Interned = Annotated[str, AfterValidator(intern)]
Text = Annotated[str, Field(min_length=1), AfterValidator(intern)]


class Entry(BaseModel):
    """A JSON object of a suite; other keys are ignored."""

    model_config = ConfigDict(strict=True)

    @classmethod
    def of(cls, value: Any, where: str) -> Self:
        """Check a JSON value; raises CotextError with its first problem."""
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            key = f"{'.'.join(map(str, problem['loc']))!r}: " if problem["loc"] else ""
            raise CotextError(f"{where}: {key}{problem['msg'].removeprefix('Value error, ')}") from None


# --- The context of ContraPro, from subtitles with one file per film and language, and one sentence per line.
#
# The scripts of ContraPro (Müller et al., 2018) extract these files from OpenSubtitles 2018:
# `1921/1921_12806_3712161.en` and `.de`, or all files in one folder.

_LANGUAGES = ("en", "de")
# White space and quotation marks differ between editions.
_NOT_COMPARED = re.compile("[\\s\"'`´]+")


class SubtitleContext:
    """Reads up to `sentences` sentences before a line of a film; `folder` may be None if `sentences` is 0."""

    def __init__(self, folder: Path | None, sentences: int) -> None:
        if folder is not None and not folder.is_dir():
            raise CotextError(f"{folder}: no such folder; pass the folder with the OpenSubtitles documents")
        if folder is None and sentences:
            raise CotextError(
                f"{sentences} sentences of context need the folder with the documents of OpenSubtitles: "
                "give --documents FOLDER, or --context 0"
            )
        self.folder, self.sentences = folder, sentences
        self._film, self._sides = "", [list[str](), list[str]()]

    def before(
        self, film: str, line: int | None, source: str, where: str
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the sentences before `line` (counted from 1) on both sides, fewer at the start of the film.

        Raises CotextError if there is no such file or line, or the line differs from `source`. White space
        and quotation marks are not compared.
        """
        if self.folder is None:
            return (), ()
        if film != self._film:
            self._sides, self._film = self._read(self.folder, film, where), film
        sources, targets = self._sides
        if line is None or not 1 <= line <= len(sources):
            raise CotextError(
                f"{where}: 'segment id' is {shown(line)}, but {film} in {self.folder} has lines 1 to "
                f"{len(sources)}"
            )
        if _NOT_COMPARED.sub("", sources[line - 1]) != _NOT_COMPARED.sub("", source):
            raise CotextError(
                f"{where}: line {line} of {film} in {self.folder} is {sources[line - 1][:60]!r}, not "
                f"{source[:60]!r}; ContraPro uses OpenSubtitles 2018"
            )
        first = max(0, line - 1 - self.sentences)
        return tuple(sources[first : line - 1]), tuple(targets[first : line - 1])

    def _read(self, folder: Path, film: str, where: str) -> list[list[str]]:
        stem = film.removesuffix(f".{_LANGUAGES[1]}")
        if not re.fullmatch(r"[\w-][\w.-]*", stem):
            raise CotextError(f"{where}: 'document id' is {shown(film)}, which cannot be the name of a file")
        paths = [folder / f"{stem}.{language}" for language in _LANGUAGES]
        if not paths[0].exists():
            paths = [folder / stem.partition("_")[0] / path.name for path in paths]
        sides = [[line.strip(OUTER_SPACE) for _, line in numbered_lines(path)] for path in paths]
        if len(sides[0]) != len(sides[1]):
            raise CotextError(
                f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}; both sides of a "
                "film have the same number"
            )
        return sides


# --- Readers: the format of Cotext, and published suites in their original formats.

_VOITA_PHENOMENA = ("deixis", "lex_cohesion", "ellipsis_infl", "ellipsis_vp")
_VOITA_SEPARATOR = " _eos "


class _Antecedent(Entry):
    """The distance of the antecedent in sentences, and its gender; both may be missing."""

    distance: int | None = Field(default=None, alias="ante distance")
    gender: Any = Field(default=None, alias="ref ante head gender")

    def tags(self, pronoun: str | None) -> dict[str, str]:
        of_pronoun = {} if pronoun is None else {"pronoun": pronoun}
        of_gender = {} if self.gender is None else {"antecedent_gender": str(self.gender).lower()[:1]}
        return {**of_pronoun, **of_gender}


class _ContraproLine(Entry):
    src_context: Line
    src: Line
    ref_context: Line
    ref: Line
    contrastive: list[Line]
    ref_pronoun: Text | None = None
    meta: _Antecedent | None = None


class _Wrong(Entry):
    contrastive: Line


class _Contrapro(_Antecedent):
    source: Line = Field(alias="src segment")
    reference: Line = Field(alias="ref segment")
    errors: list[_Wrong]
    document: Text = Field(alias="document id")
    line: int | None = Field(default=None, alias="segment id")
    pronoun: Text = Field(alias="ref pronoun")


class _Voita(Entry):
    src: Line
    dst: list[Line]
    true_ind: int
    ctx_dist: int | None = None


def is_contrapro_with_context(text: str) -> bool:
    """Return whether the first line is a JSON object with a reference and contrastive translations."""
    first = text.lstrip().partition("\n")[0]
    if '"contrastive"' not in first:  # avoids parsing other suites, which may be a single long line
        return False
    try:
        entry = parse_json(first, "")
    except CotextError:
        return False
    return isinstance(entry, dict) and {"ref", "contrastive"} <= entry.keys()


def _contrapro_with_context(path: Path, text: str) -> Iterator[ContrastiveExample]:
    """Read ContraPro with one JSON object per line and one context sentence on both sides.

    The candidates are the reference and then the contrastive translations. If both context sentences are
    empty, the document begins here, and the example has one sentence.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        content = parse_json(line, f"{path}:{number}")
        identifier = str(content.get("id", number - 1) if isinstance(content, dict) else number - 1)
        entry = _ContraproLine.of(content, f"{path}:{number}: example {identifier!r}")
        begins = not (entry.src_context.strip() or entry.ref_context.strip())
        sources, targets = ((), ()) if begins else ((entry.src_context,), (entry.ref_context,))
        meta = entry.meta or _Antecedent()
        yield ContrastiveExample(
            id=identifier,
            phenomenon="pronoun",
            distance=meta.distance,
            source=(*sources, entry.src),
            candidates=tuple((*targets, sentence) for sentence in (entry.ref, *entry.contrastive)),
            correct=0,
            tags=meta.tags(entry.ref_pronoun),
        )


def _contrapro(path: Path, entries: list[Any], context: SubtitleContext) -> Iterator[ContrastiveExample]:
    """Read ContraPro as published: tested sentences, and their positions in OpenSubtitles.

    The candidates are the reference and then the contrastive translations. The tested sentences are taken
    from the suite, not from OpenSubtitles, so candidates differ only as intended by its authors.
    """
    for number, content in enumerate(entries):
        where = f"{path}: example {number}"
        entry = _Contrapro.of(content, where)
        sources, targets = context.before(entry.document, entry.line, entry.source, where)
        wrong = (error.contrastive for error in entry.errors)
        yield ContrastiveExample(
            id=str(number),
            phenomenon="pronoun",
            distance=entry.distance,
            source=(*map(intern, sources), entry.source),
            candidates=tuple((*map(intern, targets), s) for s in (entry.reference, *wrong)),
            correct=0,
            tags=entry.tags(entry.pronoun.lower()),
            document=entry.document,
        )


def _voita(path: Path, entries: list[Any]) -> Iterator[ContrastiveExample]:
    """Read a consistency set of Voita et al.; `src` and `dst` are sentences joined by ` _eos `."""
    phenomenon = next((known for known in _VOITA_PHENOMENA if path.name.startswith(known)), "unknown")
    for number, content in enumerate(entries):
        entry = _Voita.of(content, f"{path}: example {number}")
        yield ContrastiveExample(
            id=str(number),
            phenomenon=phenomenon,
            distance=entry.ctx_dist,
            source=_split(entry.src),
            candidates=tuple(map(_split, entry.dst)),
            correct=entry.true_ind,
        )


def _split(group: str) -> tuple[str, ...]:
    return tuple(map(intern, group.split(_VOITA_SEPARATOR)))


class _OwnExample(Entry, extra="forbid"):
    id: Text
    phenomenon: Text
    distance: int | None = None
    source: list[Line]
    candidates: list[list[Line]]
    correct: int
    tags: dict[Interned, Interned] = Field(default_factory=dict)
    document: Interned = ""


class _OwnSuite(Entry, extra="forbid"):
    format: str
    version: int
    name: Text
    source_language: Text
    target_language: Text
    examples: list[_OwnExample]


def read_suite(path: Path, context: SubtitleContext | None = None) -> ContrastiveSuite:
    """Read a contrastive suite, plain or compressed (gzip, xz). Its format is detected from the content.

    Formats: the JSON of Cotext; ContraPro (Müller et al., 2018) as published, with sentences of `context`;
    ContraPro with one context sentence (JSON lines); and the consistency sets of Voita et al. (2019), a JSON
    list with the phenomenon in the file name. Equal sentences share one string in memory. Raises CotextError
    with file, example and reason.
    """
    with naming(path):
        return _suite(path, read_whole(path), context)


def _suite(path: Path, text: str, context: SubtitleContext | None) -> ContrastiveSuite:
    if is_contrapro_with_context(text):
        return ContrastiveSuite("contrapro-ctx1", "en", "de", tuple(_contrapro_with_context(path, text)))
    try:
        content = parse_json(text, str(path))
    except CotextError as error:
        raise CotextError(f"{error}; pass a contrastive suite (docs/contrastive-format.md)") from None
    first = content[0] if isinstance(content, list) and content else None
    if isinstance(first, dict) and {"src segment", "errors"} <= first.keys():
        if context is None:
            raise CotextError(
                f"{path}: ContraPro as published, which has only the tested sentences; make a suite with "
                "their context: cotext convert-suite contrapro.json --documents FOLDER --out FILE"
            )
        name = f"contrapro-original-ctx{context.sentences}"
        return ContrastiveSuite(name, "en", "de", tuple(_contrapro(path, content, context)))
    if context is not None:
        raise CotextError(f"{path}: has its own context; leave out --documents and --context")
    if isinstance(content, list):
        name = f"voita-consistency/{path.name.partition('.')[0]}"
        return ContrastiveSuite(name, "en", "ru", tuple(_voita(path, content)))
    if isinstance(content, dict):
        return _own_suite(path, content)
    raise CotextError(
        f'{path}: not a contrastive suite; expected a JSON object with "format": "{FORMAT_NAME}", or a '
        "published suite (see docs/contrastive-format.md)"
    )


def _own_suite(path: Path, document: dict[str, Any]) -> ContrastiveSuite:
    for key, expected in (("format", FORMAT_NAME), ("version", FORMAT_VERSION)):
        if document.get(key) != expected:
            raise CotextError(
                f"{path}: not a contrastive suite that this version reads: {key!r} is "
                f"{shown(document.get(key))}, expected {expected!r}"
            )
    suite = _OwnSuite.of(document, f"{path}")
    examples = tuple(
        ContrastiveExample(
            **dict(entry) | {"source": tuple(entry.source), "candidates": tuple(map(tuple, entry.candidates))}
        )
        for entry in suite.examples
    )
    return ContrastiveSuite(suite.name, suite.source_language, suite.target_language, examples)
