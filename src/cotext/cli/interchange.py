"""The command `import`: pretrained models of other toolkits."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cotext.cli.messages import printable
from cotext.cli.options import Json, as_json
from cotext.runtime.version import __version__


def import_pretrained(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Hugging Face model folder (MarianMT, M2M-100, NLLB, mBART-50), or a Marian .npz file."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Run folder to make, or one with the same import, to compare."),
    ],
    source_language: Annotated[
        str, typer.Option(help="For multilingual models: the source language, as in eng_Latn.")
    ] = "",
    target_language: Annotated[
        str, typer.Option(help="For multilingual models: the target language, as in deu.")
    ] = "",
    licence: Annotated[str, typer.Option(help="Licence of the model, which is recorded in the run.")] = "",
    json: Json = False,
) -> None:
    """Make a run folder from a pretrained sentence model: OPUS-MT, M2M-100, NLLB-200 or mBART-50.

    The run can translate and score, and `train --init` starts document systems from it. No code in the model
    files is ever run. If `transformers` is installed, token ids, logits and a greedy translation are compared
    with its own.
    """
    from cotext.interchange.importing import import_model
    from cotext.interchange.language_pair import LanguagePair
    from cotext.runtime.integrity import is_occupied

    there = is_occupied(out)
    found = import_model(folder, out, LanguagePair(source_language, target_language), licence)
    if json:
        typer.echo(as_json({**asdict(found), "run": str(out), "version": __version__}))
        return
    typer.echo(printable(found.render()))
    shown = printable(str(out))
    done = f"{shown}: holds this import already, checksums equal; nothing left to do"
    typer.echo(done if there else f"written to {shown}")
