"""Translation of listed entities, after BWB (Jiang et al., 2022): accuracy and consistency.

A list has, by document, the forms that an entity may have in the target language. A mention is an occurrence
of a form: the longest at its position, ignoring case, and a whole word in languages with spaces. Mentions of
hypothesis and reference are counted for each sentence and entity; the smaller number is right:

    accuracy       right / mentions of the reference (its recall: "R" of BWB's script)
    precision      right / mentions of the hypothesis
    F1             their harmonic mean
    consistency    of the mentions of entities that the hypothesis mentions twice or more in a document, the
                   share with the most frequent form of that entity in the document

Accuracy and F1 measure whether an entity is mentioned where the reference mentions it, in any of its forms.
Consistency requires one form throughout. Human translators vary forms too, so the consistency of the
reference is reported as well. A mention in no listed form lowers only the accuracy.
"""

import ast
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from cotext.data.documents import Document
from cotext.data.formats.streams import numbered_lines
from cotext.data.languages import primary_language
from cotext.data.splitting import UNSPACED, join_sentences
from cotext.evaluation.metrics.interface import Measurement
from cotext.evaluation.statistics.sufficient_statistics import (
    Floats,
    Integers,
    Statistics,
    SumScorer,
    Unit,
    share,
)
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.tables import render_rows
from cotext.runtime.version import __version__

