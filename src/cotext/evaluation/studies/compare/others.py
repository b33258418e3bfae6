"""Systems of a comparison that are not runs: language models behind an API, and translations in files.

    gpt.compared/<test set>.<format>    translations by the model that gpt.yaml describes, with their report

They are generated from cached responses and written again each time: cached responses cost no request.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cotext.data.languages import Languages
from cotext.evaluation.studies.compare.measured import (
    FOLDER,
    MeasuredRun,
    MeasurementSettings,
    make_folder,
)
from cotext.evaluation.studies.compare.recipe import MatchedRecipe
from cotext.evaluation.studies.contrastive.contrastive_rows import WHOLE_DOCUMENT, ContextWindow
from cotext.language_models.client import Client
from cotext.language_models.config import Endpoint, is_endpoint, read_endpoint
from cotext.language_models.prompts import prompt_of
from cotext.language_models.signature import translation_signature
from cotext.language_models.translate_file import translate_file
from cotext.runtime.errors import CotextError
from cotext.runtime.locks import working_in

LANGUAGE_MODEL: Final = MatchedRecipe(None, (), described="a language model")
TRANSLATIONS: Final = MatchedRecipe(None, (), described="translations in a file")


def is_other(path: Path) -> bool:
    """Return whether a path is not a run folder."""
    return path.is_file() or is_endpoint(path)


def check_others(paths: Sequence[Path], has_test: bool, has_suites: bool) -> None:
    """Check, before any work, that systems which are not runs can be measured.

    Raises:
        CotextError: there is no test set; suites are given, whose candidates these systems cannot score; or
            the description of a language model is invalid.
    """
    for path in paths:
        if is_endpoint(path):
            read_endpoint(path)
        if not has_test or has_suites:
            raise CotextError(
                f"{path}: language models and translations in files are compared only on a test set, not on "
                "contrastive suites: give --source and --reference, and omit --suite and --data"
            )


def window_of_endpoint(endpoint: Endpoint) -> ContextWindow:
    if endpoint.piece_sentences is None:
        return ContextWindow(WHOLE_DOCUMENT, WHOLE_DOCUMENT, WHOLE_DOCUMENT)
    others = endpoint.piece_sentences - 1
    before = endpoint.context_sentences + others
    return ContextWindow(before, others, before)


def languages_of_other(path: Path) -> Languages:
    """Return the languages of a system, as far as known."""
    return read_endpoint(path).languages if is_endpoint(path) else Languages()


def measure_other(path: Path, title: str, settings: MeasurementSettings) -> MeasuredRun:
    """Measure a system that is not a run, as far as possible.

    Raises:
        CotextError: the API does not answer, the folder is not writable, or another process works in it.
    """
    if is_endpoint(path):
        return _measure_endpoint(path, title, settings)
    return MeasuredRun(
        path=path,
        title=title,
        recipe=TRANSLATIONS,
        languages=Languages(),
        window=ContextWindow(0, 0, 0),
        signature="translations:given",
        hypothesis=path,
        decisions={},
        given=True,
    )


def _measure_endpoint(path: Path, title: str, settings: MeasurementSettings) -> MeasuredRun:
    folder, test = path.with_name(f"{path.stem}.{FOLDER}"), settings.test
    assert test is not None  # see `check_others`
    with Client.open(path) as client, working_in(make_folder(folder)):
        out = folder / f"{test.digest}{test.source.suffix}"
        meter = settings.new_meter(f"translating, {title}")
        translate_file(client, test.source, out, test.kind, meter.restart, meter.advance)
        return MeasuredRun(
            path=path,
            title=title,
            recipe=LANGUAGE_MODEL,
            languages=client.endpoint.languages,
            window=window_of_endpoint(client.endpoint),
            decisions={},
            signature=translation_signature(client, prompt_of(client.endpoint)),
            hypothesis=out,
        )
