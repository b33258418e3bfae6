"""Commands that list, describe or convert: `systems`, `info`, `head` and `convert`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cotext.cli.messages import printable
from cotext.cli.options import Format, Json, as_json, counted


def systems(json: Json = False) -> None:
    """List the shipped recipes by paper: context window, model, loss, decoding, parameters at base size."""
    from cotext.models.describe import PAPERS, entries, render

    if not json:
        typer.echo(render())
        return
    found = [{**asdict(each), "paper": PAPERS[each.paper]} for each in entries()]
    typer.echo(as_json({"format": "cotext-systems", "version": 1, "recipes": found}))


def info(
    folder: Annotated[Path, typer.Argument(help="Run folder, or a folder made by `prepare` or `distill`.")],
    json: Json = False,
) -> None:
    """Describe a run folder or prepared data: system, data, scores, sizes."""
    from cotext.reports.info.folder import folder_info

    found = folder_info(folder)
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
    to: Annotated[str, typer.Option(help="Format to write, one of those of --format.")],
    out: Annotated[Path, typer.Option(help="File to write; of two files, the source side.")],
    out_target: Annotated[
        Path | None, typer.Option(help="File for the target side, if the format holds one language.")
    ] = None,
    format: Format = None,
) -> None:
    """Convert a corpus to another format, with the same documents and sentences."""
    from cotext.data.convert import convert as convert_corpus

    done = convert_corpus(source, target, out, out_target, to, format)
    written = f"{out}" if out_target is None else f"{out}, {out_target}"
    typer.echo(f"{written}: {counted(done.sentences, 'sentence')} in {counted(done.documents, 'document')}")
