"""The files of `cotext attention`: sentence-to-sentence attention maps, gates, and their figures as JSON.

Sentence-to-sentence attention of one document: maps of every attention module, and gates.

The document is read in the windows in which the run translates it; where rows attend to each other, in the
same groups of windows.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from cotext.data.batch import Batch, Instance
from cotext.data.collate import make_batch, pack
from cotext.data.documents import ParallelDocument
from cotext.evaluation.requests import DocumentRequest
from cotext.evaluation.studies.attention.sentence_maps import (
    Averaged,
    GateOpenness,
    HeadGates,
    SentenceMap,
    average_by_kind,
    sentence_maps,
)
from cotext.evaluation.studies.corpus_texts import open_document
from cotext.models.interface import with_states
from cotext.runtime.files import replacing
from cotext.runtime.locks import working_in
from cotext.runtime.tables import render_rows
from cotext.translation.document_state import Encoded
from cotext.translation.scorer import document_rows
from cotext.translation.translator import DocumentTranslator

DIGITS = 6  # that are worth keeping of a weight
NEAR = 3  # sentences away that the text has columns for


@dataclass(frozen=True, slots=True)
class DocumentAttention:
    """The attention of a run on a document.

    `numbers` are the indices, from 1, of the sentences that have words.
    """

    signature: str
    document: ParallelDocument
    translated_by_run: bool
    numbers: tuple[int, ...]
    tokens: tuple[tuple[int, int], ...]  # of these sentences, source and target
    maps: dict[str, SentenceMap]
    gates: dict[str, GateOpenness]
    head_gates: dict[str, HeadGates]
    kinds: tuple[Averaged, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file."""
        sentences = [
            {
                "number": number,
                "source": self.document.source[number - 1],
                "target": self.document.target[number - 1],
                "source_tokens": source,
                "target_tokens": target,
            }
            for number, (source, target) in zip(self.numbers, self.tokens, strict=True)
        ]
        return {
            "format": "cotext-attention",
            "version": 1,
            "signature": self.signature,
            "document": self.document.id,
            "target": "translation by the run" if self.translated_by_run else "given",
            "sentences": sentences,
            "kinds": {
                each.kind: {"attentions": list(each.attentions), "heads": each.heads, **_matrices(each)}
                for each in self.kinds
            },
            "attentions": {
                name: {
                    "kind": each.kind,
                    "heads": each.heads,
                    "entropy_nats": each.spread.nats,
                    "normalised_entropy": each.spread.normalised_entropy,
                    **_matrices(each),
                }
                for name, each in self.maps.items()
            },
            "gates": {
                **{name: gate.as_dict(self.share_of(gate.kind)) for name, gate in self.gates.items()},
                **{name: gates.as_dict() for name, gates in self.head_gates.items()},
            },
        }

    @property
    def pictures(self) -> tuple[str, ...]:
        """Names of the files."""
        return tuple(f"{each.kind}.png" for each in self.kinds)

    def share_of(self, kind: str) -> Tensor:
        """The shares of a kind of attention, averaged: [N, N]."""
        return next(each.share for each in self.kinds if each.kind == kind)

    def render(self) -> str:
        """A line for every attention, and one for every gate."""
        rows = [
            ("attention", "nats", "normalised_entropy", "own sentence", "outside"),
            *map(self._row, self.maps),
        ]
        gates = [f"{name}: open by {gate.overall:.2f}" for name, gate in self.gates.items()]
        return "\n".join([render_rows(rows, left=1), *gates, *self._head_gates()])

    def _head_gates(self) -> Iterator[str]:
        """What passes the gates from near sentences; the JSON file has all distances."""
        if not self.head_gates:
            return
        passed = {name: gates.by_distance for name, gates in self.head_gates.items()}
        near = sorted(
            {d for each in passed.values() for d in each if abs(d) <= NEAR}, key=lambda d: (d < 0, abs(d))
        )
        heads = len(next(iter(self.head_gates.values())).open)
        rows = [
            (
                "gates to other sentences",
                *(f"head {head + 1}" for head in range(heads)),
                *(f"{d} back" if d > 0 else f"{-d} ahead" for d in near),
            )
        ]
        for name, gates in self.head_gates.items():
            means = (f"{float(passed[name][d].mean()):.3f}" if d in passed[name] else "" for d in near)
            rows.append((name, *(f"{value:+.3f}" for value in gates.open.tolist()), *means))
        yield render_rows(rows, left=1)
        yield "back, ahead: what passes from a sentence at this distance, weight × |gate|, mean of heads"

    def _row(self, name: str) -> tuple[str, ...]:
        each = self.maps[name]
        figures = each.share.diagonal().nanmean(), each.beside.nanmean()
        own, outside = (f"{float(share):.2f}" for share in figures)
        return name, f"{each.spread.nats:.2f}", f"{each.spread.normalised_entropy:.2f}", own, outside


