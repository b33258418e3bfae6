"""Commands that make data, runs and models: `prepare`, `train`, `adapt`, `import` and others."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from json import dumps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from cotext.cli.options import Json, as_json, counted, do_shard, output, printable, write_lines
from cotext.data.documents import ParallelDocument
from cotext.data.requests import AlignmentRequest, ControlledRequest, PreparationRequest
from cotext.evaluation.requests import AdaptRequest
from cotext.runtime import CotextError, __version__
from cotext.runtime.files import is_first_process, restoring
from cotext.runtime.signals import INTERRUPTED
from cotext.training.requests import DistillRequest, TrainRequest

if TYPE_CHECKING:
    from cotext.config.recipe import Config, TrainConfig
    from cotext.data.alignment import Probabilities
    from cotext.data.prepared import Report
    from cotext.training.distillation import Noted, Outcome
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

    if not (request.out / "config.yaml").is_file():  # the settings of a begun run were checked before
        refuse_unused(config, recipe, settings)
    quiet = not is_first_process()  # only one of several processes prints
    if request.dry_run:
        from cotext.training.run import dry_run as make_dry_run

        outcome = make_dry_run(config, request.data, request.out, recipe, request.device)
        if not quiet:
            typer.echo(as_json(outcome.as_dict()) if json else outcome.render())
            if configs and not json:
                typer.echo(f"these figures hold for each of {len(configs)} seeds")
        return
    name = recipe.rpartition("/")[2]
    if configs:
        _train_seeds(request, configs, name, quiet)
        return
    from cotext.training.run import train as train_run

    with shown_training(name, config.train, quiet) as callbacks:
        done = train_run(config, request.data, request.out, callbacks, recipe, request.device)
    if not quiet:
        typer.echo(f"{request.out}: {state_of(done)}")
    if not done.finished:
        # Exit with an error, so that a script does not go on with an incomplete model.
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
        with shown_training(f"{name}, seed {seed}", configs[seed].train, quiet) as callbacks:
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
                f"{init}: contains no run with seed {seed} to start from, only with {listed_seeds(there)}"
            )
        init = seed_folder(init, seed)
    # Quoted, because YAML must read any path as a string.
    return [f"train.init={dumps(str(init))}"]


def state_of(done: "TrainingProgress") -> str:
    """Describe the state of training in words."""
    best = f"best at {done.best_update}" if done.validated else "not validated yet"
    return f"{'finished' if done.finished else 'stopped'} at update {done.update}, {best}"


@contextmanager
def shown_training(what: str, config: "TrainConfig", quiet: bool) -> "Iterator[TrainingCallbacks]":
    """Yield callbacks that show the progress of training."""
    from cotext.runtime.progress import console, meter
    from cotext.training.trainer import TrainingCallbacks

    with meter(what, config.max_updates, shown=not quiet) as progress:

        def on_update(figures: dict[str, float]) -> None:
            note = f"loss {figures['loss']:.3f}" if "loss" in figures else "loss not finite"
            if "nll_current" in figures:
                note += f"  current {figures['nll_current']:.3f}"
            note += f"  rate {figures['learning_rate']:.2g}  {figures['tokens_per_second']:,.0f} tokens/s"
            if "code_perplexity" in figures:
                note += f"  {figures['codes_used']:.0f} codes, perplexity {figures['code_perplexity']:.1f}"
            if used := figures.get("cpu_minutes"):
                expected = round(figures["update"] * config.max_cpu_minutes / used)
                progress.restart(min(config.max_updates, expected))
            progress.advance_to(int(figures["update"]), note)

        def on_validation(figures: dict[str, float]) -> None:
            parts = [
                f"{name} {figures[name]:.3f}"
                for name in ("loss", "nll_current", "nll_context", "undiscounted", "without_path")
                if name in figures
            ]
            bleu = f"  BLEU {figures['bleu']:.2f}" if "bleu" in figures else ""
            if gates := [value for name, value in figures.items() if name.startswith("gates.")]:
                parts.append(f"gates: mean {sum(gates) / len(gates):.3f}, maximum {max(gates):.3f}")
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
    from cotext.cli.adapt import Adaptation, answer, next_commands, pairs_file, render, summary
    from cotext.data.prepare import prepare
    from cotext.runtime.progress import meter, say, stages
    from cotext.training.run import train as train_run

    with restoring(pairs_file(request.out)):
        work = Adaptation(request)
        for note in work.notes:
            say(note)
        with stages() as progress:
            report = prepare(work.preparation(), progress)
    typer.echo(report.render())
    if work.is_begun:
        say(f"{request.out}: continues an earlier training, so --minutes has no effect")
    else:
        estimate = work.estimate
        epochs = work.updates / estimate.updates_an_epoch
        say(
            f"training: about {counted(work.updates, 'update')} in "
            f"{work.updates * estimate.seconds_an_update / 60:.1f} minutes "
            f"({estimate.seconds_an_update:.2f} s each), {epochs:.1f} times through the corpus"
        )
    with shown_training(request.out.name, work.config.train, quiet=False) as callbacks:
        # If no checkpoint is better on the development documents, the result is the original model.
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


# --- Data.

IMPOSSIBLE = -1e4  # log-probability given to a sentence that is too long for the run


def align(request: AlignmentRequest, json: Json = False) -> None:
    """Align the sentences of documents and their translations; write a parallel corpus for `prepare`."""
    from cotext.data.formats import write_parallel
    from cotext.files.parallel import align_files, files_in

    with output(request.out, chain(*map(files_in, (*request.source, *request.target)))):
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
    typer.echo(f"{request.out}: ready for `cotext prepare --source {quote(str(request.out))} ...`")


def _probabilities(run: Path | None) -> "Probabilities | None":
    """Return a function that computes log-probabilities of sentence pairs; None without a run."""
    if run is None:
        return None
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
    from cotext.data.formats import is_corpus
    from cotext.data.prepare import prepare as prepare_corpus
    from cotext.runtime.progress import say, stages

    pairs, notes = Path(f"{request.out}.pairs.tmx"), None
    files = [path for path in (request.source, request.target) if path is not None]
    with restoring(pairs):
        if request.format is None and not all(map(is_corpus, files)):
            # Imported only for files that are not a corpus, because this takes seconds.
            from cotext.files.parallel import pair_files

            needed = sum(request.set_aside.values()) + bool(request.set_aside)
            notes = pair_files(request.source, request.target, pairs, request.languages, needed)
            request = replace(request, source=pairs, target=None) if notes else request
        for note in notes or ():
            say(note)
        with stages() as progress:
            report = prepare_corpus(request, progress)
    tell_prepared(request.out, report, json)


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
    typer.echo(f"{out}: ready for `cotext train RECIPE --data {quote(str(out))} --out RUN`")


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
            f"(--set max_source_tokens=...) kept untranslated; {_examples(outcome.kept)}"
        )
    for noted, what in (
        (outcome.missing, "missing in the translation, which keep their target"),
        (outcome.cut, "truncated at the length limit (--set max_ratio=... or max_extra=...)"),
        (outcome.long, "longer than any in the training data of the teacher"),
    ):
        if noted.count:
            typer.echo(f"  {counted(noted.count, 'sentence')} {what}; document:sentence {_examples(noted)}")
    typer.echo(outcome.signature)
    typer.echo(f"{out}: ready for `cotext train RECIPE --data {quote(str(out))} --out RUN`")


def _examples(noted: "Noted") -> str:
    return f"{', '.join(noted.examples)}{' ...' if noted.count > len(noted.examples) else ''}"


def average(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path, typer.Option(help="Run folder to make for the averaged model.")],
    checkpoint: Annotated[
        list[int], typer.Option(help="Update at which a checkpoint was saved; repeat for each checkpoint.")
    ],
    json: Json = False,
) -> None:
    """Average checkpoints of a run into a new run folder."""
    from cotext.models.checkpoint import average_run

    average_run(run, out, checkpoint)
    if json:
        from cotext.evaluation.studies.info.folder import run_info

        typer.echo(as_json(run_info(out).as_dict()))
        return
    typer.echo(f"{out}: mean of the checkpoints {', '.join(map(str, checkpoint))}")


def shortlist(
    run: Annotated[Path, typer.Argument(help="Run folder; the table is written into it.")],
    data: Annotated[
        Path, typer.Option(help="Prepared data with the run's tokenizer, such as the data it was trained on.")
    ],
    json: Json = False,
) -> None:
    """Make the shortlist table that `translate --set shortlist=N` uses to compute fewer target tokens.

    The table has the 100 most probable target tokens for each source token, and the 1,000 most frequent ones
    of the training corpus. The command reports how much of the development references it covers.
    """
    from cotext.data.prepared import TRAIN
    from cotext.data.shortlist import CANDIDATES, SHORTLIST, coverage, learned_shortlist
    from cotext.data.store import TokenStore
    from cotext.data.tokenizer import load_tokenizer
    from cotext.models.run_folder import is_engine, require_one_run

    require_one_run(run)
    if is_engine(run) or not (run / "config.yaml").is_file():
        raise CotextError(f"{run}: not a run folder; a shortlist can be made only for a run folder")
    tokenizer = load_tokenizer(run / "tokenizer")
    made = learned_shortlist(TokenStore(data / TRAIN), tokenizer)
    dev = TokenStore(data / "dev.arrow")
    found = {count: coverage(made, dev, count, tokenizer) for count in (CANDIDATES // 4, CANDIDATES)}
    made.save(run / SHORTLIST)
    if json:
        figures = {str(count): asdict(each) for count, each in found.items()}
        typer.echo(as_json({"format": "cotext-shortlist", "version": 1, "shortlist": figures}))
        return
    for count, each in found.items():
        typer.echo(each.render(count))
    typer.echo(f"{run / SHORTLIST}: translate with it by --set shortlist={CANDIDATES}")


def import_pretrained(
    folder: Annotated[
        Path, typer.Argument(help="Hugging Face model folder (MarianMT, M2M-100, NLLB, mBART-50).")
    ],
    out: Annotated[Path, typer.Option(help="Run folder to create.")],
    source_language: Annotated[
        str, typer.Option(help="For multilingual models: the source language, as in eng_Latn.")
    ] = "",
    target_language: Annotated[
        str, typer.Option(help="For multilingual models: the target language, as in deu.")
    ] = "",
    licence: Annotated[str, typer.Option(help="Licence of the model, which is recorded in the run.")] = "",
    json: Json = False,
) -> None:
    """Make a run folder from a pretrained sentence model: OPUS-MT, M2M-100, NLLB-200 or mBART-50.

    The run can translate and score, and `train --init` starts document systems from it. No code in the model
    files is ever run. If `transformers` is installed, token ids and logits are compared with its results.
    """
    from cotext.data.documents import Languages
    from cotext.interchange.importing import import_model

    found = import_model(folder, out, Languages(source_language, target_language), licence)
    if json:
        typer.echo(as_json({**asdict(found), "run": str(out), "version": __version__}))
        return
    typer.echo(f"{printable(found.render())}\nwritten to {printable(str(out))}")
