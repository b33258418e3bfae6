"""Groups of windows that attend to each other: their batches and translations, by random models."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from cotext.config.recipe import Config, parse_config
from cotext.data.batch import Batch, Instance, Source, make_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.views import group_of
from cotext.search.beam_search import search
from cotext.search.constraints import SearchRequest
from cotext.search.hypotheses import Hypothesis
from cotext.translation import plan as plan_module
from cotext.translation.open import scoring_entries
from cotext.translation.translator import DocumentPool, DocumentTranslator, Translation
from cotext.translation.window_search import WindowSearch
from tests.refusals import must_raise
from tests.tiny import PlainWordTokenizer, random_model, tiny_config, window
from tests.tiny_runs import with_section
from tests.translation.test_translator import CPU, WORDS, read_to_translate, same, translated
from tests.translation.test_translator import PLAIN as TOKENIZER

NUMBERED = {"separators": "numbered", "numbers": 4}


def standing(source: Source) -> list[tuple[int, int]]:
    """Document, and place of the current sentence there."""
    return list(
        zip(source.document.tolist(), (source.first_sentence + source.current[:, 0]).tolist(), strict=True)
    )


SYSTEMS = {
    "alone": tiny_config(decode={"group_windows": 3}),
    "window": tiny_config(view=window(3), decode={"group_windows": 3}),
    "window, numbered": tiny_config(view=window(2) | NUMBERED, decode={"group_windows": 4}),
    "window, shed": tiny_config(view=window(3, max_tokens=9), decode={"group_windows": 2}),
    "future": tiny_config(view=window(1, after=1), decode={"group_windows": 16}),
    "source context": tiny_config(view=window(2) | {"target_before": 0}, decode={"group_windows": 3}),
    "regenerate": tiny_config(view=window(2), decode={"group_windows": 3, "target_context": "regenerate"}),
}
systems = pytest.mark.parametrize("name", SYSTEMS)
BATCH_LEVEL = ["flat", "mean", "datapoints"]
# Where the other rows see what a row writes of its own: all that is written is scored in the same context.
SCORED = [name for name in SYSTEMS if name != "regenerate"]
TAKING = [name for name in SYSTEMS if name.startswith(("window", "future"))]
# How documents may be translated: in turn, with a first pass where it is of use, and at once.
WAYS = [
    (name, schedule, two_passes)
    for name in SYSTEMS
    for schedule in ("sequential", "simultaneous")
    for two_passes in (False, True)
    if (not two_passes if name not in TAKING else two_passes or schedule == "sequential")
]

LONG = ("the cat sat", "", "it saw a mat and a cat", "again", "on the mat", "there today", "a cat", "it saw")
CORPUS = [
    Document("long", LONG),
    Document("one", ("and it sat there",)),
    Document("empty", ("", "")),
    Document("nothing", ()),
    Document("three", ("a cat", "a mat a mat a mat", "sat sat")),
    Document("opens empty", ("", "", "today")),
    Document("five", ("it sat", "a", "the mat on the mat there", "cat", "saw it again")),
]
TWO = [CORPUS[0], CORPUS[4]]


def first_system(seed: int = 7, **decode: Any) -> DocumentTranslator:
    """Sentence by sentence, with words in another order in its vocabulary."""
    config = tiny_config(decode=decode)
    tokenizer = PlainWordTokenizer(WORDS[::-1])
    return DocumentTranslator(random_model(config, tokenizer, seed), config, tokenizer, CPU, name="first")


def translator(
    config: Config,
    model: str = "flat",
    target: bool = True,
    first_pass: DocumentTranslator | None = None,
    cross_document: bool = False,
    **decode: Any,
) -> DocumentTranslator:
    """`model`: a system by name, or `transformer`, which knows nothing of other rows."""
    sections = config.model_dump() | {"decode": {**config.decode.model_dump(), **decode}}
    if model in BATCH_LEVEL:
        batch = {"target": target, "cross_document": cross_document}
        sections["model"] |= {"batch_context": model, "batch": batch}
    config = parse_config(sections, "test")
    return DocumentTranslator(random_model(config, TOKENIZER), config, TOKENIZER, CPU, first_pass)


class Spy:
    """Stands before `search` and remembers what it was given, by a model of some kind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sees_other_rows: bool = True) -> None:
        self.calls: list[tuple[Source, Sequence[SearchRequest]]] = []

        def spying(
            model: Any, source: Source, requests: Sequence[SearchRequest], symbols: Any, options: Any
        ) -> list[Hypothesis]:
            if model.sees_other_rows == sees_other_rows:
                self.calls.append((source, requests))
            return search(model, source, requests, symbols, options)

        monkeypatch.setattr(plan_module, "search", spying)


