"""The command `align`: make a parallel corpus from documents of any format and their translations."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cotext.cli.options import Json, as_json, output
from cotext.data.requests import AlignmentRequest
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.data.alignment import Probabilities

IMPOSSIBLE = -1e4  # log-probability given to a sentence that is too long for the run


def align(request: AlignmentRequest, json: Json = False) -> None:
    """Align the sentences of documents and their translations; write a parallel corpus for `prepare`."""
    from cotext.data.formats import write_parallel
    from cotext.files.parallel import align_files

    with output(request.out, [*request.source, *request.target]):
        corpus, languages = align_files(
            request.source,
            request.target,
            request.languages,
            request.splitting(),
            _probabilities(request.run),
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


def _probabilities(run: Path | None) -> "Probabilities | None":
    """Return a function that computes log-probabilities of sentence pairs; None without a run."""
    if run is None:
        return None
    from cotext.data.documents import ParallelDocument
    from cotext.translation.open import open_scorer

    translator = open_scorer(run).translator

    def fits(pair: ParallelDocument) -> bool:
        try:
            translator.check_pairs([pair])
        except CotextError:
            return False
        return True

    def probabilities(texts: Sequence[tuple[str, str]]) -> list[float]:
        pairs = [ParallelDocument("", (source,), (target,)) for source, target in texts]
        fitting = [fits(pair) for pair in pairs]
        scores = iter(translator.score([pair for pair, fit in zip(pairs, fitting, strict=True) if fit]))
        return [next(scores)[0].log_probability if fit else IMPOSSIBLE for fit in fitting]

    return probabilities
