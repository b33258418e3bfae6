"""Commands that examine trained models: `attention`, `context`, `cxmi` and `speed`."""

import typer

from cotext.cli.options import Json, as_json, do_shard, output, write_figures
from cotext.evaluation.requests import ContextRequest, CxmiRequest, DocumentRequest, SpeedRequest


def attention(request: DocumentRequest, json: Json = False) -> None:
    """Draw sentence-to-sentence attention maps of a document, for every attention module."""
    from cotext.evaluation.studies.attention.report import report_attention

    report = report_attention(request)
    written = f"{request.out}: attention.json, {', '.join(report.pictures)}"
    typer.echo(as_json(report.as_dict()) if json else f"{report.signature}\n{report.render()}\n{written}")


def context(request: ContextRequest, json: Json = False) -> None:
    """Show which target words change in probability when each context sentence is removed in turn."""
    from cotext.evaluation.studies.context.page import report_context
    from cotext.runtime.progress import meter

    with meter("translating without context", 0) as progress:
        report = report_context(request, progress.restart, progress.advance)
    written = f"{request.out}, {request.out.with_suffix('.json').name}"
    typer.echo(as_json(report.as_dict()) if json else f"{report.signature}\n{report.render()}\n{written}")


def cxmi(request: CxmiRequest, json: Json = False) -> None:
    """Measure how much context adds to the log-probability of references (CXMI)."""
    from cotext.evaluation.studies.context.context_corpus import CorpusUseJob, measure_corpus
    from cotext.runtime.progress import meter
    from cotext.translation.open import open_scorer

    inputs, out = [request.source, request.target], request.out
    with output(out, inputs, request.part()):
        opened = open_scorer(request.run, request.device, dict(request.decode), request.checkpoint)
        if request.shard is not None:
            do_shard(CorpusUseJob(opened, request), json)
            return
        with meter("scoring", 0) as progress:
            found = measure_corpus(opened, request, progress.restart, progress.advance)
        write_figures(out, found.as_dict())
    typer.echo(as_json(found.as_dict()) if json else found.render())


def speed(request: SpeedRequest, json: Json = False) -> None:
    """Time the decoding of runs on the same documents, greedily and with their own beams."""
    from cotext.evaluation.studies.speed import measure_speed
    from cotext.runtime.progress import meter

    with output(request.out, [request.document]), meter("timing", 0) as progress:
        found = measure_speed(request, progress.restart, progress.advance)
        write_figures(request.out, found.as_dict())
    typer.echo(as_json(found.as_dict()) if json else found.render())