def test_groups_are_runs_of_windows() -> None:
    assert [group_of(n, 7, 3) for n in range(7)] == [range(3)] * 3 + [range(3, 6)] * 3 + [range(6, 7)]
    assert [group_of(n, 3, 1) for n in range(3)] == [range(n, n + 1) for n in range(3)]


@pytest.mark.parametrize(
    ("model", "name", "schedule", "two_passes"),
    [
        (model, *way)
        for model in BATCH_LEVEL
        for way in WAYS
        if model == "flat" or way[0] == "window, numbered"
    ],
)
def test_a_document_alone_is_as_amid_others(model: str, name: str, schedule: str, two_passes: bool) -> None:
    """And as many sentences come out as went in."""
    first = first_system(beam=1) if two_passes else None
    t = translator(SYSTEMS[name], model, first_pass=first, schedule=schedule)
    done: list[int] = []
    found = dict(t.translate(CORPUS, done.append))
    assert sum(done) == t.check(CORPUS) == sum(len(d.sentences) for d in CORPUS)
    together = [found[i] for i in range(len(CORPUS))]
    for document, translation in zip(CORPUS, together, strict=True):
        assert translation.document.id == document.id
        assert [bool(s) for s in translation.document.sentences] == [bool(s) for s in document.sentences]
        assert translation.recovered
    crowded = translator(SYSTEMS[name], model, first_pass=first, schedule=schedule, max_tokens=120)
    for a, b in zip(together, translated(crowded, CORPUS[::-1])[::-1], strict=True):
        assert same(a, b)
    [alone] = translated(t, CORPUS[:1])
    assert same(alone, together[0])


