"""Scores against log-softmax by hand, one row at a time and nothing padded."""

import pytest
import torch

from cotext.data.batch import Instance, make_batch
from cotext.data.documents import ParallelDocument
from cotext.data.views import Window
from cotext.models import likelihood
from cotext.models.build_views import special_symbols
from cotext.models.likelihood import RowsToRead
from cotext.translation import scorer as scoring_module
from cotext.translation.scorer import SentenceScore, require_finite, score_instances
from cotext.translation.translator import DocumentTranslator
from tests.noting import calls_of
from tests.refusals import must_raise
from tests.tiny import PlainWordTokenizer, pieces, random_translator, tiny_config, window

CPU = torch.device("cpu")
SOURCE_WORDS = ["the", "cat", "sat", "on", "a", "mat", "it"]
TARGET_WORDS = ["die", "katze", "sass", "auf", "der", "matte", "sie"]
TOKENIZER = PlainWordTokenizer(SOURCE_WORDS + TARGET_WORDS)
SYMBOLS = special_symbols(TOKENIZER, tiny_config().view)

DOCUMENT = ParallelDocument(
    "d",
    ("the cat sat on the mat", "it sat", "", "on the mat it sat", "cat"),
    ("die katze sass auf der matte", "sie sass auf", "matte", "", "katze der"),
)
OTHER = ParallelDocument("o", ("it",), ("sie sass",))
SYSTEMS = {
    "sentence": tiny_config(),
    "window": tiny_config(view=window(2), model={"positions": "shifted", "shift": "sequence"}),
    "window, future": tiny_config(view=window(1, after=2), model={"segments": "learned"}),
    "window, bracket": tiny_config(view=window(2) | {"separators": "bracket"}),
    "source context": tiny_config(view=window(2) | {"target_before": 0}),
    "document": tiny_config(view=pieces(), model={"segments": "learned"}),
    "document, indexed": tiny_config(view=pieces() | {"separators": "indexed", "indexed_separators": 3}),
    "document, bracket": tiny_config(view=pieces() | {"separators": "bracket"}, model={"positions": "reset"}),
    "document, in pieces": tiny_config(view=pieces(16)),
    "cumulative": tiny_config(view=pieces(16, "cumulative")),
    "window, shed": tiny_config(view=window(3, max_tokens=10), model={"positions": "reset"}),
}
systems = pytest.mark.parametrize("name", SYSTEMS)


def windows(t: DocumentTranslator, document: ParallelDocument) -> list[Window]:
    """The window in which each sentence is current."""
    lengths = [len(s.split()) for s in document.source]
    found = {j: w for w in t.plan.view.split(lengths, []) for j in w.current}
    return [found[j] for j in range(len(document.source))]


def by_hand(t: DocumentTranslator, document: ParallelDocument, j: int) -> SentenceScore:
    """Log-softmax of the labels of sentence j, from a row made of lists."""
    source = [TOKENIZER.encode(s) for s in document.source]
    target = [TOKENIZER.encode(s) for s in document.target]
    w = windows(t, document)[j]
    closers = [t.plan.symbols.separator(k - w.source.start) for k in w.target]
    closers[-1] = t.plan.symbols.eos
    labels = [[*target[k], closer] for k, closer in zip(w.target, closers, strict=True)]
    row = make_batch(
        [Instance(0, w, [source[k] for k in w.source], [target[k] for k in w.target])], t.plan.symbols
    )
    assert row.target_label[0].tolist() == [label for sentence in labels for label in sentence]
    with torch.no_grad():
        hidden = t.model.decode(row.target_input, row.input_sentence, t.model.encode(row.source))[0]
        log_p = (hidden @ t.model.output_weight.T).log_softmax(dim=1)
    at = sum(len(sentence) for sentence in labels[: j - w.target.start])
    own = labels[j - w.target.start]
    picked = [float(log_p[at + i, label]) for i, label in enumerate(own)]
    return SentenceScore(sum(picked), len(own))


def close(a: SentenceScore, b: SentenceScore) -> bool:
    return a.tokens == b.tokens and a.log_probability == pytest.approx(b.log_probability, abs=1e-4)


@systems
def test_scores_are_sums_of_log_softmax(name: str) -> None:
    t, documents = random_translator(SYSTEMS[name], TOKENIZER), [DOCUMENT, OTHER, DOCUMENT]
    expected = [[by_hand(t, d, j) for j in range(len(d.source))] for d in documents]
    for max_tokens in (1, 30, 8000):
        found = random_translator(SYSTEMS[name], TOKENIZER, max_tokens=max_tokens).score(documents)
        for scores, wanted in zip(found, expected, strict=True):
            assert all(close(*pair) for pair in zip(scores, wanted, strict=True)), max_tokens


