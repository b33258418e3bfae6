"""Systems of a comparison that are no runs: language models behind an API, and translations in files.

    gpt.compared/<test set>.<format>    translations by the model that gpt.yaml describes, with their report

They are made of kept answers, and written anew each time: what is there already costs no request.
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
    """Whether what is to be compared is no folder of a run."""
    return path.is_file() or is_endpoint(path)


def check_others(paths: Sequence[Path], has_test: bool, has_suites: bool) -> None:
    """Refuse, before any work is done, systems that cannot be measured on what is asked.

    Raises:
        CotextError: no test set, or suites, between whose candidates no such system decides; a description
            of a language model that is wrong.
    """
    for path in paths:
        if is_endpoint(path):
            read_endpoint(path)
        if not has_test or has_suites:
            raise CotextError(
                f"{path}: language models and translations in files decide no contrastive suite, and are "
                "compared on a test set alone: give --source and --reference, and no --suite or --data"
            )


def window_of_endpoint(endpoint: Endpoint) -> ContextWindow:
    """The context that a request shows, as far as it goes."""
    if endpoint.piece_sentences is None:
        return ContextWindow(WHOLE_DOCUMENT, WHOLE_DOCUMENT, WHOLE_DOCUMENT)
    others = endpoint.piece_sentences - 1
    before = endpoint.context_sentences + others
    return ContextWindow(before, others, before)


def languages_of_other(path: Path) -> Languages:
    """The languages that a system translates from and to, as far as it tells."""
    return read_endpoint(path).languages if is_endpoint(path) else Languages()


def measure_other(path: Path, title: str, settings: MeasurementSettings) -> MeasuredRun:
    """Measure what can be measured of a system that is no run.

    Raises:
        CotextError: no answer of the API, a folder that cannot be written to, another process at work in it.
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
    assert test is not None  # `check_others` has asked
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
