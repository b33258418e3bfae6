"""The command `shortlist`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cotext.cli.options import Json, as_json
from cotext.runtime.errors import CotextError


def shortlist(
    run: Annotated[Path, typer.Argument(help="Run folder; the table is written into it.")],
    data: Annotated[
        Path, typer.Option(help="Prepared data with the run's tokenizer, such as the data it was trained on.")
    ],
    json: Json = False,
) -> None:
    """Make the shortlist table that `translate --set shortlist=N` uses to compute fewer target tokens.

    The table has the 100 most probable target tokens for each source token, and the 1,000 most frequent ones
    of the training corpus. The command reports how much of the development references it covers.
    """
    from cotext.data.prepared import TRAIN
    from cotext.data.shortlist import CANDIDATES, SHORTLIST, coverages, learned_shortlist
    from cotext.data.store import TokenStore
    from cotext.data.tokenizer import load_tokenizer
    from cotext.models.run_folder import is_engine, require_one_run

    require_one_run(run)
    if is_engine(run) or not (run / "config.yaml").is_file():
        raise CotextError(
            f"{run}: is no run folder; give one whose translation a shortlist is to make faster"
        )
    tokenizer = load_tokenizer(run / "tokenizer")
    made = learned_shortlist(TokenStore(data / TRAIN), tokenizer)
    found = coverages(made, TokenStore(data / "dev.arrow"), tokenizer)
    made.save(run / SHORTLIST)
    if json:
        typer.echo(as_json({"shortlist": {str(count): asdict(each) for count, each in found.items()}}))
        return
    for count, each in found.items():
        typer.echo(each.render(count))
    typer.echo(f"{run / SHORTLIST}: translate with it by --set shortlist={CANDIDATES}")
