"""Which context sentence changes which word of one document: what `cotext context` does.

The document stands beside its translation, the run's own or a given one. Every context sentence of every
sentence is taken away in turn (see `cotext.analysis.context_use`); without the one that changes most, and
without any, the sentence is translated anew.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cotext.analysis.context_of_document import ContextReport, examine
from cotext.analysis.one_document import choose_document
from cotext.data.documents import Document, ParallelDocument
from cotext.data.languages import check_sides
from cotext.decoding.open import open_run
from cotext.decoding.translate_file import check_output
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.locks import writing


def report_context(
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
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> ContextReport:
    """Examine a run on one document; writes the page `out` and, beside it, the same name in .json.

    `target` may be the source file itself, where it holds both languages. Without `document`, the id of one,
    the first of the file is taken. `on_start` is told how many sentences are to be translated anew, and
    `on_sentences` of each few that are.

    Raises:
        CotextError: no such run, device or document, a translation that does not fit, files whose names are
            the languages of the run the wrong way round, no words at all, an output that cannot be written.
    """
    from cotext.reports.context_page import render_page

    if out.suffix == ".json":
        raise CotextError(f"{out}: a page is written there, and its figures beside it; call it .html")
    figures = out.with_suffix(".json")
    for path in (out, figures):
        check_output(path, [path for path in (source, target) if path is not None])
    with writing(out, figures):
        chosen = choose_document(source, target, document, format)
        opened = open_run(run, device, decode, update)
        translator, loaded = opened.translator, opened.loaded
        check_sides(loaded.languages, source, target, f"{run} translates")
        translator.check([Document(chosen.id, chosen.source)])
        if not any(translator.tokenizer.encode_batch(chosen.source)):
            raise CotextError(f"{source}: document {chosen.id} has no words; there is nothing to translate")
        own = target is None
        if own:
            [(_, found)] = translator.translate([Document(chosen.id, chosen.source)])
            chosen = ParallelDocument(chosen.id, chosen.source, found.document.sentences)
        report = examine(translator, chosen, opened.signature, own, on_start, on_sentences)
        page, content = render_page(report), json.dumps(report.as_dict(), indent=1, ensure_ascii=False)
        for path, text in ((figures, content), (out, page)):
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return report
