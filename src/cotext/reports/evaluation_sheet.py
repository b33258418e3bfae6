"""A sheet for human evaluation of sentences in context: blind, a page to be read or a table to be filled in.

Items come in an order drawn by a seed, and the translations of an item in another, as A, B ...; each has the
sentences before it, of the source and of its own translation. Which item is which sentence, and which letter
which system, stands in a key beside the sheet, of which raters know nothing.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any, Final

from cotext.analysis.selection import Selection
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats.streams import atomic_sinks
from cotext.metrics.bleu import check_correspondence
from cotext.reports.html import whole_page
from cotext.runtime.errors import CotextError

KINDS: Final = (".html", ".csv")
REFERENCE: Final = "reference"
COLUMNS: Final = (
    "item",
    "translation",
    "source before",
    "source",
    "translation before",
    "text",
    "rating",
    "remark",
)
# What a spreadsheet takes for a formula when a cell begins with it.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")

STYLE = """<style>
.item { break-inside: avoid; } .item p { margin: .15rem 0; max-width: none; }
.item p.before { color: var(--soft); } .item p.now { font-weight: 600; }
.item section { margin: .6rem 0 0 1.4rem; } .item h4 { margin: .6rem 0 .1rem; font-size: 1rem; }
.rating { color: var(--soft); letter-spacing: .05em; }
</style>"""


@dataclass(frozen=True, slots=True)
class SheetItem:
    """A sentence with the source before it and, by letter, a system's name, text before and sentence."""

    number: int
    rank: int
    document: str
    sentence: int
    source: tuple[str, ...]
    translations: Mapping[str, tuple[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class SheetSettings:
    """How many of the first sentences a sheet has, how many sentences before each, and the seed of orders."""

    top: int
    before: int = 3
    seed: int = 1

    @property
    def signature(self) -> str:
        """All of it."""
        return f"top:{self.top}|before:{self.before}|seed:{self.seed}"


def key_of(sheet: Path) -> Path:
    """Where the key of a sheet lies.

    Raises:
        CotextError: a sheet of another kind than there are.
    """
    if sheet.suffix not in KINDS:
        raise CotextError(f"{sheet}: a sheet is a page or a table: give it a name that ends in .html or .csv")
    return sheet.with_suffix(".key.json")


def require_new_sheet(sheet: Path) -> None:
    """Refuse to replace a sheet that may have been filled in, or a key without which one is worth nothing.

    Raises:
        CotextError: one of them is there; as `key_of`.
    """
    for path in (sheet, key_of(sheet)):
        if path.exists():
            raise CotextError(f"{path}: exists, of a sheet that may be rated; give --sheet another name")


def sheet_items(
    selection: Selection, systems: Mapping[str, Sequence[Document]], settings: SheetSettings
) -> list[SheetItem]:
    """The items of a sheet in their order; `systems`: translated documents by name, else the references.

    Raises:
        CotextError: as `check_systems`.
    """
    check_systems(systems, selection.documents)
    given = dict(systems) or {REFERENCE: [Document(d.id, d.target) for d in selection.documents]}
    chosen = list(enumerate(selection.ranked[: settings.top], 1))
    Random(f"{settings.seed} items").shuffle(chosen)
    items = []
    for number, (rank, each) in enumerate(chosen, 1):
        document = selection.documents[each.document]
        seen = slice(max(0, each.sentence - settings.before), each.sentence + 1)
        names = list(given)
        Random(f"{settings.seed} {each.document} {each.sentence}").shuffle(names)
        translations = {
            letter: (name, given[name][each.document].sentences[seen])
            for letter, name in zip(ascii_uppercase, names, strict=False)
        }
        items.append(
            SheetItem(number, rank, document.id, each.sentence + 1, document.source[seen], translations)
        )
    return items


def check_systems(systems: Mapping[str, Sequence[Document]], documents: Sequence[ParallelDocument]) -> None:
    """Refuse what a sheet of these documents could not show.

    Raises:
        CotextError: more systems than letters; translations of other documents.
    """
    if len(systems) > len(ascii_uppercase):
        raise CotextError(f"{len(systems)} systems: a sheet has at most {len(ascii_uppercase)}")
    references = [Document(document.id, document.target) for document in documents]
    for name, written in systems.items():
        try:
            check_correspondence(written, references)
        except CotextError as error:
            raise CotextError(f"{name}: {error}") from None


def write_sheet(
    sheet: Path,
    selection: Selection,
    systems: Mapping[str, Sequence[Document]],
    settings: SheetSettings,
) -> int:
    """Write a sheet, by the ending of its name, and its key; returns how many items it has.

    Raises:
        CotextError: as `key_of` and `sheet_items`; storage refuses.
    """
    key = key_of(sheet)
    items = sheet_items(selection, systems, settings)
    with atomic_sinks([sheet, key]) as [of_sheet, of_key]:
        if sheet.suffix == ".html":
            of_sheet.write(_page(items))
        else:
            of_sheet.mark()  # else Excel shows no umlaut
            of_sheet.write(_table(items))
        of_key.write(f"{json.dumps(_key(items, selection, settings), indent=1, ensure_ascii=False)}\n")
    return len(items)


def _key(items: Sequence[SheetItem], selection: Selection, settings: SheetSettings) -> dict[str, Any]:
    return {
        "format": "cotext-sheet-key",
        "version": 1,
        "signature": f"{selection.signature}|{settings.signature}",
        "items": [
            {
                "item": item.number,
                "rank": item.rank,
                "document": item.document,
                "sentence": item.sentence,
                "translations": {letter: name for letter, (name, _) in item.translations.items()},
            }
            for item in items
        ],
    }


def _table(items: Sequence[SheetItem]) -> str:
    """CSV with a line for every translation; sentences before are lines of a cell."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for item in items:
        *before, source = item.source
        for letter, (_, sentences) in item.translations.items():
            *earlier, sentence = sentences
            cells = ["\n".join(before), source, "\n".join(earlier), sentence]
            writer.writerow([item.number, letter, *map(_no_formula, cells), "", ""])
    return text.getvalue()


def _no_formula(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell


def _page(items: Sequence[SheetItem]) -> str:
    intro = (
        f"<h1>Translations in context</h1><p>{len(items)} items. Each has sentences of a document, the last "
        "of which is in bold, and their translations, by letters that mean nothing. Read what stands before, "
        "and rate how each translation renders the sentence in bold, in its place.</p>"
    )
    return whole_page("Translations in context", [STYLE, intro, *map("".join, map(_item, items))])


def _item(item: SheetItem) -> Iterator[str]:
    yield f'<article class="item"><h3>Item {item.number}</h3>{_sentences(item.source)}'
    for letter, (_, sentences) in item.translations.items():
        yield f"<section><h4>{letter}</h4>{_sentences(sentences)}"
        yield '<p class="rating">Rating ________ Remark ________________________</p></section>'
    yield "</article>"


def _sentences(sentences: Sequence[str]) -> str:
    *before, now = sentences
    lines = [f'<p class="before" dir="auto">{escape(sentence) or "&nbsp;"}</p>' for sentence in before]
    return "".join([*lines, f'<p class="now" dir="auto">{escape(now) or "&nbsp;"}</p>'])
