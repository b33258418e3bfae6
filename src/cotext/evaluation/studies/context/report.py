"""The files of `cotext context`: a page, and its figures as JSON.

`cotext.evaluation.studies.context.context_of_document` measures, `cotext.evaluation.studies.context.page`
draws.
"""

import json
from collections.abc import Callable

from cotext.data.languages import check_sides
from cotext.evaluation.requests import ContextRequest
from cotext.evaluation.studies.context.context_of_document import DocumentContextUse, document_context_use
from cotext.evaluation.studies.one_document import open_document
from cotext.files.table import require_page_name
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.locks import writing
from cotext.translation.translate_file import check_output


def report_context(
    request: ContextRequest,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> DocumentContextUse:
    """Measure the influence of each context sentence of a document; writes the page `out` and a .json file.

    `on_start` is called with the number of sentences that are translated anew, `on_sentences` with each few
    that are.

    Raises:
        CotextError: no such run, device or document, a translation that does not fit, files whose names are
            the languages of the run the wrong way round, no words at all, an output that cannot be written.
    """
    from cotext.evaluation.studies.context.page import render_page

    source, target, out = request.document, request.target, request.out
    if out.suffix == ".json":
        raise CotextError(
            f"{out}: the figures of the page are written to that name; give the page the suffix .html"
        )
    require_page_name(out)
    figures = out.with_suffix(".json")
    for path in (out, figures):
        check_output(path, [path for path in (source, target) if path is not None])
    with writing(out, figures):
        opened = open_document(request)
        check_sides(opened.run.loaded.languages, source, target, f"{request.run} translates")
        report = document_context_use(
            opened.run.translator,
            opened.with_translation(),
            opened.run.signature,
            opened.own,
            on_start,
            on_sentences,
        )
        page, content = render_page(report), json.dumps(report.as_dict(), indent=1, ensure_ascii=False)
        for path, text in ((figures, content), (out, page)):
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return report
