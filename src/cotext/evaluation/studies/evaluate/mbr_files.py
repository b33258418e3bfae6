"""Minimum Bayes risk over lists of translations and outputs of several systems.

    argmax_h  sum_r p(r) u(h, r)

h and r are two of the K translations of a sentence, p a probability, and u the utility with r as reference.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Literal
from unicodedata import normalize

import numpy as np

from cotext.data.documents import Document
from cotext.data.formats import detect_format, find_format, read_documents
from cotext.data.nbest_lists import Candidate, Candidates, ListedDocument, is_lists, read_lists
from cotext.evaluation.metrics.aligned_files import require_different
from cotext.evaluation.metrics.comet import Comet, Progress, measure_comet
from cotext.evaluation.metrics.interface import Texts, check_correspondence, find_protocol
from cotext.evaluation.requests import MbrRequest
from cotext.evaluation.statistics.sufficient_statistics import Floats
from cotext.runtime import CotextError, __version__, naming
from cotext.runtime.progress import Meter

Weighting = Literal["uniform", "scores"]
ENOUGH: Final = 1e-9  # utilities closer than this are equal, and the first one wins


@dataclass(frozen=True, slots=True)
class MbrReport:
    """The result of the selection; utilities are means over sentences.

    `translations`: mean number of different translations of a sentence. `changed`: number of sentences whose
    translation is not the first one of the first file.
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


def choose_translations(request: MbrRequest, progress: Meter) -> tuple[list[Document], MbrReport]:
    """Return the translations of least risk, as documents, and a report.

    Each file is an n-best list (`cotext.data.nbest_lists`) or an output in any corpus format. Raises
    CotextError if a file is given twice, cannot be read, or has other documents than the first file.
    """
    paths, source, comet, sign = request.files, request.source, request.comet_model(), 1
    require_different(paths)
    systems = [_read(path, request.format, request.candidates) for path in paths]
    # All files are compared with the first file that has ids, or without ids with the first file.
    like = next((n for n, system in enumerate(systems) if system.carries_ids), 0)
    named = systems[like]
    for path, system in zip(paths, systems, strict=True):
        names = f"{path}", f"{paths[like]}"
        same_ids = system.carries_ids or {d.id for d in system.documents} == {d.id for d in named.documents}
        check_correspondence(system.documents, named.documents, same_ids=same_ids, names=names)
    sources = None if source is None else list(read_documents(source, request.format))
    if source is not None and sources is not None:
        kind = find_format(request.format or detect_format(source))
        same_ids, names = kind.carries_ids and named.carries_ids, (f"{paths[like]}", f"{source}")
        check_correspondence(named.documents, sources, same_ids=same_ids, names=names)
    pools = []
    for documents in zip(*(system.documents for system in systems), strict=True):
        for number, lists in enumerate(zip(*(d.sentences for d in documents), strict=True), start=1):
            with naming(f"document {documents[0].id!r}, sentence {number}"):
                pools.append(pooled(lists, request.probabilities))
    progress.restart(len(pools))
    if comet is not None and sources is not None:
        if not find_format(request.to).holds_empty_sentences and any("" in pool.texts for pool in pools):
            raise CotextError(f"a translation is empty, which --to {request.to} cannot hold; use --to jsonl")
        decisions, recipe = _by_comet(pools, comet, sources, partial(progress.next_task, "choosing"))
    else:
        metric = find_protocol(request.utility)
        utility, recipe = metric.utility()
        sign = 1 if metric.better == "higher" else -1
        decisions = []
        for pool in pools:
            decisions.append(decide(pool, sign * utility(pool.texts)))
            progress.advance(1)
    texts = (pool.texts[decision.chosen] for pool, decision in zip(pools, decisions, strict=True))
    selected = [Document(d.id, tuple(islice(texts, len(d.sentences)))) for d in named.documents]
    translations = sum(len(pool.texts) for pool in pools) / len(pools)
    entries = [
        "mbr:sentence",
        f"utility:{request.utility}",
        f"probabilities:{request.probabilities}",
        f"systems:{len(systems)}",
        *([f"candidates:{request.candidates}"] if request.candidates is not None else []),
        f"translations:{translations:.2f}",
    ]
    return selected, MbrReport(
        documents=len(selected),
        sentences=len(pools),
        changed=sum(decision.chosen > 0 for decision in decisions),
        translations=translations,
        utility=sign * sum(d.utility for d in decisions) / len(pools),
        utility_of_first=sign * sum(d.utility_of_first for d in decisions) / len(pools),
        signature="|".join([*entries, recipe, f"version:cotext-{__version__}"]),
        inputs=tuple(system.signature for system in systems),
    )