@pytest.mark.parametrize("model", BATCH_LEVEL)
def test_documents_are_searched_side_by_side(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window waits for the one before it, and for no other document: so many calls as the longest has."""
    spy = Spy(monkeypatch)
    translated(translator(SYSTEMS["window, numbered"], model, schedule="sequential"), CORPUS)
    # Documents of 7, 1, 3, 1 and 5 sentences.
    assert [len(requests) for _, requests in spy.calls] == [5, 3, 3, 2, 2, 1, 1]


@pytest.mark.parametrize("model", BATCH_LEVEL)
def test_documents_that_meet_in_training_do_not_in_translation(model: str) -> None:
    apart, crossing = (
        translator(SYSTEMS["window, numbered"], model, cross_document=crosses) for crosses in (False, True)
    )
    assert all(same(*pair) for pair in zip(*(translated(t, CORPUS) for t in (apart, crossing)), strict=True))


@systems
def test_the_other_rows_make_a_difference(name: str) -> None:
    """Or the tests here would prove nothing."""
    kinds: list[dict[str, Any]] = [{}, {"target": False}, {"group_windows": 1}]
    outputs = [translated(translator(SYSTEMS[name], beam=1, **kind), CORPUS[:1])[0] for kind in kinds]
    assert len({out.log_probabilities for out in outputs}) == 3


@systems
def test_groups_of_one_row_know_that_row_alone(name: str) -> None:
    """Whatever else is in the batch: with a first pass, rows of one document are searched side by side."""
    first = first_system(beam=1) if name in TAKING else None
    plain = translator(SYSTEMS[name], first_pass=first, max_tokens=1)
    # Every row has a batch of its own, and nothing beside it.
    plain.plan = replace(plain.plan, sees_other_rows=False, group_windows=1, sequential_windows=1)
    expected = translated(plain, TWO)
    for schedule in ("sequential", "simultaneous"):
        lonely = translator(SYSTEMS[name], first_pass=first, group_windows=1, schedule=schedule)
        assert all(same(a, b) for a, b in zip(translated(lonely, TWO), expected, strict=True))


@pytest.mark.parametrize("name", SCORED)
def test_both_schedules_agree_where_nothing_is_seen_of_targets(name: str) -> None:
    first = first_system(beam=1) if name in TAKING else None
    one, *others = (
        translated(translator(SYSTEMS[name], target=False, first_pass=first, schedule=s, max_tokens=n), TWO)
        for s, n in (("sequential", 8000), ("simultaneous", 8000), ("simultaneous", 1))
    )
    for other in others:
        assert all(same(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("model", "name"),
    [*(("flat", name) for name in SCORED), *((model, "window, numbered") for model in BATCH_LEVEL[1:])],
)
def test_the_score_of_a_translation_is_what_search_reported(model: str, name: str) -> None:
    found = translated(translator(SYSTEMS[name], model), CORPUS)
    pairs = [
        ParallelDocument(d.id, d.sentences, f.document.sentences) for d, f in zip(CORPUS, found, strict=True)
    ]
    for max_tokens in (1, 200, 8000):
        t = translator(SYSTEMS[name], model, max_tokens=max_tokens)
        for scores, translation in zip(t.score(pairs), found, strict=True):
            again = [s.log_probability for s in scores]
            assert again == pytest.approx(translation.log_probabilities, abs=1e-9)
        # Chosen sentences are scored amid the whole of their groups.
        chosen = [(6, (4,)), (0, (3, 7)), (0, ()), (2, (0,))]
        sums = [sum(found[i].log_probabilities[j] for j in places) for i, places in chosen]
        scores = t.score_sentences([(pairs[i], places) for i, places in chosen])
        assert [s.log_probability for s in scores] == pytest.approx(sums, abs=1e-9)


def training_batch(t: DocumentTranslator, document: Document, out: Document) -> Batch:
    """The rows of a whole document as training makes them."""
    source = [TOKENIZER.encode(s) for s in document.sentences if s]
    target = [TOKENIZER.encode(s) for s in out.sentences if s]
    return make_batch(
        [
            Instance(0, w, [source[j] for j in w.source], [target[j] for j in w.target])
            for w in t.plan.view.split([len(s) for s in source], [])
        ],
        t.plan.symbols,
    )


def real(tokens: Tensor, sentence: Tensor) -> list[tuple[int, int]]:
    """Tokens with their sentences, without padding."""
    pairs = list(zip(tokens.tolist(), sentence.tolist(), strict=True))
    return [pair for pair in pairs if pair[1] >= 0]


@pytest.mark.parametrize("name", SCORED)
def test_companions_are_the_rows_that_training_makes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    t = translator(SYSTEMS[name])
    document = CORPUS[0]
    [found] = translated(t, [document])
    batch = training_batch(t, document, found.document)
    windows = len(batch.source.tokens)
    seen = 0
    for source, requests in spy.calls:
        assert len(requests) == len(source.tokens)
        beside = source.extra_rows
        for ordinal, place in standing(source):
            seen += 1
            others = set(group_of(place, windows, t.plan.group_windows)) - {place}
            at = [] if beside is None else standing(beside.source)
            assert {p for o, p in at if o == ordinal} == others
            for c, (_, p) in enumerate(at):
                if beside is None or p not in others:
                    continue
                companion = real(beside.source.tokens[c], beside.source.sentence[c])
                assert companion == real(batch.source.tokens[p], batch.source.sentence[p])
                written = real(beside.target_input[c], beside.input_sentence[c])
                expected = real(batch.target_input[p], batch.input_sentence[p])
                assert written == (expected if p < place else [])
                assert set(beside.target_input[c][beside.input_sentence[c] < 0].tolist()) <= {
                    t.plan.symbols.pad
                }
    assert seen == windows


def test_windows_that_write_their_context_again_show_what_they_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    t = translator(SYSTEMS["regenerate"])
    translated(t, [Document("d", ("a cat", "it sat", "the mat"))])
    beside = spy.calls[-1][0].extra_rows
    assert beside is not None
    assert [
        len({k for _, k in real(*row)})
        for row in zip(beside.target_input, beside.input_sentence, strict=True)
    ] == [1, 2]


def test_parallel_rows_of_a_group_share_a_call_without_companions(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    counts = {}
    for max_tokens in (1, 8000):
        spy.calls.clear()
        t = translator(
            SYSTEMS["window"], first_pass=first_system(), schedule="simultaneous", max_tokens=max_tokens
        )
        translated(t, CORPUS)
        groups = []
        for source, _ in spy.calls:
            assert source.extra_rows is None
            by_group: dict[int, list[int]] = {}
            for ordinal, place in standing(source):
                by_group.setdefault(ordinal, []).append(place)
            groups += [sorted(places) for places in by_group.values()]
        counts[max_tokens] = len(spy.calls)
        # Documents of 7, 1, 3, 1 and 5 sentences.
        whole = [[0, 1, 2], [3, 4, 5], [6], [0], [0, 1, 2], [0], [0, 1, 2], [3, 4]]
        assert sorted(groups) == sorted(whole)
    assert counts == {1: 8, 8000: 1}


def test_a_first_pass_makes_every_window_ready_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of systems whose rows do not meet too; its translations are forced, in the own tokens."""
    spy = Spy(monkeypatch, sees_other_rows=False)
    first = first_system()
    t = translator(SYSTEMS["window"], "transformer", first_pass=first)
    [before] = translated(first, CORPUS[:1])
    of_first = len(spy.calls)
    translated(t, CORPUS[:1])
    [(_, requests)] = spy.calls[2 * of_first :]
    target = [TOKENIZER.encode(s) for s in before.document.sentences if s]
    prefixes = [
        [token for sentence in target[max(0, j - 3) : j] for token in (*sentence, TOKENIZER.sep)]
        for j in range(7)
    ]
    assert sorted(list(r.prefix) for r in requests) == sorted(prefixes)
    assert all(r.sentences == 1 for r in requests)


class Leaving(DocumentTranslator):
    """A first pass that leaves every other sentence without a translation, and all of some documents."""

    def translate(
        self, documents: Iterable[Document], on_sentences: Any = lambda count: None, guide: Any = None
    ) -> Iterator[tuple[int, Translation]]:
        for index, translation in super().translate(documents):
            sentences = translation.document.sentences
            left = tuple("" if index == 4 or j % 2 else s for j, s in enumerate(sentences))
            yield index, replace(translation, document=replace(translation.document, sentences=left))


@pytest.mark.parametrize("name", TAKING)
@pytest.mark.parametrize("schedule", ["sequential", "simultaneous"])
def test_a_first_pass_may_leave_sentences_empty(name: str, schedule: str) -> None:
    whole = first_system()
    leaving = Leaving(whole.model, whole.config, whole.tokenizer, CPU)
    found = translated(translator(SYSTEMS[name], first_pass=leaving, schedule=schedule), CORPUS)
    for document, translation in zip(CORPUS, found, strict=True):
        assert [bool(s) for s in translation.document.sentences] == [bool(s) for s in document.sentences]


def test_documents_with_a_first_pass_are_read_as_they_are_needed() -> None:
    first = first_system(max_tokens=50)
    assert read_to_translate(translator(SYSTEMS["window"], first_pass=first, max_tokens=50), 40) < 150


def bytes_first(monkeypatch: pytest.MonkeyPatch, blank_at_first: Sequence[int]) -> None:
    """The windows of these sentences show nothing when they are searched for the first time."""
    shows = WindowSearch._shows
    refused: set[int] = set()

    def showing(self: WindowSearch, row: Any, hypothesis: Hypothesis) -> bool:
        if row.number in blank_at_first and row.number not in refused:
            refused.add(row.number)
            return False
        return shows(self, row, hypothesis)

    monkeypatch.setattr(WindowSearch, "_shows", showing)


def test_what_showed_nothing_is_searched_again_beside_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_first(monkeypatch, [3, 1])
    spy = Spy(monkeypatch)
    t = translator(SYSTEMS["source context"], schedule="simultaneous", group_windows=5)
    document = CORPUS[6]
    [found] = translated(t, [document])
    calls = [source for source, _ in spy.calls]
    batch = training_batch(t, document, found.document)
    assert [len(source.tokens) for source in calls] == [5, 1, 1]
    for source, place in zip(calls[1:], (1, 3), strict=True):
        beside = source.extra_rows
        assert beside is not None
        assert [p for _, p in standing(beside.source)] == [p for p in range(5) if p != place]
        for (_, p), *row in zip(
            standing(beside.source), beside.target_input, beside.input_sentence, strict=True
        ):
            expected = real(batch.target_input[p], batch.input_sentence[p])
            assert real(*row) == (expected if p < place else [])


def test_passes_that_lack_something_are_refused() -> None:
    at_once: dict[str, Any] = {"schedule": "simultaneous"}
    for config, decode, message in (
        ("window", at_once, r"decode\.first_pass to a run, or choose decode\.schedule = sequential"),
        ("window", {"first_pass": "runs/first"}, r"runs/first: the first-pass run is not loaded"),
        ("future", at_once, r"needs a first pass"),
    ):
        t = translator(with_section(SYSTEMS[config], "decode", **decode))
        must_raise(message, t.check, CORPUS)
        must_raise(message, t.translate, CORPUS)
        # What is given needs no first pass to be scored.
        t.score([ParallelDocument("d", ("a cat", "it sat"), ("cat", "sat it"))])


def test_first_passes_that_cannot_be_are_refused() -> None:
    first = first_system()
    second = translator(SYSTEMS["window"], first_pass=first)
    needy = translator(SYSTEMS["window"], schedule="simultaneous")
    strict = first_system(max_source_tokens=6)
    for name, before, message in (
        *((name, first, "has no effect") for name in ("alone", "source context", "regenerate")),
        ("window", second, "at most two passes are supported"),
        ("window", strict, r"decode\.first_pass = .*document long, sentence 3: 7 tokens"),
        ("window", needy, r"decode\.schedule = simultaneous"),
    ):
        must_raise(message, translator(SYSTEMS[name], first_pass=before).check, CORPUS)


def test_the_signature_tells_schedule_neighbours_and_first_pass() -> None:
    first = first_system()
    plain = translator(SYSTEMS["window"], "transformer")
    assert not {"schedule", "group_windows", "first_pass"} & set(entries(plain))
    two = translator(SYSTEMS["window"], "transformer", first_pass=first)
    told = "first(view:sentence,align:constrained,beam:2,lp:0.6,limit:1x+4)"
    assert entries(two) == entries(plain) | {"first_pass": told}
    meeting = translator(SYSTEMS["window"], first_pass=first, schedule="simultaneous")
    assert entries(meeting) == entries(two) | {"schedule": "simultaneous", "group_windows": "3"}
    opened: Any = SimpleNamespace(loaded=SimpleNamespace(signature="model:x"), translator=meeting)
    assert scoring_entries(opened)["group_windows"] == "3"


def entries(t: DocumentTranslator) -> dict[str, str]:
    return dict(entry.split(":", 1) for entry in t.signature.split("|"))


def test_a_group_that_failed_in_the_middle_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searched again whole, as its windows see each other; what was finished before is not told again."""
    t = translator(SYSTEMS["alone"], schedule="simultaneous", beam=1)
    assert t.plan.searches_groups
    pool = DocumentPool(t.windows)
    told: list[int] = []
    whole = dict(t.translate(CORPUS[:1]))[0]
    opened = t.windows.opened(0, CORPUS[0], None, None, None)
    opened.on_sentence = lambda sentence, text: told.append(sentence)
    pool.add(opened)
    recovered, calls = WindowSearch._recovered, []

    def failing(self: WindowSearch, *row: Any) -> Any:
        calls.append(row)
        if len(calls) == 2:
            raise MemoryError
        return recovered(self, *row)

    monkeypatch.setattr(WindowSearch, "_recovered", failing)
    [group, *_] = pool.ready(opened)
    with pytest.raises(MemoryError):
        pool.search([group])
    assert len(told) == 1
    while not opened.done:
        pool.search([pool.ready(opened)[0]])
    assert sorted(told) == opened.kept
    assert [each.text for each in opened.sentences()] == list(whole.document.sentences)
