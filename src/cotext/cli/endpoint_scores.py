"""Language models behind an API, where `contrastive` and `cxmi` take a run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cotext.cli.messages import printable
from cotext.cli.options import as_json, output, write_figures
from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.data.contrastive_suites import ContrastiveSuite
    from cotext.evaluation.metrics.contrastive import ContrastiveReport
    from cotext.evaluation.metrics.generative import GenerativeReport
    from cotext.evaluation.studies.context.context_corpus import CorpusQuestion
    from cotext.evaluation.studies.contrastive.contrastive import SuiteRules
    from cotext.language_models.client import Client
    from cotext.language_models.scoring_offer import ScoringOffer


def contrastive_by_endpoint(
    description: Path,
    suites: "Sequence[tuple[Path, ContrastiveSuite]]",
    overrides: Mapping[str, Any],
    rules: "SuiteRules",
    *,
    generate: bool,
    out: Path | None,
    json: bool,
    others: Mapping[str, object],
) -> None:
    """Judge suites by the language model of a description; `others` are options that it does not take.

    By log-probabilities where the API offers them, else by generation: which of the two is told, and is in
    the signature.

    Raises:
        CotextError: one of `others` was given, controls where no log-probabilities are offered, and as
            `run_endpoint_suite`.
    """
    from dataclasses import replace

    from cotext.cli.contrastive_reports import tell_of, write_reports
    from cotext.data.languages import check_pair
    from cotext.evaluation.studies.context.endpoint_contexts import window_of_endpoint

    with output(out, [path for path, _ in suites]), _connected(description, overrides, others) as found:
        client, offer = found
        for path, suite in suites:
            check_pair(client.endpoint.languages, suite.languages, f"{path}", f"{description} translates")
        window = window_of_endpoint(client.endpoint)
        if rules.controls and not window.has_context:
            typer.echo(
                f"{description} shows single sentences: --controls has no context to remove\n", err=json
            )
            rules = replace(rules, controls=False)
        if offer.way is None and (rules.controls or rules.context != "true"):
            option = "--controls" if rules.controls else f"--context {rules.context}"
            raise CotextError(
                f"{description}: {offer.in_words}: {option} compares them; leave it out, and the suite is "
                "judged by what the model writes"
            )
        tell = tell_of(json)
        judged_by = "log-probabilities" if offer.way else "what the model writes, and not candidates"
        tell(f"{printable(offer.in_words)}: judged by {judged_by}\n")
        reports = _suite_reports(client, offer, suites, rules, generate)
        write_reports(out, suites, reports, rules, window, tell, json)
        tell(printable(client.counts.in_words(client.endpoint.prices)))


def cxmi_by_endpoint(
    description: Path,
    source: Path,
    target: Path | None,
    overrides: Mapping[str, Any],
    asked: "CorpusQuestion",
    *,
    format: str | None,
    out: Path | None,
    json: bool,
    others: Mapping[str, object],
) -> None:
    """CXMI of a corpus for the language model of a description; `others` are options that it does not take.

    Raises:
        CotextError: one of `others` was given, an API that offers no log-probabilities, and as
            `read_endpoint_corpus` and `measure_endpoint_corpus`.
    """
    from cotext.evaluation.studies.context.endpoint_contexts import (
        measure_endpoint_corpus,
        read_endpoint_corpus,
    )
    from cotext.language_models.scorer import PromptScorer
    from cotext.runtime.progress import meter

    with output(out, [source, target]), _connected(description, overrides, others) as found:
        client, offer = found
        documents = read_endpoint_corpus(client.endpoint, source, target, asked, format)
        if offer.way is None:
            raise CotextError(f"{description}: {offer.in_words}, and CXMI is a difference of them")
        scorer = PromptScorer(client, offer.way)
        with meter("scoring", sum(map(len, documents))) as progress:
            use = measure_endpoint_corpus(scorer, documents, asked, progress.advance)
        write_figures(out, use.as_dict())
        usage = printable(client.counts.in_words(client.endpoint.prices))
    typer.echo(as_json(use.as_dict()) if json else f"{use.render()}\n{usage}")


@contextmanager
def _connected(
    description: Path, overrides: Mapping[str, Any], others: Mapping[str, object]
) -> "Iterator[tuple[Client, ScoringOffer]]":
    from cotext.language_models.client import Client
    from cotext.language_models.scoring_offer import find_offer

    for option, value in others.items():
        if value:
            raise CotextError(
                f"{description}: {option} is not for language models behind an API; leave it out"
            )
    with Client.open(description, overrides) as client:
        yield client, find_offer(client, client.endpoint)


def _suite_reports(
    client: "Client",
    offer: "ScoringOffer",
    suites: "Sequence[tuple[Path, ContrastiveSuite]]",
    rules: "SuiteRules",
    generate: bool,
) -> "Iterator[tuple[ContrastiveReport | None, GenerativeReport | None]]":
    """The report on the candidates of each suite, and that on its translations; one of them, or both."""
    from cotext.evaluation.studies.contrastive.endpoint_suites import requests_of_suite, run_endpoint_suite
    from cotext.language_models.scorer import PromptScorer
    from cotext.runtime.progress import meter

    for _, suite in suites:
        report = None
        if offer.way is not None:
            scorer = PromptScorer(client, offer.way)
            with meter(suite.name, requests_of_suite(suite, rules)) as progress:
                report = run_endpoint_suite(scorer, suite, rules, progress.advance)
        yield report, _generated(client, suite) if generate or report is None else None


def _generated(client: "Client", suite: "ContrastiveSuite") -> "GenerativeReport":
    from cotext.evaluation.studies.contrastive.endpoint_suites import write_endpoint_forms
    from cotext.runtime.progress import meter

    with meter(f"{suite.name}, translating", 0) as progress:
        return write_endpoint_forms(client, suite, progress.restart, progress.advance)
