"""Who looks at whom in one document: what `cotext attention` does.

The document stands beside its translation, the run's own or a given one, and is read in the windows and, by
systems whose rows see each other, in the groups of windows that the run translates it in.
"""

import json
from pathlib import Path
from typing import Any

from cotext.analysis.attention_of_document import AttentionReport, watch_document
from cotext.analysis.one_document import choose_document
from cotext.data.documents import Document, ParallelDocument
from cotext.decoding.open import open_run, open_scorer
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.locks import working_in

TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
    "batch": "Attention across the batch",
}


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
    opened = (open_run if own else open_scorer)(run, device, decode, update)
    translator, loaded = opened.translator, opened.loaded
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
        report = watch_document(translator, chosen, opened.signature, own)
        with replacing(out / "attention.json") as temporary:
            content = json.dumps(report.as_dict(), ensure_ascii=False, allow_nan=False)
            temporary.write_text(content, encoding="utf-8")
        _draw(report, out)
    return report


def _draw(report: AttentionReport, out: Path) -> None:
    from cotext.reports.plots import gate_openness, sentence_map

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
