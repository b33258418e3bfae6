"""Options that several commands have, and how their values are read."""

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.data.splitting import Splitting
    from cotext.runtime.shards import Shard, ShardReport
    from cotext.translation.open import OpenedRun

Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Corpus format: text, docids, d-lines, iwslt-tags, eos-groups, line-documents, wmt-xml, "
        "tmx, tsv, jsonl, parquet or wmt (wmt:cs-de_DE picks one language pair). Default: detected "
        "from the content.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option("--device", help="Device: cpu, cuda, cuda:1 ... Default: the GPU if there is one."),
]
Decode = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a decoding setting of the recipe, as in beam=1 (keys: section `decode` of "
        "docs/recipes.md); may be repeated.",
    ),
]
_CHOICE = "for multilingual tokenizers. Default: that of the run's data."
SourceLanguage = Annotated[
    str | None, typer.Option("--source-language", help=f"Language of the documents, {_CHOICE}")
]
TargetLanguage = Annotated[
    str | None, typer.Option("--target-language", help=f"Language to translate into, {_CHOICE}")
]
TargetOrder = Annotated[
    str | None,
    typer.Option(
        "--word-order",
        help="Word order of the synthetic corpus's target side: verb-second (as in German main clauses; "
        "the default), verb-final, or reversed.",
    ),
]
SCORING = (
    "max_source_tokens",
    "max_tokens",
    "group_windows",
    "before",
    "precision",
    "source_language",
    "target_language",
)  # of the decode settings, what scoring takes
Scoring = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help=f"Change a decoding setting, as in before=3: {', '.join(SCORING)}; may be repeated."
    ),
]
Checkpoint = Annotated[
    int | None,
    typer.Option("--checkpoint", help="Use the checkpoint saved at this update instead of the final model."),
]
Protocols = Annotated[
    list[str] | None,
    typer.Option("--protocol", help="Metric, by its name in docs/metrics.md, as in d-bleu; may be repeated."),
]
Words = Annotated[
    Path | None,
    typer.Option(
        "--words",
        help="Run or data folder with a moses-bpe tokenizer: score the texts tokenised (and truecased, if it "
        "was prepared so) by it.",
    ),
]
# Of commands that look at one document.
OneDocument = Annotated[Path, typer.Argument(help="File with the document, in any format.")]
TranslationFile = Annotated[
    Path | None, typer.Option(help="Translation of the document. Default: the run translates it.")
]
DocumentId = Annotated[
    str | None, typer.Option("--document", help="Id of the document. Default: the first of the file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print all figures as JSON instead of text.")]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="Translate on a Ray cluster: ray (the cluster of RAY_ADDRESS, or this machine), "
        "ray://HOST:10001 or HOST:6379.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", help="With --on: number of worker processes. Default: one for each processor or GPU."
    ),
]

ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        help="Do only part i of n, as in 2/4; when all n parts are done, `cotext join OUT` puts them "
        "together (docs/cluster.md).",
    ),
]

# Messages about translated sentences.
CUT_OFF = "truncated at the length limit (--set max_ratio=... or max_extra=...)"
Abbreviations = Annotated[
    Path | None,
    typer.Option(
        "--abbreviations",
        help="File of further abbreviations, one per line: the full stop after one does not end a sentence.",
    ),
]
SplitBy = Annotated[
    str | None,
    typer.Option(
        "--splitter",
        help="How text is split into sentences: rules (the default), or sat:MODEL, a Segment any Text model.",
    ),
]
LONG = "longer than the training data"


def decode_settings(pairs: list[str] | None) -> dict[str, Any]:
    """Read the values of `--set`.

    Raises:
        CotextError: not key=value.
    """
    from cotext.runtime.reading import parse_yaml

    settings = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CotextError(f"--set {pair}: write key=value, as in beam=1")
        settings[key.removeprefix("decode.")] = parse_yaml(value, f"--set {pair}: the value")
    return settings


def scoring_settings(pairs: list[str] | None) -> dict[str, Any]:
    """Read the values of `--set` where translations are scored.

    Raises:
        CotextError: not key=value, or a setting of search.
    """
    settings = decode_settings(pairs)
    for key in settings:
        if key not in SCORING:
            raise CotextError(
                f"--set {key}: scoring takes {', '.join(SCORING)}; others are for translations (of a suite: "
                "add --generate)"
            )
    return settings


def splitting(abbreviations: Path | None, splitter: str | None, used: bool, remedy: str) -> "Splitting":
    """How text is split.

    Raises:
        CotextError: not `used`, for which the `remedy` is told; a file that holds no abbreviations.
    """
    from cotext.data.sentence_ends import read_abbreviations
    from cotext.data.splitting import BY_RULES, Splitting

    if not used and (abbreviations or splitter):
        given = "--abbreviations" if abbreviations else "--splitter"
        raise CotextError(f"{given} is about splitting text into sentences: {remedy}, or leave it out")
    read = read_abbreviations(abbreviations) if abbreviations is not None else frozenset()
    return Splitting(read, splitter or BY_RULES)


