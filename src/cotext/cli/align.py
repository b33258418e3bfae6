"""The command `align`: make a parallel corpus from documents of any format and their translations."""

from dataclasses import asdict

import typer

from cotext.cli.options import Json, as_json, output
from cotext.data.requests import AlignmentRequest
from cotext.runtime.errors import CotextError


def align(request: AlignmentRequest, json: Json = False) -> None:
    """Align the sentences of documents and their translations; write a parallel corpus for `prepare`."""
    from cotext.data.formats import write_parallel
    from cotext.files.parallel import align_files

    with output(request.out, [*request.source, *request.target]):
        corpus, languages = align_files(
            request.source, request.target, request.languages, request.splitting()
        )
        if not corpus.documents:
            raise CotextError(f"nothing could be aligned\n{corpus.render()}")
        codes = (languages.source, languages.target) if str(languages) else None
        write_parallel(request.out, None, corpus.documents, request.format, codes)
    if json:
        figures = {name: value for name, value in asdict(corpus).items() if name != "documents"}
        typer.echo(as_json({"format": "cotext-align", "version": 1, "out": str(request.out), **figures}))
        return
    typer.echo(corpus.render())
    typer.echo(f"{request.out}: ready for `cotext prepare --source {request.out} ...`")
