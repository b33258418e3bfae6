"""Commands for runs and models: `average`, `shortlist`, `import`, `export` and `models`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from cotext.cli.options import Json, as_json, counted, printable
from cotext.runtime import CotextError, __version__, nearest_known


def average(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path, typer.Option(help="Run folder to make for the averaged model.")],
    checkpoint: Annotated[
        list[int], typer.Option(help="Update at which a checkpoint was saved; repeat for each checkpoint.")
    ],
    json: Json = False,
) -> None:
    """Average checkpoints of a run into a new run folder."""
    from cotext.models.checkpoint import average_run

    average_run(run, out, checkpoint)
    if json:
        from cotext.evaluation.studies.info.folder import run_info

        typer.echo(as_json(run_info(out).as_dict()))
        return
    typer.echo(f"{out}: mean of the checkpoints {', '.join(map(str, checkpoint))}")


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
    from cotext.data.shortlist import CANDIDATES, SHORTLIST, coverage, learned_shortlist
    from cotext.data.store import TokenStore
    from cotext.data.tokenizer import load_tokenizer
    from cotext.models.run_folder import is_engine, require_one_run

    require_one_run(run)
    if is_engine(run) or not (run / "config.yaml").is_file():
        raise CotextError(f"{run}: not a run folder; a shortlist can be made only for a run folder")
    tokenizer = load_tokenizer(run / "tokenizer")
    made = learned_shortlist(TokenStore(data / TRAIN), tokenizer)
    dev = TokenStore(data / "dev.arrow")
    found = {count: coverage(made, dev, count, tokenizer) for count in (CANDIDATES // 4, CANDIDATES)}
    made.save(run / SHORTLIST)
    if json:
        figures = {str(count): asdict(each) for count, each in found.items()}
        typer.echo(as_json({"format": "cotext-shortlist", "version": 1, "shortlist": figures}))
        return
    for count, each in found.items():
        typer.echo(each.render(count))
    typer.echo(f"{run / SHORTLIST}: translate with it by --set shortlist={CANDIDATES}")


def import_pretrained(
    folder: Annotated[
        Path,
        typer.Argument(help="Hugging Face model folder (MarianMT, M2M-100, NLLB, mBART-50)."),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Run folder to create."),
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
    files is ever run. If `transformers` is installed, token ids and logits are compared
    with its results.
    """
    from cotext.data.tokenizer import LanguageChoice
    from cotext.interchange.importing import import_model

    found = import_model(folder, out, LanguageChoice(source_language, target_language), licence)
    if json:
        typer.echo(as_json({**asdict(found), "run": str(out), "version": __version__}))
        return
    typer.echo(f"{printable(found.render())}\nwritten to {printable(str(out))}")


def export(
    run: Annotated[Path, typer.Argument(help="Run folder, or name of a model.")],
    to: Annotated[Literal["ctranslate2", "hub", "int8"], typer.Option(help="ctranslate2, hub or int8.")],
    out: Annotated[Path, typer.Option(help="Folder to create.")],
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
    checkpoint: Annotated[
        int | None, typer.Option(help="Use the checkpoint saved at this update instead of the final model.")
    ] = None,
) -> None:
    """Export a run for CTranslate2, for the Hugging Face Hub, or in int8.

    ctranslate2: a model folder for CTranslate2. hub: a folder with a model card, to publish. int8: a run of
    about a fourth of the size, only for translation and scoring.
    """
    from cotext.interchange.model_names import resolve_run

    if quantization is not None and to != "ctranslate2":
        raise CotextError("--quantization requires --to ctranslate2: remove it, or change --to")
    if (licence is not None or scores) and to != "hub":
        raise CotextError("--licence and --scores require --to hub: remove them, or change --to")
    if not out.absolute().parent.is_dir():
        raise CotextError(f"{out}: {out.absolute().parent} does not exist; create it first")
    run = resolve_run(run)
    if to == "ctranslate2":
        from cotext.interchange.export import export_engine

        export_engine(run, out, quantization or "float32", checkpoint)
        typer.echo(f"{out}: usable for translation and scoring in place of {run}")
    elif to == "int8":
        from cotext.interchange.export import export_int8

        export_int8(run, out, checkpoint)
        typer.echo(f"{out}: usable for translation, scoring and `train --init` in place of {run}")
    else:
        from cotext.evaluation.studies.compare.recipe import recipe_of
        from cotext.interchange.export import export_hub
        from cotext.models.run_folder import describe_file, model_file

        recipe = recipe_of(describe_file(model_file(run, checkpoint)).config).title
        export_hub(run, out, licence=licence or "", scores=scores or (), recipe=recipe, update=checkpoint)
        typer.echo(
            f"{out}: before publishing, read README.md and fill in the missing parts, which are marked"
        )


def models(
    action: Annotated[Literal["list", "verify", "remove"], typer.Argument(help="What to do.")] = "list",
    name: Annotated[
        str | None, typer.Argument(help="Name of a model. Default for verify: all models.")
    ] = None,
) -> None:
    """List, verify or remove named models: installed packages and models downloaded from the hub.

    verify compares all files with their checksums. remove deletes a downloaded model. To remove a package,
    use pip.
    """
    from cotext.interchange.model_names import known_models
    from cotext.runtime.progress import say

    known = known_models()
    if action == "remove" and name is None:
        raise CotextError("models: write `remove NAME`")
    if name is not None and name not in known:
        near = nearest_known(name, known) or "; `cotext models` lists the installed models"
        raise CotextError(f"{name}: no installed model has this name{near}")
    if not known:
        say("no models are installed or downloaded; `cotext translate OWNER/NAME ...` downloads one")
    chosen = [*known.values()] if name is None else [known[name]]
    for model in chosen:
        if action == "verify":
            typer.echo(f"{model.name}: {counted(model.verify(), 'file')}, checksums equal")
        elif action == "remove":
            model.remove()
            typer.echo(f"{model.name}: removed from the cache")
        else:
            facts = (model.licence or "licence not recorded", f"{model.size / 1e6:,.1f} MB")
            typer.echo("\t".join((model.name, *facts, model.package or "cache", str(model.folder))))
