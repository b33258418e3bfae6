"""Published contrastive suites as they come: those of Müller et al., Voita et al. and Bawden et al."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.data.subtitle_folders import SubtitleContext
from cotext.data.suite_fields import (
    gathered,
    kind_of,
    number_of,
    sentence_of,
    sentences_of,
    sharing,
    text_of,
)
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json

_CONTRAPRO_SENTENCES = ("src_context", "src", "ref_context", "ref")
_VOITA_PHENOMENA = ("deixis", "lex_cohesion", "ellipsis_infl", "ellipsis_vp")
_VOITA_SEPARATOR = " _eos "


def is_contrapro_with_context(text: str) -> bool:
    """Whether the first line is a JSON object with a reference and contrastive translations of it."""
    first = text.lstrip().partition("\n")[0]
    if '"contrastive"' not in first:  # most often, without parsing a whole suite that stands on one line
        return False
    try:
        entry = parse_json(first, "")
    except CotextError:
        return False
    return isinstance(entry, dict) and {"ref", "contrastive"} <= entry.keys()


def read_contrapro_with_context(path: Path, text: str) -> ContrastiveSuite:
    """Read ContraPro grouped as one JSON object a line, with the sentence before on both sides.

    The candidates are the reference followed by the contrastive ones. Where both context sentences are empty
    the document begins here, and the example has one sentence.
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
    """Antecedent distance and further tags; most examples have no meta: unknown then."""
    if meta is None:
        return None, {}
    if not isinstance(meta, dict):
        raise CotextError(f"{where}: 'meta' must be an object, found {kind_of(meta)}")
    gender = meta.get("ref ante head gender")
    return number_of(meta, "ante distance", where), {} if gender is None else {
        "antecedent_gender": str(gender).lower()[:1]
    }


def is_contrapro(content: Any) -> bool:
    """Whether a JSON value is ContraPro as published: a list of examples with their `errors`."""
    return bool(
        isinstance(content, list)
        and content
        and isinstance(content[0], dict)
        and {"src segment", "errors"} <= content[0].keys()
    )


def read_contrapro(path: Path, entries: list[Any], context: SubtitleContext) -> ContrastiveSuite:
    """Read ContraPro as published: tested sentences, and where in OpenSubtitles they stand.

    The candidates are the reference followed by the contrastive ones. The tested sentences are those of the
    suite, so that candidates differ as its authors made them differ.
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
    """Whether a JSON value is a set of Bawden et al.: blocks of `src` and `trg`, or of `examples`."""
    first = next(iter(content.values()), None) if isinstance(content, dict) else None
    return isinstance(first, dict) and ("examples" in first or {"src", "trg"} <= first.keys())


def read_bawden(path: Path, blocks: dict[str, Any]) -> ContrastiveSuite:
    """Read a set of Bawden et al. (2018), English-French: pairs of a right and a wrong target.

    A block of the anaphora set has one source and several pairs; one of the lexical choice set has examples
    with a source and a pair each. A text has two sentences, and the clue stands in the first.
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
                    candidates=tuple(sentences_of(each, "trg", where, share) for each in candidates),
                    correct=0,
                    tags={key: share(value) for key, value in {**tags, "judgement": judgement}.items()},
                    document=name,
                )

    return gathered(path, f"bawden/{'anaphora' if anaphora else 'lexical-choice'}", "en", "fr", examples())


def _bawden_pairs(block: Any, where: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, str]]]:
    """Of every pair of a block: the object with its source, its targets, its tags."""
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
    """Read a consistency set: src and dst hold the sentences of a group, joined by ` _eos `."""
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
