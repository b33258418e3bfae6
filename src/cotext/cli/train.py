"""The commands `train` and `adapt`."""

from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cotext.cli.options import Json, as_json, counted, write_lines
from cotext.evaluation.requests import AdaptRequest
from cotext.runtime import CotextError
from cotext.runtime.files import is_first_process
from cotext.runtime.processes import INTERRUPTED
from cotext.training.requests import TrainRequest

if TYPE_CHECKING:
    from cotext.config.recipe import Config
    from cotext.training.resume import TrainingProgress
    from cotext.training.trainer import TrainingCallbacks


def train(request: TrainRequest, json: Json = False) -> None:
    """Train a system; to resume interrupted training, run the same command again."""
    from cotext.config.recipe import load_config

    if json and not request.dry_run:
        raise CotextError("--json needs --dry-run; training writes its figures to metrics.jsonl")
    recipe, size, init, settings = request.recipe, request.size, request.init, list(request.overrides)
    configs = {
        seed: load_config(recipe, size, [*settings, *_start(init, seed), f"train.seed={seed}"])
        for seed in request.parsed_seeds()
    }
    first = next(iter(configs.values()), None)
    config = first or load_config(recipe, size, [*settings, *_start(init, None)])
    from cotext.models.checks import refuse_unused

    refuse_unused(config, recipe, settings)
    quiet = not is_first_process()  # only one of several processes prints
    if request.dry_run:
        from cotext.training.run import dry_run as make_dry_run

        outcome = make_dry_run(config, request.data, request.out, recipe, request.device)
        if not quiet:
            typer.echo(as_json(outcome.as_dict()) if json else outcome.render())
            if configs and not json:
                typer.echo(f"the same again for each of {len(configs)} seeds")
        return
    name = recipe.rpartition("/")[2]
    if configs:
        _train_seeds(request, configs, name, quiet)
        return
    from cotext.training.run import train as train_run

    with shown_training(name, config.train.max_updates, quiet) as callbacks:
        done = train_run(config, request.data, request.out, callbacks, recipe, request.device)
    if not quiet:
        typer.echo(f"{request.out}: {state_of(done)}")
    if not done.finished:
        # In a script, commands that follow complete training must not run.
        raise typer.Exit(INTERRUPTED)


def _train_seeds(request: TrainRequest, configs: "dict[int, Config]", name: str, quiet: bool) -> None:
    from cotext.models.run_folder import seed_folder
    from cotext.runtime.progress import console
    from cotext.training.run import train_seeds

    order, out = list(configs), request.out

    @contextmanager
    def watched(seed: int) -> "Iterator[TrainingCallbacks]":
        if not quiet:
            number = order.index(seed) + 1
            console.print(f"seed {seed} ({number} of {len(order)}): {seed_folder(out, seed)}", soft_wrap=True)
        with shown_training(f"{name}, seed {seed}", configs[seed].train.max_updates, quiet) as callbacks:
            yield callbacks

    found = train_seeds(configs, request.data, out, watched, request.recipe, request.device)
    if not quiet:
        for seed, done in found.items():
            typer.echo(f"{seed_folder(out, seed)}: {state_of(done)}")
    if not all(done.finished for done in found.values()):
        if not quiet and (left := len(order) - len(found)):
            typer.echo(f"{out}: {left} of {len(order)} seeds not started")
        raise typer.Exit(INTERRUPTED)


def _start(init: Path | None, seed: int | None) -> list[str]:
    """Return the setting for `--init`; in a folder with several seeds, use the run of the same seed."""
    from cotext.models.run_folder import listed_seeds, seed_folder, seeds_in

    if init is None:
        return []
    if seed is not None and (there := seeds_in(init)):
        if seed not in there:
            raise CotextError(
                f"{init}: has no run of seed {seed} to start from, only of {listed_seeds(there)}"
            )
        init = seed_folder(init, seed)
    # Quoted, because YAML must read any path as a string.
    return [f"train.init={dumps(str(init))}"]


def state_of(done: "TrainingProgress") -> str:
    """Describe the state of training in words."""
    best = f"best at {done.best_update}" if done.validated else "not validated yet"
    return f"{'finished' if done.finished else 'stopped'} at update {done.update}, {best}"


@contextmanager
def shown_training(what: str, updates: int, quiet: bool) -> "Iterator[TrainingCallbacks]":
    """Yield callbacks that show the progress of training."""
    from cotext.runtime.progress import console, meter
    from cotext.training.trainer import TrainingCallbacks

    with meter(what, updates, shown=not quiet) as progress:

        def on_update(figures: dict[str, float]) -> None:
            note = f"loss {figures['loss']:.3f}" if "loss" in figures else "loss not finite"
            if "nll_current" in figures:
                note += f"  current {figures['nll_current']:.3f}"
            note += f"  rate {figures['learning_rate']:.2g}  {figures['tokens_per_second']:,.0f} tokens/s"
            if "code_perplexity" in figures:
                used = f"{figures['codes_used']:.0f} codes, perplexity {figures['code_perplexity']:.1f}"
                note = f"{note}  {used}"
            progress.advance_to(int(figures["update"]), note)

        def on_validation(figures: dict[str, float]) -> None:
            parts = [
                f"{name} {figures[name]:.3f}"
                for name in ("loss", "nll_current", "nll_context", "undiscounted", "without_path")
                if name in figures
            ]
            bleu = f"  BLEU {figures['bleu']:.2f}" if "bleu" in figures else ""
            if gates := [value for name, value in figures.items() if name.startswith("gates.")]:
                parts.append(f"gates open by {sum(gates) / len(gates):.3f}, at most {max(gates):.3f}")
            mark = "  final model" if "final" in figures else "  best so far" if figures["best"] else ""
            console.print(
                f"update {figures['update']:.0f}  dev {'  '.join(parts)}{bleu}{mark}", soft_wrap=True
            )

        def on_message(text: str) -> None:
            if not quiet:
                console.print(text, soft_wrap=True)

        yield TrainingCallbacks(on_update, on_validation, on_message, progress.start, progress.stage)


def adapt(request: AdaptRequest) -> None:
    """Adapt a model to a corpus: hold out a test set, prepare, train, and compare before and after."""
    from cotext.cli.adapt import Adaptation, answer, next_commands, render, summary
    from cotext.data.prepare import prepare
    from cotext.runtime.progress import meter, say, stages
    from cotext.training.run import train as train_run

    work = Adaptation(request)
    for note in work.notes:
        say(note)
    with stages() as progress:
        report = prepare(work.preparation(), progress)
    typer.echo(report.render())
    if not work.is_begun:
        estimate = work.estimate
        epochs = work.updates / estimate.updates_an_epoch
        say(
            f"training: about {counted(work.updates, 'update')} in {request.minutes:g} minutes "
            f"({estimate.seconds_an_update:.2f} s each), {epochs:.1f} times through the corpus"
        )
    with shown_training(request.out.name, work.config.train.max_updates, quiet=False) as callbacks:
        # The result is the model itself if nothing is better on the development documents.
        done = train_run(work.config, work.data, request.out, callbacks, work.recipe, request.device)
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
