"""Translation as a stage of a data engine: an Arrow table of documents in, the same rows translated out.

Columns in: `id` (text) and `source` or `sentences` (a list of texts); others are handed on. Columns out,
beside them: `target`, a list of as many texts; `problem`, null, or why a document could not be translated,
whose `target` is null then; and what else `Translation` says of a document, under the names of its fields. A
row is a document, and needs no other: an engine may divide, repeat and reorder them as it likes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cotext.data.documents import Document
from cotext.runtime.errors import CotextError
from cotext.translation.open import OpenedRun, open_run
from cotext.translation.translate_file import systems_of
from cotext.translation.translator import Translation

ID: Final = "id"
SOURCES: Final = ("source", "sentences")
TARGET, PROBLEM = "target", "problem"
_INDICES = pa.list_(pa.int32())
_TYPES: Final = {"log_probabilities": pa.list_(pa.float64()), "pieces": pa.list_(pa.bool_())}
# Fields of a translation, but for the document and lists, which are written beside files alone: its columns.
FIELDS: Final = {
    field.name: _TYPES.get(field.name, _INDICES)
    for field in fields(Translation)
    if field.name not in ("document", "lists")
}
ADDED: Final = {TARGET: pa.list_(pa.string()), PROBLEM: pa.string(), **FIELDS}


def files_of(opened: OpenedRun) -> dict[str, str]:
    """Checksums of what a run translates by, and its first pass, by what they are.

    The folder of a first pass is left out: it may have another name elsewhere.
    """
    own = systems_of(opened)
    before = own.pop("first_pass", {})
    for system in filter(None, (own, before)):
        config = system.pop("config")
        del config["decode"]["first_pass"]
        system["configuration"] = hashlib.sha256(json.dumps(config).encode()).hexdigest()
    return {**own, **{f"first pass's {kind}": sha for kind, sha in before.items()}}


class Translate:
    """A translator of tables of documents; the run is opened with the first table, once.

    `decode`, `device`, `update` and `threads` as in `open_run`. `files`: what it translates by must be what
    `files_of` says here; None: anything. An instance travels to another process as its settings.
    """

    def __init__(
        self,
        run: str | Path,
        decode: Mapping[str, Any] | None = None,
        device: str | None = None,
        update: int | None = None,
        threads: int | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self._run, self._decode = Path(run), dict(decode or {})
        self._device, self._update, self._threads, self._files = device, update, threads, files

    @property
    def settings(
        self,
    ) -> tuple[str, dict[str, Any], str | None, int | None, int | None, Mapping[str, str] | None]:
        """What it was made of."""
        return str(self._run), self._decode, self._device, self._update, self._threads, self._files

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), self.settings

    @cached_property
    def opened(self) -> OpenedRun:
        """The run, as this process has opened it.

        Raises:
            CotextError: no such run here, or one with another model, tokenizer, shortlist or first pass than
                is asked for.
        """
        opened = open_run(self._run, self._device, self._decode, self._update, self._threads)
        if self._files is not None and (here := files_of(opened)) != self._files:
            other = sorted(k for k in here.keys() | self._files.keys() if here.get(k) != self._files.get(k))
            raise CotextError(
                f"{self._run}: not what it was where the work was given out: another {' and '.join(other)}; "
                "every machine must see the same run under this name, and nobody may change it meanwhile"
            )
        opened.translator.plan.check_passes()
        return opened

    def __call__(self, table: pa.Table) -> pa.Table:
        """The table with translations; as many rows, in the same order.

        Raises:
            CotextError: a column that is missing or of another type; as `opened`.
        """
        documents = documents_of(table)
        found: list[Translation | None] = [None] * len(documents)
        problems: list[str | None] = [None] * len(documents)
        translator = self.opened.translator
        todo: list[int] = []
        for index, document in enumerate(documents):
            try:
                translator.check([document])
                todo.append(index)
            except CotextError as error:
                problems[index] = str(error)
        for number, translation in translator.translate(documents[index] for index in todo):
            found[todo[number]] = translation
        rows = {
            TARGET: [None if each is None else each.document.sentences for each in found],
            PROBLEM: problems,
            **{name: [None if each is None else getattr(each, name) for each in found] for name in FIELDS},
        }
        kept = table.drop_columns([name for name in ADDED if name in table.column_names])
        for name, kind in ADDED.items():
            kept = kept.append_column(name, pa.array(rows[name], kind))
        return kept


def documents_of(table: pa.Table) -> list[Document]:
    """The documents of a table.

    Raises:
        CotextError: a column that is missing or of another type, a null.
    """
    column = next((name for name in SOURCES if name in table.column_names), None)
    if ID not in table.column_names or column is None:
        raise CotextError(
            f"the columns {', '.join(table.column_names)}: a document needs `{ID}`, and its sentences in "
            f"`{SOURCES[0]}` or `{SOURCES[1]}`"
        )
    ids, sentences = table.column(ID), table.column(column)
    if not pa.types.is_list(sentences.type) and not pa.types.is_large_list(sentences.type):
        raise CotextError(
            f"the column `{column}`: a list of texts a row is needed, and it is {sentences.type}"
        )
    documents = []
    for name, row in zip(ids.to_pylist(), sentences.to_pylist(), strict=True):
        if not isinstance(name, str) or row is None or not all(isinstance(text, str) for text in row):
            raise CotextError(f"document {name!r}: an id and a list of texts are needed, and no nulls")
        documents.append(Document(name, tuple(row)))
    return documents


def table_of(documents: Sequence[Document], **columns: Sequence[Any]) -> pa.Table:
    """Documents as a table, with further columns."""
    ids = pa.array([document.id for document in documents], pa.string())
    sentences = pa.array([document.sentences for document in documents], pa.list_(pa.string()))
    return pa.table({**columns, ID: ids, SOURCES[0]: sentences})


def translations_of(table: pa.Table) -> list[Translation]:
    """The translations in a table that a stage gave.

    Raises:
        CotextError: a document could not be translated.
    """
    found = []
    for row in table.select([ID, *ADDED]).to_pylist():
        if row[PROBLEM] is not None:
            raise CotextError(row[PROBLEM])
        said = {name: tuple(row[name]) for name in FIELDS}
        found.append(Translation(Document(row[ID], tuple(row[TARGET])), **said))
    return found
