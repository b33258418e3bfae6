"""Many clients at once: every answer is what the document gives alone, whoever else is served.

The systems never learned anything, and compute in double precision, so that hardly ever two candidates are so
close that rounding decides between them.
"""

import random
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from cotext.config.recipe import load_config
from cotext.data.splitting import Splitter
from cotext.files.blocks import Block, Close, Contents, Open
from cotext.files.translate_blocks import BlockDocuments
from cotext.serving.answers import TextAnswer
from cotext.serving.service import TextRequest
from cotext.serving.sharing import SharedSystem, Work
from cotext.serving.systems import System, Systems, open_systems
from cotext.translation.open import Terminology
from cotext.translation.terms.terms import Glossary
from cotext.translation.window_search import WindowSearch
from tests.serving.tiny_server import tiny_tokenizer, write_system, write_systems
from tests.serving.waiting import until
from tests.tiny import TINY_DECODE, TINY_MODEL
from tests.tiny_runs import WORDS, run_config, with_section

NAMES = ["sentence", "window", "document", "casa", "in passes"]
GLOSSARIES = [
    Terminology(Glossary.of({"cat": "Kater", "dog": "Hündchen"})),
    Terminology(Glossary.of({"bird": ["Amsel", "Fink"], "the": "jene"})),
]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Systems:
    """Systems of three views, one that predicts at once, and one whose first pass is another system."""
    folder = tmp_path_factory.mktemp("many")
    runs = write_systems(folder)
    tokenizer = tiny_tokenizer()
    shared = [f"model.{key}={value}" for key, value in TINY_MODEL.items() if key != "shift"]
    decode = [f"decode.{key}={value}" for key, value in TINY_DECODE.items()]
    casa = load_config("casa/casa", "tiny", [*shared, *decode, "decode.beam=1", "model.encoder_layers=2"])
    runs.append(write_system(folder / "casa", casa, tokenizer, 8))
    windows = with_section(run_config(), "view", kind="window", before=2, max_tokens=120)
    in_passes = with_section(windows, "decode", first_pass=str(folder / "sentence"))
    runs.append(write_system(folder / "in passes", in_passes, tokenizer, 9))
    systems = open_systems(runs, "cpu")
    for system in systems:
        for opened in filter(None, (system.opened, system.opened.first_pass)):
            opened.loaded.model.double()
    return systems


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(list(WORDS), k=draw.randint(1, 5))).capitalize() + "."


def document(draw: random.Random) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for _ in range(draw.randint(1, 2)):
        text = " ".join(sentence(draw) for _ in range(draw.randint(1, 3)))
        tagged = (Open(1), sentence(draw), Close(1), " ") if draw.random() < 0.2 else ()
        blocks.append(Block((*tagged, text)))
    return tuple(blocks)


def drawn(system: System, draw: random.Random) -> TextRequest:
    """A request like no other."""
    documents = tuple(document(draw) for _ in range(draw.choice((1, 1, 1, 2))))
    terminology = (
        draw.choice([Terminology()] * 6 + GLOSSARIES)
        if system.opened.translator.supports_terms
        else Terminology()
    )
    given = {0: {0: "Ganz genau so!"}} if draw.random() < 0.2 else {}
    return TextRequest(system, documents, terminology, given)


def alone(request: TextRequest) -> TextAnswer:
    """What the request gives by the translator of the run, with nobody else there."""
    opened = request.system.opened
    splitter = Splitter("en")
    contents = Contents([list(blocks) for blocks in request.documents])
    texts = BlockDocuments(opened, contents, splitter, request.terminology, given=request.given)
    found = {}
    for index, each in enumerate(texts.documents):
        guide, taken = texts.guide([index]), texts.taken([index])
        [(_, found[index])] = opened.translator.translate([each], guide=guide, taken=taken)
    return TextAnswer(texts.blocks(found), texts.paired(found))


def texts_of(answer: TextAnswer) -> list[tuple[int, int, int, str, str]]:
    return [(p.document, p.block, p.number, p.source, p.target) for p in answer.pairs]


def assert_same(found: TextAnswer, expected: TextAnswer) -> None:
    assert found.documents == expected.documents
    assert texts_of(found) == texts_of(expected)
    for own, other in zip(found.pairs, expected.pairs, strict=True):
        assert (own.confidence or 0) == pytest.approx(other.confidence or 0, rel=1e-9)


def waiting(shared: SharedSystem) -> list[Any]:
    return [flow for flow in list(shared._flows) if flow.documents]


@pytest.fixture
def system(many: Systems) -> System:
    return many.named("sentence")


@pytest.fixture
def shared(system: System) -> Iterator[SharedSystem]:
    made = SharedSystem(system, batch_tokens=300)
    yield made
    made.stop()


