"""Commands that evaluate translations, contrastive decisions and runs, or examine how runs use context."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.cli.options import (
    Json,
    as_json,
    counted,
    do_shard,
    output,
    printable,
    require_for_endpoints,
    tell_slow_precision,
    write_figures,
)
from cotext.data.documents import Document, check_pair
from cotext.evaluation.requests import (
    ComparisonRequest,
    ContextRequest,
    ContrastiveRequest,
    CxmiRequest,
    DocumentRequest,
    EvaluationRequest,
    LeaderboardRequest,
    MbrRequest,
    ProfileRequest,
    SpeedRequest,
    SuiteRules,
)
from cotext.runtime.files import require_absent, write_text

if TYPE_CHECKING:
    from cotext.data.contrastive_suites import ContrastiveSuite
    from cotext.evaluation.metrics.contrastive import ContrastiveReport, GenerativeReport
    from cotext.evaluation.studies.contrastive.evidence import ContextWindow, Evidence
    from cotext.language_models.client import Client
    from cotext.runtime.progress import Meter
    from cotext.translation.open import OpenedRun

    Suites = Sequence[tuple[Path, ContrastiveSuite]]
    # Reports on the candidates of a suite and on the translations of its sources; at least one is given.
    Found = tuple[ContrastiveReport | None, GenerativeReport | None]


def evaluate(request: EvaluationRequest, json: Json = False) -> None:
    """Evaluate translations: BLEU, chrF, TER, COMET and more, with signatures and significance tests."""
    from cotext.evaluation.studies.evaluate.evaluate_files import evaluate_files
    from cotext.runtime.progress import meter

    with meter("COMET", 0, shown=request.comet is not None) as progress:
        found = evaluate_files(request, partial(progress.next_task, "COMET"))
    typer.echo(as_json(found.as_dict()) if json else found.render())


def compare_decisions(
    files: Annotated[list[Path], typer.Argument(help="Output files of `contrastive --out`, one per system.")],
    baseline: Annotated[
        str | None, typer.Option(help="File name of the baseline system. Default: compare all pairs.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare the decisions of systems on contrastive suites with McNemar's test."""
    from cotext.evaluation.metrics.aligned_files import name_systems
    from cotext.evaluation.studies.contrastive.decisions import compare_decisions as compare_systems
    from cotext.evaluation.studies.contrastive.decisions import read_decisions

    systems = {name: read_decisions(path) for name, path in name_systems(files).items()}
    found = compare_systems(systems, baseline)
    if json:
        typer.echo(as_json({comparison.suite: comparison.as_dict() for comparison in found}))
        return
    for comparison in found:
        typer.echo(comparison.render())
    left_out = sorted({suite for each in systems.values() for suite in each} - {c.suite for c in found})
    if left_out:
        typer.echo(f"not scored by all systems: {', '.join(left_out)}")


def compare(request: ComparisonRequest, json: Json = False) -> None:
    """Compare runs: quality, contrastive accuracy, context use, significance tests, published values."""
    from cotext.evaluation.studies.compare.job import compare_folders
    from cotext.evaluation.studies.compare.report import as_dict, as_text
    from cotext.runtime.progress import meter

    with ExitStack() as shown:

        def new_meter(what: str) -> "Meter":
            shown.close()
            return shown.enter_context(meter(what, 0))

        found = compare_folders(request, new_meter)
    written = ", ".join(map(str, request.outputs))
    typer.echo(as_json(as_dict(found)) if json else f"{as_text(found)}\n\n{written}")


def leaderboard(request: LeaderboardRequest, json: Json = False) -> None:
    """Rank the translations of many systems on one page, with significance tests."""
    from cotext.evaluation.studies.leaderboard.measure import (
        make_leaderboard,
        output_files,
        render_leaderboard,
    )
    from cotext.runtime.progress import meter

    out = request.out
    with output(out, [*output_files(request), *request.reference, request.source]):
        with meter("COMET", 0, shown=request.comet is not None) as progress:
            found = make_leaderboard(request, partial(progress.next_task, "COMET"))
        # File names may contain bytes that are not valid UTF-8.
        write_text(out, render_leaderboard(found), "backslashreplace")
    typer.echo(as_json(found.as_dict()) if json else f"{found.render()}\n\n{out}")


def profile(request: ProfileRequest, json: Json = False) -> None:
    """Measure translation quality by position in the document and by document length."""
    from cotext.evaluation.metrics.aligned_files import name_systems, read_aligned
    from cotext.evaluation.metrics.interface import TITLES, render_profile
    from cotext.evaluation.metrics.interface import profile as profile_by

    paths, language = request.hypothesis, request.target_language
    with output(request.out, [*paths, request.reference]):
        systems, [references], _ = read_aligned(
            name_systems(paths), [request.reference], None, request.format, language
        )
        names = list(systems)
        figures: dict[str, Any] = {"format": "cotext-profile", "version": 1, "systems": names}
        hypotheses = list(systems.values())
        for kind, title in TITLES.items():
            buckets = profile_by(kind, hypotheses, references, request.protocols, language)
            if not json:
                typer.echo(f"{render_profile(title, buckets, names)}\n")
            figures[f"by_{kind}"] = [asdict(bucket) for bucket in buckets]
        if json:
            typer.echo(as_json(figures))
        write_figures(request.out, figures)


