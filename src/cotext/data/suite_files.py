"""Files of contrastive suites: the project's own JSON, and published suites as they come."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cotext.data.contrastive_suites import FORMAT_NAME, FORMAT_VERSION, ContrastiveExample, ContrastiveSuite
from cotext.data.ctxpro import is_ctxpro
from cotext.data.formats.streams import read_whole
from cotext.data.published_suites import (
    is_bawden,
    is_contrapro,
    is_contrapro_with_context,
    read_bawden,
    read_contrapro,
    read_contrapro_with_context,
    read_voita,
)
from cotext.data.subtitle_folders import SubtitleContext
from cotext.data.suite_fields import (
    gathered,
    kind_of,
    number_of,
    refuse_unknown_keys,
    sentences_of,
    sharing,
    text_of,
)
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

_HEADING_KEYS = frozenset({"format", "version", "name", "source_language", "target_language", "examples"})
_EXAMPLE_KEYS = frozenset(
    {"id", "phenomenon", "distance", "source", "candidates", "correct", "tags", "document"}
)


def read_suite(path: Path, context: SubtitleContext | None = None) -> ContrastiveSuite:
    """Read a contrastive suite whose format is recognised by its content, plain or compressed (gzip, xz).

    Formats: the project's own JSON; ContraPro (Müller et al., 2018) as published, whose context comes from
    `context`, or with one context sentence (JSON lines); a consistency set of Voita et al. (2019), a JSON
    list, whose file name tells the phenomenon; the two sets of Bawden et al. (2018). Sentences that occur
    several times share one string in memory. Raises CotextError with file, example and reason.
    """
    text = read_whole(path)
    if is_contrapro_with_context(text):
        return read_contrapro_with_context(path, text)
    try:
        content = parse_json(text, str(path))
    except CotextError as error:
        raise CotextError(f"{error}; give a contrastive suite (docs/contrastive-format.md)") from None
    if is_contrapro(content):
        if context is None:
            raise CotextError(
                f"{path}: ContraPro as published, which has the tested sentences alone; make a suite with "
                "their context: cotext convert-suite contrapro.json --documents FOLDER --out FILE"
            )
        return read_contrapro(path, content, context)
    if is_ctxpro(content):
        raise CotextError(
            f"{path}: ctxPro, whose examples have no candidates; what a run writes is measured by "
            "`contrastive RUN SUITE --generate`, files of translations by `evaluate-ctxpro SUITE`"
        )
    if context is not None:
        raise CotextError(f"{path}: has its own context; leave out --documents and --context")
    if is_bawden(content):
        return read_bawden(path, content)
    if isinstance(content, list):
        return read_voita(path, content)
    if isinstance(content, dict):
        return _read_own(path, content)
    raise CotextError(
        f'{path}: not a contrastive suite; expected a JSON object with "format": "{FORMAT_NAME}", or a '
        "published suite (see docs/contrastive-format.md)"
    )


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
    refuse_unknown_keys(document, _HEADING_KEYS, f"{path}")
    name = text_of(document, "name", f"{path}")
    share = sharing()
    entries = document.get("examples")
    if not isinstance(entries, list):
        raise CotextError(f"{path}: 'examples' must be a list of objects")
    return gathered(
        path,
        name,
        text_of(document, "source_language", f"{path}"),
        text_of(document, "target_language", f"{path}"),
        (_own_example(entry, f"{path}: example number {n}", share) for n, entry in enumerate(entries)),
    )


def _own_example(entry: Any, where: str, share: Callable[[str], str]) -> ContrastiveExample:
    if not isinstance(entry, dict):
        raise CotextError(f"{where}: must be an object, found {kind_of(entry)}")
    identifier = text_of(entry, "id", where)
    where = f"{where} (id {identifier!r})"
    refuse_unknown_keys(entry, _EXAMPLE_KEYS, where)
    correct = entry.get("correct")
    if not isinstance(correct, int) or isinstance(correct, bool):
        raise CotextError(
            f"{where}: 'correct' must be the index of the right candidate, found {shown(correct)}"
        )
    candidates = entry.get("candidates")
    if not isinstance(candidates, list):
        raise CotextError(
            f"{where}: 'candidates' must be a list of lists of sentences, found {kind_of(candidates)}"
        )
    tags = entry.get("tags", {})
    if not isinstance(tags, dict) or not all(isinstance(value, str) for value in tags.values()):
        raise CotextError(f"{where}: 'tags' must be an object whose values are strings")
    document = entry.get("document", "")
    if not isinstance(document, str):
        raise CotextError(f"{where}: 'document' must be a string, found {kind_of(document)}")
    return ContrastiveExample(
        id=identifier,
        phenomenon=share(text_of(entry, "phenomenon", where)),
        distance=number_of(entry, "distance", where),
        source=sentences_of(entry.get("source"), "source", where, share),
        candidates=tuple(
            sentences_of(each, f"candidates[{n}]", where, share) for n, each in enumerate(candidates)
        ),
        correct=correct,
        tags={share(key): share(value) for key, value in tags.items()},
        document=share(document),
    )