class Asker:
    """A piece of work in a thread: when its sentences and its documents were finished, counted in batches."""

    def __init__(self, shared: SharedSystem, sources: list[Any], work: Work) -> None:
        self.work, self.shared, self.sources = work, shared, sources
        self.sentences: list[tuple[int, int, str]] = []
        self.batches: list[int] = []
        self.batches_before = 0
        self.found: dict[int, Any] = {}
        self.error: BaseException | None = None
        work.on_sentence = self.hear
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def hear(self, *each: Any) -> None:
        self.sentences.append(each)
        self.batches.append(self.shared.batches)

    def run(self) -> None:
        try:
            for index, each in self.shared.opened_for(self.work).translator.translate(self.sources):
                self.found[index] = each
        except BaseException as error:
            self.error = error


def long_document(system: System, sentences: int, seed: int = 5) -> Any:
    draw = random.Random(seed)
    contents = Contents([[Block((sentence(draw),)) for _ in range(sentences)]])
    return BlockDocuments(system.opened, contents, None).documents[0]


def asked_together(shared: SharedSystem, asked: Sequence[tuple[list[Any], Work]]) -> list[Asker]:
    """Askers that all wait before the next batch, and have ended."""
    with shared.exclusively(Work()):
        askers = [Asker(shared, sources, work) for sources, work in asked]
        until(lambda: {asker.work for asker in askers} <= {flow.work for flow in waiting(shared)})
        before = shared.batches
    for asker in askers:
        asker.batches_before = before
        asker.thread.join(60)
    return askers


def test_threads_share_batches(many: Systems) -> None:
    """Documents of threads, several at a time, in as many batches as few of them would take alone."""
    system = many.named("window")
    draw = random.Random(1)
    sources = [[long_document(system, draw.randint(1, 5), 2 * n + m) for m in range(2)] for n in range(8)]
    shared = SharedSystem(system)
    askers = asked_together(shared, [(each, Work(str(n))) for n, each in enumerate(sources)])
    for asker in askers:
        expected = dict(system.opened.translator.translate(asker.sources))
        assert {n: each.document for n, each in asker.found.items()} == {
            n: each.document for n, each in expected.items()
        }
    steps = max(len(each.sentences) for asker in askers for each in asker.sources)
    assert steps <= shared.batches < 4 * steps


@pytest.mark.parametrize("background", [False, True])
def test_a_short_request_is_in_the_batch_after_it_came(
    system: System, shared: SharedSystem, background: bool
) -> None:
    long = Asker(shared, [long_document(system, 400)], Work("long", background=background))
    for number in range(5):
        before = len(long.sentences)
        until(lambda before=before: len(long.sentences) > before)
        [short] = asked_together(shared, [([long_document(system, 1, number)], Work("short"))])
        # One of the long document, whose turn it can be, its own, and no third.
        assert short.batches[0] - short.batches_before <= 2
    assert len(long.sentences) < 400
    long.work.cancel()
    long.thread.join(30)


def test_neither_long_documents_nor_files_starve(system: System, shared: SharedSystem) -> None:
    """Of two long documents each gets its share, and a file a smaller one."""
    works = Work("one"), Work("other"), Work("file", background=True)
    asked = [([long_document(system, 150, seed)], work) for seed, work in enumerate(works, 1)]
    askers = asked_together(shared, asked)
    one, other, file = (asker.batches[-1] for asker in askers)
    assert abs(one - other) <= 3
    early = sum(batch <= one / 2 for batch in askers[2].batches)
    assert 5 <= early <= 30  # an eighth of what the others get: about nine of their 75 each
    assert file > max(one, other)


def test_who_comes_later_takes_no_more_than_a_share(system: System, shared: SharedSystem) -> None:
    first = Asker(shared, [long_document(system, 300)], Work("first"))
    until(lambda: len(first.sentences) > 60)
    second = Asker(shared, [long_document(system, 60, 1)], Work("second"))
    second.thread.join(60)
    assert sum(second.batches[0] < batch < second.batches[-1] for batch in first.batches) > 20
    first.work.cancel()
    first.thread.join(30)


def test_the_works_of_one_client_share_what_one_client_gets(system: System, shared: SharedSystem) -> None:
    asked = [([long_document(system, 60, seed)], Work("many" if seed else "one")) for seed in range(5)]
    askers = asked_together(shared, asked)
    when = askers[0].batches[-1]
    done = [sum(batch <= when for batch in asker.batches) for asker in askers[1:]]
    assert all(8 <= own <= 25 for own in done), done


def test_a_chain_of_windows_holds_nobody_up_and_goes_on(many: Systems) -> None:
    system = many.named("window")
    shared = SharedSystem(system, batch_tokens=300)
    chain = Asker(shared, [long_document(system, 60)], Work("chain"))
    until(lambda: chain.sentences)
    came = shared.batches
    short = Asker(shared, [long_document(system, 1, 1)], Work("short"))
    short.thread.join(30)
    assert short.batches[0] - came <= 2
    chain.thread.join(60)
    assert [j for _, j, _ in chain.sentences] == list(range(60))
    assert chain.batches[-1] <= 63
    shared.stop()


