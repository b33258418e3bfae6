"""Command-line options, made from the fields of requests, and messages and output of several commands."""

import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import MISSING, replace
from functools import wraps
from glob import escape, iglob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_origin

import typer

from cotext.runtime import CotextError, parse_yaml, shown, visible
from cotext.runtime.files import require_new, writing
from cotext.runtime.request import Option, Request, option_name, options_of, without_none

if TYPE_CHECKING:
    from cotext.runtime.jobs.engine import Job
    from cotext.runtime.jobs.journal import Shard
    from cotext.translation.open import OpenedRun

MAX_MESSAGE_LINES = 24
MAX_MESSAGE_WIDTH = 600  # characters of a line, which a terminal wraps
# Base class of the errors that typer raises for invalid arguments; typer does not export it.
UsageError: Any = typer.BadParameter.__base__


def on_a_screen(message: str) -> str:
    """Shorten a message to `MAX_MESSAGE_LINES` lines, and long lines to their beginning and end."""
    lines = message.splitlines()
    shown_lines = [_shortened(line) for line in lines[:MAX_MESSAGE_LINES]]
    if len(lines) > MAX_MESSAGE_LINES:
        shown_lines.append(f"... and {len(lines) - MAX_MESSAGE_LINES:,} more lines")
    return "\n".join(shown_lines)


def _shortened(line: str) -> str:
    half = MAX_MESSAGE_WIDTH // 2
    return line if len(line) <= MAX_MESSAGE_WIDTH else f"{line[:half]} ... {line[-half:]}"


def printable(text: str) -> str:
    """Return text from files for a terminal: long lines shortened, unprintable characters escaped."""
    return "\n".join(visible(_shortened(line)) for line in text.splitlines())


@contextmanager
def short_usage_errors() -> Iterator[None]:
    """Shorten the error messages of typer, which contain the whole arguments and the class of the error."""
    try:
        yield
    except UsageError as error:
        error.message = on_a_screen(error.message.replace("Value error, ", "", 1))
        raise


def require_text(number: int, argument: str) -> None:
    """Raise CotextError for an argument that is not valid UTF-8 and could not be printed or stored."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise CotextError(
            f"argument {number}, {shown(argument)}: not UTF-8; rename files and folders to names in UTF-8"
        ) from None


def require_for_endpoints(request: Request, path: Path, others: Sequence[str]) -> None:
    """Raise CotextError if an option of `others`, which language models do not support, is given."""
    for name, declared in options_of(type(request)).items():
        if name in others and request.is_given(name):
            raise CotextError(
                f"{path}: language models behind an API do not support "
                f"{option_name(name, declared)}; remove the option"
            )


def tell_slow_precision(opened: "OpenedRun") -> None:
    """Print a warning if the precision of a run is slow on its device."""
    from cotext.runtime.progress import say

    if opened.slow:
        say(opened.slow)


Json = Annotated[bool, typer.Option("--json", help="Print all figures as JSON instead of text.")]
# Messages about translated sentences.
CUT_OFF = "truncated at the length limit (--set max_ratio=... or max_extra=...)"
LONG = "longer than any in the training data"


def counted(number: int, thing: str) -> str:
    """Return a number and its noun, as in "2 sentences"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


@contextmanager
def output(out: Path | None, inputs: Iterable[Path | None], part: "Shard | None" = None) -> Iterator[None]:
    """Check in advance that a file can be written, and lock it for the duration of the block.

    `part`: a shard of the job that writes the file. `out` must then not exist, and is not locked. Raises the
    errors of `check_output`, and CotextError if another process is writing the file.
    """
    if out is None:
        yield
        return
    from cotext.data.formats import check_output

    check_output(out, [path for path in inputs if path is not None])
    if part is not None:
        require_new(out)
    with writing(out) if part is None else nullcontext():
        yield


def do_shard(job: "Job[Any]", json: bool, what: str = "scoring") -> None:
    """Run the shard of a job, and print a summary."""
    from cotext.runtime.jobs.engine import run_shard
    from cotext.runtime.progress import meter, say

    with meter(what, 0) as progress:
        report = run_shard(job, progress.restart, progress.advance)
    if json:
        figures = {"format": "cotext-shard", "version": 1, "command": job.command, "out": str(job.out)}
        done = {"shard": str(report.shard), report.unit: report.units, "sentences": report.sentences}
        before = {"resumed": report.resumed, "signature": report.signature}
        typer.echo(as_json({**figures, **done, **before}))
        return
    for message in report.messages:
        say(message)
    resumed = f" ({report.resumed:,} of them already done)" if report.resumed else ""
    name = printable(str(job.out))
    typer.echo(
        f"shard {report.shard}: {counted(report.sentences, 'sentence')} in {report.units:,} {report.unit}"
        f"{resumed}\nwhen all {report.shard.of} shards are done, run `cotext join {name}` to write {name}"
    )


