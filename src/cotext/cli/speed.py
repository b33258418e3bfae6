"""The command `speed`."""

from pathlib import Path
from typing import Annotated

import typer

from cotext.cli.options import Decode, Device, Format, Json, as_json, decode_settings, output, write_figures
from cotext.runtime.errors import CotextError


def speed(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run or engine folders; the first is the one that others are compared with."),
    ],
    document: Annotated[Path, typer.Option(help="File with the documents to translate, in any format.")],
    documents: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of documents to take, from the beginning of the file. Default: all."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="one: a document at a time; many: all documents in shared batches of decode.max_tokens "
            "(--set max_tokens=...); may be repeated. Default: both."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each run is timed; the median counts.")] = 3,
    clock: Annotated[
        str | None,
        typer.Option(help="cpu: processor time; wall: elapsed time. Default: cpu, or wall on a GPU."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads to use.")] = 1,
    out: Annotated[Path | None, typer.Option(help="JSON file for all figures.")] = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    json: Json = False,
) -> None:
    """Time the decoding of runs on the same documents, greedily and with their own beams."""
    decode = decode_settings(set)
    from itertools import islice

    from cotext.data.formats import read_documents
    from cotext.evaluation.studies.speed import SETTINGS, measure_speed
    from cotext.runtime.progress import meter
    from cotext.runtime.timing import CLOCKS

    for option, given, known in (("--setting", setting or [], SETTINGS), ("--clock", [clock], CLOCKS)):
        for name in given:
            if name is not None and name not in known:
                raise CotextError(f"{option} {name}: choose {' or '.join(known)}")
    if "beam" in decode:
        raise CotextError("--set beam: every run is timed greedily and at the beam of its own configuration")
    with output(out, [document]), meter("timing", 0) as progress:
        found = measure_speed(
            runs,
            list(islice(read_documents(document, format), documents)),
            settings=[name for name in SETTINGS if name in (setting or SETTINGS)],
            rounds=rounds,
            clock=clock,
            threads=threads,
            device=device,
            decode=decode,
            on_start=progress.restart,
            on_way=progress.advance,
        )
        write_figures(out, found.as_dict())
    typer.echo(as_json(found.as_dict()) if json else found.render())
