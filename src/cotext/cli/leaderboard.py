"""The command `leaderboard`."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from cotext.cli.options import Format, Json, Protocols, as_json, output
from cotext.runtime.errors import CotextError


def leaderboard(
    systems: Annotated[
        list[Path],
        typer.Argument(
            help="Translations: one file per system, in any corpus format, or folders of such files."
        ),
    ],
    reference: Annotated[
        list[Path], typer.Option(help="Reference translations; repeat for several references.")
    ],
    out: Annotated[Path, typer.Option(help="HTML page to write.")],
    source: Annotated[
        Path | None,
        typer.Option(help="Source documents: a copy of them is ranked as a floor; also needed for COMET."),
    ] = None,
    protocol: Protocols = None,
    rank_by: Annotated[
        str | None,
        typer.Option(help="Metric to rank by, also comet or doc-comet. Default: the first --protocol."),
    ] = None,
    target_language: Annotated[
        str | None, typer.Option(help="Language code such as zh, for the metric's tokenizer.")
    ] = None,
    realign_all: Annotated[
        bool,
        typer.Option(
            "--realign-all",
            help="Realign all documents with the reference, not only those with another number of sentences.",
        ),
    ] = False,
    controls: Annotated[
        bool,
        typer.Option(
            help="Also score reference points: a copy of the source, references of other documents, shuffled"
            " references, and the reference itself."
        ),
    ] = True,
    comet: Annotated[
        str | None, typer.Option(help="COMET model, by path or name (docs/metrics.md); adds its score.")
    ] = None,
    comet_context: Annotated[
        int | None,
        typer.Option(help="Also compute document-level COMET with this many previous sentences as context."),
    ] = None,
    comet_python: Annotated[
        Path | None,
        typer.Option(
            help="Python interpreter or environment in which COMET is installed. Default: "
            "$COTEXT_COMET_PYTHON."
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Number of samples for paired tests. Default: 10000, or 40 per pair of systems if that is "
            "more."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the samples and of the shuffled references.")] = 12345,
    format: Format = None,
    json: Json = False,
) -> None:
    """Rank the translations of many systems on one page, with significance tests and reference points."""
    if comet is None and (comet_context is not None or comet_python is not None):
        option = "--comet-python" if comet_context is None else "--comet-context"
        raise CotextError(f"{option} needs --comet MODEL")
    from cotext.evaluation.metrics.comet import Comet, find_python
    from cotext.evaluation.metrics.interface import DEFAULT_PROTOCOLS
    from cotext.evaluation.studies.leaderboard.measure import (
        LeaderboardRequest,
        make_leaderboard,
        output_files,
    )
    from cotext.evaluation.studies.leaderboard.page import render_leaderboard
    from cotext.files.table import require_page_name
    from cotext.runtime.files import replacing
    from cotext.runtime.progress import meter

    request = LeaderboardRequest(
        systems=tuple(systems),
        page=out,
        references=tuple(reference),
        source=source,
        protocols=tuple(protocol or DEFAULT_PROTOCOLS),
        rank_by=rank_by,
        target_language=target_language,
        format=format,
        comet=None if comet is None else Comet(comet, find_python(comet_python), comet_context or 0),
        realign="all" if realign_all else "unequal",
        with_controls=controls,
        samples=samples,
        seed=seed,
    )
    require_page_name(out)
    with output(out, [*output_files(request), *reference, source]):
        with meter("COMET", 0) if comet is not None else nullcontext() as progress:

            def on_comet(done: int, total: int) -> None:
                if progress is not None:
                    progress.restart(total)
                    progress.advance_to(done)

            found = make_leaderboard(request, on_comet)
        with replacing(out) as temporary:
            # Names of files may hold what is no text.
            temporary.write_text(render_leaderboard(found), encoding="utf-8", errors="backslashreplace")
    typer.echo(as_json(found.as_dict()) if json else f"{found.render()}\n\n{out}")
