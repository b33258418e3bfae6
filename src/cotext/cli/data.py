"""Commands that make data: `prepare` and `distill`."""

import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotext.cli.options import (
    Abbreviations,
    Checkpoint,
    Decode,
    Device,
    Format,
    Json,
    On,
    ShardOption,
    SplitBy,
    TargetOrder,
    Workers,
    as_json,
    counted,
    decode_settings,
    placed,
    shard_of,
    splitting,
    tell_shard,
    telling_how_to_skip,
)
from cotext.runtime.errors import CotextError, shown

if TYPE_CHECKING:
    from cotext.training.distilled_corpus import Noted, Outcome


def prepare(
    out: Annotated[Path, typer.Option(help="Data folder to make.")],
    source: Annotated[Path | None, typer.Option(help="Training corpus, source side (or both sides).")] = None,
    target: Annotated[Path | None, typer.Option(help="Training corpus, target side.")] = None,
    dev_source: Annotated[Path | None, typer.Option(help="Development corpus, source side.")] = None,
    dev_target: Annotated[Path | None, typer.Option(help="Development corpus, target side.")] = None,
    test_source: Annotated[Path | None, typer.Option(help="Test corpus, source side.")] = None,
    test_target: Annotated[Path | None, typer.Option(help="Test corpus, target side.")] = None,
    source_language: Annotated[
        str | None,
        typer.Option(
            help="Language code such as en, or a language that the tokenizer of --tokenizer knows, such as "
            "eng_Latn. Default: guessed from the file names."
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option(
            help="Language code such as de, or a language that the tokenizer of --tokenizer knows, such as "
            "deu_Latn. Default: guessed from the file names."
        ),
    ] = None,
    controlled: Annotated[
        str | None,
        typer.Option(help="Make the synthetic corpus: small, medium, large, or a number of documents."),
    ] = None,
    word_order: TargetOrder = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            help="Vocabulary size. Default: by the size of the corpus, 32000 at most; see docs/tokenizers.md."
        ),
    ] = None,
    tokenizer: Annotated[
        str,
        typer.Option(
            help="Tokenizer to train: sentencepiece, sentencepiece-bpe or moses-bpe; or a run or data "
            "folder, to use its tokenizer (needed for `train --init`)."
        ),
    ] = "sentencepiece",
    tokenizer_text: Annotated[
        list[Path] | None,
        typer.Option(help="Text to train the tokenizer on instead of the corpus; may be repeated."),
    ] = None,
    trim_vocabulary: Annotated[
        bool,
        typer.Option(
            "--trim-vocabulary",
            help="With --tokenizer RUN: drop the vocabulary entries that the training corpus does not need; "
            "`train --init RUN` then keeps the embeddings of the others.",
        ),
    ] = False,
    language: Annotated[
        str | None, typer.Option(help="With moses-bpe: target language for the Moses tokenizer. Default: en.")
    ] = None,
    truecase: Annotated[
        bool,
        typer.Option(
            "--truecase",
            help="With moses-bpe: train on truecased text; translations get their capitals back.",
        ),
    ] = False,
    jieba: Annotated[
        bool, typer.Option("--jieba", help="With moses-bpe: split Chinese into words with Jieba.")
    ] = False,
    max_characters: Annotated[
        int, typer.Option(help="Longest allowed sentence, in characters; a longer one is an error.")
    ] = 10_000,
    split: Annotated[
        bool,
        typer.Option("--split", help="Split training lines of several sentences into aligned sentences."),
    ] = False,
    paragraphs: Annotated[
        bool,
        typer.Option(
            "--paragraphs", help="Lines are paragraphs: --split, also for development and test sets."
        ),
    ] = False,
    abbreviations: Abbreviations = None,
    splitter: SplitBy = None,
    clean: Annotated[
        list[str] | None,
        typer.Option(
            help="Remove training pairs by a rule, and cut their documents there: empty, length=1000, "
            "ratio=3, copies, language=0.95, duplicates, or all (docs/data-as-found.md); may be "
            "repeated."
        ),
    ] = None,
    skip_unequal: Annotated[
        bool, typer.Option("--skip-unequal", help="Skip documents whose sides differ in number of sentences.")
    ] = False,
    tokenizer_sample: Annotated[
        str | None,
        typer.Option(help="Sentences to train the tokenizer on, drawn at random, or all. Default: 100000."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Processes that encode text. 0: one for each processor.")
    ] = 0,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of the synthetic corpus and of the tokenizer's training sample. Default: 1."),
    ] = None,
    format: Format = None,
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Also make the table for `translate --set shortlist=N`; runs trained on this data get a "
            "copy.",
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option(help="Replace an existing folder, or the remains of an interrupted job.")
    ] = False,
    json: Json = False,
) -> None:
    """Tokenise a corpus into a data folder for `train`, and print its statistics."""
    from cotext.data import controlled as controlled_corpus
    from cotext.data.languages import Languages, language_code
    from cotext.data.prepare import prepare as prepare_corpus
    from cotext.data.prepare import prepare_controlled
    from cotext.data.tokenizer import KINDS, LanguageChoice, TokenizerSettings
    from cotext.runtime.cores import usable_cores
    from cotext.runtime.progress import stages

    if shortlist and controlled is not None:
        raise CotextError(
            "--shortlist leaves out most of a vocabulary of many thousands; that of --controlled is too "
            "small for it: leave it out"
        )
    files = (source, target, dev_source, dev_target, test_source, test_target)
    if controlled is not None:
        of_files = (
            *(source_language, target_language, format, split, paragraphs, abbreviations, splitter),
            *(clean, skip_unequal, trim_vocabulary, tokenizer_sample, tokenizer_text),
        )
        if any((*files, *of_files)) or tokenizer != "sentencepiece":
            raise CotextError(
                "--controlled makes its own corpus and tokenizer; leave out --source, --target, --format, "
                "--tokenizer and the like"
            )
        order = controlled_corpus.word_order(word_order or "verb-second")
        size = int(controlled) if re.fullmatch("[0-9]{1,12}", controlled) else controlled
        with stages() as progress:
            report = prepare_controlled(
                size,
                out,
                seed=1 if seed is None else seed,
                vocabulary=vocabulary,
                order=order,
                overwrite=overwrite,
                on_documents=progress,
            )
    else:
        if word_order is not None:
            raise CotextError("--word-order is for --controlled: other corpora are taken as they are")
        if source is None or dev_source is None:
            raise CotextError("--source and --dev-source are needed (or --controlled small)")
        if test_target is not None and test_source is None:
            raise CotextError("--test-target is given without --test-source")
        chosen = splitting(abbreviations, splitter, split or paragraphs, "add --split or --paragraphs")
        sides = (("--source-language", source_language), ("--target-language", target_language))
        languages = Languages(*(language_code(code, option) if code else "" for option, code in sides))
        taken = Path(tokenizer) if (Path(tokenizer) / "tokenizer").is_dir() else None
        if taken is not None and vocabulary is not None:
            raise CotextError(f"--tokenizer {tokenizer} has its own vocabulary; leave out --vocabulary")
        if taken is not None and tokenizer_sample is not None:
            raise CotextError(f"--tokenizer {tokenizer} is trained already; leave out --tokenizer-sample")
        if trim_vocabulary and taken is None:
            raise CotextError("--trim-vocabulary is for the vocabulary of a run: add --tokenizer RUN")
        if taken is None and tokenizer not in KINDS:
            raise CotextError(
                f"--tokenizer {shown(tokenizer)}: not a run or data folder with a tokenizer; "
                f"give one, or choose {', '.join(KINDS)}"
            )
        if (truecase or jieba) and tokenizer != "moses-bpe":
            option = "--truecase" if truecase else "--jieba"
            raise CotextError(f"{option} is about words: add --tokenizer moses-bpe, or leave it out")
        settings = TokenizerSettings(
            kind=tokenizer,
            vocabulary=vocabulary,
            language=language or "en",
            seed=1 if seed is None else seed,
            truecase=truecase,
            jieba=jieba,
            sample_sentences=_sample(tokenizer_sample),
        )
        with stages() as progress, telling_how_to_skip():
            report = prepare_corpus(
                source,
                target,
                dev_source,
                dev_target,
                out,
                test_source=test_source,
                test_target=test_target,
                languages=languages,
                settings=settings,
                tokenizer=taken,
                tokenizer_text=tokenizer_text or (),
                trim_vocabulary=trim_vocabulary,
                shortlist=shortlist,
                symbols=LanguageChoice(source_language or "", target_language or ""),
                format=format,
                max_characters=max_characters,
                split=chosen if split or paragraphs else None,
                paragraphs=paragraphs,
                clean=clean or (),
                skip_unequal=skip_unequal,
                overwrite=overwrite,
                workers=workers or usable_cores(),
                on_documents=progress,
            )
    if json:
        typer.echo(as_json({"format": "cotext-prepare", "version": 1, "out": str(out), **asdict(report)}))
        return
    typer.echo(report.render())
    typer.echo(f"{out}: ready for `cotext train RECIPE --data {out} --out RUN`")


