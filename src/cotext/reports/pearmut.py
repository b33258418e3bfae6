"""Campaigns of human evaluation for Pearmut: documents, the translations of all systems beside each sentence.

Written for Pearmut 1.1.6 (Zouhar and Kocmi 2026, arXiv 2601.02933), that of WMT26: contrastive error spans
(cESA) of several systems, error spans (ESA) of one. Annotators draw documents from a shared pool; which
system is shown where is drawn by Pearmut with the seed of the campaign, and names are hidden.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cotext.data.documents import Document
from cotext.data.languages import Languages
from cotext.metrics.aligned_files import read_aligned
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.version import __version__

# A text that begins so is shown as what it names.
_MEDIA: Final = re.compile(r"<(?:audio|video|img|iframe) ")
# Names become attributes of a page, and keys of objects, of which numbers are put first.
_NO_NAME: Final = re.compile(r"\d*|.*[\"'<>&`].*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The documents of a campaign, drawn with a seed (all of them, if None), and the number of annotators."""

    documents: int | None = None
    seed: int = 1
    annotators: int = 1

    def __post_init__(self) -> None:
        if self.annotators < 1 or (self.documents is not None and self.documents < 1):
            raise CotextError("a campaign has one annotator and one document at least")


def campaign(
    name: str,
    source: Sequence[Document],
    systems: Mapping[str, Sequence[Document]],
    sampling: Sampling,
    languages: Languages | None = None,
) -> dict[str, Any]:
    """The campaign, as JSON has it; an item is a sentence, or what stands on a line.

    Raises:
        CotextError: as `check_campaign`, or translations that do not fit the source.
    """
    check_campaign(systems, len(source), sampling)
    for system, documents in systems.items():
        if [(d.id, len(d)) for d in documents] != [(d.id, len(d)) for d in source]:
            raise CotextError(f"{system}: its documents do not fit the source")
    chosen = _drawn(len(source), sampling)
    title = f"Evaluate translation from {languages.source} to {languages.target}." if languages else ""
    return {
        "info": {
            "assignment": "single-stream",
            "protocol": "cESA" if len(systems) > 1 else "ESA",
            "users": sampling.annotators,
            "shuffle": True,
            "seed": sampling.seed,
        },
        "campaign_id": name,
        "cotext": {
            "version": __version__,
            "documents": len(chosen),
            "of": len(source),
            "items": sum(len(source[index]) for index in chosen),
            "seed": sampling.seed,
        },
        "data": [
            _document(source[index], {name: each[index] for name, each in systems.items()}, title)
            for index in chosen
        ],
    }


def check_campaign(names: Iterable[str], documents: int, sampling: Sampling) -> None:
    """Refuse, before any work is done, what would be no campaign.

    Raises:
        CotextError: names that Pearmut cannot show, more documents asked for than there are.
    """
    for name in names:
        if _NO_NAME.fullmatch(name):
            raise CotextError(
                f"{shown(name)}: no name for Pearmut, which takes neither numbers alone nor quotes, <, > "
                "and &; rename the file or folder"
            )
    if sampling.documents is not None and sampling.documents > documents:
        raise CotextError(f"--pearmut-documents {sampling.documents}: there are {documents} documents")


def _drawn(count: int, sampling: Sampling) -> list[int]:
    """The documents that are drawn, in their order."""
    if sampling.documents is None:
        return list(range(count))
    return sorted(random.Random(sampling.seed).sample(range(count), sampling.documents))


def _document(source: Document, systems: Mapping[str, Document], title: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [
        {
            "item_id": f"{source.id}_#_{number}",
            "src": _text(text),
            "tgt": {name: _text(each.sentences[number]) for name, each in systems.items()},
        }
        for number, text in enumerate(source.sentences)
    ]
    if title:
        items[0] = {"instructions": title, **items[0]}
    return items


def _text(text: str) -> str:
    return f" {text}" if _MEDIA.match(text) else text


def campaign_of_files(
    name: str,
    source: Path,
    systems: Mapping[str, Path],
    format: str | None,
    sampling: Sampling,
    target_language: str | None = None,
    languages: Languages | None = None,
) -> dict[str, Any]:
    """The campaign of translations that lie in files, beside their source.

    Raises:
        CotextError: as `campaign`, or files that do not correspond.
    """
    found, _, original = read_aligned(systems, [], source, format, target_language)
    return campaign(name, original, found, sampling, languages)


def told(made: Mapping[str, Any], path: Path) -> str:
    """What a campaign holds, in a line."""
    of = made["cotext"]
    return (
        f"{path}: {of['documents']} of {of['of']} documents (seed {of['seed']}), {of['items']} items, "
        f"protocol {made['info']['protocol']}; load it with `pearmut add {path}`"
    )