@dataclass(frozen=True, slots=True)
class Pool:
    """The different translations of a sentence, and their probabilities by system, [systems, K]."""

    texts: tuple[str, ...]
    probability: Floats


def pooled(lists: Sequence[Candidates], weighting: Weighting) -> Pool:
    """Collect the translations of a sentence by several systems, each text once, in Unicode NFC.

    Translations of a system are weighted equally (`uniform`) or by their probabilities (`scores`). Raises
    CotextError for `scores` if a list has no log-probabilities.
    """
    texts = [[normalize("NFC", candidate.text) for candidate in candidates] for candidates in lists]
    number = {text: index for index, text in enumerate(dict.fromkeys(chain(*texts)))}
    probability = np.zeros((len(lists), len(number)))
    for row, candidates, written in zip(probability, lists, texts, strict=True):
        shares = np.ones(len(candidates))
        if weighting == "scores" and len(candidates) > 1:
            scores = np.array([candidate.log_probability for candidate in candidates])
            if not np.isfinite(scores).all():
                what = f"the translation {candidates[0].text!r} has no log-probability"
                raise CotextError(f"{what}; use --probabilities uniform")
            shares = np.exp(scores - scores.max())
        for text, share in zip(written, shares / shares.sum(), strict=True):
            row[number[text]] += share
    return Pool(tuple(number), probability)


@dataclass(frozen=True, slots=True)
class Decision:
    """The index of the selected translation of a sentence; its expected utility, and that of the first."""

    chosen: int
    utility: float
    utility_of_first: float


def decide(pool: Pool, utilities: Floats) -> Decision:
    """Select a translation by the utilities of all pairs, [K, K], hypotheses first."""
    values = utilities @ pool.probability.mean(axis=0)
    chosen = int(np.argmax(values > values.max() - ENOUGH))
    return Decision(chosen, float(values[chosen]), float(values[0]))


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
    found = [
        ListedDocument(d.id, tuple((Candidate(s, np.nan, np.nan),) for s in d.sentences))
        for d in read_documents(path, kind.name, side)
    ]
    return _System(found, kind.carries_ids)


def _by_comet(
    pools: Sequence[Pool], comet: Comet, sources: Sequence[Document], progress: Progress
) -> tuple[list[Decision], str]:
    """Return the decisions by COMET, which scores all pairs, and its signature."""
    # One document for each sentence, with all pairs of its translations as hypothesis and reference.
    sentences = [sentence for document in sources for sentence in document.sentences]
    source, hypotheses, references = [], [], []
    for number, (sentence, pool) in enumerate(zip(sentences, pools, strict=True)):
        name, size = f"{number}", len(pool.texts)
        source.append(Document(name, (sentence,) * size**2))
        hypotheses.append(Document(name, tuple(text for text in pool.texts for _ in range(size))))
        references.append(Document(name, pool.texts * size))
    [measured] = measure_comet(comet, Texts({"": hypotheses}, [references], source), progress)[""]
    scores = iter(measured.statistics.scorer(measured.statistics.counts))
    decisions = []
    for pool in pools:
        size = len(pool.texts)
        utilities = np.array(list(islice(scores, size**2))).reshape(size, size)
        decisions.append(decide(pool, utilities))
    return decisions, measured.score.signature
