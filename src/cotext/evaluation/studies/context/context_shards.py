"""CXMI of a corpus in shards: documents that share batches are never divided, so that figures stay equal."""

from collections.abc import Callable
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
from cotext.runtime.addresses import absolute
from cotext.runtime.errors import CotextError
from cotext.runtime.joining import JoinedParts
from cotext.runtime.shards import Part, Shard, ShardedJob, ShardReport
from cotext.runtime.version import __version__
from cotext.translation.open import OpenedRun
from cotext.translation.translate_file import systems_of

COMMAND = "cxmi"


def cxmi_shard(
    opened: OpenedRun,
    source: Path,
    target: Path | None,
    asked: CorpusQuestion,
    out: Path,
    shard: Shard,
    *,
    format: str | None = None,
    on_start: Callable[[int], None] = lambda total: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> ShardReport:
    """Score the documents of one shard under every condition, as `measure_corpus` does.

    All documents are read: random context is drawn from the whole corpus.

    Raises:
        CotextError: as `measure_corpus` and `Part`, or an input that is no regular file.
    """
    translator = opened.translator
    digests = corpus_checksums(source, target, format)
    documents = read_checked(opened, source, target, asked, format)
    groups = groups_of(len(documents))
    sizes = [sum(len(documents[number]) for number in group) for group in groups]
    chosen = shard.units(sizes)
    signature = asked.signature(opened)
    identity = {
        "cotext": __version__,
        "inputs": digests,
        "format": format or "",
        "asked": {**asdict(asked), "conditions": asked.wanted},
        **systems_of(opened),
    }
    joining = {
        "files": [str(absolute(path)) for path in corpus_files(source, target)],
        "signature": signature,
    }
    job = ShardedJob(COMMAND, "groups of documents", identity, joining)
    pool = Pool(documents)
    with Part(out, shard, sizes, job) as part:
        done = part.done()
        on_start(sum(sizes[unit] for unit in chosen))
        on_sentences(sum(sizes[unit] for unit in done))
        for unit in chosen:
            if unit not in part:
                found = measure_group(translator, documents, groups[unit], pool, asked.wanted, asked.seed)
                written: dict[str, Any] = {}
                for condition in asked.wanted if asked.translate else ():
                    texts = translate_under(translator, documents, groups[unit], pool, condition, asked.seed)
                    written[condition] = [text.sentences for text in texts]
                part.add(unit, {"sentences": [asdict(use) for use in found], "written": written})
                on_sentences(sizes[unit])
    return part.report(sum(sizes[unit] for unit in chosen), len(done), signature)


def joined_use(parts: JoinedParts) -> CorpusUse:
    """The figures of a corpus that shards have scored.

    Raises:
        CotextError: a file is not where it was, or has changed; no sentence has context.
    """
    files = [Path(name) for name in parts.joining["files"]]
    format, second = parts.job["format"] or None, files[1] if files[1:] else None
    if corpus_checksums(files[0], second, format) != parts.job["inputs"]:
        names = " and ".join(map(str, files))
        raise CotextError(f"{names}: not what the shards have scored; put that back")
    asked = CorpusQuestion(**parts.job["asked"])
    documents = corpus_texts(files[0], second, format)
    found: list[SentenceUse] = []
    written: dict[str, list[Document]] = {}
    for unit, group in enumerate(groups_of(len(documents))):
        entry = parts.read(unit)
        for use in entry["sentences"]:
            tokens = {condition: tuple(values) for condition, values in use["tokens"].items()}
            found.append(SentenceUse(use["document"], use["number"], use["context"], tokens))
        for condition, texts in entry["written"].items():
            written.setdefault(condition, []).extend(
                Document(documents[number].id, tuple(sentences))
                for number, sentences in zip(group, texts, strict=True)
            )
    return corpus_use(documents, found, written, asked, parts.joining["signature"])
