"""Sentence-to-sentence attention of one document: `cotext attention`.

Windows, and the groups in which they attend to each other, are those of translation. Maps of every attention
module, and gates, are written as JSON. For each kind of attention, an image shows the mean map.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cotext.data.batch import Instance, make_batch, pack
from cotext.data.documents import ParallelDocument
from cotext.evaluation.requests import DocumentRequest
from cotext.evaluation.studies.context.context_use import open_document, translated_by
from cotext.models.interface import with_states
from cotext.models.sentence_maps import (
    Averaged,
    GateOpenness,
    HeadGates,
    SentenceMap,
    average_by_kind,
    sentence_maps,
)
from cotext.runtime import CotextError
from cotext.runtime.files import replacing, working_in, write_text
from cotext.runtime.rendering import render_rows
from cotext.translation.scorer import document_rows
from cotext.translation.translator import DocumentTranslator

DIGITS = 6  # significant digits of a weight
NEAR = 3  # largest sentence distance with a column in the text report


@dataclass(frozen=True, slots=True)
class DocumentAttention:
    """The attention of a run on a document.

    `numbers`: the sentences with words, from 1; `tokens`: their source and target tokens.
    """

    signature: str
    document: ParallelDocument
    translated_by_run: bool
    numbers: tuple[int, ...]
    tokens: tuple[tuple[int, int], ...]
    maps: dict[str, SentenceMap]
    gates: dict[str, GateOpenness]
    head_gates: dict[str, HeadGates]
    kinds: tuple[Averaged, ...]

    def as_dict(self) -> dict[str, Any]:
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
                mean.kind: {"attentions": list(mean.attentions), "heads": mean.heads, **_matrices(mean)}
                for mean in self.kinds
            },
            "attentions": {
                name: {
                    "kind": sentence_map.kind,
                    "heads": sentence_map.heads,
                    "entropy_nats": sentence_map.nats,
                    "normalised_entropy": sentence_map.normalised_entropy,
                    **_matrices(sentence_map),
                }
                for name, sentence_map in self.maps.items()
            },
            "gates": {name: gate.as_dict() for name, gate in (self.gates | self.head_gates).items()},
        }

    @property
    def pictures(self) -> tuple[str, ...]:
        return tuple(f"{mean.kind}.png" for mean in self.kinds)

    def render(self) -> str:
        """Format as text: a line for every attention, and one for every gate."""
        rows: list[tuple[str, ...]] = [("attention", "nats", "normalised_entropy", "own sentence", "outside")]
        for name, found in self.maps.items():
            means = float(found.share.diagonal().nanmean()), float(found.beside.nanmean())
            values = (found.nats, found.normalised_entropy, *means)
            rows.append((name, *(f"{value:.2f}" for value in values)))
        gates = [f"{name}: mean openness {gate.overall:.2f}" for name, gate in self.gates.items()]
        return "\n".join([render_rows(rows, left=1), *gates, *self._head_gates()])

    def _head_gates(self) -> Iterator[str]:
        """Yield a table of gated attention to near sentences, and its legend; the JSON has all distances."""
        if not self.head_gates:
            return
        passed = {name: gates.by_distance for name, gates in self.head_gates.items()}
        distances = {d for by_distance in passed.values() for d in by_distance if abs(d) <= NEAR}
        near = sorted(distances, key=lambda d: (d < 0, abs(d)))
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
        yield "back, ahead: attention weight × |gate| to a sentence at this distance, mean of heads"


def _matrices(sentence_map: SentenceMap | Averaged) -> dict[str, Any]:
    return {
        "mean_weight": _numbers(sentence_map.mean),
        "share": _numbers(sentence_map.share),
        "share_outside": _numbers(sentence_map.beside),
    }


def _numbers(values: Tensor) -> Any:
    """Return nested lists, with None for NaN."""
    if values.dim() > 1:
        return [_numbers(row) for row in values]
    return [None if v != v else float(f"{v:.{DIGITS}g}") for v in values.tolist()]


def document_attention(
    translator: DocumentTranslator, document: ParallelDocument, signature: str, own: bool
) -> DocumentAttention:
    """Compute attention maps and gates of a document; `own`: whether the run itself translated its target.

    Windows are packed unless they attend to each other. In non-autoregressive models, decoder positions
    depend on the source, not on the target. Raises CotextError for an engine; also the errors of
    `ObservedModel.read`.
    """
    plan = translator.plan
    if plan.language_model:
        raise CotextError("cotext attention shows a single model; remove decode.language_model")
    model = with_states(translator.model, "cotext attention")
    source = translator.tokenizer.encode_batch(document.source)
    target = translator.tokenizer.encode_batch(document.target, side="target")
    with_words, rows = document_rows(plan, source, target)
    groups: list[list[Instance]] = [[row.instance for row in group] for group in rows]
    if not plan.sees_other_rows:
        lengths = [[row.row_tokens(plan.symbols) for row in group] for group in groups]
        packed = pack(lengths, plan.decode.max_tokens)
        groups = [[row for g in batch for row in groups[g]] for batch in packed]
    batches = (make_batch(group, plan.symbols).to(translator.device) for group in groups)
    observed = sentence_maps(model, batches, len(with_words))
    return DocumentAttention(
        signature=signature,
        document=document,
        translated_by_run=own,
        numbers=tuple(j + 1 for j in with_words),
        tokens=tuple((len(source[j]), len(target[j])) for j in with_words),
        maps=observed.maps,
        gates=observed.gates,
        head_gates=observed.head_gates,
        kinds=tuple(average_by_kind(observed.maps)),
    )


def report_attention(request: DocumentRequest) -> DocumentAttention:
    """Analyse a run on one document; write attention.json and an image for each kind of attention into `out`.

    Raises CotextError if the run, device or document does not exist, or the run cannot read the document.
    """
    from cotext.evaluation.studies.plots import sentence_map

    run, document = open_document(request, translates=False)
    own, out = request.target is None, request.out
    with working_in(out):
        document = translated_by(run, document) if own else document
        report = document_attention(run.translator, document, run.signature, own)
        content = json.dumps(report.as_dict(), ensure_ascii=False, allow_nan=False)
        write_text(out / "attention.json", content)
        for mean in report.kinds:
            layers = f"{len(mean.attentions)} layers and " if len(mean.attentions) > 1 else ""
            title = f"Attention {mean.kind}, mean of {layers}{mean.heads} heads"
            figure = sentence_map(title, report.numbers, mean.mean.numpy(), mean.share.numpy())
            with replacing(out / f"{mean.kind}.png") as temporary:
                figure.savefig(temporary, format="png", dpi=160)
    return report
