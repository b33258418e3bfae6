"""Commands that evaluate translations, contrastive decisions and runs."""

from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.cli.options import Json, as_json, counted, output, printable, write_figures
from cotext.evaluation.requests import (
    ComparisonRequest,
    EvaluationRequest,
    LeaderboardRequest,
    MbrRequest,
    ProfileRequest,
)

if TYPE_CHECKING:
    from cotext.runtime.progress import Meter


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
    from cotext.files.table import require_page_name
    from cotext.runtime.files import write_text
    from cotext.runtime.progress import meter

    out = request.out
    require_page_name(out)
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
            name_systems(paths), [request.reference], None, request.format
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
    from cotext.data.formats import write_documents
    from cotext.data.formats.table import find_format
    from cotext.evaluation.studies.evaluate.mbr_files import choose_translations
    from cotext.runtime.files import require_absent
    from cotext.runtime.progress import meter
    from cotext.translation.corpus_files import lists_beside, remove_lists
    from cotext.translation.translate_file import check_output

    out = request.out
    require_absent(out, request.overwrite or out.is_dir())
    find_format(request.to)
    inputs = [*request.files, *filter(None, [request.source])]
    with output(out, inputs), meter("choosing", 0) as progress:
        # Old n-best lists beside the output are removed with it, unless they are inputs of this command.
        check_output(lists_beside(out), inputs)
        require_absent(lists_beside(out), request.overwrite)
        on_comet = partial(progress.next_task, "choosing")
        chosen, report = choose_translations(request, progress.restart, progress.advance, on_comet)
        write_documents(out, chosen, request.to)
        remove_lists(out)
    if json:
        typer.echo(as_json({**report.as_dict(), "out": str(out)}))
        return
    typer.echo(
        f"{printable(str(out))}: {counted(report.sentences, 'sentence')} in "
        f"{counted(report.documents, 'document')}, {report.translations:.2f} translations of each; "
        f"for {report.changed:,}, the choice is not the first\nexpected {request.utility} of the choices: "
        f"{report.utility:.2f}; of the first translations: {report.utility_of_first:.2f}\n{report.signature}"
    )
