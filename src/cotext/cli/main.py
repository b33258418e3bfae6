"""The command line: one thin function per command.

Modules that take long to import are imported inside the commands, so that `cotext --help` is fast.
"""

import signal
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from cotext.cli import evaluate, look, train, translate
from cotext.cli.options import command, on_a_screen, require_text, short_usage_errors
from cotext.config.parts import trusting
from cotext.runtime import CotextError, __version__, is_out_of_memory
from cotext.runtime.signals import INTERRUPTED, termination_interrupts

TRUST_CODE: Final = "--trust-code"
# Options of all commands, allowed before or after the command.
ANYWHERE: Final = (TRUST_CODE, "--quiet", "--verbose")
# Optional packages, and the extras of pyproject.toml that install them.
EXTRAS: Final = {"pyarrow": "data", "accelerate": "train", "tensorboard": "train", "matplotlib": "plots"}


class InterruptionError(Exception):
    """A command was interrupted by Ctrl-C."""


class Commands(TyperGroup):
    """The commands. Ctrl-C raises `InterruptionError`, for which typer prints no message."""

    def make_context(self, info_name: str | None, args: list[str], *further: Any, **extra: Any) -> Any:
        """Read the arguments; options of `ANYWHERE` are moved before the command."""
        args = sorted(args, key=lambda argument: argument not in ANYWHERE)
        with short_usage_errors():
            return super().make_context(info_name, args, *further, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; raise InterruptionError if it is interrupted."""
        try:
            with short_usage_errors():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptionError from None


app = typer.Typer(
    cls=Commands,
    help="Train, run, score and explain document-level neural machine translation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


OUT_OF_MEMORY = (
    "not enough memory for a batch or the model; lower train.max_tokens or decode.max_tokens (--set "
    "max_tokens=...), or use a smaller model"
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for data, runs and the report.")] = Path("demo"),
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="Train the tiny systems after the sample page.")
    ] = True,
) -> None:
    """Translate a sample page, then train three tiny systems and compare their use of context (5 minutes)."""
    from cotext.cli.demo import run_demo

    run_demo(out, train=train)


# Commands in the order of `cotext --help`, by purpose.
COMMANDS: Final[Mapping[str, Mapping[str, Callable[..., None]]]] = {
    "Train": {
        "demo": demo,
        "adapt": train.adapt,
        "align": train.align,
        "prepare": train.prepare,
        "prepare-controlled": train.prepare_controlled,
        "train": train.train,
        "average": train.average,
        "distill": train.distill,
        "shortlist": train.shortlist,
        "import": train.import_pretrained,
    },
    "Translate": {
        "translate": translate.translate,
        "serve": translate.serve,
        "serve-key": translate.serve_key,
        "mbr": evaluate.mbr,
        "rerank": translate.rerank,
        "repair": translate.repair,
        "export": translate.export,
        "join": translate.join,
    },
    "Score translations": {
        "evaluate": evaluate.evaluate,
        "compare-decisions": evaluate.compare_decisions,
        "compare": evaluate.compare,
        "leaderboard": evaluate.leaderboard,
        "profile": evaluate.profile,
        "score": translate.score,
    },
    "Examine systems": {
        "contrastive": evaluate.contrastive,
        "cxmi": evaluate.cxmi,
        "context": evaluate.context,
        "attention": evaluate.attention,
        "speed": evaluate.speed,
    },
    "Look at recipes, runs and data": {
        "systems": look.systems,
        "schema": look.schema,
        "models": look.models,
        "info": look.info,
        "head": look.head,
        "convert": look.convert,
        "convert-suite": look.convert_suite,
    },
}
for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(command(_command))
# Commands of single analyses are in the file `command.py` of their folders.
for _path in sorted((Path(__file__).parents[1] / "evaluation" / "studies").glob("*/command.py")):
    _module = import_module(f"cotext.evaluation.studies.{_path.parent.name}.command")
    for _name, _command in _module.COMMANDS.items():
        app.command(_name, rich_help_panel="Examine systems")(command(_command))


def _version(value: bool) -> None:
    if value:
        typer.echo(f"cotext {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    trust_code: Annotated[
        bool,
        typer.Option(
            TRUST_CODE,
            help="Run the Python code in a recipe or run, now and in later commands (docs/slots.md).",
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print only results and errors, without progress and notes.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print the time before each note, and the duration at the end.")
    ] = False,
) -> None:
    if quiet and verbose:
        raise CotextError("--quiet and --verbose exclude each other; remove one of them")
    context.with_resource(trusting(trust_code))
    if quiet or verbose:
        from cotext.runtime.progress import reporting

        context.with_resource(reporting(quiet, verbose))


def main() -> None:
    """Run the command line; for errors that users can correct, print a message and exit with code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # not None, and not replaced by a calling program
            # Characters that a terminal cannot show are printed as escapes; pipes get UTF-8, like files.
            stream.reconfigure(errors="backslashreplace")
            if not stream.isatty():
                stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    try:
        for number, argument in enumerate(sys.argv[1:], 1):
            require_text(number, argument)
        with termination_interrupts():
            app(prog_name="cotext")
    except CotextError as error:
        sys.exit(_fail(str(error), 2))
    except ModuleNotFoundError as error:
        if (extra := EXTRAS.get(f"{error.name}".partition(".")[0])) is None:
            raise
        remedy = f"pip install '.[{extra}]' in Cotext's repository ('.[all]' for all commands)"
        sys.exit(_fail(f"the package {error.name} is required: {remedy}", 2))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        sys.exit(_fail(OUT_OF_MEMORY, 2))
    except OSError as error:
        sys.exit(_fail(f"{error.filename or 'file system'}: {error.strerror or error}", 2))
    except (InterruptionError, KeyboardInterrupt):
        # A second Ctrl-C must not print a traceback while the interpreter exits.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        resuming = "to resume train, adapt, translate, distill or a shard, run the same command again"
        sys.exit(_fail(f"interrupted; {resuming}", INTERRUPTED))


def _fail(message: str, code: int) -> int:
    typer.echo(f"cotext: {on_a_screen(message)}", err=True)
    return code


if __name__ == "__main__":
    main()
