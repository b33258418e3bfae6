"""Translation with language models behind an API, which commands accept in place of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cotext.cli.options import as_json, counted, printable
from cotext.files.requests import TranslationRequest
from cotext.runtime import CotextError
from cotext.runtime.request import Request, option_name, options_of

if TYPE_CHECKING:
    from cotext.language_models.translate_file import EndpointReport

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
    from functools import partial

    from cotext.data.documents import name_warning
    from cotext.files.translate_files import all_checked, check_outputs_of
    from cotext.language_models.client import Client
    from cotext.language_models.config import read_endpoint
    from cotext.language_models.translate_file import report_of, translate_file
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
                reports.append(translate_file(client, file, out, kind, progress.restart, progress.advance))
            progress.start(0)
    _tell(outs, reports, json, folder is not None)


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


def require_for_endpoints(request: Request, path: Path, others: Sequence[str]) -> None:
    """Raise CotextError if an option of `others`, which language models do not support, is given."""
    for name, declared in options_of(type(request)).items():
        if name in others and request.is_given(name):
            raise CotextError(
                f"{path}: language models behind an API do not support "
                f"{option_name(name, declared)}; remove the option"
            )
