"""`cotext translate`: files, corpora and standard input."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotext.cli.messages import MAX_MESSAGE_LINES, printable, tell_slow_precision
from cotext.cli.options import (
    CUT_OFF,
    LONG,
    Abbreviations,
    Checkpoint,
    Decode,
    Device,
    Json,
    On,
    ShardOption,
    SourceLanguage,
    SplitBy,
    TargetLanguage,
    Workers,
    as_json,
    counted,
    decode_settings,
    placed,
    shard_of,
    splitting,
    tell_shard,
)
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.data.splitting import Splitting
    from cotext.files.translate_files import Job
    from cotext.runtime.shards import Shard
    from cotext.translation.file_report import FileReport

STANDARD_INPUT = Path("/dev/stdin")


def translate(
    run: Annotated[
        Path,
        typer.Argument(
            help="Run folder, engine folder, or endpoint.yaml of a language model (docs/language-models.md)."
        ),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Files of any kind in docs/files.md, recognised by their content, or corpora. -: read "
            "standard input, write standard output, line by line."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="File to write, in the format of the input; for a single input file.")
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option(help="Folder to write any number of files into; they keep their names.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Format of a file: markdown, prose (running text) or another of docs/files.md; or of a "
            "corpus: text (one sentence per line), docids, d-lines, iwslt-tags, eos-groups, "
            "line-documents, wmt-xml, tsv, jsonl or parquet. Default: detected from the content.",
        ),
    ] = None,
    no_split: Annotated[
        bool,
        typer.Option(
            "--no-split", help="Translate each line or paragraph as one sentence, without splitting it."
        ),
    ] = False,
    abbreviations: Abbreviations = None,
    splitter: SplitBy = None,
    entries: Annotated[
        str,
        typer.Option(
            help="Entries to translate in files with both languages (PO, XLIFF, TMX): untranslated; "
            "unfinished (also fuzzy ones and those waiting for review); or all (but those marked as "
            "final)."
        ),
    ] = "untranslated",
    drop_macros: Annotated[
        bool, typer.Option("--drop-macros", help="Remove macros from office files.")
    ] = False,
    glossary: Annotated[
        Path | None,
        typer.Option(help="Terms with their required and forbidden translations (TSV, CSV or TBX)."),
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(help="File of words and phrases to leave untranslated, one per line.")
    ] = None,
    consistency: Annotated[
        bool,
        typer.Option(
            "--consistency", help="Keep one translation per glossary term in a document: the first."
        ),
    ] = False,
    lemmas: Annotated[
        Path | None,
        typer.Option(help="Lemmas of source words (form, tab, lemma), to find terms in any inflected form."),
    ] = None,
    target_lemmas: Annotated[
        Path | None, typer.Option(help="Lemmas of target words, to accept terms in any inflected form.")
    ] = None,
    memory: Annotated[
        Path | None,
        typer.Option(help="Translation memory (TMX), used for sentences that it has in the same context."),
    ] = None,
    bilingual: Annotated[
        Path | None,
        typer.Option(help="Also write source and translation side by side to this .html or .tmx file."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="On the --bilingual page, show how much each context sentence changes the probability of a "
            "translation (slow: one more scoring for each).",
        ),
    ] = False,
    scores: Annotated[
        Path | None,
        typer.Option(help="Write the log-probability of each sentence of a corpus to this file (TSV)."),
    ] = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    on: On = None,
    workers: Workers = None,
    overwrite: Annotated[
        bool, typer.Option(help="Replace existing files, and the partial output of jobs with other settings.")
    ] = False,
    shard: ShardOption = None,
    json: Json = False,
) -> None:
    """Translate files: every sentence in its context, and everything that is not text left as it is."""
    sides = ("source_language", source_language), ("target_language", target_language)
    decode = {**decode_settings(set), **{key: name for key, name in sides if name}}
    chosen = splitting(abbreviations, splitter, not no_split, "leave --no-split out")
    split_by = None if no_split else chosen
    from cotext.language_models.config import is_endpoint

    if is_endpoint(run):
        from cotext.cli.endpoints import translate_by_endpoint

        others = {
            "-, standard input,": any(str(file) == "-" for file in files),
            "--glossary": glossary,
            "--keep": keep,
            "--consistency": consistency,
            "--lemmas": lemmas or target_lemmas,
            "--memory": memory,
            "--bilingual": bilingual,
            "--scores": scores,
            "--splitter": splitter or abbreviations,
            "--entries": entries != "untranslated",
            "--drop-macros": drop_macros,
            "--device": device,
            "--checkpoint": checkpoint is not None,
            "--on": on or workers,
            "--shard": shard,
        }
        translate_by_endpoint(
            *(run, files, _outs(files, out, out_dir), decode),
            format=format,
            overwrite=overwrite,
            in_folder=out_dir is not None,
            json=json,
            others=others,
        )
        return
    wishes: dict[str, Any] = {
        "glossary": glossary,
        "keep": keep,
        "consistency": consistency,
        "lemmas": (lemmas, target_lemmas),
        "memory": memory,
    }
    if any(str(file) == "-" for file in files):
        _translate_standard_input(
            (run, device, decode, checkpoint),
            format,
            split_by,
            wishes,
            refused=len(files) > 1
            or any((out, out_dir, memory, bilingual, explain, scores, overwrite, drop_macros, shard, json))
            or any((on, workers)),
        )
        return
    outs = _outs(files, out, out_dir)
    part = shard_of(shard, out)
    from cotext.cli.bilingual import check_bilingual, write_bilingual
    from cotext.files.blocks import entries_named
    from cotext.files.translate_files import (
        BlocksJob,
        check_outputs_of,
        format_of,
        open_job,
        run_jobs,
        unrefused,
    )
    from cotext.runtime.progress import console, meter
    from cotext.translation.open import open_run
    from cotext.translation.wishes import read_wishes

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    # What is wrong with files is told before the run is loaded, and of all before any work.
    wanted = entries_named(entries)
    formats = unrefused(partial(format_of, file, format) for file in files)
    if scores is not None and not (len(files) == 1 and isinstance(formats[0], str)):
        raise CotextError("--scores is of one corpus, a sentence a line; leave it out")
    if part is not None and (overwrite or bilingual or not isinstance(formats[0], str)):
        raise CotextError(
            "--shard divides a corpus, a sentence a line, among processes: leave out --bilingual and "
            "--overwrite, and translate other files without it"
        )
    check_bilingual(bilingual, files, outs, [*formats], overwrite, explain)
    check_outputs_of(files, outs, scores, overwrite, out_dir, formats)
    _check_cluster(on, files, formats, glossary or keep or memory)
    opened = open_run(run, device, decode, checkpoint)
    opened = placed(opened, on, workers, device, decode, checkpoint)
    tell_slow_precision(opened)
    if explain:
        opened.translator.plan.require_token_probabilities()
    asked = read_wishes(opened.languages, **wishes)
    open_one = partial(
        open_job,
        opened,
        splitting=split_by,
        drop_macros=drop_macros,
        entries=wanted,
        wishes=asked,
        scores=scores,
        on_message=say,
    )
    if part is not None:
        _translate_shard(partial(open_one, files[0], outs[0], formats[0], shard=part), part, json)
        return
    jobs = unrefused(
        partial(open_one, file, target, kind) for file, target, kind in zip(files, outs, formats, strict=True)
    )
    _say_messages(jobs, say)
    if out_dir is not None:
        out_dir.mkdir(parents=True, exist_ok=True)
    write_page = None
    if bilingual is not None and isinstance(jobs[0], BlocksJob):
        write_page = partial(write_bilingual, bilingual, jobs[0], opened, explain=explain)
    with meter("translating", sum(job.sentences for job in jobs)) as progress:
        reports = run_jobs(jobs, progress.advance, overwrite, write_page)
    tell_files([job.out for job in jobs], reports, json, in_folder=out_dir is not None)


def _translate_shard(open_job: "Callable[[], Job]", shard: "Shard", json: bool) -> None:
    from cotext.runtime.progress import meter
    from cotext.translation.translate_file import CorpusJob
    from cotext.translation.translate_shards import COMMAND, translate_shard

    job = open_job()
    assert isinstance(job, CorpusJob)
    with meter("translating", job.sentences) as progress:
        report = translate_shard(job, shard, progress.advance)
    tell_shard(COMMAND, job.out, report, json)


def tell_files(
    outs: Sequence[Path], reports: "Sequence[FileReport]", json: bool, in_folder: bool = False
) -> None:
    """Print what was translated into which files, which are one alone if they are not in a folder."""
    if json:
        figures = [{"out": str(out), **asdict(report)} for out, report in zip(outs, reports, strict=True)]
        whole = {"files": figures} if in_folder else figures[0]
        typer.echo(as_json({"format": "cotext-translate", "version": 2, **whole}))
        return
    for out, report in zip(outs, reports, strict=True):
        _tell(out, report)
    typer.echo(reports[0].signature)


def _check_cluster(
    on: str | None, files: Sequence[Path], formats: Sequence[object], wish: Path | None
) -> None:
    """Refuse what is not handed out to a cluster.

    Raises:
        CotextError: a file that is no corpus; a glossary and the like.
    """
    if on is None:
        return
    for file, kind in zip(files, formats, strict=True):
        if not isinstance(kind, str):
            raise CotextError(
                f"{file}: --on is for corpora (docs/data-format.md); leave it out for this file"
            )
    if wish is not None:
        raise CotextError(f"{wish}: glossaries, words to keep and memories are not for --on; leave one out")


def _outs(files: Sequence[Path], out: Path | None, out_dir: Path | None) -> list[Path]:
    """Where the translation of each file goes.

    Raises:
        CotextError: it is not said, or two would go to one place.
    """
    if out is not None and out_dir is not None:
        raise CotextError("--out names a file and --out-dir a folder; give one of them")
    if out_dir is None:
        if out is None:
            raise CotextError(
                "--out FILE is needed, or --out-dir FOLDER (or - as the file, for standard input and output)"
            )
        if len(files) > 1:
            raise CotextError(f"--out is for one file, and there are {len(files)}; give --out-dir FOLDER")
        return [out]
    if os.path.lexists(out_dir) and not out_dir.is_dir():
        raise CotextError(f"{out_dir}: is no folder; give --out-dir another name")
    outs = [out_dir / file.name for file in files]
    for number, each in enumerate(outs):
        if (first := outs.index(each)) < number:
            raise CotextError(
                f"{files[first]} and {files[number]} would both be written to {each}; translate them one "
                "after the other, into different folders"
            )
    return outs


def _say_messages(jobs: Sequence["Job"], say: Callable[[str], None]) -> None:
    """What there is to know of the files, at most a screen of it."""
    lines = [f"{job.source}: {message}" for job in jobs for message in job.messages]
    for line in lines[:MAX_MESSAGE_LINES]:
        say(printable(line))
    if len(lines) > MAX_MESSAGE_LINES:
        say(f"... and {len(lines) - MAX_MESSAGE_LINES:,} more messages (--json has them all)")


def _tell(out: Path, report: "FileReport") -> None:
    """What was translated, and which sentences a person should look at."""
    resumed = f" ({report.resumed_documents} from an interrupted job)" if report.resumed_documents else ""
    sentences, documents = counted(report.sentences, "sentence"), counted(report.documents, "document")
    typer.echo(f"{printable(str(out))}: {sentences} in {documents}{resumed}")
    if report.align == "free":
        typer.echo(
            f"  {report.recovered_pieces:,} of {report.pieces:,} {report.piece} fully recovered; "
            f"{report.recovered_documents:,} of {documents} in all of their pieces"
        )
    for where, what in (
        (report.missing, "missing"),
        (report.truncated, CUT_OFF),
        (report.long, LONG),
        (report.shed, "with part of their context dropped to fit into view.max_tokens"),
    ):
        if where:
            shown = f"{', '.join(where[:5])}{' ...' if where[5:] else ''}"
            typer.echo(f"  {counted(len(where), 'sentence')} {what}; {report.places} {shown}")
    if text := str(report.dropped):
        typer.echo(f"  {text}")
    if report.terms is not None:
        typer.echo(f"  {report.terms}")
    if report.lists:
        typer.echo(f"  lists of the best translations: {printable(report.lists)}")
    if report.taken:
        typer.echo(f"  {counted(report.taken, 'sentence')} taken from the translation memory")
    if report.resegmented:
        rate = len(report.resegmented) / report.sentences
        hint = ": `cotext score` differs there, --scores FILE has their scores"
        typer.echo(
            f"  {counted(len(report.resegmented), 'sentence')} ({rate:.1%}) in other subwords than the "
            f"tokenizer gives for their text{hint if report.is_corpus and report.scored else ''}"
        )


def _translate_standard_input(
    opening: tuple[Path, str | None, dict[str, Any], int | None],
    format: str | None,
    splitting: "Splitting | None",
    wishes: dict[str, Any],
    refused: bool,
) -> None:
    if refused or format not in (None, "text", "prose"):
        raise CotextError(
            "- reads standard input and writes standard output, a line for a line: leave out other files, "
            "--out, --out-dir, --drop-macros, --memory, --bilingual, --explain, --scores, --overwrite, "
            "--shard and --json (--format: text or prose), or give a file"
        )

    translate_standard_input(opening, format, splitting, wishes)


def translate_standard_input(
    opening: tuple[Path, str | None, dict[str, Any], int | None],
    format: str | None,
    splitting: "Splitting | None",
    wishes: dict[str, Any],
) -> None:
    """Translate what comes in line for line; what there is to say of it goes to standard error.

    `opening`: the arguments of `open_run`. `format`: text (documents ended by empty lines), prose (running
    text), or None, as the content is. `wishes`: the arguments of `read_wishes`.
    """
    from cotext.data.formats.streams import numbered_lines
    from cotext.files.translate_stream import StreamTranslation
    from cotext.translation.open import open_run
    from cotext.translation.wishes import read_wishes
    from cotext.translation.written_beside import require_no_lists

    def say(text: str) -> None:
        typer.echo(text, err=True)

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    opened = open_run(*opening)
    require_no_lists(opened, "standard input")
    splitter = splitting.splitter(opened.languages.source) if splitting else None
    running_text = None if format is None else format == "prose"
    asked = read_wishes(opened.languages, **wishes)
    stream = StreamTranslation(opened, splitter, running_text, say, asked)
    stream.run(numbered_lines(STANDARD_INPUT, whole=True), write)
    report = stream.report
    if report.split_lines:
        say(
            f"{counted(report.split_lines, 'line')} split into {report.split_sentences:,} sentences, "
            "translated in context and joined again (--no-split: each line as one)"
        )
    say(f"{counted(report.sentences, 'sentence')} in {counted(report.documents, 'document')}")
    for count, what in ((report.truncated, CUT_OFF), (report.long, LONG)):
        if count:
            say(f"  {counted(count, 'sentence')} {what}")
    say(opened.signature)
