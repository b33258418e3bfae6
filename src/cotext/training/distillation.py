"""Sequence-level knowledge distillation: training data whose targets a teacher has translated.

Sequence-level knowledge distillation (Kim and Rush 2016): the student learns from the teacher's translations,
found by beam search, instead of the references. The teacher is any run, of sentences or documents,
with a tokenizer and a view of its own: it is given the text of a document and translates it as `cotext
translate` does. The result is an ordinary prepared folder with the tokenizer of the corpus; development and
test sets stay as they are.

Instead, monolingual documents can be translated and added to the corpus: see `distillation_texts.py`.

Documents can be shared out among shards (`cotext.runtime.shards`), each a process of its own, which are
joined at last. Whoever is interrupted goes on with the same command; one process alone is shard 1 of 1.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from cotext.config.recipe import Config
from cotext.data.documents import Document
from cotext.data.languages import Languages, check_pair, name_warning
from cotext.data.prepared import checked_digests
from cotext.data.shortlist import identity_of
from cotext.models.run_folder import model_file
from cotext.runtime.addresses import named_in
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, require_new
from cotext.runtime.joining import JoinedParts, clear
from cotext.runtime.locks import writing
from cotext.runtime.reading import read_json
from cotext.runtime.shard_lines import differences
from cotext.runtime.shards import Part, Shard, ShardedJob, ShardReport
from cotext.runtime.version import __version__
from cotext.training.distillation_texts import CorpusTexts, Entry, MonolingualTexts, Texts, choose_side
from cotext.training.distilled_corpus import JOB, DistillationRequest, DistilledCorpus, Outcome, outcome_of
from cotext.training.prepared_data import PreparedData, open_data
from cotext.translation.open import OpenedRun, open_run
from cotext.translation.translator import DocumentTranslator

COMMAND: Final = "distill"


class Distillation:
    """The documents of a shard that are to be translated: `translate`, and without a shard then `write`.

    Without a `part`, the corpus is written already, and there is nothing left to do.
    """

    def __init__(self, corpus: DistilledCorpus, translator: DocumentTranslator, part: Part | None) -> None:
        self.corpus, self.texts = corpus, corpus.texts
        self.translator = translator
        self.part = part
        self.documents = self.sentences = self.resumed_documents = self.resumed_sentences = 0
        for index in part.units if part is not None else ():
            sentences = self.texts.sentences(index)
            self.documents += 1
            self.sentences += sentences
            if part is not None and index in part:
                self.resumed_documents += 1
                self.resumed_sentences += sentences

    def translate(self, on_sentences: Callable[[int], None] = lambda count: None) -> None:
        """Translate the documents of this shard that are not translated yet."""
        if self.part is None:
            return
        part = self.part
        on_sentences(self.resumed_sentences)
        under_way: dict[int, int] = {}  # index of each document that the translator has taken

        def documents() -> Iterator[Document]:
            number = 0
            todo = (index for index in part.units if index not in part)
            for index, document in self.texts.documents(todo):
                if self._takes(document):
                    under_way[number] = index
                    number += 1
                    yield document
                else:
                    part.add(index, Entry(None).content())
                    on_sentences(len(document))

        for number, found in self.translator.translate(documents(), on_sentences):
            entry = Entry(found.document.sentences, found.truncated, found.long, found.missing)
            part.add(under_way.pop(number), entry.content())

    def write(self, on_documents: Callable[[int], None] = lambda count: None) -> Outcome:
        """Write the distilled corpus, and say what it holds; all of it must be translated.

        Raises:
            CotextError: storage refuses.
        """
        if self.part is None:
            return outcome_of(self.corpus.request.out)
        return self.corpus.write(partial(_entry, self.part.read), on_documents)

    def report(self) -> ShardReport:
        """What a shard has done."""
        assert self.part is not None
        return self.part.report(self.sentences, self.resumed_documents, self.corpus.signature)

    def _takes(self, document: Document) -> bool:
        """Whether the teacher takes every sentence; passes and settings were checked before."""
        try:
            self.translator.check([document])
        except CotextError:
            return False
        return True


@contextmanager
def distillation(
    request: DistillationRequest,
    shard: Shard | None = None,
    device: str | None = None,
    placed: Callable[[OpenedRun], OpenedRun] = lambda opened: opened,
) -> Iterator[Distillation]:
    """Open a distillation, or go on with an interrupted one; without a shard, the whole of it.

    `placed`: the teacher as it translates elsewhere, as on a cluster.

    Raises:
        CotextError: no teacher or prepared data there, settings that are unknown or differ from those of the
            interrupted job, data of other languages than the teacher's, a folder `out` that is not empty or
            lies in the data, another process at work.
    """
    finished = shard is None and (request.out / JOB).is_file()
    if not finished:
        require_new(request.out)
    if request.out.resolve().is_relative_to(request.data.resolve()):
        raise CotextError(f"{request.out}: lies inside the data to be distilled; choose another --out")
    data = open_data(request.data)
    opened = placed(open_run(request.teacher, device, request.decode, request.update))
    translator = opened.translator
    translator.plan.check_passes()
    request, texts = _texts(request, data, opened.languages)
    identity = {**_job(request, data, translator), **texts.identity()}
    model = model_file(request.teacher, request.update)
    corpus = DistilledCorpus(request, data, texts, identity, model, opened.signature)
    if finished:
        # Repeated, or killed before it could say so.
        if changed := differences(read_json(request.out / JOB), identity):
            raise CotextError(f"{request.out}: exists; choose another --out:\n{changed}")
        with writing(request.out):
            yield Distillation(corpus, translator, None)
    else:
        asked = {**asdict(request), "teacher": str(request.teacher), "data": str(request.data)}
        asked |= {"monolingual": str(request.monolingual or ""), "out": str(request.out)}
        # Paths are told as they were given; another process may join, from another folder.
        facts = {"folder": str(Path.cwd()), "model": str(model), "signature": opened.signature}
        joining = {**asked, **facts}
        job = ShardedJob(COMMAND, "documents", identity, joining)
        sizes = array("I", map(texts.sentences, range(len(texts))))
        with Part(request.out, shard or Shard(1, 1), sizes, job) as part, ExitStack() as stack:
            if shard is None:
                stack.enter_context(writing(request.out))
            yield Distillation(corpus, translator, part)
    if (request.out / JOB).is_file():
        clear(request.out)


def join_distilled(
    out: Path, parts: JoinedParts, on_start: Callable[[int], None], on_documents: Callable[[int], None]
) -> Outcome:
    """Write the corpus that shards have distilled.

    Raises:
        CotextError: the data, or monolingual documents, are not where they were, or have changed; storage
            refuses.
    """
    asked = parts.joining
    place = partial(named_in, folder=Path(asked["folder"]))
    monolingual = place(Path(asked["monolingual"])) if asked["monolingual"] else None
    request = DistillationRequest(
        place(Path(asked["teacher"])),
        place(Path(asked["data"])),
        out,
        asked["decode"],
        asked["update"],
        monolingual,
        asked["format"],
        asked["side"],
    )
    data = open_data(request.data)
    texts: Texts = CorpusTexts(data)
    if monolingual is not None:
        texts = MonolingualTexts(data, monolingual, request.format, request.side)
    now = {**parts.job, "data": checked_digests(data.folder, data.files_read), **texts.identity()}
    if changed := differences(parts.job, now):
        raise CotextError(f"{request.data}: not what the shards have translated; put that back:\n{changed}")
    corpus = DistilledCorpus(request, data, texts, parts.job, place(Path(asked["model"])), asked["signature"])
    on_start(texts.rows)
    return corpus.write(partial(_entry, parts.read), on_documents)


def _entry(read: Callable[[int], Mapping[str, Any]], index: int) -> Entry:
    return Entry.of(read(index))


def _texts(
    request: DistillationRequest, data: PreparedData, teacher: Languages
) -> tuple[DistillationRequest, Texts]:
    """What is translated; the request with the side that is chosen for it."""
    if request.monolingual is None:
        check_pair(teacher, data.languages, f"{request.data}", f"{request.teacher} translates")
        return request, CorpusTexts(data)
    side = choose_side(request.side, teacher, data.languages, str(request.data))
    warning = name_warning(request.monolingual, teacher.source, f"{request.teacher} translates")
    texts = MonolingualTexts(data, request.monolingual, request.format, side, warning)
    return replace(request, side=side), texts


def _job(request: DistillationRequest, data: PreparedData, translator: DocumentTranslator) -> dict[str, Any]:
    """Everything that decides what the distilled corpus holds."""
    job: dict[str, Any] = {
        "cotext": __version__,
        "data": checked_digests(data.folder, data.files_read),
        "tokenizer": data.tokenizer.fingerprint,
        "teacher": _system(model_file(request.teacher, request.update), translator),
    }
    if first_pass := translator.first_pass:
        job["first_pass"] = _system(model_file(Path(translator.config.decode.first_pass)), first_pass)
    return job


def _system(model: Path, translator: DocumentTranslator) -> dict[str, Any]:
    return {
        "model": checksum(model),
        "tokenizer": translator.tokenizer.fingerprint,
        "config": _deciding(translator.config),
        **identity_of(translator.shortlist),
    }


def _deciding(config: Config) -> dict[str, Any]:
    """A configuration without the size of a batch, which depends on the machine that translates."""
    content = config.model_dump(mode="json")
    del content["decode"]["max_tokens"]
    return content
