"""Systems of a comparison that are no runs: language models behind an API, and translations in files.

    gpt.compared/<test set>.<format>    translations by the model that gpt.yaml describes, with their report
    gpt.compared/suite-<number>.json    its decisions, as `cotext contrastive --out` writes them

All of it is made of kept answers, and written anew each time: what is there already costs no request.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cotext.data.contrastive_suites import documents_of
from cotext.data.documents import ParallelDocument
from cotext.data.languages import Languages
from cotext.evaluation.studies.compare.measured import (
    CONDITIONS,
    FOLDER,
    CorpusCxmi,
    DocumentCxmi,
    EvaluationSet,
    MeasuredRun,
    MeasurementSettings,
    ProgressFactory,
    TaskProgress,
    document_sums,
)
from cotext.evaluation.studies.compare.recipe import MatchedRecipe
from cotext.evaluation.studies.context.context_corpus import CorpusQuestion
from cotext.evaluation.studies.context.endpoint_contexts import measure_endpoint_corpus, window_of_endpoint
from cotext.evaluation.studies.contrastive.contrastive import SuiteRules
from cotext.evaluation.studies.contrastive.contrastive_rows import ContextWindow
from cotext.evaluation.studies.contrastive.decisions import Decisions, keep_decisions
from cotext.evaluation.studies.contrastive.endpoint_suites import requests_of_suite, run_endpoint_suite
from cotext.language_models.client import Client
from cotext.language_models.config import is_endpoint, read_endpoint
from cotext.language_models.prompts import prompt_of
from cotext.language_models.scorer import PromptScorer
from cotext.language_models.scoring_offer import find_offer
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
        CotextError: a file of translations without a test set, or with suites; a language model
            with suites whose API offers no log-probabilities.
    """
    for path in paths:
        if is_endpoint(path):
            read_endpoint(path)
            if has_suites:
                _require_scores(path)
        elif not has_test or has_suites:
            raise CotextError(
                f"{path}: translations in a file decide no contrastive suite, and are compared on a test set "
                "alone: give --source and --reference, and no --suite or --data"
            )


def _require_scores(path: Path) -> None:
    with Client.open(path) as client:
        offer = find_offer(client, client.endpoint)
    if offer.way is None:
        raise CotextError(
            f"{path}: {offer.in_words}: what it writes cannot stand beside decisions between candidates; "
            "compare on a test set (--source and --reference) without suites, which `cotext contrastive` "
            "judges"
        )


def languages_of_other(path: Path) -> Languages:
    """The languages that a system translates from and to, as far as it tells."""
    return read_endpoint(path).languages if is_endpoint(path) else Languages()


def measure_other(
    path: Path, title: str, settings: MeasurementSettings, new_progress: ProgressFactory
) -> MeasuredRun:
    """Measure what can be measured of a system that is no run.

    Raises:
        CotextError: no answer of the API, a folder that cannot be written to, another process at work in it.
    """
    if is_endpoint(path):
        return _measure_endpoint(path, title, settings, new_progress)
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


def _measure_endpoint(
    path: Path, title: str, settings: MeasurementSettings, new_progress: ProgressFactory
) -> MeasuredRun:
    with Client.open(path) as client, working_in(_folder(path)):
        window = window_of_endpoint(client.endpoint)
        hypothesis, use = None, None
        if settings.test is not None:
            hypothesis = _translate(client, path, settings.test, title, new_progress)
            documents = settings.test.documents() if settings.use and window.has_context else []
            if any(len(document) > 1 for document in documents):
                use = _use(client, documents, title, new_progress)
        return MeasuredRun(
            path=path,
            title=title,
            recipe=LANGUAGE_MODEL,
            languages=client.endpoint.languages,
            window=window,
            decisions=_decide(client, path, window, settings, title, new_progress),
            signature=translation_signature(client, prompt_of(client.endpoint)),
            hypothesis=hypothesis,
            use=use,
        )


def _translate(
    client: Client, path: Path, test: EvaluationSet, title: str, new_progress: ProgressFactory
) -> Path:
    out = _folder(path) / f"{test.digest}{test.source.suffix}"
    task = TaskProgress(f"translating, {title}", new_progress)
    translate_file(client, test.source, out, test.kind, task.start, task.advance)
    return out


def _use(
    client: Client, documents: Sequence[ParallelDocument], title: str, new_progress: ProgressFactory
) -> CorpusCxmi | None:
    """CXMI of the test set; None where no log-probabilities are offered."""
    offer = find_offer(client, client.endpoint)
    if offer.way is None:
        return None
    # Another document's sentences are drawn from several.
    conditions = CONDITIONS if len(documents) > 1 else CONDITIONS[:1]
    advance = new_progress(f"scoring with and without context, {title}", sum(map(len, documents)))
    scorer = PromptScorer(client, offer.way)
    found = measure_endpoint_corpus(scorer, documents, CorpusQuestion(conditions), advance)
    sums = document_sums(found, conditions)
    return CorpusCxmi(
        found.signature,
        {
            condition: tuple(DocumentCxmi(nats, int(tokens)) for nats, tokens in by_document.values())
            for condition, by_document in sums.items()
        },
    )


def _decide(
    client: Client,
    path: Path,
    window: ContextWindow,
    settings: MeasurementSettings,
    title: str,
    new_progress: ProgressFactory,
) -> dict[str, Decisions]:
    found: dict[str, Decisions] = {}
    for number, suite in enumerate(settings.suites.values()):
        offer = find_offer(client, client.endpoint)
        assert offer.way is not None  # `check_others` has asked
        controls = settings.controls and window.has_context and len(set(documents_of(suite.examples))) > 1
        rules = SuiteRules(controls=controls)
        advance = new_progress(f"{suite.name}, {title}", requests_of_suite(suite, rules))
        report = run_endpoint_suite(PromptScorer(client, offer.way), suite, rules, advance)
        kept = _folder(path) / f"suite-{number + 1}.json"
        found[suite.name] = keep_decisions(kept, suite.name, report)
    return found


def _folder(path: Path) -> Path:
    folder = path.with_name(f"{path.stem}.{FOLDER}")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CotextError(f"{folder}: cannot be made ({error.strerror or error})") from None
    return folder
