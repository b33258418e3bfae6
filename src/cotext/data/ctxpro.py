"""ctxPro (Wicks and Post, 2023): sources whose translation needs context, each with the form expected of it.

A suite is generative: there are no candidates to choose from, a system writes and the form is looked for in
its last sentence. Published are a JSON file of examples, which have the tested segment alone, and a text file
of the same number of lines, in which up to nine segments stand before it, `<eos> ` between them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotext.data.contrastive_suites import kind_of, number_of, sentence_of, sharing, text_of
from cotext.data.formats.streams import COMPRESSIONS, beginning, numbered_lines, read_whole
from cotext.data.languages import CODES, Languages
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

SEPARATOR: Final = re.compile("<eos> ?")
_KEYS: Final = frozenset({"expected", "rule", "src segment"})
_BEGINNING_BYTES: Final = 1 << 16
_FOLDERS: Final = (".", "../inputs")  # of contexts, seen from the JSON file: beside it, or as published
# As in gender.opensubtitles.en-de.test.json, which its authors call en-de/gender/test.
_PUBLISHED_NAME: Final = re.compile(
    r"(mini\.)?(?P<category>[a-z]+)\.[a-z]+\.(?P<pair>[a-z]{2}-[a-z]{2})\.(?P<split>\w+)"
)


@dataclass(frozen=True, slots=True)
class GenerativeExample:
    """A document whose last sentence is tested, and the form that its translation is to have.

    `distance`: sentences back to what decides the form, None where the suite does not say. `document`: where
    the example is from.
    """

    source: tuple[str, ...]
    expected: str
    rule: str
    distance: int | None
    document: str


@dataclass(frozen=True, slots=True)
class GenerativeSuite:
    """Generative examples of one language pair, in the order of their file.

    `has_context`: whether sources have the sentences before the tested one, or that one alone.
    """

    name: str
    languages: Languages
    examples: tuple[GenerativeExample, ...]
    has_context: bool


def is_ctxpro(content: Any) -> bool:
    """Whether a JSON value is a list of ctxPro's examples."""
    return (
        isinstance(content, list)
        and bool(content)
        and isinstance(content[0], dict)
        and content[0].keys() >= _KEYS
    )


def is_ctxpro_file(path: Path) -> bool:
    """Whether a file holds a suite of ctxPro, by its beginning; no for what can be read only once."""
    if not path.is_file():
        return False
    head, _ = beginning(path, _BEGINNING_BYTES)
    return head.lstrip().startswith(b"[") and all(f'"{key}"'.encode() in head for key in _KEYS)


def read_ctxpro(path: Path, contexts: Path | None = None, *, with_context: bool = True) -> GenerativeSuite:
    """Read a suite of ctxPro: its JSON file and, unless told otherwise, the contexts that belong to it.

    `contexts` is their file or its folder; if not given it is looked for beside the suite and in `../inputs`,
    where it is published, under the name of the suite without `.json`.

    Raises:
        CotextError: no such suite, no contexts, or those of another suite: by file, example and reason.
    """
    content = parse_json(read_whole(path), str(path))
    if not is_ctxpro(content):
        raise CotextError(
            f"{path}: not a suite of ctxPro; expected a JSON list of objects with "
            f"{', '.join(repr(key) for key in sorted(_KEYS))}"
        )
    share = sharing()
    examples = [_example(entry, f"{path}: example {number}", share) for number, entry in enumerate(content)]
    if with_context:
        examples = _in_context(examples, _find_contexts(path, contexts), path, share)
    stem = _stem(path)
    known = _PUBLISHED_NAME.fullmatch(stem)
    name = stem if known is None else f"{known['pair']}/{known['category']}/{known['split']}"
    if known is not None and known[1]:
        name = f"mini/{name}"
    pair = Languages.parse(known["pair"]) if known else Languages()
    languages = pair if {pair.source, pair.target} <= CODES else Languages()
    return GenerativeSuite(f"ctxpro/{name}", languages, tuple(examples), with_context)


def _example(entry: Any, where: str, share: Callable[[str], str]) -> GenerativeExample:
    if not isinstance(entry, dict):
        raise CotextError(f"{where}: must be an object, found {kind_of(entry)}")
    document = entry.get("document id", "")
    if not isinstance(document, str):
        raise CotextError(f"{where}: 'document id' must be a string, found {kind_of(document)}")
    return GenerativeExample(
        source=(sentence_of(entry.get("src segment"), "src segment", where, share),),
        expected=share(text_of(entry, "expected", where)),
        rule=share(text_of(entry, "rule", where)),
        distance=number_of(entry, "ante distance", where),
        document=share(document),
    )


def _stem(path: Path) -> str:
    name = path.name
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    return name.removesuffix(".json")


def _find_contexts(path: Path, given: Path | None) -> Path:
    if given is not None and not given.is_dir():
        return given
    folders = [path.parent / folder for folder in _FOLDERS] if given is None else [given]
    names = [_stem(path) + ending for ending in ("", *COMPRESSIONS)]
    found = next((folder / name for folder in folders for name in names if (folder / name).is_file()), None)
    if found is None:
        places = " or ".join(str(folder / names[0]) for folder in folders)
        raise CotextError(
            f"{path}: no contexts, expected in {places}; name their file, or its folder, by --contexts"
        )
    return found


def _in_context(
    examples: list[GenerativeExample], contexts: Path, suite: Path, share: Callable[[str], str]
) -> list[GenerativeExample]:
    lines = list(numbered_lines(contexts))
    if len(lines) != len(examples):
        raise CotextError(
            f"{contexts}: {len(lines)} lines, but {suite} has {len(examples)} examples; give the contexts of "
            "this suite, an example a line"
        )
    found = []
    for (number, line), example in zip(lines, examples, strict=True):
        *before, tested = (share(segment.strip()) for segment in SEPARATOR.split(line))
        if tested != example.source[0].strip():
            raise CotextError(
                f"{contexts}:{number}: ends in {shown(tested)}, but this example of {suite} tests "
                f"{shown(example.source[0])}; give the contexts of this suite, in its order"
            )
        found.append(
            GenerativeExample(
                source=(*before, *example.source),
                expected=example.expected,
                rule=example.rule,
                distance=example.distance,
                document=example.document,
            )
        )
    return found
