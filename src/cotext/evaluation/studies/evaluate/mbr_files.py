"""Minimum Bayes risk over files: lists of translations, and outputs of several systems."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal

from cotext.data.documents import Document
from cotext.data.formats import detect_format, read_documents
from cotext.data.formats.table import find_format
from cotext.data.nbest_lists import Candidate, Candidates, ListedDocument, is_lists, read_lists
from cotext.evaluation.metrics.aligned_files import located, require_different
from cotext.evaluation.metrics.comet import Comet, Progress, measure_comet
from cotext.evaluation.metrics.interface import check_correspondence, find_protocol
from cotext.evaluation.metrics.mbr import Decision, Pool, decide_sentences, pooled
from cotext.evaluation.requests import MbrRequest
from cotext.runtime.version import __version__


@dataclass(frozen=True, slots=True)
class MbrReport:
    """The result of the selection; `utility` is the mean over sentences.

    `changed` counts the sentences whose translation is not the first one of the first file; `translations` is
    the mean number of different translations of a sentence.
    """

    documents: int
    sentences: int
    changed: int
    translations: float
    utility: float
    utility_of_first: float
    signature: str
    inputs: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        return {"format": "cotext-mbr", "version": 1, **asdict(self)}


def choose_translations(
    request: MbrRequest,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
    on_comet: Progress | None = None,
) -> tuple[list[Document], MbrReport]:
    """Return the translations of least risk, as documents, and a report.

    Files are lists of translations (`cotext.data.nbest_lists`) and outputs in any corpus format, one per
    system. The source is used for COMET, and to check the number of sentences.

    Raises:
        CotextError: a file is given twice, cannot be read, or has other documents than the first file.
    """
    paths, source, comet = request.files, request.source, request.comet_model()
    require_different(paths)
    systems = [_read(path, request.format, request.candidates) for path in paths]
    first = systems[0]
    for path, system in zip(paths[1:], systems[1:], strict=True):
        same_ids = system.carries_ids and first.carries_ids
        names = f"{path}", f"{paths[0]}"
        check_correspondence(system.documents, first.documents, same_ids=same_ids, names=names)
    sources = None if source is None else list(read_documents(source, request.format))
    if sources is not None:
        names = f"{paths[0]}", f"{source}"
        check_correspondence(first.documents, sources, same_ids=False, names=names)
    named = next((system for system in systems if system.carries_ids), systems[0])
    pools = [_pools(documents, request) for documents in zip(*(s.documents for s in systems), strict=True)]
    on_start(sum(map(len, pools)))
    if comet is not None and sources is not None:
        decisions, recipe = _by_comet(pools, comet, sources, on_comet)
    else:
        decisions, recipe = _by_metric(pools, request.utility, on_sentences)
    selected = [
        Document(
            document.id, tuple(pool.texts[k] for pool, k in zip(of_document, decision.chosen, strict=True))
        )
        for document, of_document, decision in zip(named.documents, pools, decisions, strict=True)
    ]
    return selected, _report(pools, decisions, systems, request, recipe)


@dataclass(frozen=True, slots=True)
class _System:
    """The lists of a file; `signature` is empty if the file has none."""

    documents: list[ListedDocument]
    carries_ids: bool
    signature: str = ""


def _read(path: Path, format: str | None, most: int | None) -> _System:
    if is_lists(path):
        signature, documents = read_lists(path)
        listed = [ListedDocument(d.id, tuple(c[:most] for c in d.sentences)) for d in documents]
        # Documents from formats without ids are numbered from 1.
        numbered = all(d.id == str(number) for number, d in enumerate(listed, start=1))
        return _System(listed, not numbered, signature)
    kind = find_format(detect_format(path) if format is None else format)
    side: Literal["source", "target"] = "target" if kind.holds_both_languages else "source"
    nan = float("nan")
    texts = read_documents(path, kind.name, side)
    one_each = [ListedDocument(d.id, tuple((Candidate(s, nan, nan),) for s in d.sentences)) for d in texts]
    return _System(one_each, kind.carries_ids)


def _pools(documents: Sequence[ListedDocument], request: MbrRequest) -> list[Pool]:
    of_sentences: list[tuple[Candidates, ...]] = list(zip(*(d.sentences for d in documents), strict=True))
    pools = []
    for number, lists in enumerate(of_sentences, start=1):
        with located(f"document {documents[0].id!r}, sentence {number}"):
            pools.append(pooled(lists, request.probabilities))
    return pools


def _by_metric(
    pools: Sequence[Sequence[Pool]], name: str, on_sentences: Callable[[int], None]
) -> tuple[list[Decision], str]:
    """Return the decisions of every document by a metric of `metrics`, and its signature."""
    utility, signature = find_protocol(name).utility()
    decisions = []
    for of_document in pools:
        of_pairs = [utility(pool.texts) for pool in of_document]
        decisions.append(decide_sentences(of_document, of_pairs))
        on_sentences(len(of_document))
    return decisions, signature


def _by_comet(
    pools: Sequence[Sequence[Pool]],
    comet: Comet,
    sources: Sequence[Document],
    progress: Progress | None,
) -> tuple[list[Decision], str]:
    """Return the decisions by COMET, which scores all pairs of translations, and its signature.

    Raises:
        CotextError: the errors of `measure_comet`.
    """
    # One document for each sentence, with all pairs of its translations as hypothesis and reference.
    pairs: tuple[list[Document], list[Document], list[Document]] = [], [], []
    for number, (document, of_document) in enumerate(zip(sources, pools, strict=True)):
        for j, (sentence, pool) in enumerate(zip(document.sentences, of_document, strict=True)):
            size = len(pool.texts)
            name, texts = f"{number}:{j}", pool.texts
            pairs[0].append(Document(name, (sentence,) * size**2))
            pairs[1].append(Document(name, tuple(text for text in texts for _ in range(size))))
            pairs[2].append(Document(name, texts * size))
    source, hypotheses, references = pairs
    [measured] = measure_comet(comet, {"": hypotheses}, source, [references], progress)[""]
    scores = measured.statistics.scorer(measured.statistics.counts)
    edges = accumulate((len(document) for document in source), initial=0)
    sizes = (len(pool.texts) for of_document in pools for pool in of_document)
    utilities = (scores[a:b].reshape(k, k) for (a, b), k in zip(pairwise(edges), sizes, strict=True))
    return [
        decide_sentences(of_document, [next(utilities) for _ in of_document]) for of_document in pools
    ], measured.score.signature


def _report(
    pools: Sequence[Sequence[Pool]],
    decisions: Sequence[Decision],
    systems: Sequence[_System],
    request: MbrRequest,
    recipe: str,
) -> MbrReport:
    sentences = sum(map(len, pools))
    translations = sum(len(pool.texts) for of_document in pools for pool in of_document) / sentences
    entries = [
        "mbr:sentence",
        f"utility:{request.utility}",
        f"probabilities:{request.probabilities}",
        f"systems:{len(systems)}",
        *([f"candidates:{request.candidates}"] if request.candidates is not None else []),
        f"translations:{translations:.2f}",
    ]
    return MbrReport(
        documents=len(pools),
        sentences=sentences,
        changed=sum(k > 0 for decision in decisions for k in decision.chosen),
        translations=translations,
        utility=sum(d.utility for d in decisions) / sentences,
        utility_of_first=sum(d.utility_of_first for d in decisions) / sentences,
        signature="|".join([*entries, recipe, f"version:cotext-{__version__}"]),
        inputs=tuple(system.signature for system in systems),
    )
