"""The command `train`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotext.cli.options import Device, Json, as_json
from cotext.runtime.allocation import map_large_blocks
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.files import is_first_process
from cotext.runtime.signals import INTERRUPTED

if TYPE_CHECKING:
    from cotext.config.recipe import Config
    from cotext.training.callbacks import TrainingCallbacks
    from cotext.training.resume import TrainingProgress


def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe (`cotext systems`), or a YAML file.")],
    data: Annotated[Path, typer.Option(help="Folder made by `prepare`.")],
    out: Annotated[Path, typer.Option(help="Run folder to make; an interrupted run in it is resumed.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Settings to change, as in train.max_updates=1000 (all keys: docs/recipes.md)."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="Model size: tiny, small, ted or base. Default: that of the recipe (docs/recipes.md)."
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Train one run for each seed, as in 1,2,3, in the folders OUT/seed-1, OUT/seed-2 ..."
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            help="Run folder whose weights training starts from; with --seeds, also a folder with runs of "
            "the same seeds."
        ),
    ] = None,
    device: Device = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Write nothing: make three updates and print parameters, instances, memory, time and the "
            "first batch.",
        ),
    ] = False,
    spare_memory: Annotated[
        bool,
        typer.Option(
            "--spare-memory",
            help="On a CPU: use less memory (a fifth less at base size), for about a tenth more time "
            "(docs/speed.md).",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Train a system; the same command resumes an interrupted training."""
    if spare_memory and not map_large_blocks():  # before torch is imported
        raise CotextError(
            "--spare-memory needs Linux with glibc and huge pages (madvise or always in "
            "/sys/kernel/mm/transparent_hugepage/enabled), and no allocation chosen in the environment; "
            "leave it out"
        )
    from cotext.config.recipe import load_config
    from cotext.models.unused import refuse_unused

    if json and not dry_run:
        raise CotextError("--json needs --dry-run; training writes its figures to metrics.jsonl")
    settings = overrides or []
    chosen = [] if seeds is None else _parse_seeds(seeds, settings)
    configs = {
        seed: load_config(recipe, size, [*settings, *_start(init, seed), f"train.seed={seed}"])
        for seed in chosen
    }
    first = next(iter(configs.values()), None)
    config = first or load_config(recipe, size, [*settings, *_start(init, None)])
    refuse_unused(config, recipe, settings)
    quiet = not is_first_process()  # of several, one prints
    if dry_run:
        from cotext.training.dry_run import dry_run as make_dry_run

        outcome = make_dry_run(config, data, out, recipe, device)
        if not quiet:
            typer.echo(as_json(outcome.as_dict()) if json else outcome.render())
            if configs and not json:
                typer.echo(f"the same again for each of {len(configs)} seeds")
        return
    name = recipe.rpartition("/")[2]
    if configs:
        _train_seeds(configs, data, out, recipe, device, name, quiet)
        return
    from cotext.training.run import train as train_run

    with _shown(name, config.train.max_updates, quiet) as callbacks:
        done = train_run(config, data, out, callbacks, recipe, device)
    if not quiet:
        typer.echo(f"{out}: {_state(done)}")
    if not done.finished:
        # What was to come after a whole training should not come now.
        raise typer.Exit(INTERRUPTED)


def _train_seeds(
    configs: "dict[int, Config]",
    data: Path,
    out: Path,
    recipe: str,
    device: str | None,
    name: str,
    quiet: bool,
) -> None:
    from cotext.models.run_folder import seed_folder
    from cotext.runtime.progress import console
    from cotext.training.seeds import train_seeds

    order = list(configs)

    @contextmanager
    def watched(seed: int) -> "Iterator[TrainingCallbacks]":
        if not quiet:
            number = order.index(seed) + 1
            console.print(f"seed {seed} ({number} of {len(order)}): {seed_folder(out, seed)}", soft_wrap=True)
        with _shown(f"{name}, seed {seed}", configs[seed].train.max_updates, quiet) as callbacks:
            yield callbacks

    found = train_seeds(configs, data, out, watched, recipe, device)
    if not quiet:
        for seed, done in found.items():
            typer.echo(f"{seed_folder(out, seed)}: {_state(done)}")
    if not all(done.finished for done in found.values()):
        if not quiet and (left := len(order) - len(found)):
            typer.echo(f"{out}: {left} of {len(order)} seeds not begun")
        raise typer.Exit(INTERRUPTED)


def _start(init: Path | None, seed: int | None) -> list[str]:
    """The setting of `--init`; of a folder of several seeds, the run of the same seed."""
    from cotext.models.run_folder import listed_seeds, seed_folder, seeds_in

    if init is None:
        return []
    if seed is not None and (there := seeds_in(init)):
        if seed not in there:
            raise CotextError(
                f"{init}: has no run of seed {seed} to start from, but of {listed_seeds(there)}"
            )
        init = seed_folder(init, seed)
    # Quoted: a path is a text, whatever YAML might take it for.
    return [f"train.init={dumps(str(init))}"]


def _parse_seeds(text: str, settings: list[str]) -> list[int]:
    """The seeds of `--seeds`; raises CotextError where they are none, or given twice."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,19}", part) for part in parts):
        raise CotextError(f"--seeds {shown(text)}: write whole numbers with commas between them, as in 1,2,3")
    seeds = [int(part) for part in parts]
    if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
        raise CotextError(f"--seeds {shown(text)}: {twice[0]} is given twice; a seed makes one run")
    if any(setting.partition("=")[0].strip() == "train.seed" for setting in settings):
        raise CotextError("train.seed and --seeds both say which seed to take; leave one out")
    return seeds


def _state(done: "TrainingProgress") -> str:
    best = f"best at {done.best_update}" if done.validated else "not validated yet"
    return f"{'finished' if done.finished else 'stopped'} at update {done.update}, {best}"


@contextmanager
def _shown(what: str, updates: int, quiet: bool) -> "Iterator[TrainingCallbacks]":
    """Callbacks that show a training on the screen."""
    from cotext.runtime.progress import console, meter
    from cotext.training.callbacks import TrainingCallbacks

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
