"""Commands that translate: `translate`, `repair`, `rerank`, `score`, `serve`; `join` and `export`."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cotext.cli.options import (
    CUT_OFF,
    LONG,
    MAX_MESSAGE_LINES,
    Json,
    as_json,
    counted,
    do_shard,
    output,
    printable,
    require_for_endpoints,
    tell_slow_precision,
    write_figures,
    write_lines,
)
from cotext.data.documents import Document, name_warning, same_language
from cotext.files.requests import RepairRequest, TranslationRequest
from cotext.runtime import CotextError, shown
from cotext.serving import require_packages
from cotext.serving.settings import ServeRequest
from cotext.translation.requests import RerankRequest, ScoreRequest

if TYPE_CHECKING:
    from cotext.language_models.translator import EndpointReport
    from cotext.serving.systems import Systems
    from cotext.translation.corpus_files import FileReport, ScoredDocument
    from cotext.translation.open import OpenedRun


STANDARD_INPUT = Path("/dev/stdin")


def translate(request: TranslationRequest, json: Json = False) -> None:
    """Translate files: every sentence in its context; markup and other content are not changed."""
    from cotext.language_models.config import is_endpoint

    if is_endpoint(request.run):
        translate_by_endpoint(request, json)
        return
    if request.is_standard_input:
        if json:
            raise CotextError(
                "--json cannot be combined with - (standard input): both write to standard output"
            )
        _translate_standard_input(request)
        return
    from cotext.files.translate_files import FilesTranslation
    from cotext.runtime.progress import console, meter

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    work = FilesTranslation(request, say, tell_slow_precision)
    if request.shard is not None:
        do_shard(work.jobs[0], json, "translating")
        return
    lines = [f"{job.source}: {message}" for job in work.jobs for message in job.messages]
    for line in lines[:MAX_MESSAGE_LINES]:
        say(printable(line))
    if len(lines) > MAX_MESSAGE_LINES:
        say(f"... and {len(lines) - MAX_MESSAGE_LINES:,} more messages (use --json for all)")
    with meter("translating", work.sentences) as progress:
        reports = work.run(progress.advance)
    tell_files([job.out for job in work.jobs], reports, json, in_folder=request.out_dir is not None)


def repair(request: RepairRequest, json: Json = False) -> None:
    """Repair translations of any system in the context of their documents (DocRepair)."""
    from cotext.data.convert import holds_two_languages
    from cotext.data.formats import read_documents
    from cotext.files.translate_files import BlocksJob, FilesTranslation
    from cotext.runtime.progress import console, meter

    def check(opened: "OpenedRun") -> None:
        pair = opened.languages
        if not same_language(pair.source, pair.target):
            raise CotextError(
                f"{request.run}: translates {pair}; `repair` needs a run of one language, such as de-de"
            )
        tell_slow_precision(opened)

    work = FilesTranslation(request.translation, lambda text: console.print(text, soft_wrap=True), check)
    if isinstance(work.jobs[0], BlocksJob) or holds_two_languages(request.hypothesis, request.format):
        raise CotextError(
            f"{request.hypothesis}: `repair` needs a corpus in one language with one sentence per line"
        )
    with meter("repairing", work.sentences) as progress:
        [report] = work.run(progress.advance)
    before = read_documents(request.hypothesis, report.format)
    after = read_documents(request.out, report.format, "target")
    changes = _changes(zip(before, after, strict=True))
    if json:
        heading = {"format": "cotext-repair", "version": 1}
        typer.echo(as_json({**heading, **_figures(request.out, report), "changes": changes}))
        return
    tell_files([request.out], [report], json=False)
    share = changes["words_replaced"] / max(changes["words"], 1)
    typer.echo(
        f"{counted(changes['sentences'], 'sentence')} changed; {changes['words_replaced']:,} of "
        f"{changes['words']:,} words of the hypothesis ({share:.2%}) were replaced or removed"
    )


def _changes(pairs: Iterable[tuple[Document, Document]]) -> dict[str, int]:
    """Count the changed sentences, the words of hypotheses, and the words that the output does not keep."""
    changed = words = kept = 0
    for before, after in pairs:
        for text, repaired in zip(before.sentences, after.sentences, strict=True):
            old, new = text.split(), repaired.split()
            changed += old != new
            words += len(old)
            blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
            kept += sum(block.size for block in blocks)
    return {"sentences": changed, "words": words, "words_replaced": words - kept}


def rerank(request: RerankRequest, json: Json = False) -> None:
    """Choose translations from n-best lists by the scores of a system; each is context for the next."""
    from cotext.runtime.jobs.engine import run
    from cotext.runtime.progress import meter
    from cotext.translation.open import open_scorer
    from cotext.translation.translate_file import RerankJob

    opened = open_scorer(request.run, request.device, dict(request.decode), request.checkpoint)
    tell_slow_precision(opened)
    job = RerankJob(opened, request)
    with meter("re-ranking", sum(job.sizes)) as progress:
        report = run(job, progress.advance, request.overwrite)
    if json:
        heading = {"format": "cotext-rerank", "version": 1, "out": str(request.out)}
        typer.echo(as_json({**heading, **asdict(report)}))
        return
    typer.echo(
        f"{printable(str(request.out))}: {counted(report.sentences, 'sentence')} in "
        f"{counted(report.documents, 'document')}; {report.changed:,} are not the first candidate of their "
        f"n-best list\n{report.signature}"
    )


def tell_files(
    outs: Sequence[Path], reports: "Sequence[FileReport]", json: bool, in_folder: bool = False
) -> None:
    """Print a report on each translated file; without `in_folder`, there is only one file."""
    if json:
        figures = [_figures(out, report) for out, report in zip(outs, reports, strict=True)]
        whole = {"files": figures} if in_folder else figures[0]
        typer.echo(as_json({"format": "cotext-translate", "version": 2, **whole}))
        return
    for out, report in zip(outs, reports, strict=True):
        _tell(out, report)
    typer.echo(reports[0].signature)


def _figures(out: Path, report: "FileReport") -> dict[str, Any]:
    found = asdict(report)
    # The key `format` already names the format of this JSON.
    return {"out": str(out), "file_format": found.pop("format"), **found}


def _tell(out: Path, report: "FileReport") -> None:
    """Print the number of translated sentences, and the sentences that should be checked."""
    from cotext.data.faults import faults_in_words, shown_places

    resumed = (
        f" ({counted(report.resumed_documents, 'document')} from an interrupted job)"
        if report.resumed_documents
        else ""
    )
    sentences, documents = counted(report.sentences, "sentence"), counted(report.documents, "document")
    of_file = "all parts of the file, such as text and properties" if report.documents > 1 else "the file"
    place = documents if report.is_corpus else of_file
    typer.echo(f"{printable(str(out))}: {sentences} in {place}{resumed}")
    if report.align == "free":
        typer.echo(
            f"  {report.recovered_pieces:,} of {report.pieces:,} {report.piece} with the right number of "
            f"sentences; in {report.recovered_documents:,} of {documents}, all {report.piece}"
        )
    for where, what in (
        (report.missing, "missing"),
        (report.truncated, CUT_OFF),
        (report.long, LONG),
        (report.shed, "with part of their context dropped to fit into view.max_tokens"),
    ):
        if where:
            shown = shown_places(where)
            typer.echo(f"  {counted(len(where), 'sentence')} {what}; {report.places} {shown}")
    if report.faults:
        typer.echo(f"  {printable(faults_in_words(report.faults))}")
    if report.terms is not None:
        typer.echo(f"  {report.terms}")
    if report.lists:
        typer.echo(f"  n-best lists: {printable(report.lists)}")
    if report.taken:
        typer.echo(f"  {counted(report.taken, 'sentence')} taken from the translation memory")
    if report.resegmented and report.is_corpus and report.scored:
        rate = len(report.resegmented) / report.sentences
        typer.echo(
            f"  {counted(len(report.resegmented), 'sentence')} ({rate:.1%}) with different scores in `cotext "
            "score` and --scores FILE: the tokenizer divides the translation into other subwords"
        )


def _translate_standard_input(request: TranslationRequest) -> None:
    """Translate standard input line by line; messages go to standard error."""
    from cotext.data.formats.streams import numbered_lines
    from cotext.data.splitting import Splitter
    from cotext.files.translate_blocks import StreamTranslation
    from cotext.runtime.progress import say
    from cotext.translation.engine_cache import open_to_translate
    from cotext.translation.open import read_terminology

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    settings = dict(request.settings)
    opened = open_to_translate(request.run, request.device, settings, request.checkpoint)
    opened.require_no_lists("standard input")
    splitter = None if request.no_split else Splitter(opened.languages.source, request.splitting())
    stream = StreamTranslation(opened, splitter, read_terminology(opened.languages, request))
    stream.run(numbered_lines(STANDARD_INPUT, whole=True), write)
    if stream.prose.split_lines:
        say(
            f"{counted(stream.prose.split_lines, 'line')} split into {stream.prose.split_sentences:,} "
            "sentences, translated and joined again (--no-split: each line is one sentence)"
        )
    counts = stream.counts
    say(f"{counted(counts['sentences'], 'sentence')} in {counted(counts['documents'], 'document')}")
    for count, what in ((counts["truncated"], CUT_OFF), (counts["long"], LONG)):
        if count:
            say(f"  {counted(count, 'sentence')} {what}")
    say(opened.signature)


def join(
    out: Annotated[Path, typer.Argument(help="The path that every part was given as --out.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file OUT if it exists.")
    ] = False,
    json: Json = False,
) -> None:
    """Join the parts of a job that ran with `--shard i/n`; the output is the same as that of one process."""
    from cotext.runtime.jobs.engine import joining

    out = out if out.name else out.absolute()  # the path `.` has no name (see `Request`)
    with joining(out, overwrite) as parts:
        command = parts.header.command
        if command == "score":
            from cotext.translation.score_file import joined_scores

            write_scores(out, *joined_scores(parts), json)
        elif command == "translate":
            from cotext.translation.translate_file import join_translations

            tell_files([out], [join_translations(out, parts, overwrite)], json)
        elif command == "contrastive":
            from cotext.cli.evaluate import write_reports
            from cotext.evaluation.studies.contrastive.contrastive import JoinedSuites

            joined = JoinedSuites(parts)
            write_reports(out, joined.suites, joined.found(), joined.rules, joined.window, json)
        elif command == "cxmi":
            from cotext.evaluation.studies.context.context_use import joined_use

            use = joined_use(parts)
            write_figures(out, use.as_dict())
            typer.echo(as_json(use.as_dict()) if json else use.render())
        elif command == "distill":
            from cotext.cli.train import tell_distilled
            from cotext.runtime.progress import meter
            from cotext.training.distillation import join_distilled

            with meter("writing documents", 0) as progress:
                outcome = join_distilled(out, parts, progress.next_task)
            tell_distilled(out, outcome, "", json)
        else:
            raise CotextError(f"{out}: its shards were made by an unknown command, {shown(command)}")


def write_scores(out: Path | None, scored: "Iterable[ScoredDocument]", signature: str, json: bool) -> None:
    """Write the scores of documents as a table or as JSON, and print their signature."""
    from cotext.translation.corpus_files import score_figures, score_lines

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


# --- Language models behind an API, which commands accept in place of a run.

# Options of `translate` that apply only to runs.
_FOR_RUNS = (
    *("glossary", "keep", "memory", "bilingual", "scores", "abbreviations", "entries", "device"),
    *("checkpoint", "on", "workers", "shard"),
)


def translate_by_endpoint(request: TranslationRequest, json: bool) -> None:
    """Translate corpora with the language model of an endpoint file.

    Raises CotextError if an option applies only to runs, or a file is not a corpus. Also the errors of
    `translate_file`.
    """
    from cotext.files.translate_files import all_checked, check_outputs_of
    from cotext.language_models.client import Client
    from cotext.language_models.config import read_endpoint
    from cotext.language_models.translator import report_of, translate_file
    from cotext.runtime.progress import console, meter

    path, overrides, files = request.run, dict(request.settings), request.files
    if request.is_standard_input:
        raise CotextError(
            f"{path}: language models behind an API cannot translate standard input; give a file"
        )
    require_for_endpoints(request, path, _FOR_RUNS)
    outs, folder, overwrite = request.outs, request.out_dir, request.overwrite
    endpoint = read_endpoint(path, overrides)
    language = endpoint.languages.source
    # A WMT file may have several target languages: choose the one of the model.
    target = endpoint.languages.target or endpoint.target_language.replace("-", "_")
    wmt = f"wmt:{language}-{target}" if language else f"wmt:{target}"
    formats = all_checked(partial(_corpus_format, file, request.format, wmt) for file in files)
    check_outputs_of(files, outs, None, overwrite, folder, [kind.partition(":")[0] for kind in formats])
    check_outputs_of(files, [report_of(out) for out in outs], None, overwrite, folder)
    for file in files:
        if warning := name_warning(file, language, f"{path} translates"):
            console.print(warning, soft_wrap=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    reports = []
    with meter("translating", 0) as progress:
        for file, out, kind in zip(files, outs, formats, strict=True):
            with Client(path, overrides) as client:
                reports.append(translate_file(client, file, out, kind, progress))
            progress.start(0)
    _tell_endpoint(outs, reports, json, folder is not None)


def _corpus_format(file: Path, format: str | None, wmt: str) -> str:
    """Return the format of a corpus; for WMT files `wmt`, which also names the languages."""
    from cotext.files.table import format_of

    found = format_of(file, format)
    if found == "wmt":
        return wmt
    if not isinstance(found, str):
        raise CotextError(
            f"{file}: the format is {found.name}, but language models behind an API translate only corpora "
            "(docs/data-format.md); if every line is a sentence, add --format text"
        )
    return found


def _tell_endpoint(
    outs: Sequence[Path], reports: "Sequence[EndpointReport]", json: bool, in_folder: bool
) -> None:
    if json:
        figures = [{"out": str(out), **report.as_dict()} for out, report in zip(outs, reports, strict=True)]
        whole = {"files": figures} if in_folder else figures[0]
        typer.echo(as_json({"format": "cotext-translate-endpoint", "version": 1, **whole}))
        return
    for out, report in zip(outs, reports, strict=True):
        size = f"{counted(report.sentences, 'sentence')} in {counted(report.documents, 'document')}"
        typer.echo(f"{printable(str(out))}: {size}")
        for line in report.lines():
            typer.echo(f"  {printable(line)}")
    for signature in dict.fromkeys(report.signature for report in reports):
        typer.echo(signature)


# --- The HTTP server and web page, its API keys, and exports.


def serve(request: ServeRequest) -> None:
    """Start a server: the HTTP APIs of DeepL and LibreTranslate, and a page for the browser."""
    require_packages()
    from cotext.serving.application import address_of, application, listening_socket, serve_until_stopped
    from cotext.serving.record import log_to_standard_error
    from cotext.serving.service import Service
    from cotext.serving.systems import open_systems

    pair = request.pair()
    # Check the request and the address before models are loaded, which takes long.
    with listening_socket(request.host, request.port, request.keys is not None) as listening:
        os.umask(0o077)  # only the user who runs the server can read files of clients
        settings = replace(request, state=request.folder_at(listening.getsockname()[1]))
        service = Service(open_systems(request.runs, request.device, request.threads, pair), settings)
        service.jobs.start()
        made = application(service)
        log_to_standard_error()
        address = address_of(listening)
        serve_until_stopped(
            made,
            listening,
            lambda: typer.echo(_greeting(address, service.systems, settings.keys)),
            lambda: typer.echo("stopping after the current requests; press Ctrl-C again to stop at once"),
        )


def serve_key(
    action: Annotated[Literal["add", "list", "revoke"], typer.Argument(help="What to do.")],
    name: Annotated[str | None, typer.Argument(help="Name of the client, as it appears in the logs.")] = None,
    keys: Annotated[Path | None, typer.Option(help="File of API keys; created if it does not exist.")] = None,
    requests_per_minute: Annotated[
        int,
        typer.Option(help="Maximum requests per minute for this client; 0: the limit of the server.", min=0),
    ] = 0,
) -> None:
    """Add, list or revoke the API keys of a server; a key is shown only once, when it is created."""
    from cotext.runtime.progress import say
    from cotext.serving.keys import add_key, read_keys, revoke_key

    if keys is None:
        raise CotextError("serve-key: choose the file of API keys with --keys FILE")
    if (action == "list") != (name is None):
        raise CotextError("serve-key: write `add NAME`, `revoke NAME` or `list`, and --keys FILE")
    if action == "list":
        for key in read_keys(keys):
            rate = f"{key.requests_per_minute} requests a minute" if key.requests_per_minute else ""
            typer.echo(f"{key.name}\t{key.made}\t{rate}")
    elif action == "add":
        typer.echo(add_key(keys, str(name), requests_per_minute))
        say(f"this is the key of {name}; it is shown only now, because {keys} stores only its hash")
    else:
        revoke_key(keys, str(name))
        say(f"{keys}: the key of {name} is revoked, also in running servers")


def _greeting(address: str, systems: "Systems", keys: Path | None) -> str:
    """Return the start message: the address, the systems, and a curl command that can be copied."""
    listed = [f"  {system.name}  {system.languages}" for system in systems]
    target = next(iter(systems)).languages.target.upper()
    key = "any" if keys is None else "$KEY"
    curl = f"curl {address}/v2/translate -H 'Authorization: DeepL-Auth-Key {key}'".replace("'", '"')
    return "\n".join(
        [
            f"open {address} in a browser",
            *listed,
            f"{curl} --data-urlencode text='Hello, world.' -d target_lang={target}",
        ]
    )


def export(
    run: Annotated[Path, typer.Argument(help="Run folder, or name of a model.")],
    to: Annotated[Literal["ctranslate2", "hub", "int8"], typer.Option(help="ctranslate2, hub or int8.")],
    out: Annotated[Path, typer.Option(help="Folder to create.")],
    quantization: Annotated[
        str | None,
        typer.Option(help="For ctranslate2: float32 (default), int8, int8_float32, int8_float16 or float16."),
    ] = None,
    licence: Annotated[
        str | None, typer.Option(help="For hub: the licence of the model, as in apache-2.0.")
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            help="For hub: JSON written by `evaluate` or `contrastive`, added to the scores on the model "
            "card; may be repeated."
        ),
    ] = None,
    checkpoint: Annotated[
        int | None, typer.Option(help="Use the checkpoint saved at this update instead of the final model.")
    ] = None,
) -> None:
    """Export a run for CTranslate2, for the Hugging Face Hub, or in int8.

    ctranslate2: a model folder for CTranslate2. hub: a folder with a model card, to publish. int8: a run of
    about a fourth of the size; other runs can start from it, but its training cannot be resumed.
    """
    from cotext.interchange.model_names import resolve_run

    if quantization is not None and to != "ctranslate2":
        raise CotextError("--quantization requires --to ctranslate2: remove it, or change --to")
    if (licence is not None or scores) and to != "hub":
        raise CotextError("--licence and --scores require --to hub: remove them, or change --to")
    if not out.absolute().parent.is_dir():
        raise CotextError(f"{out}: {out.absolute().parent} does not exist; create it first")
    run = resolve_run(run)
    if to == "ctranslate2":
        from cotext.interchange.export import export_engine

        export_engine(run, out, quantization or "float32", checkpoint)
        typer.echo(f"{out}: usable for translation and scoring in place of {run}")
    elif to == "int8":
        from cotext.interchange.export import export_int8

        export_int8(run, out, checkpoint)
        typer.echo(f"{out}: usable for translation, scoring and `train --init` in place of {run}")
    else:
        from cotext.evaluation.studies.compare.recipe import recipe_of
        from cotext.interchange.export import export_hub
        from cotext.models.run_folder import describe_file, model_file

        recipe = recipe_of(describe_file(model_file(run, checkpoint)).config).title
        export_hub(run, out, licence=licence or "", scores=scores or (), recipe=recipe, update=checkpoint)
        typer.echo(
            f"{out}: before publishing, read README.md and fill in the missing parts, which are marked"
        )
