"""Commands that examine trained models: `attention`, `context`, `contrastive`, `cxmi` and `speed`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cotext.cli.endpoints import require_for_endpoints
from cotext.cli.options import Json, as_json, do_shard, output, printable, tell_slow_precision, write_figures
from cotext.evaluation.requests import (
    ContextRequest,
    ContrastiveRequest,
    CxmiRequest,
    DocumentRequest,
    SpeedRequest,
    SuiteRules,
)

if TYPE_CHECKING:
    from cotext.data.contrastive_suites import ContrastiveSuite
    from cotext.evaluation.metrics.contrastive import ContrastiveReport, GenerativeReport
    from cotext.evaluation.studies.contrastive.evidence import ContextWindow, Evidence
    from cotext.language_models.client import Client
    from cotext.translation.open import OpenedRun

    Suites = Sequence[tuple[Path, ContrastiveSuite]]
    # Reports on the candidates of a suite and on the translations of its sources; at least one is given.
    Found = tuple[ContrastiveReport | None, GenerativeReport | None]


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
    from cotext.evaluation.studies.context.context_use import CorpusUseJob, measure_corpus
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


Tell = Callable[[str], None]  # prints text for people
# Options without effect on language models behind an API: only their translations are evaluated.
FOR_RUNS = ("device", "checkpoint", "shard", "tie", "score", "controls", "context")


def contrastive(request: ContrastiveRequest, json: Json = False) -> None:
    """Score contrastive suites: how often a system prefers the correct translation to wrong ones."""
    from cotext.data.documents import check_pair
    from cotext.data.suite_files import read_suite
    from cotext.evaluation.studies.contrastive.contrastive import SuitesJob, context_window_of
    from cotext.language_models.config import is_endpoint
    from cotext.translation.open import open_run, open_scorer

    out, part = request.out, request.part()
    by_endpoint = is_endpoint(request.run)
    if not by_endpoint and not request.generate:
        request.require_scoring()
    loaded = [(path, read_suite(path)) for path in request.suites]
    if by_endpoint:
        _by_endpoint(request, loaded, json)
        return
    with output(out, request.suites, part):
        open_one = open_run if request.generate else open_scorer
        opened = open_one(request.run, request.device, dict(request.decode), request.checkpoint)
        tell_slow_precision(opened)
        if request.generate:
            opened.translator.plan.check_passes()
        for path, suite in loaded:
            check_pair(opened.languages, suite.languages, f"{path}", f"{opened.folder} translates")
        window = context_window_of(opened.translator)
        if request.controls and not window.has_context:
            typer.echo(f"{request.run} translates without context: --controls has no effect\n", err=json)
            request = replace(request, controls=False)
        if part is not None:
            do_shard(SuitesJob(opened, loaded, request), json)
            return
        found = _scored(opened, loaded, request)
        write_reports(out, loaded, found, request, window, json)


def _scored(opened: "OpenedRun", suites: "Suites", request: ContrastiveRequest) -> "Iterator[Found]":
    """Yield the report on each suite and, with --generate, how often the correct form is in translations."""
    from cotext.evaluation.studies.contrastive.contrastive import run_suite, suite_recipe, write_suite_forms
    from cotext.runtime.progress import meter
    from cotext.translation.open import translation_entries

    for _, suite in suites:
        with meter(suite.name, sum(len(e.candidates) for e in suite.examples)) as progress:
            recipe = suite_recipe(opened)
            report = run_suite(opened.translator, suite, request, recipe, progress.advance)
        forms = None
        if request.generate:
            sources = dict.fromkeys(example.source for example in suite.examples)
            with meter(f"{suite.name}, translating", sum(map(len, sources))) as progress:
                recipe, advance = translation_entries(opened), progress.advance
                forms = write_suite_forms(opened.translator, suite, recipe=recipe, on_sentences=advance)
        yield report, forms


def write_reports(
    out: Path | None,
    suites: "Suites",
    found: "Iterable[Found]",
    rules: SuiteRules,
    window: "ContextWindow",
    json: bool,
) -> None:
    """Print the reports on each suite and on all suites together, and write them to `out`."""
    from cotext.evaluation.metrics.contrastive import render_forms, render_table
    from cotext.evaluation.studies.contrastive.decisions import ALL_SUITES, pool
    from cotext.evaluation.studies.contrastive.evidence import groups_of, weigh

    tell = _tell_unless(json)
    evidence: dict[str, list[Evidence]] = {}
    reports: dict[str, Any] = {}
    judged: dict[str, ContrastiveReport] = {}
    named: dict[str, ContrastiveSuite] = {}
    for (path, suite), (report, forms) in zip(suites, found, strict=True):
        figures = {} if report is None else report.as_dict()
        tell(suite.name if report is None else f"{suite.name}\n{render_table(report)}\n")
        if forms is not None:
            tell(f"{render_forms(forms)}\n")
            figures["generative"] = forms.as_dict()
        key = f"{suite.name} ({path})" if suite.name in reports else suite.name
        reports[key] = figures
        if report is None:
            continue
        judged[key], named[key] = report, suite
        if report.readings is not None:
            groups = [group for group in groups_of(suite) if window.has_clue_of(group)]
            evidence[key] = [weigh(group, report.readings) for group in groups]
    if pooled := pool(named, judged):
        tell(f"{ALL_SUITES}, clues in other sentences\n{render_table(pooled)}\n")
        reports[ALL_SUITES] = pooled.as_dict()
    if evidence:
        _conclude(evidence, reports, tell)
    elif judged and window.has_context and rules.context == "true":
        tell("Accuracy alone does not show that context is used: add --controls to test it.\n")
    if json:
        typer.echo(as_json(reports))
    write_figures(out, reports)


def _tell_unless(json: bool) -> Tell:
    """Return the function that prints text for people; it prints nothing if JSON is printed."""
    return (lambda text: None) if json else typer.echo


def _conclude(found: "dict[str, list[Evidence]]", reports: dict[str, Any], tell: Tell) -> None:
    """Print what the controls of all suites show together, and add it to the report of each suite."""
    from cotext.evaluation.studies.contrastive.evidence import conclusion, corrected, legend, render_evidence

    evidence = corrected([item for items in found.values() for item in items])
    if evidence:
        tell(f"{render_evidence(evidence)}\n{legend(evidence)}")
    tell(f"{conclusion(evidence)}\n")
    rest = iter(evidence)
    for key, of_suite in found.items():
        reports[key]["use_of_context"] = [next(rest).as_dict() for _ in of_suite]


def _by_endpoint(request: ContrastiveRequest, suites: "Suites", json: bool) -> None:
    """Evaluate the translations of suites by a language model behind an API."""
    from cotext.data.documents import check_pair
    from cotext.evaluation.studies.contrastive.evidence import ContextWindow
    from cotext.language_models.client import Client

    require_for_endpoints(request, request.run, FOR_RUNS)
    with output(request.out, request.suites), Client(request.run, dict(request.decode)) as client:
        for path, suite in suites:
            check_pair(client.endpoint.languages, suite.languages, f"{path}", f"{request.run} translates")
        tell = _tell_unless(json)
        tell("evaluated by the translations of the model, without scores of candidates\n")
        window = ContextWindow(0, 0, 0)
        write_reports(request.out, suites, _forms_of(client, suites), SuiteRules(), window, json)
        tell(printable(str(client.counts)))


def _forms_of(client: "Client", suites: "Suites") -> "Iterator[Found]":
    """Yield for each suite how often the correct form is in translations by a language model.

    The signature counts untranslated sentences. Raises CotextError for candidates that do not differ in
    words; also as `EndpointTranslator.translate`.
    """
    from cotext.data.documents import Document
    from cotext.evaluation.metrics.contrastive import generative_accuracy
    from cotext.language_models.translate_file import translation_signature
    from cotext.language_models.translator import EndpointTranslator
    from cotext.runtime.progress import meter
    from cotext.translation.open import signature_entries

    for _, suite in suites:
        sources = list(dict.fromkeys(example.source for example in suite.examples))
        translator = EndpointTranslator(client)
        documents = [Document(str(number), source) for number, source in enumerate(sources)]
        with meter(f"{suite.name}, translating", sum(map(len, sources))) as progress:
            found = dict(zip(sources, translator.translate(documents, progress.advance), strict=True))
        recipe = signature_entries(translation_signature(client, translator.prompt))
        del recipe["version"]
        recipe["untranslated"] = str(sum(len(translation.untranslated) for translation in found.values()))
        texts = [found[example.source].document for example in suite.examples]
        yield None, generative_accuracy(suite, texts, recipe)