def as_json(figures: dict[str, Any]) -> str:
    """Return figures as JSON; numbers that are not finite are null."""
    text = json.dumps(_finite(figures), indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode(errors="backslashreplace").decode()  # lone surrogates cannot be encoded


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_figures(out: Path | None, figures: dict[str, Any]) -> None:
    """Write figures as JSON to `out`, if given."""
    if out is not None:
        write_lines(out, [as_json(figures)])


def write_lines(out: Path, lines: Iterable[str]) -> None:
    """Write lines of text; the file appears only when it is complete."""
    from cotext.data.formats.streams import atomic_sinks

    with atomic_sinks([out]) as [sink]:
        for line in lines:
            sink.write(f"{line}\n")


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose options are the fields of the request of `function`, if it has a request."""
    first, *others = inspect.signature(function, eval_str=True).parameters.values()
    kind = first.annotation
    if not (isinstance(kind, type) and issubclass(kind, Request)):
        return function
    declared = options_of(kind)

    @wraps(function)
    def run(**given: Any) -> None:
        values = {name: _value(given.pop(name), each) for name, each in declared.items()}
        request = kind(**{name: value for name, value in values.items() if value is not None})
        # Resolved only now, because the model may have to be downloaded.
        runs = [name for name, each in declared.items() if each.is_run and each.type is not str]
        folders = {name: _folders(value) for name in runs if (value := getattr(request, name))}
        function(replace(cast(Any, request), **folders), **given)

    fields = kind.__dataclass_fields__
    made = [_parameter(name, each, fields[name].default) for name, each in declared.items()]
    made += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in others]
    run.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in made}
    return run


def _parameter(name: str, declared: Option, default: Any) -> inspect.Parameter:
    kind = without_none(declared.type)
    optional = declared.type is not kind
    complete = completion(name, declared)
    if get_origin(kind) is Literal:
        kind = str
    elif get_origin(kind) is Sequence:
        [each] = get_args(kind)
        kind, optional = list[str if get_origin(each) is Literal else each], default == ()  # type: ignore[misc]
        default = None if optional else default
    elif get_origin(kind) is Mapping:
        kind, optional, default = list[str], True, None
    flag, shows_default = option_name(name, declared), "Default:" not in declared.help
    if declared.argument:
        about: Any = typer.Argument(help=declared.help, autocompletion=complete)
    else:
        names = f"{flag}/--no-{flag[2:]}" if default is True else flag
        about = typer.Option(names, help=declared.help, show_default=shows_default, autocompletion=complete)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind | None if optional else kind, about],
    )


def _value(given: Any, declared: Option) -> Any:
    """Convert a value of the command line to the type of the request's field; None if not given."""
    if get_origin(without_none(declared.type)) is Mapping and given is not None:
        return settings(given)
    if declared.is_run and declared.type is str:  # may be something else, as for --tokenizer
        from cotext.interchange.model_names import known_models

        there = known_models()
        return str(there[given].folder) if given in there else given
    return given


def _folders(value: Any) -> Any:
    """Return the folder of one run, or the folders of several runs."""
    from cotext.interchange.model_names import resolve_run

    return [*map(resolve_run, value)] if isinstance(value, tuple) else resolve_run(value)


def settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read the values of `--set`; raises CotextError if a value does not have the form key=value."""
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CotextError(f"--set {pair}: write key=value, as in beam=1")
        found[key.removeprefix("decode.")] = parse_yaml(value, f"--set {pair}: the value")
    return found


# --- Shell completion of recipes, keys of settings, models, and options with fixed choices. A shell runs the
# command line at each press of the tab key, so nothing here may import torch. If the list is empty, the shell
# completes file names.

Completion = Callable[[str], list[str]]


def completion(name: str, declared: Option) -> Completion | None:
    """Return the function that completes the field `name` of a request; None: complete file names."""
    kind = without_none(declared.type)
    choices = [each for each in (kind, *get_args(kind)) if get_origin(each) is Literal]
    if choices:
        return lambda incomplete: _beginning(incomplete, get_args(choices[0]))
    if declared.is_run:
        return _runs
    if get_origin(kind) is Mapping:
        return lambda incomplete: _keys(incomplete, of_decoding=True)
    if name == "overrides":
        return lambda incomplete: _keys(incomplete, of_decoding=False)
    return _recipes if name == "recipe" else None


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _recipes(incomplete: str) -> list[str]:
    from cotext.config.recipe import recipe_names

    return _beginning(incomplete, recipe_names())


def _keys(incomplete: str, of_decoding: bool) -> list[str]:
    """Return keys of a recipe, such as `train.seed=`, or of its section `decode`, such as `beam=`.

    A single key is returned also with its default value. Otherwise the shell would add a space after it.
    """
    from cotext.config.recipe import Config, DecodeConfig, keys

    defaults = {f"{key}=": value for key, value in keys(DecodeConfig if of_decoding else Config)}
    found = _beginning(incomplete, defaults)
    return found if len(found) != 1 else [*found, f"{found[0]}{defaults[found[0]]}"]


def _runs(incomplete: str) -> list[str]:
    from cotext.interchange.model_names import known_models

    paths = iglob(f"{escape(incomplete)}*")  # noqa: PTH207 - may begin with / or ..
    shown = (f"{path}/" if Path(path).is_dir() else path for path in paths)
    return [*_beginning(incomplete, known_models()), *shown]
