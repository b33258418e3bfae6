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
        typer.Argument(help="Outputs: a file for each system, in any corpus format, or folders of them."),
    ],
    reference: Annotated[
        list[Path], typer.Option(help="Reference translations; repeat for several references.")
    ],
    out: Annotated[Path, typer.Option(help="HTML page to write.")],
    source: Annotated[
        Path | None, typer.Option(help="Source documents: their copy is a floor; for COMET.")
    ] = None,
    protocol: Protocols = None,
    rank_by: Annotated[
        str | None,
        typer.Option(help="Protocol that ranks; comet and doc-comet too. Default: the first protocol."),
    ] = None,
    target_language: Annotated[
        str | None, typer.Option(help="Language code such as zh, for the metric's tokenizer.")
    ] = None,
    realign_all: Annotated[
        bool,
        typer.Option(
            "--realign-all",
            help="Cut all documents anew at the sentences of the reference, not only those of other numbers.",
        ),
    ] = False,
    controls: Annotated[
        bool, typer.Option(help="Score what no system wrote: source, other documents, order, reference.")
    ] = True,
    comet: Annotated[
        str | None, typer.Option(help="COMET model, a path or a name (docs/metrics.md); adds its score.")
    ] = None,
    comet_context: Annotated[
        int | None, typer.Option(help="Add document-level COMET with this many previous sentences.")
    ] = None,
    comet_python: Annotated[
        Path | None,
        typer.Option(help="Python interpreter or environment that has COMET; default: $COTEXT_COMET_PYTHON."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(help="Samples of paired tests; default: 10000, or 40 for each pair of systems."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of samples, and of the control that is shuffled.")] = 12345,
    format: Format = None,
    json: Json = False,
) -> None:
    """Rank outputs of systems on a page: clusters, intervals, lengths, omissions, controls."""
    if comet is None and (comet_context is not None or comet_python is not None):
        option = "--comet-python" if comet_context is None else "--comet-context"
        raise CotextError(f"{option} needs --comet MODEL")
    from cotext.metrics.bleu import DEFAULT_PROTOCOLS
    from cotext.metrics.comet import Comet, find_python
    from cotext.metrics.leaderboard import LeaderboardRequest, make_leaderboard, output_files
    from cotext.reports.leaderboard import render_leaderboard
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
