"""Commands that list, describe or convert: `systems`, `info`, `head` and `convert`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotext.cli.messages import printable
from cotext.cli.options import Format, Json, as_json, counted
from cotext.runtime.errors import CotextError

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


def info(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Run or engine folder, a folder made by `train --seeds`, `prepare` or `distill`, or a "
            "corpus file."
        ),
    ],
    json: Json = False,
) -> None:
    """Describe a run, runs of several seeds, an engine, prepared data or a corpus."""
    from cotext.evaluation.studies.info.corpus import corpus_info
    from cotext.evaluation.studies.info.folder import folder_info

    found = corpus_info(folder) if folder.is_file() else folder_info(folder)
    typer.echo(as_json(found.as_dict()) if json else printable(found.render()))


def head(
    corpus: Annotated[
        Path, typer.Argument(help="Corpus file, in any format, or a folder made by `prepare`.")
    ],
    target: Annotated[Path | None, typer.Argument(help="Target side, if it is a separate file.")] = None,
    documents: Annotated[int, typer.Option(min=1, help="Number of documents to show.")] = 3,
    sentences: Annotated[int, typer.Option(min=1, help="Sentences to show per document.")] = 10,
    characters: Annotated[int, typer.Option(min=1, help="Characters to show per sentence.")] = 200,
    split: Annotated[str, typer.Option(help="Split of a data folder: train, dev or test.")] = "train",
    format: Format = None,
    json: Json = False,
) -> None:
    """Print the first documents of a corpus or of prepared data."""
    from cotext.data.convert import beginning, render_beginning

    found = beginning(corpus, target, documents, split, format)
    if json:
        typer.echo(as_json({"format": "cotext-head", "version": 1, "documents": [asdict(d) for d in found]}))
    else:
        typer.echo(render_beginning(found, sentences, characters), nl=False)


def convert(
    source: Annotated[Path, typer.Argument(help="Corpus file, in any format; one side or both.")],
    target: Annotated[Path | None, typer.Argument(help="Target side, if it is a separate file.")] = None,
    *,
    to: Annotated[
        str,
        typer.Option(
            help="Format to write: one of those listed at --format, or contrastive, for a contrastive suite."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write; if there are two, the one for the source side.")],
    out_target: Annotated[
        Path | None, typer.Option(help="File for the target side, if the format holds one language only.")
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            help="With --to wmt: the task (JSON lines) that the submission answers, paragraph by paragraph."
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        typer.Option(help="With --detokenise: language of the source side, as in en. Default: see there."),
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option(
            help="With --like: target language or language pair of the lines to answer, as in cs-de_DE. With "
            "--detokenise: language of the target side."
        ),
    ] = None,
    documents: Annotated[
        Path | None,
        typer.Option(
            help="For ContraPro as published: folder of OpenSubtitles documents, from which the context is "
            "taken."
        ),
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=0, help="For ContraPro: number of context sentences. Default: 3.")
    ] = None,
    detokenise: Annotated[
        bool,
        typer.Option(
            "--detokenise",
            help="Join words and marks that Moses' tokenizer has split, by the rules of the languages that "
            "two file names end in, or of the suite (else, name them); a suite gets another name.",
        ),
    ] = False,
    format: Format = None,
) -> None:
    """Convert a corpus or a contrastive suite to another format, with the same documents and sentences."""
    named = (source_language, target_language) if detokenise else None
    if source_language is not None and not detokenise:
        raise CotextError("--source-language is for --detokenise; leave it out")
    if to == "contrastive":
        if target_language is not None and not detokenise:
            raise CotextError("--target-language is for --like and --detokenise; leave it out")
        if target is not None or out_target is not None or format is not None:
            raise CotextError(
                "a contrastive suite is one file: leave out --out-target, --format and a target"
            )
        _convert_suite(source, out, documents, context, named)
        return
    if documents is not None or context is not None:
        raise CotextError("--documents and --context are for --to contrastive")
    from cotext.data.convert import convert as convert_corpus
    from cotext.data.convert import convert_to_submission, holds_two_languages
    from cotext.data.languages import language_of_name

    if like is not None:
        if detokenise:
            raise CotextError("--detokenise is for corpora and contrastive suites; leave --like out")
        if to != "wmt" or target is not None or out_target is not None:
            raise CotextError("--like is for --to wmt, of one file of translations: leave out other files")
        found = convert_to_submission(source, out, like, format, target_language or "")
        typer.echo(
            f"{out}: {counted(found.sentences, 'paragraph')} in {counted(found.documents, 'document')}"
        )
        return
    if target_language is not None and not detokenise:
        raise CotextError("--target-language is for --like; name a language by --format wmt:de_DE")
    joined = None
    if named is not None:
        both = target is None and holds_two_languages(source, format)
        sides = ["" if both else language_of_name(source)]
        if both or target is not None:
            sides.append("" if target is None else language_of_name(target))
        joined = _detokenisers(source, named, sides)
    done = convert_corpus(source, target, out, out_target, to, format, joined)
    written = f"{out}" if out_target is None else f"{out}, {out_target}"
    typer.echo(f"{written}: {counted(done.sentences, 'sentence')} in {counted(done.documents, 'document')}")


def _detokenisers(file: Path, given: Sequence[str | None], found: Sequence[str]) -> "Detokenisers":
    """Those of the languages that are given by options, else of those found; there is one of each side."""
    from cotext.data.convert import Detokenisers
    from cotext.data.languages import CODES, Languages, language_code, primary_language

    options = ("--source-language", "--target-language")
    if len(found) == 1 and given[1] is not None:
        raise CotextError(f"{file}: holds one language; name it by --source-language alone")
    codes = ["", ""]
    for side, (option, wish, language) in enumerate(zip(options, given, found, strict=False)):
        codes[side] = primary_language(language) if wish is None else language_code(wish, option)
        if wish is None and codes[side] not in CODES:
            raise CotextError(
                f"{file}: nothing tells the language whose rules join its words; name it, as in {option} en"
            )
    return Detokenisers.of(Languages(*codes))


def _convert_suite(
    source: Path,
    out: Path,
    documents: Path | None,
    context: int | None,
    languages: Sequence[str | None] | None,
) -> None:
    """`languages`: None where words are not joined, else those that options give."""
    from cotext.data.contrastive_suites import write_suite
    from cotext.data.formats.streams import same_file
    from cotext.data.suite_files import SubtitleContext, read_suite

    if same_file(source, out):
        raise CotextError(f"{out}: would overwrite what is read from; give --out another name")
    given = documents is not None or context is not None
    suite = read_suite(
        source, SubtitleContext(documents, 3 if context is None else context) if given else None
    )
    if languages is not None:
        found = suite.languages
        suite = _detokenisers(source, languages, (found.source, found.target)).suite(suite)
    write_suite(out, suite)
    typer.echo(f"{out}: {suite.name}, {counted(len(suite.examples), 'example')}")
