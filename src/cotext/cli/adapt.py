"""The command `adapt`."""

import typer

from cotext.cli.options import as_json, counted, write_lines
from cotext.cli.train import shown_training, state_of
from cotext.evaluation.requests import AdaptRequest
from cotext.runtime.signals import INTERRUPTED


def adapt(request: AdaptRequest) -> None:
    """Adapt a model to a corpus: hold out a test set, prepare, train, and compare before and after."""
    from cotext.evaluation.studies.adapt.adapt import Adaptation
    from cotext.evaluation.studies.adapt.page import answer, next_commands, render, summary
    from cotext.runtime.progress import meter, say, stages

    work = Adaptation(request)
    for note in work.notes:
        say(note)
    with stages() as progress:
        report = work.prepare(progress)
    typer.echo(report.render())
    if not work.is_begun:
        estimate = work.estimate
        epochs = work.updates / estimate.updates_an_epoch
        say(
            f"training: about {counted(work.updates, 'update')} in {request.minutes:g} minutes "
            f"({estimate.seconds_an_update:.2f} s each), {epochs:.1f} times through the corpus"
        )
    with shown_training(request.out.name, work.config.train.max_updates, quiet=False) as callbacks:
        done = work.train(callbacks)
    typer.echo(f"{request.out}: {state_of(done)}")
    if not done.finished:
        raise typer.Exit(INTERRUPTED)
    with meter("translating", 2 * sum(map(len, work.test))) as progress_of_test:
        found = work.measure(progress_of_test.advance)
    write_lines(work.folder / "report.json", [as_json(found.evaluation.as_dict())])
    write_lines(work.folder / "report.html", [render(found)])
    typer.echo("\n".join([answer(found), "", summary(found).text(), "", "next:"]))
    typer.echo("\n".join(f"  {line}" for line in next_commands(found)))
    typer.echo(f"{work.folder / 'report.html'}: report with the sentences that changed most")
