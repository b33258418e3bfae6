"""Commands `score` and `join`; `join` combines the results of shards into one output."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.cli.messages import tell_slow_precision
from cotext.cli.options import (
    Json,
    as_json,
    do_shard,
    output,
    write_figures,
    write_lines,
)
from cotext.runtime.errors import CotextError, shown
from cotext.translation.requests import ScoreRequest

if TYPE_CHECKING:
    from cotext.runtime.jobs.engine import Joined
    from cotext.translation.written_beside import ScoredDocument


def join(
    out: Annotated[Path, typer.Argument(help="The --out path of all parts.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file OUT if it exists.")
    ] = False,
    json: Json = False,
) -> None:
    """Join the parts of a job that ran with `--shard i/n` into the output of one process."""
    from cotext.runtime.jobs.engine import joining

    with joining(out, overwrite) as parts:
        _join(out, parts, overwrite, json)


def _join(out: Path, parts: "Joined", overwrite: bool, json: bool) -> None:
    command = parts.header.command
    if command == "score":
        from cotext.translation.score_file import joined_scores

        write_scores(out, *joined_scores(parts), json)
    elif command == "translate":
        from cotext.cli.translate import tell_files
        from cotext.translation.translate_file import join_translations

        tell_files([out], [join_translations(out, parts, overwrite)], json)
    elif command == "contrastive":
        from cotext.cli.contrastive import write_reports
        from cotext.evaluation.studies.contrastive.contrastive import JoinedSuites

        joined = JoinedSuites(parts)
        write_reports(out, joined.suites, joined.found(), joined.rules, joined.window, json)
    elif command == "cxmi":
        from cotext.evaluation.studies.context.context_corpus import joined_use

        use = joined_use(parts)
        write_figures(out, use.as_dict())
        typer.echo(as_json(use.as_dict()) if json else use.render())
    elif command == "distill":
        from cotext.cli.data import tell_distilled
        from cotext.runtime.progress import meter
        from cotext.training.distillation import join_distilled

        with meter("writing documents", 0) as progress:
            outcome = join_distilled(out, parts, progress.next_task)
        tell_distilled(out, outcome, "", json)
    else:
        raise CotextError(f"{out}: its shards were made by an unknown command, {shown(command)}")


def write_scores(out: Path | None, scored: "Iterable[ScoredDocument]", signature: str, json: bool) -> None:
    """Write the scores of documents as a table or as JSON, and print their signature."""
    from cotext.translation.written_beside import score_figures, score_lines

    lines = [as_json(score_figures(scored, signature))] if json else score_lines(scored)
    if out is None:
        for line in lines:
            typer.echo(line)
    else:
        write_lines(out, lines)
    typer.echo(signature, err=True)


def score(request: ScoreRequest, json: Json = False) -> None:
    """Compute the log-probability of every sentence of a given translation in its context (TSV)."""
    from cotext.translation.open import open_scorer
    from cotext.translation.score_file import ScoreJob, score_file

    source, target, out, part = request.source, request.target, request.out, request.part()
    with output(out, [source, target], part):
        opened = open_scorer(request.run, request.device, dict(request.decode), request.checkpoint)
        tell_slow_precision(opened)
        options: Any = {"format": request.format, "columns": not json}
        if part is not None and out is not None:
            do_shard(ScoreJob(opened, source, target, out, part, **options), json)
        else:
            write_scores(out, *score_file(opened, source, target, **options), json)
