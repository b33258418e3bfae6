"""The files of `cotext attention`: sentence-to-sentence attention maps, gates, and their figures as JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from cotext.evaluation.requests import DocumentRequest
from cotext.evaluation.studies.attention.attention_of_document import DocumentAttention, document_attention
from cotext.evaluation.studies.one_document import open_document
from cotext.runtime.files import replacing
from cotext.runtime.locks import working_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    from cotext.evaluation.studies.pictures import gate_openness, head_gates, sentence_map

    for each in report.kinds:
        layers = len(each.attentions)
        of = (
            f"mean of {layers} layers and {each.heads} heads" if layers > 1 else f"mean of {each.heads} heads"
        )
        title = f"{title_of(each.kind)}, {of}"
        figure = sentence_map(title, report.numbers, each.mean.numpy(), each.share.numpy())
        _save(figure, out / f"{each.kind}.png")
    if report.gates:
        gates = [(g.kind.removeprefix("batch-"), g, report.share_of(g.kind)) for g in report.gates.values()]
        _save(gate_openness(report.numbers, gates), out / "gate.png")
    if report.head_gates:
        _save(head_gates(report.head_gates), out / "head-gates.png")


def _save(figure: "Figure", path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=160)


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