def _matrices(found: SentenceMap | Averaged) -> dict[str, Any]:
    return {
        "mean_weight": _numbers(found.mean),
        "share": _numbers(found.share),
        "share_outside": _numbers(found.beside),
    }


def _numbers(values: Tensor) -> Any:
    """Nested lists, None where there is no number."""
    if values.dim() > 1:
        return [_numbers(row) for row in values]
    return [None if v != v else float(f"{v:.{DIGITS}g}") for v in values.tolist()]


def document_attention(
    translator: DocumentTranslator,
    document: ParallelDocument,
    signature: str,
    own: bool,
) -> DocumentAttention:
    """Attention maps and gates of a document and its translation; `own`: the translation is by the run.

    Where all is written at once, the decoder has positions in the place of target tokens, as many for every
    sentence as its source gives it: such maps do not depend on the translation.
    """
    source = translator.tokenizer.encode_batch(document.source)
    target = translator.tokenizer.encode_batch(document.target, side="target")
    kept, batches = window_batches(translator, source, target)
    model = with_states(translator.model, "cotext attention")
    found = sentence_maps(model, batches, len(kept))
    return DocumentAttention(
        signature=signature,
        document=document,
        translated_by_run=own,
        numbers=tuple(j + 1 for j in kept),
        tokens=tuple((len(source[j]), len(target[j])) for j in kept),
        maps=found.maps,
        gates=found.gates,
        head_gates=found.head_gates,
        kinds=tuple(average_by_kind(found.maps)),
    )


def window_batches(
    translator: DocumentTranslator, source: Encoded, target: Encoded
) -> tuple[list[int], list[Batch]]:
    """The indices of the sentences of a document that have words, and its windows in batches, in order.

    Windows that see each other are in a batch of their own, others as they fit.
    """
    rows = document_rows(translator.plan, source, target)
    groups: list[list[Instance]] = [[row.instance for row in group] for group in rows.groups]
    symbols = translator.plan.symbols
    if not translator.plan.sees_other_rows:
        lengths = [[row.row_tokens(symbols) for row in group] for group in groups]
        packed = pack(lengths, translator.plan.decode.max_tokens)
        groups = [[row for g in batch for row in groups[g]] for batch in packed]
    return rows.kept, [make_batch(group, symbols).to(translator.device) for group in groups]


TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
    "codes": "Self-attention of the predictor of codes",
    "codes_cross": "Cross-attention of the predictor of codes",
    "batch": "Attention across the batch",
}


def report_attention(request: DocumentRequest) -> DocumentAttention:
    """Attention maps of a run on one document; writes attention.json and a picture per kind into `out`.

    Raises:
        CotextError: no such run, device or document, a translation that does not fit, no words at all.
    """
    opened, out = open_document(request, translates=False), request.out
    with working_in(out):
        report = document_attention(
            opened.run.translator, opened.with_translation(), opened.run.signature, opened.own
        )
        with replacing(out / "attention.json") as temporary:
            content = json.dumps(report.as_dict(), ensure_ascii=False, allow_nan=False)
            temporary.write_text(content, encoding="utf-8")
        _draw(report, out)
    return report


def _draw(report: DocumentAttention, out: Path) -> None:
    from cotext.evaluation.studies.plots import save, sentence_map

    for each in report.kinds:
        layers = len(each.attentions)
        of = (
            f"mean of {layers} layers and {each.heads} heads" if layers > 1 else f"mean of {each.heads} heads"
        )
        title = f"{title_of(each.kind)}, {of}"
        figure = sentence_map(title, report.numbers, each.mean.numpy(), each.share.numpy())
        save(figure, out / f"{each.kind}.png")


def title_of(kind: str) -> str:
    """The words for a kind of attention."""
    what, _, where = kind.partition("-")
    within = {
        "": "",
        "local": " inside sentences",
        "document": ", document layer",
        "source": ", source",
        "target": ", target",
    }[where]
    return TITLES[what] + within