_MAX_CELL: Final = 10_000  # characters of the forms of one entity
_REPEATED: Final = 2  # minimum number of mentions for an entity to be inconsistent


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of a document: its type, empty if the list has no types, and its possible forms."""

    document: str
    type: str
    forms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EntityTypes:
    """Accuracies by type of entity and system, and the consistency of the reference."""

    accuracy_by_type: dict[str, dict[str, float]]
    reference_mentions: dict[str, int]
    reference_consistency: float
    documents_left_out: int  # documents of the list that are not in the test set
    without_repeated_mentions: tuple[str, ...]  # systems, whose consistency is 0

    def as_dict(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        return asdict(self)

    def render(self) -> str:
        """Format the accuracies as text: a line for each type, a column for each system."""
        rows = [["entity accuracy", "mentions", *self.accuracy_by_type]]
        for kind, mentions in self.reference_mentions.items():
            values = [f"{of_system[kind]:.2f}" for of_system in self.accuracy_by_type.values()]
            rows.append([kind or "(no type)", str(mentions), *values])
        lines = [render_rows(rows, left=1)]
        lines.append(f"consistency of the reference itself: {self.reference_consistency:.2f}")
        if self.without_repeated_mentions:
            names = ", ".join(self.without_repeated_mentions)
            lines.append(f"no document mentions an entity twice, so ent-cons is not meaningful: {names}")
        if self.documents_left_out:
            lines.append(f"{self.documents_left_out} documents of the list are not in the reference")
        return "\n".join(lines)


def read_entities(path: Path, target_language: str | None = None) -> list[Entity]:
    """Read a list of entities: lines with columns separated by tabs, named on the first line.

    Columns: `document_id`; `forms` or, as in BWB, `surface_form_en` (for the target language, English by
    default), a list in JSON or Python syntax; and optionally `entity_type`. Other columns are ignored. Raises
    CotextError with file, line and reason.
    """
    lines = list(numbered_lines(path))
    heading = lines[0][1].split("\t") if lines else []
    names = ("forms", f"surface_form_{target_language or 'en'}")
    column = next((name for name in names if name in heading), "")
    if not column or "document_id" not in heading:
        raise CotextError(
            f"{path}:1: a list of entities names its columns between tabs: 'document_id', {names[0]!r} (or "
            f"{names[1]!r}) and, if there are types, 'entity_type'"
        )
    entities = []
    for number, line in lines[1:]:
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != len(heading):
            raise CotextError(f"{path}:{number}: {len(cells)} columns, but the first line has {len(heading)}")
        row = dict(zip(heading, cells, strict=True))
        forms = _forms(row[column], f"{path}:{number}: {column}")
        entities.append(Entity(row["document_id"].strip(), row.get("entity_type", "").strip(), forms))
    if not entities:
        raise CotextError(f"{path}: lists no entity")
    return entities


def _forms(text: str, where: str) -> tuple[str, ...]:
    # Spreadsheet programs quote a cell in which a form has a quotation mark.
    plain = text.strip()
    if plain.startswith('"') and plain.endswith('"') and len(plain) > 1:
        plain = plain[1:-1].replace('""', '"')
    value: Any = None
    if len(plain) <= _MAX_CELL:
        try:
            value = ast.literal_eval(plain)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = None
    if not isinstance(value, list) or not value or not all(isinstance(form, str) for form in value):
        raise CotextError(
            f"{where}: expected a list of forms, such as ['Qiao Lian', 'Lian'], found {shown(text)}"
        )
    forms = tuple(dict.fromkeys(" ".join(form.split()) for form in value))
    if not all(forms):
        raise CotextError(f"{where}: a form is empty in {shown(text)}")
    return forms


class MentionCounter:
    """Counts the forms of one entity in a sentence, the longest at each position; case is folded."""

    def __init__(self, forms: Sequence[str], language: str | None) -> None:
        longest = sorted({form.casefold() for form in forms}, key=lambda form: (-len(form), form))
        written = "|".join(re.escape(form).replace(r"\ ", r"\s+") for form in longest)
        spaced = primary_language(language or "") not in UNSPACED
        self._pattern = re.compile(rf"(?<!\w)(?:{written})(?!\w)" if spaced else f"(?:{written})")

    def count(self, sentence: str) -> Counter[str]:
        """Return how often each form occurs."""
        return Counter(" ".join(form.split()) for form in self._pattern.findall(sentence.casefold()))


def measure_entities(
    entities: Sequence[Entity],
    hypotheses: Mapping[str, Sequence[Document]],
    reference: Sequence[Document],
    target_language: str | None = None,
) -> tuple[dict[str, list[Measurement]], EntityTypes]:
    """Measure accuracy, F1 and consistency of several systems, and accuracies by type.

    Hypotheses and reference have the same sentences.

    Raises:
        CotextError: no document of the list is in the reference, or the reference mentions no entity.
    """
    by_document: dict[str, list[tuple[Entity, MentionCounter]]] = {}
    for entity in entities:
        counter = MentionCounter(entity.forms, target_language)
        by_document.setdefault(entity.document, []).append((entity, counter))
    ids = {document.id for document in reference}
    if not ids & by_document.keys():
        raise CotextError(
            f"the list has entities of documents {_some(by_document)}, and the reference has documents "
            f"{_some(ids)}; give a reference whose documents have the ids of the list"
        )
    right = _Mentions.of(reference, by_document, target_language)
    if not right.mentions.sum():
        raise CotextError(
            "the reference mentions no entity of the list; give the list of this language and test set"
        )
    counted = {kind: int(right.mentions[right.types == kind].sum()) for kind in right.known_types}
    measured, accuracies, unrepeated = {}, {}, []
    for name, documents in hypotheses.items():
        ours = _Mentions.of(documents, by_document, target_language)
        if not ours.repeated.any():
            unrepeated.append(name)
        measured[name] = _measurements(ours, right, documents)
        clipped = np.minimum(ours.mentions, right.mentions)
        accuracies[name] = {
            kind: 100.0 * float(clipped[right.types == kind].sum()) / count for kind, count in counted.items()
        }
    left_out = len(by_document.keys() - ids)
    types = EntityTypes(accuracies, counted, right.consistency, left_out, tuple(unrepeated))
    return measured, types


@dataclass(frozen=True, slots=True, eq=False)
class _Mentions:
    """Mentions of every entity in every sentence of its document, with the sentences and entity types.

    `repeated` [documents, 2] counts mentions of entities that a document, read as a whole, mentions twice or
    more: those in the most frequent form, and all.
    """

    mentions: Floats
    sentence: Integers  # counted over all documents, from 0
    types: np.ndarray[Any, np.dtype[np.str_]]
    repeated: Floats

    @classmethod
    def of(
        cls,
        documents: Sequence[Document],
        entities: Mapping[str, list[tuple[Entity, MentionCounter]]],
        language: str | None,
    ) -> "_Mentions":
        numbers: list[int] = []
        indices: list[int] = []
        types: list[str] = []
        first = 0
        repeated = np.zeros((len(documents), 2))
        for index, document in enumerate(documents):
            text = join_sentences(document.sentences, language or "")
            for entity, counter in entities.get(document.id, []):
                numbers += [counter.count(sentence).total() for sentence in document.sentences]
                indices += range(first, first + len(document))
                types += [entity.type] * len(document)
                forms = counter.count(text)
                if forms.total() >= _REPEATED:
                    repeated[index] += (max(forms.values()), forms.total())
            first += len(document)
        return cls(
            np.array(numbers, dtype=np.float64),
            np.array(indices, dtype=np.int64),
            np.array(types, dtype=str),
            repeated,
        )

    @property
    def known_types(self) -> list[str]:
        """Return the types that are mentioned, in alphabetical order."""
        return sorted({str(kind) for kind in self.types[self.mentions > 0]})

    @property
    def consistency(self) -> float:
        return float(share(0, 1)(self.repeated.sum(axis=0, keepdims=True))[0])


def _measurements(ours: _Mentions, right: _Mentions, documents: Sequence[Document]) -> list[Measurement]:
    counts = np.stack([np.minimum(ours.mentions, right.mentions), ours.mentions, right.mentions], axis=1)
    by_sentence = np.zeros((sum(map(len, documents)), 3))
    np.add.at(by_sentence, ours.sentence, counts)
    matched, mentioned, expected = by_sentence.sum(axis=0)
    common = {"right": float(matched), "mentions": float(mentioned), "reference_mentions": float(expected)}
    repeated = {"repeated_mentions": float(ours.repeated[:, 1].sum())}
    precision = 100.0 * float(matched) / max(float(mentioned), 1.0)
    table: tuple[tuple[str, str, Unit, Floats, SumScorer, dict[str, float]], ...] = (
        ("entity-accuracy", "ent-acc", "sentence", by_sentence, share(0, 2), common),
        ("entity-f1", "ent-F1", "sentence", by_sentence, _f_of_sums, {**common, "precision": precision}),
        ("entity-consistency", "ent-cons", "document", ours.repeated, share(0, 1), repeated),
    )
    numbers = np.arange(len(documents))
    of_sentence = np.repeat(numbers, [len(document) for document in documents])
    measurements = []
    for protocol, title, unit, sums, scorer, components in table:
        statistics = Statistics(sums, of_sentence if unit == "sentence" else numbers, unit, scorer)
        signature = f"protocol:{protocol}|unit:{unit}|case:folded|forms:longest|version:cotext-{__version__}"
        measurements.append(Measurement.of(protocol, title, signature, statistics, documents, components))
    return measurements


def _f_of_sums(sums: Floats) -> Floats:
    scores: Floats = 200.0 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1.0)
    return scores


def _some(names: Mapping[str, Any] | set[str]) -> str:
    first = sorted(names)[:3]
    return ", ".join(repr(name) for name in first) + (" and others" if len(names) > len(first) else "")