@systems
def test_chosen_sentences_add_up(name: str) -> None:
    t = random_translator(SYSTEMS[name], TOKENIZER)
    per_sentence = t.score([DOCUMENT])[0]
    chosen = [(0, 1, 2, 3, 4), (3,), (1, 4), ()]
    totals = t.score_sentences([(DOCUMENT, c) for c in chosen])
    for c, total in zip(chosen, totals, strict=True):
        members = [per_sentence[j] for j in c]
        wanted = SentenceScore(sum(m.log_probability for m in members), sum(m.tokens for m in members))
        assert close(total, wanted)


def test_a_window_that_answers_for_all_its_sentences_scores_each_of_them() -> None:
    """As windows of the same row score them that answer for one alone."""
    t = random_translator(SYSTEMS["window"], TOKENIZER)
    source = [TOKENIZER.encode(s) for s in DOCUMENT.source[:3]]
    target = [TOKENIZER.encode(s) for s in DOCUMENT.target[:3]]
    w = t.plan.view.split([1, 1, 1], [1, 1, 1])[2]
    parts = [Window(w.source, w.target, r) for r in (range(1), range(1, 2), range(2, 3), range(3))]
    instances = [Instance(0, part, source, target) for part in parts]
    *single, whole = score_instances(RowsToRead(t.model, instances, SYMBOLS, 8000, CPU))
    assert [s.tokens for s in whole] == [s.tokens for [s] in single] == [len(s) + 1 for s in target]
    for a, [b] in zip(whole, single, strict=True):
        assert a.log_probability == pytest.approx(b.log_probability, abs=1e-4)


def test_scores_that_are_not_finite_are_refused() -> None:
    require_finite([SentenceScore(-3.0, 2)])
    for bad in (float("nan"), float("-inf")):
        must_raise("not finite", require_finite, [SentenceScore(-3.0, 2), SentenceScore(bad, 1)])


def test_nothing_to_score() -> None:
    t = random_translator(SYSTEMS["window"], TOKENIZER)
    assert t.score([]) == []
    assert t.score_sentences([(DOCUMENT, ())]) == [SentenceScore(0, 0)]


@systems
def test_a_sentence_that_is_empty_on_both_sides_is_no_part_of_its_document(name: str) -> None:
    t = random_translator(SYSTEMS[name], TOKENIZER)
    source, target = (("", *side[:2], " ", *side[2:]) for side in (DOCUMENT.source, DOCUMENT.target))
    gaps = ParallelDocument("g", source, target)
    first, second, scores = t.score([DOCUMENT, gaps, gaps])[0], t.score([gaps])[0], t.score([gaps, OTHER])[0]
    assert [second[0], second[3]] == [SentenceScore(0, 0)] * 2
    rest = [score for j, score in enumerate(scores) if j not in (0, 3)]
    assert all(close(a, b) for a, b in zip(first, rest, strict=True))
    [chosen, nothing] = t.score_sentences([(gaps, (0, 2)), (gaps, (0, 3))])
    assert close(chosen, first[1])
    assert nothing == SentenceScore(0, 0)


def test_no_more_windows_are_scored_than_hold_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = calls_of(monkeypatch, scoring_module, "score_instances", lambda rows: len(rows.instances))
    for name in ("sentence", "window", "document", "document, in pieces"):
        random_translator(SYSTEMS[name], TOKENIZER).score_sentences([(DOCUMENT, (0, 1))])
    assert counts == [2, 2, 1, 1]


@pytest.mark.parametrize("max_tokens", [1, 20, 8000])
def test_instances_of_a_group_share_a_batch(max_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = calls_of(monkeypatch, likelihood, "make_batch", lambda rows, _: [i.document for i in rows])
    t = random_translator(SYSTEMS["window"], TOKENIZER)
    sentences = [TOKENIZER.encode(s) for s in ("the cat sat on the mat", "it sat", "on", "cat")]
    views = t.plan.view.split([len(s) for s in sentences], [])
    instances = [
        Instance(i, w, *([sentences[k] for k in side] for side in (w.source, w.target)))
        for i, w in enumerate([*views, *views])
    ]
    groups = [[0, 5, 2], [7], [1, 3], [6, 4]]
    found = score_instances(RowsToRead(t.model, instances, SYMBOLS, max_tokens, CPU, groups))
    alone = score_instances(RowsToRead(t.model, instances, SYMBOLS, 1, CPU))
    assert all(close(a, b) for [a], [b] in zip(found, alone, strict=True))
    together = batches[: -len(instances)]
    assert sorted(i for batch in together for i in batch) == list(range(8))
    assert all(any(set(group) <= set(batch) for batch in together) for group in groups)
    assert len(together) == {1: 4, 20: 4, 8000: 1}[max_tokens]