def mbr(request: MbrRequest, json: Json = False) -> None:
    """Choose translations by minimum Bayes risk from n-best lists or the outputs of several systems."""
    from cotext.data.formats import check_output, find_format, write_documents
    from cotext.data.nbest_lists import lists_beside
    from cotext.evaluation.studies.evaluate.mbr_files import choose_translations
    from cotext.runtime.progress import meter

    out = request.out
    require_absent(out, request.overwrite or out.is_dir())
    find_format(request.to).require_written()
    inputs = [*request.files, *filter(None, [request.source])]
    with output(out, inputs), meter("choosing", 0) as progress:
        # Old n-best lists of the output are removed with it, so they must not be inputs of this command.
        check_output(lists_beside(out), inputs)
        require_absent(lists_beside(out), request.overwrite)
        chosen, report = choose_translations(request, progress)
        write_documents(out, chosen, request.to)
        lists_beside(out).unlink(missing_ok=True)
    if json:
        typer.echo(as_json({**report.as_dict(), "out": str(out)}))
        return
    typer.echo(
        f"{printable(str(out))}: {counted(report.sentences, 'sentence')} in "
        f"{counted(report.documents, 'document')}, {report.translations:.2f} translations of each; "
        f"for {report.changed:,}, the choice is not the first\nexpected {request.utility} of the choices: "
        f"{report.utility:.2f}; of the first translations: {report.utility_of_first:.2f}\n{report.signature}"
    )


# --- Commands that examine trained models.


def attention(request: DocumentRequest, json: Json = False) -> None:
    """Measure the attention between sentences of a document, and draw a map for each kind of attention."""
    from cotext.evaluation.studies.attention.report import report_attention

    report = report_attention(request)
    written = f"{request.out}: attention.json, {', '.join(report.pictures)}"
    typer.echo(as_json(report.as_dict()) if json else f"{report.signature}\n{report.render()}\n{written}")


def context(request: ContextRequest, json: Json = False) -> None:
    """Show which target words change in probability when each context sentence is removed in turn."""
    from cotext.evaluation.studies.context.page import report_context
    from cotext.runtime.progress import meter

    with meter("translating without context", 0) as progress:
        report = report_context(request, progress)
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
            found = measure_corpus(opened, request, progress)
        write_figures(out, found.as_dict())
    typer.echo(as_json(found.as_dict()) if json else found.render())


def speed(request: SpeedRequest, json: Json = False) -> None:
    """Time the decoding of runs on the same documents, greedily and with their own beams."""
    from cotext.evaluation.studies.speed import measure_speed
    from cotext.runtime.progress import meter

    with output(request.out, [request.document]), meter("timing", 0) as progress:
        found = measure_speed(request, progress)
        write_figures(request.out, found.as_dict())
    typer.echo(as_json(found.as_dict()) if json else found.render())


Tell = Callable[[str], None]  # prints text for people
# Options without effect on language models behind an API: only their translations are evaluated.
FOR_RUNS = ("device", "checkpoint", "shard", "tie", "score", "controls", "context")


def contrastive(request: ContrastiveRequest, json: Json = False) -> None:
    """Score contrastive suites: how often a system prefers the correct translation to wrong ones."""
    from cotext.data.contrastive_suites import read_suite
    from cotext.evaluation.metrics.aligned_files import require_different
    from cotext.evaluation.metrics.contrastive import require_forms
    from cotext.evaluation.studies.contrastive.contrastive import SuitesJob, context_window_of
    from cotext.language_models.config import is_endpoint
    from cotext.translation.open import open_run, open_scorer

    out, part = request.out, request.part()
    by_endpoint = is_endpoint(request.run)
    if not by_endpoint and not request.generate:
        request.require_scoring()
    require_different(request.suites)
    loaded = [(path, read_suite(path)) for path in request.suites]
    for _, suite in loaded if by_endpoint or request.generate else ():
        require_forms(suite)  # before any work
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
    judged: dict[str, tuple[ContrastiveSuite, ContrastiveReport]] = {}
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
        judged[key] = suite, report
        if report.readings is not None:
            groups = [group for group in groups_of(suite) if window.has_clue_of(group)]
            evidence[key] = [weigh(group, report.readings) for group in groups]
    if pooled := pool(judged):
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
    words; also the errors of `EndpointTranslator.translate`.
    """
    from cotext.evaluation.metrics.contrastive import generative_accuracy
    from cotext.language_models.translator import EndpointTranslator, translation_signature
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
