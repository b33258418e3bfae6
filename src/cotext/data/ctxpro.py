"""ctxPro suites (Wicks and Post, 2023): sources whose translation needs context, with the expected word form.

A suite is generative: there are no candidates. A system translates the source, and the expected form is
searched in the last sentence. A suite has a JSON file with the tested segments, and a text file with one line
per tested segment. In a line, up to nine segments of context precede the tested segment, separated by
`<eos> `.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from sys import intern
from typing import Any, Final

from pydantic import Field

from cotext.data.contrastive_suites import Entry, Line, Text
from cotext.data.formats.streams import (
    COMPRESSIONS,
    beginning,
    numbered_lines,
    read_whole,
    without_compression,
)
from cotext.data.languages import CODES, Languages
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

SEPARATOR: Final = re.compile("<eos> ?")
_KEYS: Final = frozenset({"expected", "rule", "src segment"})
_BEGINNING_BYTES: Final = 1 << 16
_FOLDERS: Final = (".", "../inputs")  # of contexts, relative to the JSON file; the second one as published
# gender.opensubtitles.en-de.test.json is called en-de/gender/test by its authors.
_PUBLISHED_NAME: Final = re.compile(
    r"(mini\.)?(?P<category>[a-z]+)\.[a-z]+\.(?P<pair>[a-z]{2}-[a-z]{2})\.(?P<split>\w+)"
)


@dataclass(frozen=True, slots=True)
class GenerativeExample:
    """A document whose last sentence is tested, and the expected form in its translation.

    `distance`: number of sentences back to the antecedent, None if unknown. `document`: original document.
    """

    source: tuple[str, ...]
    expected: str
    rule: str
    distance: int | None
    document: str


@dataclass(frozen=True, slots=True)
class GenerativeSuite:
    """Generative examples of one language pair, in the order of their file.

    `has_context`: whether sources include the sentences before the tested sentence.
    """

    name: str
    languages: Languages
    examples: tuple[GenerativeExample, ...]
    has_context: bool


def is_ctxpro(content: Any) -> bool:
    """Return whether a JSON value is a list of ctxPro examples."""
    return (
        isinstance(content, list)
        and bool(content)
        and isinstance(content[0], dict)
        and content[0].keys() >= _KEYS
    )


def is_ctxpro_file(path: Path) -> bool:
    """Return whether a file begins like a ctxPro suite; False if it is not a regular file."""
    if not path.is_file():
        return False
    head, _ = beginning(path, _BEGINNING_BYTES)
    return head.lstrip().startswith(b"[") and all(f'"{key}"'.encode() in head for key in _KEYS)


def read_ctxpro(path: Path, contexts: Path | None = None, *, with_context: bool = True) -> GenerativeSuite:
    """Read a ctxPro suite: its JSON file and, by default, its contexts.

    `contexts` is the file of contexts, or its folder. The file has the name of the suite without `.json`. By
    default, it is searched in the folder of the suite and, as in the published data, in `../inputs`.

    Raises:
        CotextError: the file is not a ctxPro suite, or its contexts are missing or belong to another suite.
    """
    content = parse_json(read_whole(path), str(path))
    if not is_ctxpro(content):
        raise CotextError(
            f"{path}: not a suite of ctxPro; expected a JSON list of objects with "
            f"{', '.join(repr(key) for key in sorted(_KEYS))}"
        )
    examples = [_example(entry, f"{path}: example {number}") for number, entry in enumerate(content)]
    if with_context:
        examples = _in_context(examples, _find_contexts(path, contexts), path)
    stem = _stem(path)
    known = _PUBLISHED_NAME.fullmatch(stem)
    name = stem if known is None else f"{known['pair']}/{known['category']}/{known['split']}"
    if known is not None and known[1]:
        name = f"mini/{name}"
    pair = Languages.parse(known["pair"]) if known else Languages()
    languages = pair if {pair.source, pair.target} <= CODES else Languages()
    return GenerativeSuite(f"ctxpro/{name}", languages, tuple(examples), with_context)


class _Example(Entry):
    source: Line = Field(alias="src segment")
    expected: Text
    rule: Text
    distance: int | None = Field(default=None, alias="ante distance")
    document: str = Field(default="", alias="document id")


def _example(content: Any, where: str) -> GenerativeExample:
    entry = _Example.of(content, where)
    return GenerativeExample(
        (entry.source,), entry.expected, entry.rule, entry.distance, intern(entry.document)
    )


def _stem(path: Path) -> str:
    return without_compression(path).name.removesuffix(".json")


def _find_contexts(path: Path, given: Path | None) -> Path:
    if given is not None and not given.is_dir():
        return given
    folders = [path.parent / folder for folder in _FOLDERS] if given is None else [given]
    names = [_stem(path) + ending for ending in ("", *COMPRESSIONS)]
    contexts = next((folder / n for folder in folders for n in names if (folder / n).is_file()), None)
    if contexts is None:
        expected = " or ".join(str(folder / names[0]) for folder in folders)
        raise CotextError(
            f"{path}: no contexts, expected in {expected}; name their file, or its folder, by --contexts"
        )
    return contexts


def _in_context(examples: list[GenerativeExample], contexts: Path, suite: Path) -> list[GenerativeExample]:
    lines = list(numbered_lines(contexts))
    if len(lines) != len(examples):
        raise CotextError(
            f"{contexts}: {len(lines)} lines, but {suite} has {len(examples)} examples; give the contexts of "
            "this suite, an example a line"
        )
    with_context = []
    for (number, line), example in zip(lines, examples, strict=True):
        *before, tested = (intern(segment.strip()) for segment in SEPARATOR.split(line))
        if tested != example.source[0].strip():
            raise CotextError(
                f"{contexts}:{number}: ends in {shown(tested)}, but this example of {suite} tests "
                f"{shown(example.source[0])}; give the contexts of this suite, in its order"
            )
        with_context.append(replace(example, source=(*before, *example.source)))
    return with_context
