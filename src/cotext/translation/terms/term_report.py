"""Term accuracy: which terms translations hold, counted on their text."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cotext.data.words import occurrences
from cotext.search.guide import SentenceConstraints
from cotext.translation.terms.terms import TermGuide


@dataclass(slots=True)
class TermReport:
    """Counts over translated documents.

    `required` occurrences of terms in the source, of which `met` have one of their translations in the same
    sentence; `forbidden` translations found there; `leaked`: translations of a term of the document, in
    sentences without that term, beyond those that the sentence's own terms ask for. Of the `repeated` terms,
    with several translations and in several sentences of a document, those are `consistent` that have the
    same one throughout. `copied` texts, of which `kept` appear exactly as often as asked. `unmet` has the
    indices of document and sentence.
    """

    required: int = 0
    met: int = 0
    forbidden: int = 0
    leaked: int = 0
    repeated: int = 0
    consistent: int = 0
    copied: int = 0
    kept: int = 0
    unmet: list[tuple[int, int]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The share of required occurrences that are met; 1 where there are none."""
        return self.met / self.required if self.required else 1.0

    def __str__(self) -> str:
        parts = ["terms: none in the source"]
        if self.required:
            parts = [f"terms: {self.met:,} of {self.required:,} kept ({self.accuracy:.1%})"]
        if self.required or self.forbidden or self.leaked:
            parts.append(f"forbidden translations: {self.forbidden:,}")
            parts.append(f"in sentences without the term: {self.leaked:,}")
        if self.repeated:
            parts.append(f"consistent: {self.consistent:,} of {self.repeated:,} repeated terms")
        if self.copied:
            parts.append(f"copied text: {self.kept:,} of {self.copied:,}")
        return "; ".join(parts)


def term_report(guide: TermGuide, translations: Mapping[int, Sequence[str]]) -> TermReport:
    """The term accuracy of translated sentences, by index of their document."""
    report = TermReport()
    for document, sentences in translations.items():
        chosen: dict[str, list[str]] = {}
        alternatives = {
            o.term.source: guide.alternatives(o)
            for sentence in range(len(sentences))
            for o in guide.occurrences(document, sentence)
        }
        for sentence, text in enumerate(sentences):
            wanted = guide.constraints(document, sentence, {})
            _count(report, wanted, text, (document, sentence))
            own = {form for group in wanted.required for form in group}
            others = {form for forms in alternatives.values() for form in forms} - own
            report.leaked += sum(phrase in others for _, phrase in occurrences(text, [*others, *own]))
            for occurrence in guide.occurrences(document, sentence):
                if len(occurrence.term.targets) > 1:
                    targets = {t.casefold(): t for t in occurrence.term.targets}
                    found = [phrase for _, phrase in occurrences(text, guide.alternatives(occurrence))]
                    chosen.setdefault(occurrence.term.source, []).append(
                        targets.get(found[0].casefold(), found[0]) if found else ""
                    )
        several = [renderings for renderings in chosen.values() if len(renderings) > 1]
        report.repeated += len(several)
        report.consistent += sum(len(set(renderings)) == 1 and "" not in renderings for renderings in several)
    return report


def _count(report: TermReport, wanted: SentenceConstraints, text: str, place: tuple[int, int]) -> None:
    met = 0
    for group, need in Counter(wanted.required).items():
        met += min(need, sum(1 for _ in occurrences(text, group)))
    report.required += len(wanted.required)
    report.met += met
    everything = [form for group in wanted.required for form in group]
    found = (phrase for _, phrase in occurrences(text, [*wanted.forbidden, *everything]))
    report.forbidden += sum(phrase in wanted.forbidden for phrase in found)
    copied = Counter(wanted.copied)
    standing = Counter(phrase for _, phrase in occurrences(text, list(copied)))
    kept = sum(need for copy, need in copied.items() if standing[copy] == need)
    report.copied += sum(copied.values())
    report.kept += kept
    if met < len(wanted.required) or kept < len(wanted.copied):
        report.unmet.append(place)
