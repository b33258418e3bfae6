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
        typer.Argument(help="Folder of Hugging Face (MarianMT, M2M-100, NLLB, mBART-50), or Marian's .npz."),
    ],
    out: Annotated[Path, typer.Option(help="Run folder to make; it must not exist, or be empty.")],
    source_language: Annotated[
        str, typer.Option(help="Of models of many languages: that of the source, as in eng_Latn.")
    ] = "",
    target_language: Annotated[
        str, typer.Option(help="Of models of many languages: that of the target, as in deu.")
    ] = "",
    licence: Annotated[str, typer.Option(help="Licence of the model, to be kept with the run.")] = "",
    json: Json = False,
) -> None:
    """Make a run folder of a pretrained sentence model: OPUS-MT, M2M-100, NLLB-200 or mBART-50.

    Translate and score with it, or start document systems from it with `train --init`. Nothing is unpickled
    but tensors. Where `transformers` is installed, ids, logits and a greedy translation are compared with it.
    """
    from cotext.interchange.importing import import_model
    from cotext.interchange.language_pair import LanguagePair

    found = import_model(folder, out, LanguagePair(source_language, target_language), licence)
    if json:
        typer.echo(as_json({**asdict(found), "run": str(out), "version": __version__}))
        return
    typer.echo(printable(found.render()))
    typer.echo(f"written to {printable(str(out))}")
