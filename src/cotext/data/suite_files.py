"""Readers of contrastive suites: the format of Cotext, and published suites in their original formats."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cotext.data.contrastive_suites import (
    FORMAT_NAME,
    FORMAT_VERSION,
    ContrastiveExample,
    ContrastiveSuite,
    gathered,
    kind_of,
    number_of,
    refuse_unknown_keys,
    sentence_of,
    sentences_of,
    sharing,
    text_of,
)
from cotext.data.formats.streams import OUTER_SPACE, numbered_lines, read_whole
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.reading import parse_json

# --- The context of ContraPro, from subtitles with one file per film and language, and one sentence per line.
#
# The scripts of ContraPro (Müller et al., 2018) extract these files from OpenSubtitles 2018:
# `1921/1921_12806_3712161.en` and `.de`, or all files in one folder.

_LANGUAGES = ("en", "de")
# White space and quotation marks differ between editions.
_NOT_COMPARED = re.compile("[\\s\"'`´]+")


class SubtitleContext:
    """Reads the `sentences` before a line of a film; `folder` may be None if `sentences` is 0."""

    def __init__(self, folder: Path | None, sentences: int) -> None:
        if folder is not None and not folder.is_dir():
            raise CotextError(f"{folder}: no such folder; pass the folder with the OpenSubtitles documents")
        if folder is None and sentences:
            raise CotextError(
                f"{sentences} sentences of context need the folder with the documents of OpenSubtitles "
                "(--documents); without it, --context 0"
            )
        self.folder = folder
        self.sentences = sentences
        self._film = ""
        self._sides: tuple[list[str], list[str]] = ([], [])

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
            self._sides = self._read(self.folder, film, where)
            self._film = film
        sources, targets = self._sides
        if line is None or not 1 <= line <= len(sources):
            raise CotextError(
                f"{where}: 'segment id' is {shown(line)}, but {film} in {self.folder} has lines 1 to "
                f"{len(sources)}"
            )
        if _NOT_COMPARED.sub("", sources[line - 1]) != _NOT_COMPARED.sub("", source):
            raise CotextError(
                f"{where}: line {line} of {film} in {self.folder} is {sources[line - 1][:60]!r}, not "
                f"{source[:60]!r}; ContraPro is of OpenSubtitles 2018"
            )
        first = max(0, line - 1 - self.sentences)
        return tuple(sources[first : line - 1]), tuple(targets[first : line - 1])

    def _read(self, folder: Path, film: str, where: str) -> tuple[list[str], list[str]]:
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
        return sides[0], sides[1]


_CONTRAPRO_SENTENCES = ("src_context", "src", "ref_context", "ref")
_VOITA_PHENOMENA = ("deixis", "lex_cohesion", "ellipsis_infl", "ellipsis_vp")
_VOITA_SEPARATOR = " _eos "


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


def read_contrapro_with_context(path: Path, text: str) -> ContrastiveSuite:
    """Read ContraPro with one JSON object per line and one context sentence on both sides.

    The candidates are the reference and then the contrastive translations. If both context sentences are
    empty, the document begins here, and the example has one sentence.
    """
    share = sharing()

    def examples() -> Iterator[ContrastiveExample]:
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            entry = parse_json(line, where)
            if not isinstance(entry, dict):
                raise CotextError(f"{where}: must be an object, found {kind_of(entry)}")
            identifier = str(entry.get("id", number - 1))
            where = f"{where}: example {identifier!r}"
            fields = {key: sentence_of(entry.get(key), key, where, share) for key in _CONTRAPRO_SENTENCES}
            wrong = sentences_of(entry.get("contrastive"), "contrastive", where, share)
            begins = not (fields["src_context"].strip() or fields["ref_context"].strip())
            source_context, target_context = (
                ((), ()) if begins else ((fields["src_context"],), (fields["ref_context"],))
            )
            distance, tags = _contrapro_meta(entry.get("meta"), where)
            if entry.get("ref_pronoun") is not None:
                tags = {"pronoun": share(text_of(entry, "ref_pronoun", where)), **tags}
            yield ContrastiveExample(
                id=identifier,
                phenomenon="pronoun",
                distance=distance,
                source=(*source_context, fields["src"]),
                candidates=tuple((*target_context, sentence) for sentence in (fields["ref"], *wrong)),
                correct=0,
                tags=tags,
            )

    return gathered(path, "contrapro-ctx1", "en", "de", examples())


def _contrapro_meta(meta: Any, where: str) -> tuple[int | None, dict[str, str]]:
    """Return the antecedent distance (None if unknown) and other tags; most examples have no meta."""
    if meta is None:
        return None, {}
    if not isinstance(meta, dict):
        raise CotextError(f"{where}: 'meta' must be an object, found {kind_of(meta)}")
    gender = meta.get("ref ante head gender")
    return number_of(meta, "ante distance", where), {} if gender is None else {
        "antecedent_gender": str(gender).lower()[:1]
    }


def is_contrapro(content: Any) -> bool:
    """Return whether a JSON value is ContraPro as published: a list of examples with `errors`."""
    return bool(
        isinstance(content, list)
        and content
        and isinstance(content[0], dict)
        and {"src segment", "errors"} <= content[0].keys()
    )


def read_contrapro(path: Path, entries: list[Any], context: SubtitleContext) -> ContrastiveSuite:
    """Read ContraPro as published: tested sentences, and their positions in OpenSubtitles.

    The candidates are the reference and then the contrastive translations. The tested sentences are taken
    from the suite, not from OpenSubtitles, so that candidates differ only as intended by its authors.
    """
    share = sharing()

    def examples() -> Iterator[ContrastiveExample]:
        for number, entry in enumerate(entries):
            where = f"{path}: example {number}"
            if not isinstance(entry, dict):
                raise CotextError(f"{where}: must be an object, found {kind_of(entry)}")
            errors = entry.get("errors")
            if not isinstance(errors, list) or not all(isinstance(error, dict) for error in errors):
                raise CotextError(f"{where}: 'errors' must be a list of objects")
            source = sentence_of(entry.get("src segment"), "src segment", where, share)
            right = sentence_of(entry.get("ref segment"), "ref segment", where, share)
            wrong = [sentence_of(error.get("contrastive"), "contrastive", where, share) for error in errors]
            document = text_of(entry, "document id", where)
            sources, targets = context.before(document, number_of(entry, "segment id", where), source, where)
            before = tuple(map(share, targets))
            distance, tags = _contrapro_meta(entry, where)
            yield ContrastiveExample(
                id=str(number),
                phenomenon="pronoun",
                distance=distance,
                source=(*map(share, sources), source),
                candidates=tuple((*before, sentence) for sentence in (right, *wrong)),
                correct=0,
                tags={"pronoun": share(text_of(entry, "ref pronoun", where).lower()), **tags},
                document=share(document),
            )

    return gathered(path, f"contrapro-original-ctx{context.sentences}", "en", "de", examples())


def is_bawden(content: Any) -> bool:
    """Return whether a JSON value is a set of Bawden et al.: blocks of `src` and `trg`, or of `examples`."""
    first = next(iter(content.values()), None) if isinstance(content, dict) else None
    return isinstance(first, dict) and ("examples" in first or {"src", "trg"} <= first.keys())


def read_bawden(path: Path, blocks: dict[str, Any]) -> ContrastiveSuite:
    """Read a set of Bawden et al. (2018), English-French: pairs of a correct and an incorrect target.

    A block of the anaphora set has one source and several pairs. In the lexical choice set, each example of a
    block has a source and a pair. A text has two sentences; the first disambiguates the second.
    """
    share = sharing()
    anaphora = "examples" not in next(iter(blocks.values()))

    def examples() -> Iterator[ContrastiveExample]:
        for name, block in blocks.items():
            for number, (of_source, pair, tags) in enumerate(_bawden_pairs(block, f"{path}: block {name!r}")):
                where = f"{path}: block {name!r}, pair {number}"
                judgement = "correct" if "correct" in pair else "semi-correct"
                candidates = (pair.get(judgement), pair.get("incorrect"))
                yield ContrastiveExample(
                    id=f"{name}.{number}",
                    phenomenon="anaphora" if anaphora else "lexical_choice",
                    distance=1,
                    source=sentences_of(of_source.get("src"), "src", where, share),
                    candidates=tuple(sentences_of(target, "trg", where, share) for target in candidates),
                    correct=0,
                    tags={key: share(value) for key, value in {**tags, "judgement": judgement}.items()},
                    document=name,
                )

    return gathered(path, f"bawden/{'anaphora' if anaphora else 'lexical-choice'}", "en", "fr", examples())


def _bawden_pairs(block: Any, where: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, str]]]:
    """Yield for every pair of a block: the object with its source, its targets, and its tags."""
    if not isinstance(block, dict):
        raise CotextError(f"{where}: must be an object, found {kind_of(block)}")
    key = "examples" if "examples" in block else "trg"
    if not isinstance(block.get(key), list):
        raise CotextError(f"{where}: {key!r} must be a list of objects")
    for number, entry in enumerate(block[key]):
        pair = entry.get("trg") if key == "examples" and isinstance(entry, dict) else entry
        if not isinstance(pair, dict):
            raise CotextError(f"{where}, pair {number}: must have a correct and an incorrect target")
        of_source, of_type = (entry, block) if key == "examples" else (block, pair)
        kind = of_type.get("type")
        yield of_source, pair, {"type": kind} if isinstance(kind, str) else {}


def read_voita(path: Path, entries: list[Any]) -> ContrastiveSuite:
    """Read a consistency set of Voita et al.; `src` and `dst` are sentences joined by ` _eos `."""
    stem = path.name.partition(".")[0]
    phenomenon = next((known for known in _VOITA_PHENOMENA if stem.startswith(known)), "unknown")
    share = sharing()

    def examples() -> Iterator[ContrastiveExample]:
        for number, entry in enumerate(entries):
            where = f"{path}: example {number}"
            if not isinstance(entry, dict) or not {"src", "dst", "true_ind"} <= entry.keys():
                raise CotextError(f"{where}: expected an object with 'src', 'dst' and 'true_ind'")
            distance = entry.get("ctx_dist")
            if not all(value is None or isinstance(value, int) for value in (distance, entry["true_ind"])):
                raise CotextError(f"{where}: 'true_ind' and 'ctx_dist' must be whole numbers")
            groups = sentences_of(entry["dst"], "dst", where, share)
            source = sentence_of(entry["src"], "src", where, share).split(_VOITA_SEPARATOR)
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

    return gathered(path, f"voita-consistency/{stem}", "en", "ru", examples())


_HEADING_KEYS = frozenset({"format", "version", "name", "source_language", "target_language", "examples"})
_EXAMPLE_KEYS = frozenset(
    {"id", "phenomenon", "distance", "source", "candidates", "correct", "tags", "document"}
)


def read_suite(path: Path, context: SubtitleContext | None = None) -> ContrastiveSuite:
    """Read a contrastive suite, plain or compressed (gzip, xz). Its format is detected from the content.

    Formats: the JSON of Cotext; ContraPro (Müller et al., 2018) as published, with the sentences of
    `context`, or with one context sentence (JSON lines); a consistency set of Voita et al. (2019), a JSON
    list, with the phenomenon in the file name; the two sets of Bawden et al. (2018). Equal sentences share
    one string in memory. Raises CotextError with file, example and reason.
    """
    text = read_whole(path)
    if is_contrapro_with_context(text):
        return read_contrapro_with_context(path, text)
    try:
        content = parse_json(text, str(path))
    except CotextError as error:
        raise CotextError(f"{error}; pass a contrastive suite (docs/contrastive-format.md)") from None
    if is_contrapro(content):
        if context is None:
            raise CotextError(
                f"{path}: ContraPro as published, which has the tested sentences alone; make a suite with "
                "their context: cotext convert-suite contrapro.json --documents FOLDER --out FILE"
            )
        return read_contrapro(path, content, context)
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
    format = document.get("format")
    if format != FORMAT_NAME:
        raise CotextError(
            f"{path}: not a contrastive suite: 'format' is {shown(format)}, expected {FORMAT_NAME!r}"
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
            sentences_of(target, f"candidates[{n}]", where, share) for n, target in enumerate(candidates)
        ),
        correct=correct,
        tags={share(key): share(value) for key, value in tags.items()},
        document=share(document),
    )