def _sample(given: str | None) -> int | None:
    """The sentences that a tokenizer is trained on; None for all."""
    from cotext.data.tokenizer import TokenizerSettings

    if given is None:
        return TokenizerSettings().sample_sentences
    if given == "all":
        return None
    if not re.fullmatch("[0-9]{1,12}", given) or not int(given):
        raise CotextError(f"--tokenizer-sample {shown(given)}: a number of sentences, or all")
    return int(given)


def distill(
    teacher: Annotated[Path, typer.Argument(help="Run folder of the teacher.")],
    data: Annotated[Path, typer.Option(help="Folder made by `prepare`.")],
    out: Annotated[Path, typer.Option(help="Data folder to make.")],
    shard: ShardOption = None,
    monolingual: Annotated[
        Path | None,
        typer.Option(
            help="Documents in one language, to be translated and added to the corpus; the corpus itself "
            "stays as it is."
        ),
    ] = None,
    side: Annotated[
        str | None,
        typer.Option(
            help="Side that the monolingual documents belong to: source (forward translation) or target "
            "(back-translation). Default: by their language."
        ),
    ] = None,
    format: Format = None,
    device: Device = None,
    set: Decode = None,
    checkpoint: Checkpoint = None,
    on: On = None,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Make training data by translation: knowledge distillation, or monolingual text added to the corpus."""
    if monolingual is None and (side or format):
        raise CotextError("--side and --format describe --monolingual; give it, too, or leave them out")
    decode = decode_settings(set)
    from cotext.runtime.progress import console, meter
    from cotext.training.distillation import COMMAND, distillation
    from cotext.training.distilled_corpus import DistillationRequest

    part = shard_of(shard, out)
    request = DistillationRequest(teacher, data, out, decode, checkpoint, monolingual, format, side or "")
    far = partial(placed, on=on, workers=workers, device=device, decode=decode, checkpoint=checkpoint)
    with distillation(request, part, device, far) as job:
        for message in job.texts.messages():
            typer.echo(message, err=True)
        if part is None and job.part is not None and job.part.damaged:
            console.print(
                f"{job.part.path}: a damaged line, done again with what followed it", soft_wrap=True
            )
        with meter("translating", job.sentences) as progress:
            job.translate(progress.advance)
        if part is not None:
            tell_shard(COMMAND, out, job.report(), json)
            return
        with meter("writing documents", job.texts.rows) as progress:
            outcome = job.write(progress.advance)
        resumed = f" ({job.resumed_documents:,} of them before)" if job.resumed_documents else ""
    tell_distilled(out, outcome, monolingual is not None, resumed, json)


def tell_distilled(out: Path, outcome: "Outcome", monolingual: bool, resumed: str, json: bool) -> None:
    """Print what a distilled corpus holds."""
    if json:
        heading = {"format": "cotext-distill", "version": 1, "out": str(out)}
        typer.echo(as_json({**heading, **asdict(outcome)}))
        return
    sentences, documents = counted(outcome.sentences, "sentence"), counted(outcome.documents, "document")
    typer.echo(f"{out}: {sentences} in {documents}{resumed}")
    if outcome.kept.count:
        typer.echo(
            f"  {counted(outcome.kept.count, 'document')} with a sentence too long for the teacher "
            f"(--set max_source_tokens=...) {'left out' if monolingual else 'kept untranslated'}; "
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
