"""Commands that make data: `align`, `prepare`, `prepare-controlled` and `distill`."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cotext.cli.options import Json, as_json, counted, do_shard, output
from cotext.data.requests import AlignmentRequest, ControlledRequest, PreparationRequest
from cotext.runtime import CotextError
from cotext.training.requests import DistillRequest

if TYPE_CHECKING:
    from cotext.data.alignment import Probabilities
    from cotext.data.prepared import Report
    from cotext.training.distillation import Noted, Outcome


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


def prepare(request: PreparationRequest, json: Json = False) -> None:
    """Tokenise a corpus into a data folder for `train`, and print its statistics."""
    from cotext.data.prepare import prepare as prepare_corpus
    from cotext.runtime.progress import stages

    request = _with_pairs(request)
    with stages() as progress:
        report = prepare_corpus(request, progress)
    tell_prepared(request.out, report, json)


def _with_pairs(request: PreparationRequest) -> PreparationRequest:
    """Return the request with the sentence pairs of files that are not a corpus; see `pair_files`."""
    from cotext.data.formats import is_corpus

    files = [path for path in (request.source, request.target) if path is not None]
    if request.format is not None or all(map(is_corpus, files)):
        return request
    # Imported only for files that are not a corpus, because this takes seconds.
    from cotext.files.parallel import PAIRS, pair_files
    from cotext.runtime.progress import say

    needed = sum(request.set_aside.values())
    out = request.out.with_name(f"{request.out.name}.{PAIRS}")
    paired = pair_files(request.source, request.target, out, request.languages, needed + 1 if needed else 0)
    if paired is None:
        return request
    for note in paired.notes:
        say(note)
    return replace(request, source=paired.path, target=None)


def prepare_controlled(request: ControlledRequest, json: Json = False) -> None:
    """Make the synthetic corpus of the demo, as a data folder for `train`."""
    from cotext.data.prepare import prepare_controlled as make_corpus
    from cotext.runtime.progress import stages

    with stages() as progress:
        report = make_corpus(request, progress)
    tell_prepared(request.out, report, json)


def tell_prepared(out: Path, report: "Report", json: bool) -> None:
    """Print the statistics of prepared data."""
    if json:
        typer.echo(as_json({"format": "cotext-prepare", "version": 1, "out": str(out), **asdict(report)}))
        return
    typer.echo(report.render())
    typer.echo(f"{out}: ready for `cotext train RECIPE --data {out} --out RUN`")


def distill(request: DistillRequest, json: Json = False) -> None:
    """Make training data with targets translated by a teacher model (knowledge distillation)."""
    from cotext.runtime.progress import meter
    from cotext.training.distillation import DistillationJob
    from cotext.translation.ray_cluster import placed

    part = request.part()
    job = DistillationJob(request, part, partial(placed, request=request, decode=dict(request.decode)))
    if part is not None:
        do_shard(job, json, "translating")
        return
    with meter("translating", sum(job.sizes)) as progress:
        job.on_stage = progress.next_task
        outcome = job.run(progress.advance)
    resumed = f" ({job.resumed:,} of them already done)" if job.resumed else ""
    tell_distilled(request.out, outcome, resumed, json)


def tell_distilled(out: Path, outcome: "Outcome", resumed: str, json: bool) -> None:
    """Print a summary of a distilled corpus."""
    if json:
        heading = {"format": "cotext-distill", "version": 1, "out": str(out)}
        typer.echo(as_json({**heading, **asdict(outcome)}))
        return
    sentences, documents = counted(outcome.sentences, "sentence"), counted(outcome.documents, "document")
    typer.echo(f"{out}: {sentences} in {documents}{resumed}")
    if outcome.kept.count:
        typer.echo(
            f"  {counted(outcome.kept.count, 'document')} with a sentence too long for the teacher "
            "(--set max_source_tokens=...) kept untranslated; "
            f"{_examples(outcome.kept)}"
        )
    for noted, what in (
        (outcome.missing, "missing"),
        (outcome.cut, "truncated at the length limit (--set max_ratio=... or max_extra=...)"),
        (outcome.long, "longer than the training data of the teacher"),
    ):
        if noted.count:
            typer.echo(f"  {counted(noted.count, 'sentence')} {what}; document:sentence {_examples(noted)}")
    typer.echo(outcome.signature)
    typer.echo(f"{out}: ready for `cotext train RECIPE --data {out} --out RUN`")


def _examples(noted: "Noted") -> str:
    return f"{', '.join(noted.examples)}{' ...' if noted.count > len(noted.examples) else ''}"
