"""The tokenizer of prepared data: trained on the corpus or on other text, or that of other data, trimmed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cotext.data.corpora import PROGRESS_DOCUMENTS, CorpusSplit, OnDocuments, checked_documents, pieces_seen
from cotext.data.formats import detect_format
from cotext.data.formats.corpus import checked_records
from cotext.data.formats.records import OUTER_SPACE
from cotext.data.formats.streams import numbered_lines
from cotext.data.formats.table import find_format
from cotext.data.languages import Languages
from cotext.data.preparation import Preparation
from cotext.data.prepared import TRAIN
from cotext.data.shortlist import SHORTLIST, coverages, learned_shortlist
from cotext.data.store import TokenStore
from cotext.data.tokenizer import (
    ImportedTokenizer,
    LanguageChoice,
    Tokenizer,
    TokenizerSettings,
    load_tokenizer,
    require_languages,
    train_tokenizer,
    trimmed,
    with_all_processors,
)
from cotext.runtime.files import checksum


def taken_tokenizer(folder: Path, symbols: LanguageChoice, pair: Languages) -> Tokenizer:
    """The tokenizer of a run or of prepared data, for the languages of this corpus.

    Of a tokenizer of many languages these are, one after the other: those that are named, those that it comes
    with, and those whose code is that of the corpus.

    Raises:
        CotextError: a language that it has no symbol of, or none that tells; else as `load_tokenizer`.
    """
    tokenizer = load_tokenizer(folder / "tokenizer")
    if not isinstance(tokenizer, ImportedTokenizer) or not tokenizer.languages:
        return tokenizer
    tokenizer = tokenizer.with_languages(symbols.source, symbols.target)
    for side in tokenizer.lacking():
        code = pair.source if side == "source" else pair.target
        if len(found := tokenizer.names_alike(code)) == 1:
            tokenizer = tokenizer.with_languages(**{"source": "", "target": "", side: found[0]})
    require_languages(tokenizer, "--source-language and --target-language")
    return tokenizer


class _Sentences:
    """Sentences of documents or lines, counted; `count` is the number of non-empty ones."""

    def __init__(self, groups: Iterable[Sequence[str]], on_documents: OnDocuments) -> None:
        self.count = 0
        self._groups = groups
        self._on_documents = on_documents

    def __iter__(self) -> Iterator[str]:
        number = 0
        for number, sentences in enumerate(self._groups, 1):
            for sentence in filter(None, sentences):
                self.count += 1
                yield sentence
            if number % PROGRESS_DOCUMENTS == 0:
                self._on_documents("reading", number)
        self._on_documents("training the tokenizer", number)


def text_checksums(files: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of the files of text that only the tokenizer is trained on, by path.

    Raises:
        CotextError: a file that is missing or empty, holds no corpus, or can be read only once.
    """
    for path in files:
        detect_format(path)
    return {str(path): checksum(path) for path in files}


def sentences_of_texts(files: Iterable[Path]) -> Iterator[Sequence[str]]:
    """Yield the sentences of each document of text that only the tokenizer is trained on.

    Files may hold one language or two. In the format `text`, each line is yielded alone: documents do not
    matter here, and a large file may have no empty line, or several in a row.

    Raises:
        CotextError: a file that is missing, empty or malformed.
    """
    for path in files:
        name = detect_format(path)
        if name == "text":
            yield from ((line.strip(OUTER_SPACE),) for _, line in numbered_lines(path))
            continue
        for record in checked_records(path, find_format(name)):
            yield (*(record.sentences or ()), *(record.source or ()), *(record.target or ()))


def build_tokenizer(
    work: Preparation,
    corpora: Sequence[CorpusSplit],
    chosen: TokenizerSettings | Tokenizer,
    max_characters: int,
    on_documents: OnDocuments,
    *,
    texts: Sequence[Path] = (),
    learn_from: CorpusSplit | None = None,
    trim: bool = False,
) -> None:
    """Check all sentences of the corpora and train, trim or copy the tokenizer, unless that is done.

    It is trained on `texts`, else on `learn_from`, else on the first of the corpora.
    """
    if work.done("tokenizer") is not None:
        return
    for corpus in corpora if texts else corpora[1:]:
        for _ in checked_documents(corpus, max_characters):
            pass
    documents = checked_documents(learn_from or corpora[0], max_characters)
    groups = sentences_of_texts(texts) if texts else ((*d.source, *d.target) for d in documents)
    sentences = _Sentences(groups, on_documents)
    if isinstance(chosen, TokenizerSettings):
        tokenizer = train_tokenizer(sentences, chosen)
    elif trim:
        tokenizer = trimmed(chosen, pieces_seen(documents, with_all_processors(chosen), on_documents))
    else:
        tokenizer = chosen
        for _ in sentences:  # which are checked while they are read
            pass
    tokenizer.save(work.folder / "tokenizer")
    work.note("tokenizer", (work.folder / "tokenizer").iterdir(), {"sentences": sentences.count})


# --- The shortlist table of a folder that is being prepared: `cotext prepare --shortlist`.


def build_shortlist(work: Preparation, on_documents: OnDocuments) -> dict[str, Any]:
    """Make the table of the training corpus, which is encoded, unless that is done; gives what lists lose.

    By how many candidates of a source token they have; `Coverage` as in JSON.
    """
    noted = work.done("shortlist")
    if noted is None:
        on_documents("making the shortlist", 0)
        tokenizer = load_tokenizer(work.folder / "tokenizer")
        made = learned_shortlist(TokenStore(work.folder / TRAIN), tokenizer)
        made.save(work.folder / SHORTLIST)
        found = coverages(made, TokenStore(work.folder / "dev.arrow"), tokenizer)
        noted = {str(count): asdict(each) for count, each in found.items()}
        work.note("shortlist", [work.folder / SHORTLIST], noted)
    return dict(noted)
