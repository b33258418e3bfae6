"""Sequence-level knowledge distillation: training data whose targets a teacher has translated.

Sequence-level knowledge distillation (Kim and Rush 2016): the student learns from the teacher's translations,
found by beam search, instead of the references. The teacher is any run, of sentences or documents,
with a tokenizer and a view of its own: it is given the text of a document and translates it as `cotext
translate` does. The result is an ordinary prepared folder with the tokenizer of the corpus; development and
test sets stay as they are.

Instead, monolingual documents can be translated and added to the corpus: see `distillation_texts.py`.

A job as others (`cotext.runtime.jobs.engine`): it resumes after an interruption, and can be divided into
shards.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from cotext.config.recipe import Config
from cotext.data.documents import Document
from cotext.data.languages import Languages, check_pair, name_warning
from cotext.data.prepared import checked_digests
from cotext.data.shortlist import identity_of
from cotext.models.run_folder import model_file
from cotext.runtime.addresses import named_in
from cotext.runtime.errors import CotextError
from cotext.runtime.files import checksum, require_new
from cotext.runtime.jobs.engine import Job, Joined, clear, forget, run
from cotext.runtime.jobs.journal import Journal, Results, Shard, differences
from cotext.runtime.locks import writing
from cotext.runtime.reading import read_json
from cotext.runtime.version import __version__
from cotext.training.distillation_texts import CorpusTexts, Entry, MonolingualTexts, Texts, choose_side
from cotext.training.distilled_corpus import JOB, DistillationRequest, DistilledCorpus, Outcome, outcome_of
from cotext.training.prepared_data import PreparedData, open_data
from cotext.translation.open import OpenedRun, open_run
from cotext.translation.translator import DocumentTranslator


class DistillationJob(Job[Outcome]):
    """The translation of the documents of a prepared corpus, or of monolingual ones.

    `run` writes the new corpus. `placed`: the teacher as it translates elsewhere, as on a cluster. `on_stage`
    is called while the corpus is written, as `Meter.stage`.

    Raises:
        CotextError: no teacher or prepared data there, settings that are unknown or differ from those of a
            finished folder `out`, data of other languages than the teacher's, a folder `out` that is not
            empty or lies in the data.
    """

    command, unit = "distill", "documents"

    def __init__(
        self,
        request: DistillationRequest,
        shard: Shard | None = None,
        device: str | None = None,
        placed: Callable[[OpenedRun], OpenedRun] = lambda opened: opened,
    ) -> None:
        self.out, self.shard, self.resumed = request.out, shard, 0
        self.on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None
        self.finished = shard is None and (request.out / JOB).is_file()  # repeated, or killed at the very end
        if not self.finished:
            require_new(request.out)
        if request.out.resolve().is_relative_to(request.data.resolve()):
            raise CotextError(f"{request.out}: lies inside the data to be distilled; choose another --out")
        data = open_data(request.data)
        if data.address:
            raise CotextError(
                f"{data.address}: distillation copies its data; fetch the folder to this machine first"
            )
        opened = placed(open_run(request.teacher, device, request.decode, request.update))
        self._translator = opened.translator
        self._translator.plan.check_passes()
        request, self.texts = _texts(request, data, opened.languages)
        self.sizes = array("I", map(self.texts.sentences, range(len(self.texts))))
        self.identity = {**_job(request, data, self._translator), **self.texts.identity()}
        if self.finished and (changed := differences(read_json(request.out / JOB), self.identity)):
            raise CotextError(f"{request.out}: exists; choose another --out:\n{changed}")
        model = model_file(request.teacher, request.update)
        self._corpus = DistilledCorpus(request, data, self.texts, self.identity, model, opened.signature)
        # Paths as they were given; another process may join, from another folder.
        paths = {"teacher": str(request.teacher), "data": str(request.data), "out": str(request.out)}
        paths["monolingual"] = str(request.monolingual or "")
        here = {"folder": str(Path.cwd()), "model": str(model), "signature": opened.signature}
        self.facts = {**asdict(request), **paths, **here}

    def run(self, on_sentences: Callable[[int], None] = lambda count: None) -> Outcome:
        """Translate what is left and write the corpus; of one that is finished, only say what it holds.

        Raises:
            CotextError: as `cotext.runtime.jobs.engine.run`.
        """
        if not self.finished:
            return run(self, on_sentences, overwrite=None)
        with writing(self.out):
            outcome = outcome_of(self.out)
        forget(self.out)
        clear(self.out)
        return outcome

    def work(
        self, todo: Sequence[int], journal: Journal, on_size: Callable[[int], None]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Translate documents, which are read as the translator takes them."""
        taken: list[int] = []
        refused: list[int] = []

        def documents() -> Iterator[Document]:
            for unit, document in self.texts.documents(todo):
                if self._takes(document):
                    taken.append(unit)
                    yield document
                else:
                    refused.append(unit)
                    on_size(len(document))

        for number, found in self._translator.translate(documents(), on_size):
            entry = Entry(found.document.sentences, found.truncated, found.long, found.missing)
            yield taken[number], entry.content()
            while refused:
                yield refused.pop(), Entry(None).content()
        yield from ((unit, Entry(None).content()) for unit in refused)

    def _takes(self, document: Document) -> bool:
        """Whether the teacher takes every sentence; passes and settings were checked before."""
        try:
            self._translator.check([document])
        except CotextError:
            return False
        return True

    def check(self, unit: int, entry: Mapping[str, Any]) -> None:
        """Check that an entry has as many sentences as its document."""
        sentences = Entry.of(entry).sentences
        if sentences is not None and len(sentences) != self.sizes[unit]:
            raise ValueError(unit)

    def write(self, results: Results) -> Outcome:
        """Write the distilled corpus."""
        self.resumed = results.resumed
        return self._corpus.write(results, self.on_stage)


def join_distilled(out: Path, parts: Joined, on_stage: Callable[[str, int, int], None]) -> Outcome:
    """Write the corpus that shards have distilled.

    Raises:
        CotextError: the data, or monolingual documents, are not where they were, or have changed; storage
            refuses.
    """
    facts, job = parts.header.facts, parts.header.identity
    place = partial(named_in, folder=Path(facts["folder"]))
    monolingual = place(Path(facts["monolingual"])) if facts["monolingual"] else None
    request = DistillationRequest(
        place(Path(facts["teacher"])),
        place(Path(facts["data"])),
        out,
        facts["decode"],
        facts["update"],
        monolingual,
        facts["format"],
        facts["side"],
    )
    data = open_data(request.data)
    texts: Texts = CorpusTexts(data)
    if monolingual is not None:
        texts = MonolingualTexts(data, monolingual, request.format, request.side)
    now = {**job, "data": checked_digests(data.folder, data.files_read), **texts.identity()}
    if changed := differences(job, now):
        raise CotextError(f"{request.data}: not what the shards have translated; put that back:\n{changed}")
    corpus = DistilledCorpus(request, data, texts, job, place(Path(facts["model"])), facts["signature"])
    return corpus.write(parts, on_stage)


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
