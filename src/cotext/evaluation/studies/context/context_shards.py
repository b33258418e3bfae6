"""CXMI of a corpus in shards: documents that share batches are never divided, so that figures stay equal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cotext.data.documents import Document
from cotext.evaluation.studies.context.context_corpus import (
    CorpusQuestion,
    CorpusUse,
    corpus_use,
    read_checked,
    translate_under,
)
from cotext.evaluation.studies.context.context_use import Pool, SentenceUse, groups_of, measure_group
from cotext.evaluation.studies.corpus_texts import corpus_checksums, corpus_files, corpus_texts
from cotext.runtime.errors import CotextError
from cotext.runtime.jobs.engine import Job, Joined
from cotext.runtime.jobs.journal import Journal, Shard
from cotext.runtime.version import __version__
from cotext.translation.open import OpenedRun
from cotext.translation.signature import systems_of


class CorpusUseJob(Job[None]):
    """The scoring of the documents of a shard under every condition, as `measure_corpus` does.

    All documents are read: random context is drawn from the whole corpus.

    Raises:
        CotextError: as `measure_corpus`, or an input that is not a regular file.
    """

    command, unit = "cxmi", "groups of documents"

    def __init__(
        self,
        opened: OpenedRun,
        source: Path,
        target: Path | None,
        asked: CorpusQuestion,
        out: Path,
        shard: Shard,
        *,
        format: str | None = None,
    ) -> None:
        self.out, self.shard = out, shard
        self._translator, self._asked = opened.translator, asked
        digests = corpus_checksums(source, target, format)
        self._documents = read_checked(opened, source, target, asked, format)
        self._groups = groups_of(len(self._documents))
        self.sizes = [sum(len(self._documents[number]) for number in group) for group in self._groups]
        self.identity = {
            "cotext": __version__,
            "inputs": digests,
            "format": format or "",
            "asked": {**asdict(asked), "conditions": asked.wanted},
            **systems_of(opened),
        }
        files = [str(path.absolute()) for path in corpus_files(source, target)]
        self.facts = {"files": files, "signature": asked.signature(opened)}

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Score one group after the other, and translate it where that is asked."""
        translator, documents, asked = self._translator, self._documents, self._asked
        pool = Pool(documents)
        for unit in todo:
            group = self._groups[unit]
            found = measure_group(translator, documents, group, pool, asked.wanted, asked.seed)
            written: dict[str, Any] = {}
            for condition in asked.wanted if asked.translate else ():
                texts = translate_under(translator, documents, group, pool, condition, asked.seed)
                written[condition] = [text.sentences for text in texts]
            yield unit, {"sentences": [asdict(use) for use in found], "written": written}
            on_size(self.sizes[unit])


def joined_use(parts: Joined) -> CorpusUse:
    """The figures of a corpus that shards have scored.

    Raises:
        CotextError: a file is not where it was, or has changed; no sentence has context.
    """
    job, facts = parts.header.identity, parts.header.facts
    files = [Path(name) for name in facts["files"]]
    format, second = job["format"] or None, files[1] if files[1:] else None
    if corpus_checksums(files[0], second, format) != job["inputs"]:
        names = " and ".join(map(str, files))
        raise CotextError(f"{names}: not what the shards have scored; put that back")
    asked = CorpusQuestion(**job["asked"])
    documents = corpus_texts(files[0], second, format)
    found: list[SentenceUse] = []
    written: dict[str, list[Document]] = {}
    for unit, group in enumerate(groups_of(len(documents))):
        entry = parts[unit]
        for use in entry["sentences"]:
            tokens = {condition: tuple(values) for condition, values in use["tokens"].items()}
            found.append(SentenceUse(use["document"], use["number"], use["context"], tokens))
        for condition, texts in entry["written"].items():
            written.setdefault(condition, []).extend(
                Document(documents[number].id, tuple(sentences))
                for number, sentences in zip(group, texts, strict=True)
            )
    return corpus_use(documents, found, written, asked, facts["signature"])
