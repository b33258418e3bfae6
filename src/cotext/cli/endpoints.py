"""Language models behind an API, where a command takes a run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cotext.cli.messages import printable, tell_faults
from cotext.cli.options import as_json, counted, output, write_figures
from cotext.evaluation.requests import ContrastiveRequest, CxmiRequest
from cotext.files.requests import TranslationRequest
from cotext.runtime.errors import CotextError
from cotext.runtime.request import Request, option_name, options_of

if TYPE_CHECKING:
    from cotext.evaluation.studies.context.context_corpus import CorpusQuestion
    from cotext.language_models.client import Client
    from cotext.language_models.scoring_offer import ScoringOffer
    from cotext.language_models.translate_file import EndpointReport

# Options of `translate` that are for runs.
_FOR_RUNS = (
    *(
        "glossary",
        "keep",
        "consistency",
        "lemmas",
        "target_lemmas",
        "memory",
        "bilingual",
        "scores",
        "splitter",
    ),
    *("abbreviations", "entries", "drop_macros", "device", "checkpoint", "on", "workers", "shard"),
)


def translate_by_endpoint(request: TranslationRequest, json: bool) -> None:
    """Translate corpora by the language model of a description.

    Raises:
        CotextError: an option that is for runs, a file that is no corpus, and as `translate_file`.
    """
    from functools import partial

    from cotext.data.languages import name_warning, primary_language
    from cotext.files.mechanical import corpus_in_words
    from cotext.files.translate_files import check_outputs_of, unrefused
    from cotext.language_models.client import Client
    from cotext.language_models.config import read_endpoint
    from cotext.language_models.translate_file import report_of, translate_file
    from cotext.runtime.progress import console, meter

    description, overrides, files = request.run, dict(request.settings), request.files
    if request.is_standard_input:
        raise CotextError(
            f"{description}: -, standard input, is not for language models behind an API; give a file"
        )
    require_for_endpoints(request, description, _FOR_RUNS)
    outs, folder, overwrite = request.outs, request.out_dir, request.overwrite
    endpoint = read_endpoint(description, overrides)
    language = endpoint.languages.source
    # Of lines of WMT in several languages, those that the model is to translate.
    target = endpoint.languages.target or endpoint.target_language.replace("-", "_")
    wmt = f"wmt:{language}-{target}" if language else f"wmt:{target}"
    formats = unrefused(partial(_corpus_format, file, request.format, wmt) for file in files)
    check_outputs_of(files, outs, None, overwrite, folder, [kind.partition(":")[0] for kind in formats])
    check_outputs_of(files, [report_of(out) for out in outs], None, overwrite, folder)
    for file in files:
        if warning := name_warning(file, language, f"{description} translates"):
            console.print(warning, soft_wrap=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    reports = []
    with meter("translating", 0) as progress:
        for file, out, kind in zip(files, outs, formats, strict=True):
            with Client.open(description, overrides) as client:
                reports.append(translate_file(client, file, out, kind, progress.restart, progress.advance))
            progress.start(0)
    _tell(outs, reports, json, folder is not None)
    for file, out, kind in zip(files, outs, formats, strict=True) if not json else ():
        tell_faults(out, corpus_in_words(file, out, kind, primary_language(target)))


def _corpus_format(file: Path, format: str | None, wmt: str) -> str:
    """The name of the format of a corpus; `wmt`: of lines of WMT in the languages of the model.

    Raises:
        CotextError: a file of another kind.
    """
    from cotext.files.translate_files import format_of

    found = format_of(file, format)
    if not isinstance(found, str):
        if found.name == "wmt":
            return wmt
        raise CotextError(
            f"{file}: language models behind an API translate corpora (docs/data-format.md), and this is "
            f"{found.name}; add --format text if it holds one sentence a line"
        )
    return found


def _tell(outs: Sequence[Path], reports: "Sequence[EndpointReport]", json: bool, in_folder: bool) -> None:
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


def cxmi_by_endpoint(request: CxmiRequest, asked: "CorpusQuestion", json: bool) -> None:
    """CXMI of a corpus for the language model of a description.

    Raises:
        CotextError: an option that is for runs, an API that offers no log-probabilities, and as
            `read_endpoint_corpus` and `measure_endpoint_corpus`.
    """
    from cotext.evaluation.studies.context.endpoint_contexts import (
        measure_endpoint_corpus,
        read_endpoint_corpus,
    )
    from cotext.language_models.scorer import PromptScorer
    from cotext.runtime.progress import meter

    source, target, out = request.source, request.target, request.out
    with output(out, [source, target]), connected(request) as (client, offer):
        documents = read_endpoint_corpus(client.endpoint, source, target, asked, request.format)
        if offer.way is None:
            raise CotextError(f"{request.run}: {offer.in_words}, and CXMI is a difference of them")
        scorer = PromptScorer(client, offer.way)
        with meter("scoring", sum(map(len, documents))) as progress:
            use = measure_endpoint_corpus(scorer, documents, asked, progress.advance)
        write_figures(out, use.as_dict())
        usage = printable(client.counts.in_words(client.endpoint.prices))
    typer.echo(as_json(use.as_dict()) if json else f"{use.render()}\n{usage}")


@contextmanager
def connected(request: CxmiRequest | ContrastiveRequest) -> "Iterator[tuple[Client, ScoringOffer]]":
    """The client of the language model of a request, and how it offers scores.

    Raises:
        CotextError: an option that is for runs.
    """
    from cotext.language_models.client import Client
    from cotext.language_models.scoring_offer import find_offer

    require_for_endpoints(request, request.run, ("device", "checkpoint", "shard"))
    with Client.open(request.run, dict(request.decode)) as client:
        yield client, find_offer(client, client.endpoint)


def require_for_endpoints(request: Request, description: Path, others: Sequence[str]) -> None:
    """Raise CotextError where one of the fields `others` is given, which language models do not take."""
    for name, declared in options_of(type(request)).items():
        if name in others and request.is_given(name):
            raise CotextError(
                f"{description}: {option_name(name, declared)} is not for language models behind an API; "
                "leave it out"
            )
