"""The command `export`."""

from pathlib import Path
from typing import Annotated

import typer

from cotext.cli.options import Checkpoint
from cotext.runtime.errors import CotextError
from cotext.runtime.integrity import is_occupied

TARGETS = ("ctranslate2", "huggingface", "hub", "int8")


def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    to: Annotated[str, typer.Option(help="ctranslate2, huggingface, hub or int8.")],
    out: Annotated[Path, typer.Option(help="Folder to make, or one with the same export, to compare.")],
    quantization: Annotated[
        str | None,
        typer.Option(help="For ctranslate2: float32 (default), int8, int8_float32, int8_float16 or float16."),
    ] = None,
    licence: Annotated[
        str | None, typer.Option(help="For hub: the licence of the model, as in apache-2.0.")
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            help="For hub: JSON written by `evaluate` or `contrastive`, added to the scores on the model "
            "card; may be repeated."
        ),
    ] = None,
    checkpoint: Checkpoint = None,
) -> None:
    """Export a run: for other programs, for publishing, or in int8.

    ctranslate2: an engine for CTranslate2. huggingface: a model for transformers. hub: a folder with a model
    card, to publish. int8: a run of about a fourth of the size, for translating and scoring only.
    """
    if to not in TARGETS:
        raise CotextError(f"--to {to}: choose one of {', '.join(TARGETS)}")
    if quantization is not None and to != "ctranslate2":
        raise CotextError("--quantization works with --to ctranslate2 only: leave it out, or add that")
    if (licence is not None or scores) and to != "hub":
        raise CotextError("--licence and --scores work with --to hub only: leave them out, or add that")
    there = is_occupied(out)
    _require_parent(out)
    if to == "ctranslate2":
        from cotext.interchange.ctranslate2 import export_engine

        export_engine(run, out, quantization or "float32", checkpoint)
        typer.echo(f"{out}: translate and score with it as with {run}")
    elif to == "huggingface":
        from cotext.interchange.huggingface import export_huggingface

        found = export_huggingface(run, out, checkpoint)
        typer.echo(
            f"{out}: the run itself, for Cotext alone: no class of Hugging Face expresses {', '.join(found)}"
            if found
            else f"{out}: load it with transformers"
        )
    elif to == "int8":
        from cotext.interchange.int8 import export_int8

        export_int8(run, out, checkpoint)
        typer.echo(f"{out}: translate and score with it as with {run}; it is not for training")
    else:
        from cotext.evaluation.studies.compare.recipe import recipe_of
        from cotext.interchange.hub import export_hub
        from cotext.models.run_folder import describe_file, model_file

        recipe = recipe_of(describe_file(model_file(run, checkpoint)).config).title
        export_hub(run, out, licence=licence or "", scores=scores or (), recipe=recipe, update=checkpoint)
        typer.echo(f"{out}: read README.md before it is published; what is missing there says so")
    if there:
        typer.echo(f"{out}: holds this export already, checksums equal; nothing left to do")


def _require_parent(out: Path) -> None:
    if not out.absolute().parent.is_dir():
        raise CotextError(f"{out}: {out.absolute().parent} does not exist; make it first")