@contextmanager
def telling_how_to_skip() -> Iterator[None]:
    """Tell the option that leaves out a document whose sides differ, where one is refused."""
    from cotext.data.formats.corpus import UnequalSidesError

    try:
        yield
    except UnequalSidesError as error:
        raise CotextError(f"{error}. --skip-unequal leaves such documents out") from None


def require_translations(protocols: list[str] | None, translate: bool, words: Path | None = None) -> None:
    """Raise CotextError where it is told how to evaluate translations, and nothing is translated."""
    for option, given in (("--protocol", protocols), ("--words", words)):
        if given and not translate:
            raise CotextError(f"{option} evaluates translations: add --translate, or leave it out")


def counted(number: int, thing: str) -> str:
    """A number and its noun, as in "2 sentences"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


@contextmanager
def output(out: Path | None, inputs: Iterable[Path | None]) -> Iterator[None]:
    """Check, before any work is done, that a file can be written, and hold it against other processes.

    Raises:
        CotextError: as `check_output`, or another process is writing it.
    """
    if out is None:
        yield
        return
    from cotext.runtime.locks import writing
    from cotext.translation.translate_file import check_output

    check_output(out, [path for path in inputs if path is not None])
    with writing(out):
        yield


def shard_of(shard: str | None, out: Path | None) -> "Shard | None":
    """Read the value of `--shard`.

    Raises:
        CotextError: no such shard, or an output that has no name.
    """
    from cotext.runtime.shards import Shard

    if shard is None:
        return None
    if out is None:
        raise CotextError("--shard keeps what it finds beside the output: add --out")
    return Shard.parse(shard)


def check_shard_output(out: Path, inputs: Iterable[Path | None]) -> None:
    """Check, before any work is done, that the output of a job in shards can be written, and is new.

    Raises:
        CotextError: as `check_output`, or it exists.
    """
    from cotext.runtime.files import require_new
    from cotext.translation.translate_file import check_output

    check_output(out, [path for path in inputs if path is not None])
    require_new(out)


def tell_shard(command: str, out: Path, report: "ShardReport", json: bool) -> None:
    """Print what a shard has done."""
    from cotext.cli.messages import printable

    if json:
        figures = {"format": "cotext-shard", "version": 1, "command": command, "out": str(out)}
        done = {"shard": str(report.shard), report.unit: report.units, "sentences": report.sentences}
        before = {"resumed": report.resumed, "signature": report.signature}
        typer.echo(as_json({**figures, **done, **before}))
        return
    if report.damaged:
        typer.echo(f"{report.damaged}: a damaged line, done again with what followed it", err=True)
    resumed = f" ({report.resumed:,} of them before)" if report.resumed else ""
    name = printable(str(out))
    typer.echo(
        f"shard {report.shard}: {counted(report.sentences, 'sentence')} in {report.units:,} {report.unit}"
        f"{resumed}\nwhen all {report.shard.of} shards are done, `cotext join {name}` writes {name}"
    )


def as_json(figures: dict[str, Any]) -> str:
    """Figures as JSON, as they are printed and written: null where there is no finite number."""
    text = json.dumps(_finite(figures), indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode(errors="backslashreplace").decode()  # half characters, which no output takes


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def placed(
    opened: "OpenedRun",
    on: str | None,
    workers: int | None,
    device: str | None,
    decode: dict[str, Any],
    checkpoint: int | None,
) -> "OpenedRun":
    """A run that translates on a cluster, if one is named; the others are what it was opened with.

    Raises:
        CotextError: workers without a cluster; as `on_ray`.
    """
    if on is None:
        if workers is not None:
            raise CotextError("--workers is about a cluster: add --on ray, or leave it out")
        return opened
    from cotext.translation.ray_data import RayCluster, on_ray
    from cotext.translation.written_beside import require_no_lists

    require_no_lists(opened, f"--on {on}")

    return on_ray(opened, RayCluster(on, workers, device=device), decode, checkpoint)


def write_figures(out: Path | None, figures: dict[str, Any]) -> None:
    """Write figures as JSON, where a file was asked for."""
    if out is not None:
        write_lines(out, [as_json(figures)])


def write_lines(out: Path, lines: Iterable[str]) -> None:
    """Write lines of text; the file appears whole."""
    from cotext.data.formats.streams import atomic_sinks

    with atomic_sinks([out]) as [sink]:
        for line in lines:
            sink.write(f"{line}\n")
