"""Re-ranking of n-best lists: the command `cotext rerank`.

Sentence by sentence, a system scores all translations in the list, each after the translations that were
chosen for the sentences before. The best one is chosen. With a language model, this is the re-ranking of
Sugiyama and Yoshinaga 2021.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cotext.data.documents import Document
from cotext.data.formats import read_documents, write_documents
from cotext.data.formats.table import find_format
from cotext.data.nbest_lists import Candidates, ListedDocument, read_lists
from cotext.models.describe import describe_length_penalty
from cotext.runtime.errors import CotextError
from cotext.runtime.files import require_absent
from cotext.runtime.jobs.engine import Job
from cotext.runtime.jobs.journal import Journal, Results
from cotext.runtime.version import __version__
from cotext.translation.candidate_scoring import CandidateSet, KnownTokens, score_candidates
from cotext.translation.open import OpenedRun
from cotext.translation.requests import RerankRequest
from cotext.translation.scorer import DocumentScorer
from cotext.translation.signature import scoring_signature, systems_of
from cotext.translation.translate_file import check_output, checksums_of


@dataclass(frozen=True, slots=True)
class RerankReport:
    """The result; `changed` counts the sentences whose translation is not the first of its list."""

    documents: int
    sentences: int
    changed: int
    signature: str


def best_candidates(
    scorer: DocumentScorer,
    document: Document,
    lists: Sequence[Candidates],
    on_sentence: Callable[[int], None],
) -> list[int]:
    """Return the index of the best translation of every sentence.

    Scores are divided by the length penalty, as in search. Of equal scores, the first wins. Sentences after
    the scored one have their first translation.

    Raises:
        CotextError: a sentence over the length limits, or scores that are not finite numbers.
    """
    known: KnownTokens = {}
    for text, tokens in zip(document.sentences, scorer.encoded(document.id, document.sentences), strict=True):
        known["source", text] = tokens
    for candidates in lists:
        texts = [candidate.text for candidate in candidates]
        for text, tokens in zip(texts, scorer.encoded_target(document.id, texts), strict=True):
            known["target", text] = tokens
    texts = [candidates[0].text for candidates in lists]
    chosen: list[int] = []
    for j, candidates in enumerate(lists):
        versions = [[*texts[:j], candidate.text, *texts[j + 1 :]] for candidate in candidates]
        [scores] = score_candidates(scorer, [CandidateSet(document.sentences, versions, [j])], known)
        ranks = [scorer.plan.rank_score(score.log_probability, score.tokens) for score in scores]
        chosen.append(ranks.index(max(ranks)))
        texts[j] = candidates[chosen[-1]].text
        on_sentence(1)
    return chosen


class RerankJob(Job[RerankReport]):
    """The re-ranking of a file of n-best lists.

    Raises:
        CotextError: the lists are not those of the source, a file cannot be read, or `out` exists.
    """

    command, unit = "rerank", "documents"

    def __init__(self, opened: OpenedRun, request: RerankRequest) -> None:
        self.out, self._to = request.out, request.to
        find_format(self._to).require_written()
        check_output(self.out, [request.lists, request.source])
        require_absent(self.out, request.overwrite)
        self._scorer = opened.translator
        self._documents = list(read_documents(request.source, request.format))
        listed_by, listed = read_lists(request.lists)
        self._lists: list[ListedDocument] = list(listed)
        self.sizes = [len(document) for document in self._documents]
        if self.sizes != [len(document.sentences) for document in self._lists]:
            raise CotextError(
                f"{request.lists}: its documents have other numbers of sentences than those of "
                f"{request.source}; give the source of the lists"
            )
        self.identity = {
            "cotext": __version__,
            "inputs": checksums_of([request.source, request.lists], request.format),
            "format": request.format or "",
            "to": self._to,
            **systems_of(opened),
        }
        penalty = describe_length_penalty(opened.config.decode)
        entries = scoring_signature(opened), f"lp:{penalty}", f"lists:({listed_by.replace('|', ',')})"
        self.facts = {"signature": "|".join(entries)}

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Choose the translations of documents."""
        for unit in todo:
            lists = self._lists[unit].sentences
            yield unit, {"chosen": best_candidates(self._scorer, self._documents[unit], lists, on_size)}

    def check(self, unit: int, entry: Mapping[str, Any]) -> None:
        """Check that an entry chooses a translation of every sentence."""
        for candidates, chosen in zip(self._lists[unit].sentences, entry["chosen"], strict=True):
            if not 0 <= chosen < len(candidates):
                raise ValueError(unit)

    def write(self, results: Results) -> RerankReport:
        """Write the chosen translations."""
        choices = [results[unit]["chosen"] for unit in self.units]
        pairs = zip(self._lists, choices, strict=True)
        texts = (
            Document(listed.id, tuple(c[k].text for c, k in zip(listed.sentences, chosen, strict=True)))
            for listed, chosen in pairs
        )
        write_documents(self.out, texts, self._to)
        changed = sum(k > 0 for chosen in choices for k in chosen)
        return RerankReport(len(choices), sum(self.sizes), changed, self.facts["signature"])
