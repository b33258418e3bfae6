"""Who looks at whom in one document: what `cotext attention` does.

The document stands beside its translation, the run's own or a given one, and is read in the windows and, by
systems whose rows see each other, in the groups of windows that the run translates it in.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from cotext.analysis.gates import GateOpenness
from cotext.analysis.sentence_maps import Averaged, SentenceMap, average_by_kind, sentence_maps
from cotext.data.batch import Batch, Instance, make_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.formats import read_documents, read_parallel, second_file
from cotext.data.sampling import pack
from cotext.errors import CotextError, nearest
from cotext.files import replacing
from cotext.jobs import open_scorer, open_translator
from cotext.locks import working_in
from cotext.metrics.text import render_rows
from cotext.models.base import ParallelModel
from cotext.translate import DocumentTranslator

DIGITS = 6  # that are worth keeping of a weight
TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
    "batch": "Attention across the batch",
}


@dataclass(frozen=True, slots=True)
class AttentionReport:
    """What was found of a document; `numbers` are the places, from 1, of the sentences that have words."""

    signature: str
    document: ParallelDocument
    translated_by_run: bool
    numbers: tuple[int, ...]
    tokens: tuple[tuple[int, int], ...]  # of these sentences, source and target
    maps: dict[str, SentenceMap]
    gates: dict[str, GateOpenness]
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
                    "evenness": each.spread.evenness,
                    **_matrices(each),
                }
                for name, each in self.maps.items()
            },
            "gates": {name: gate.as_dict(self.share_of(gate.kind)) for name, gate in self.gates.items()},
        }

    @property
    def pictures(self) -> tuple[str, ...]:
        """Names of the files."""
        return (*(f"{each.kind}.png" for each in self.kinds), *(["gate.png"] if self.gates else []))

    def share_of(self, kind: str) -> Tensor:
        """The shares of a kind of attention, averaged: [N, N]."""
        return next(each.share for each in self.kinds if each.kind == kind)

    def render(self) -> str:
        """A line for every attention, and one for every gate."""
        rows = [("attention", "nats", "evenness", "own sentence", "share beside"), *map(self._row, self.maps)]
        gates = [f"{name}: open by {gate.overall:.2f}" for name, gate in self.gates.items()]
        return "\n".join([render_rows(rows, left=1), *gates])

    def _row(self, name: str) -> tuple[str, ...]:
        each = self.maps[name]
        figures = each.share.diagonal().nanmean(), each.beside.nanmean()
        own, beside = (f"{float(share):.2f}" for share in figures)
        return name, f"{each.spread.nats:.2f}", f"{each.spread.evenness:.2f}", own, beside


def _matrices(found: SentenceMap | Averaged) -> dict[str, Any]:
    return {
        "mean_weight": _numbers(found.mean),
        "share": _numbers(found.share),
        "share_beside": _numbers(found.beside),
    }


def _numbers(values: Tensor) -> Any:
    """Nested lists, None where there is no number."""
    if values.dim() > 1:
        return [_numbers(row) for row in values]
    return [None if v != v else float(f"{v:.{DIGITS}g}") for v in values.tolist()]


def report_attention(
    run: Path,
    source: Path,
    out: Path,
    *,
    target: Path | None = None,
    document: str | None = None,
    format: str | None = None,
    device: str | None = None,
    decode: dict[str, Any] | None = None,
    update: int | None = None,
) -> AttentionReport:
    """Watch a run read one document; writes attention.json and a picture per kind into the folder `out`.

    `target` may be the source file itself, where it holds both languages. Without `document`, the id of one,
    the first of the file is taken.

    Raises:
        CotextError: no such run, device or document, a translation that does not fit, no words at all.
    """
    chosen = choose_document(source, target, document, format)
    own = target is None
    opened = open_translator if own else open_scorer
    translator, loaded = opened(run, device, decode, update)
    loaded.left_to_right("cotext attention")
    if own:
        translator.check([Document(chosen.id, chosen.source)])
    else:
        translator.check_pairs([chosen])
    if not any(translator.tokenizer.encode_batch(chosen.source)):
        raise CotextError(f"{source}: document {chosen.id} has no words; there is nothing to attend to")
    with working_in(out):
        if own:
            [(_, found)] = translator.translate([Document(chosen.id, chosen.source)])
            chosen = ParallelDocument(chosen.id, chosen.source, found.document.sentences)
        report = watch_document(translator, chosen, f"{loaded.signature}|{translator.signature}", own)
        with replacing(out / "attention.json") as temporary:
            content = json.dumps(report.as_dict(), ensure_ascii=False, allow_nan=False)
            temporary.write_text(content, encoding="utf-8")
        _draw(report, out)
    return report


def choose_document(
    source: Path, target: Path | None, wanted: str | None, format: str | None
) -> ParallelDocument:
    """The document that is asked for; without a translation, its target is empty."""
    ids = []
    for found in _documents(source, target, format):
        if wanted is None or found.id == wanted:
            return found
        ids.append(found.id)
    near = nearest(str(wanted), ids, 3, cutoff=0.4) or ids[:3]
    raise CotextError(
        f"{source}: no document '{wanted}' among its {len(ids):,}; there are {', '.join(near)}"
        f"{' ...' if len(ids) > len(near) else ''}"
    )


def _documents(source: Path, target: Path | None, format: str | None) -> chain[ParallelDocument]:
    if target is not None:
        return chain(read_parallel(source, second_file(source, target), format))
    alone = read_documents(source, format)
    return chain(ParallelDocument(d.id, d.sentences, ("",) * len(d)) for d in alone)


def watch_document(
    translator: DocumentTranslator, document: ParallelDocument, signature: str, own: bool
) -> AttentionReport:
    """The maps and gates of a document and its translation; `own`: by this very run."""
    source = translator.tokenizer.encode_batch(document.source)
    target = translator.tokenizer.encode_batch(document.target)
    # A sentence that is empty on both sides is no part of its document, as in translation and scoring.
    kept = [j for j in range(len(source)) if source[j] or target[j]]
    source, target = [source[j] for j in kept], [target[j] for j in kept]
    instances = [
        Instance(0, w, [source[j] for j in w.source], [target[j] for j in w.target])
        for w in translator.view.split([len(s) for s in source], [])
    ]
    batches = [batch.to(translator.device) for batch in _batches(translator, instances)]
    assert not isinstance(translator.model, ParallelModel)
    maps, gates = sentence_maps(translator.model, batches, len(kept))
    return AttentionReport(
        signature=signature,
        document=document,
        translated_by_run=own,
        numbers=tuple(j + 1 for j in kept),
        tokens=tuple((len(s), len(t)) for s, t in zip(source, target, strict=True)),
        maps=maps,
        gates=gates,
        kinds=tuple(average_by_kind(maps)),
    )


def _batches(translator: DocumentTranslator, instances: Sequence[Instance]) -> list[Batch]:
    """Windows that see each other together, others as they fit."""
    decode = translator.config.decode
    if translator.model.sees_other_rows:
        starts = range(0, len(instances), decode.neighbours)
        groups = [list(range(first, min(first + decode.neighbours, len(instances)))) for first in starts]
    else:
        lengths = [instance.row_tokens(translator.symbols) for instance in instances]
        groups = pack(lengths, decode.max_tokens)
    return [make_batch([instances[i] for i in group], translator.symbols) for group in groups]


def _draw(report: AttentionReport, out: Path) -> None:
    from cotext.plots import gate_openness, sentence_map

    for each in report.kinds:
        layers = len(each.attentions)
        of = (
            f"mean of {layers} layers and {each.heads} heads" if layers > 1 else f"mean of {each.heads} heads"
        )
        title = f"{title_of(each.kind)}, {of}"
        figure = sentence_map(title, report.numbers, each.mean.numpy(), each.share.numpy())
        with replacing(out / f"{each.kind}.png") as temporary:
            figure.savefig(temporary, format="png", dpi=160)
    if report.gates:
        gates = [(g.kind.removeprefix("batch-"), g, report.share_of(g.kind)) for g in report.gates.values()]
        figure = gate_openness(report.numbers, gates)
        with replacing(out / "gate.png") as temporary:
            figure.savefig(temporary, format="png", dpi=160)


def title_of(kind: str) -> str:
    """The words for a kind of attention."""
    what, _, where = kind.partition("-")
    within = {"": "", "local": " inside sentences", "source": ", source", "target": ", target"}[where]
    return TITLES[what] + within
