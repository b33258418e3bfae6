"""Commands that list, describe or convert: `systems`, `schema`, `info`, `head`, `convert` and others."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cotext.cli.options import Json, as_json, counted, printable
from cotext.data.documents import CODES, Languages, language_code, language_of_name, primary_language
from cotext.data.requests import BeginningRequest, ConversionRequest, Detokenisation, SuiteConversionRequest
from cotext.runtime import CotextError, nearest_known

if TYPE_CHECKING:
    from cotext.data.convert import Detokenisers


def systems(json: Json = False) -> None:
    """List the shipped recipes by paper: context window, model, loss, decoding, parameters at base size."""
    from cotext.models.describe import entries, render

    if not json:
        typer.echo(render())
        return
    found = [{**asdict(each), "paper": each.title} for each in entries()]
    typer.echo(as_json({"format": "cotext-systems", "version": 1, "recipes": found}))


def schema(
    what: Annotated[Literal["recipe", "endpoint"], typer.Argument(help="recipe or endpoint.")],
) -> None:
    """Print a JSON Schema, with which editors complete and check recipes or endpoint files of LLMs."""
    from cotext.config.recipe import recipe_schema
    from cotext.language_models.config import Endpoint

    typer.echo(as_json(recipe_schema() if what == "recipe" else Endpoint.model_json_schema()))


def info(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Run or engine folder, name of a model, a folder made by `train --seeds`, `prepare` or "
            "`distill`, or a corpus file."
        ),
    ],
    json: Json = False,
) -> None:
    """Describe a run, runs of several seeds, an engine, prepared data or a corpus."""
    from cotext.evaluation.studies.info.folder import corpus_info, folder_info
    from cotext.interchange.model_names import resolve_run

    found = corpus_info(folder) if folder.is_file() else folder_info(resolve_run(folder))
    typer.echo(as_json(found.as_dict()) if json else printable(found.render()))


def head(request: BeginningRequest, json: Json = False) -> None:
    """Print the first documents of a corpus or of prepared data."""
    from cotext.data.convert import beginning, render_beginning

    found = beginning(request.corpus, request.target, request.documents, request.split, request.format)
    if json:
        typer.echo(as_json({"format": "cotext-head", "version": 1, "documents": [asdict(d) for d in found]}))
    else:
        typer.echo(render_beginning(found, request.sentences, request.characters), nl=False)


def convert(request: ConversionRequest) -> None:
    """Convert a corpus to another format; documents and sentences stay the same."""
    from cotext.data.convert import convert as convert_corpus
    from cotext.data.convert import holds_two_languages

    source, target, out, out_target = request.source, request.target, request.out, request.out_target
    joined = None
    if request.detokenise:
        both = target is None and holds_two_languages(source, request.format)
        sides = ["" if both else language_of_name(source)]
        if both or target is not None:
            sides.append("" if target is None else language_of_name(target))
        joined = _detokenisers(source, request, sides)
    documents, sentences = convert_corpus(source, target, out, out_target, request.to, request.format, joined)
    written = f"{out}" if out_target is None else f"{out}, {out_target}"
    typer.echo(f"{written}: {counted(sentences, 'sentence')} in {counted(documents, 'document')}")


def convert_suite(request: SuiteConversionRequest) -> None:
    """Convert a published contrastive suite to the format of Cotext."""
    from cotext.data.contrastive_suites import SubtitleContext, read_suite, write_suite
    from cotext.data.formats.streams import refuse_input

    source, out, context = request.source, request.out, request.context
    refuse_input(out, [source])
    given = request.documents is not None or context is not None
    found = SubtitleContext(request.documents, 3 if context is None else context) if given else None
    suite = read_suite(source, found)
    if request.detokenise:
        languages = (suite.languages.source, suite.languages.target)
        suite = _detokenisers(source, request, languages).suite(suite)
    write_suite(out, suite)
    typer.echo(f"{out}: {suite.name}, {counted(len(suite.examples), 'example')}")


def _detokenisers(file: Path, request: Detokenisation, recorded: Sequence[str]) -> "Detokenisers":
    """Return detokenisers for the languages given by options, or else for the `recorded` ones of the file."""
    from cotext.data.convert import Detokenisers

    given = {"--source-language": request.source_language, "--target-language": request.target_language}
    if len(recorded) == 1 and request.target_language is not None:
        raise CotextError(
            f"{file}: has one language; set it with --source-language, without --target-language"
        )
    codes = ["", ""]
    for side, ((option, wish), language) in enumerate(zip(given.items(), recorded, strict=False)):
        codes[side] = primary_language(language) if wish is None else language_code(wish, option)
        if wish is None and codes[side] not in CODES:
            raise CotextError(
                f"{file}: detokenisation needs the language, which is unknown; set it, as in {option} en"
            )
    return Detokenisers(Languages(*codes))


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