def test_cancelled_work_leaves_at_the_next_batch(system: System, shared: SharedSystem) -> None:
    long = Asker(shared, [long_document(system, 400)], Work("long"))
    until(lambda: long.sentences)
    came = shared.batches
    long.work.cancel()
    long.thread.join(30)
    assert type(long.error).__name__ == "CancelledError"
    assert not long.found
    assert shared.batches - came <= 2
    after = shared.batches
    until(lambda: not shared._flows)
    assert shared.batches == after
    assert not any(pool.documents for pool in shared._pools.values())


def test_the_model_for_one_thread_alone_and_for_its_own_calls(system: System, shared: SharedSystem) -> None:
    source = long_document(system, 4)
    expected = dict(system.opened.translator.translate([source]))
    work = Work()
    with shared.exclusively(work), shared.exclusively(work):
        other = Asker(shared, [source], Work("other"))
        until(lambda: waiting(shared))
        before = shared.batches
        found = dict(shared.opened_for(work).translator.translate([source]))
        assert shared.batches == before
        assert not other.sentences
    other.thread.join(30)
    assert found[0].document == other.found[0].document == expected[0].document


def test_what_fails_for_one_document_fails_for_it_alone(
    system: System, shared: SharedSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a row needs more memory than there is: batches with it are halved until it stands alone."""
    search = WindowSearch._search
    poisoned = long_document(system, 6, 77)

    def failing(self: WindowSearch, batch: Any, *rest: Any) -> Any:
        if any(row.document.document == poisoned and row.number == 3 for row in batch):
            raise RuntimeError("can't allocate memory")
        return search(self, batch, *rest)

    monkeypatch.setattr(WindowSearch, "_search", failing)
    sources = [[long_document(system, 5, seed)] for seed in range(6)]
    asked = [(each, Work(str(n))) for n, each in enumerate([*sources, [poisoned]])]
    askers = asked_together(shared, asked)
    assert isinstance(askers[-1].error, RuntimeError)
    for asker, each in zip(askers[:-1], sources, strict=True):
        [expected] = dict(system.opened.translator.translate(each)).values()
        assert asker.found[0].document == expected.document
        assert len(asker.sentences) == 5
    again = Asker(shared, sources[0], Work())
    again.thread.join(30)
    assert again.error is None


def test_who_listens_badly_harms_nobody_else(system: System, shared: SharedSystem) -> None:
    sources = [long_document(system, 3, seed) for seed in range(2)]
    with shared.exclusively(Work()):
        askers = [Asker(shared, [each], Work(each.id)) for each in sources]
        askers[0].work.on_sentence = partial(int, "no number")
        until(lambda: len(waiting(shared)) == 2)
    for asker in askers:
        asker.thread.join(30)
    assert isinstance(askers[0].error, TypeError)
    assert len(askers[1].found) == 1


class Restless(Work):
    """Work that is in the background, and is not, whenever it is looked at."""

    looks = 0

    @property
    def background(self) -> bool:  # type: ignore[override]
        self.looks += 1
        return self.looks % 2 == 1

    @background.setter
    def background(self, value: bool) -> None:
        pass


def test_work_that_goes_into_the_background_at_any_moment(system: System, shared: SharedSystem) -> None:
    """As that of clients who hang up and come back while a batch is chosen."""
    sources = [[long_document(system, 8, seed)] for seed in range(6)]
    askers = asked_together(shared, [(each, Restless(str(n % 2))) for n, each in enumerate(sources)])
    for asker in askers:
        assert sorted(j for _, j, _ in asker.sentences) == list(range(8))


def test_a_document_that_leaves_while_it_is_searched_takes_no_other_along(
    system: System, shared: SharedSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = WindowSearch._search
    gone = long_document(system, 3, 77)

    def leaving(self: WindowSearch, batch: Any, *rest: Any) -> Any:
        for pool in shared._pools.values():
            for opened in pool.documents:
                if opened.document == gone:
                    pool.remove(opened)
        return search(self, batch, *rest)

    monkeypatch.setattr(WindowSearch, "_search", leaving)
    with shared.exclusively(Work()):
        askers = [Asker(shared, [gone], Work()), Asker(shared, [long_document(system, 3)], Work("b"))]
        until(lambda: len(waiting(shared)) == 2)
    askers[1].thread.join(30)
    assert sorted(j for _, j, _ in askers[1].sentences) == [0, 1, 2]
    askers[0].work.cancel()
    askers[0].thread.join(30)


def test_stopped_all_that_waits_is_cancelled(system: System, shared: SharedSystem) -> None:
    long = Asker(shared, [long_document(system, 400)], Work("long"))
    until(lambda: long.sentences)
    shared.stop()
    long.thread.join(30)
    late = Asker(shared, [long_document(system, 1)], Work("late"))
    late.thread.join(30)
    assert [type(each.error).__name__ for each in (long, late)] == ["CancelledError"] * 2
