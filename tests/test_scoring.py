"""Scores against log-softmax by hand, one row at a time and nothing padded."""

import pytest
import torch
from tiny import PlainWordTokenizer, random_model, tiny_config, window

from cotext.config import Config
from cotext.data.batch import Instance, make_batch
from cotext.data.documents import ParallelDocument
from cotext.errors import CotextError
from cotext.scoring import SentenceScore, require_finite, score_instances
from cotext.systems import build_view, special_symbols
from cotext.translate import DocumentTranslator

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
    "window, shed": tiny_config(view=window(3, max_tokens=10), model={"positions": "reset"}),
}
systems = pytest.mark.parametrize("name", SYSTEMS)


def translator(config: Config, max_tokens: int = 8000) -> DocumentTranslator:
    changed = config.model_copy(
        update={"decode": config.decode.model_copy(update={"max_tokens": max_tokens})}
    )
    return DocumentTranslator(random_model(config, TOKENIZER), changed, TOKENIZER, CPU)


def by_hand(t: DocumentTranslator, document: ParallelDocument, j: int) -> SentenceScore:
    """Log-softmax of the labels of sentence j, from a row made of lists."""
    source = [TOKENIZER.encode(s) for s in document.source]
    target = [TOKENIZER.encode(s) for s in document.target]
    w = t.view.split([len(s) for s in source], [len(s) for s in target])[j]
    context = [label for k in range(w.target.start, j) for label in (*target[k], SYMBOLS.sep)]
    labels = [*target[j], SYMBOLS.eos]
    row = make_batch([Instance(0, w, [source[k] for k in w.source], [target[k] for k in w.target])], SYMBOLS)
    assert row.target_label[0].tolist() == context + labels
    with torch.no_grad():
        hidden = t.model.decode(row.target_input, row.input_sentence, t.model.encode(row.source))[0]
        log_p = (hidden @ t.model.output_weight.T).log_softmax(dim=1)
    picked = [float(log_p[len(context) + i, label]) for i, label in enumerate(labels)]
    return SentenceScore(sum(picked), len(labels))


def close(a: SentenceScore, b: SentenceScore) -> bool:
    return a.tokens == b.tokens and a.log_probability == pytest.approx(b.log_probability, abs=1e-4)


@systems
@pytest.mark.parametrize("max_tokens", [1, 30, 8000])
def test_scores_are_sums_of_log_softmax(name: str, max_tokens: int) -> None:
    t = translator(SYSTEMS[name], max_tokens)
    documents = [DOCUMENT, OTHER, DOCUMENT]
    for document, scores in zip(documents, t.score(documents), strict=True):
        assert len(scores) == len(document.source)
        assert all(close(score, by_hand(t, document, j)) for j, score in enumerate(scores))


@systems
def test_chosen_sentences_add_up(name: str) -> None:
    t = translator(SYSTEMS[name])
    per_sentence = t.score([DOCUMENT])[0]
    chosen = [(0, 1, 2, 3, 4), (3,), (1, 4), ()]
    totals = t.score_sentences([(DOCUMENT, c) for c in chosen])
    for c, total in zip(chosen, totals, strict=True):
        members = [per_sentence[j] for j in c]
        wanted = SentenceScore(sum(m.log_probability for m in members), sum(m.tokens for m in members))
        assert close(total, wanted)


def test_a_window_that_answers_for_all_its_sentences_scores_them_together() -> None:
    """The chain rule: without a change of context, the parts of a row add up to the row."""
    t = translator(SYSTEMS["window"])
    source = [TOKENIZER.encode(s) for s in DOCUMENT.source[:3]]
    target = [TOKENIZER.encode(s) for s in DOCUMENT.target[:3]]
    w = t.view.split([1, 1, 1], [1, 1, 1])[2]
    parts = [type(w)(w.source, w.target, r) for r in (range(1), range(1, 2), range(2, 3), range(3))]
    instances = [Instance(0, part, source, target) for part in parts]
    *single, whole = score_instances(t.model, instances, SYMBOLS, 8000, CPU)
    assert whole.tokens == sum(s.tokens for s in single) == sum(len(s) + 1 for s in target)
    assert whole.log_probability == pytest.approx(sum(s.log_probability for s in single), abs=1e-4)


def changed(side: str, j: int) -> ParallelDocument:
    """The document with another word in one sentence of one side."""
    sentences = {"source": list(DOCUMENT.source), "target": list(DOCUMENT.target)}
    sentences[side][j] = "auf" if side == "target" else "on"
    return ParallelDocument("d", tuple(sentences["source"]), tuple(sentences["target"]))


@systems
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("j", range(5))
def test_a_score_depends_on_the_context_in_the_window_and_on_nothing_else(
    name: str, side: str, j: int
) -> None:
    t = translator(SYSTEMS[name])
    before, after = t.score([DOCUMENT, changed(side, j)])
    windows = build_view(t.config.view).split(
        [len(s.split()) for s in DOCUMENT.source], [len(s.split()) for s in DOCUMENT.target]
    )
    after_windows = build_view(t.config.view).split(
        [len(s.split()) for s in changed(side, j).source], [len(s.split()) for s in changed(side, j).target]
    )
    for i, (w, v) in enumerate(zip(windows, after_windows, strict=True)):
        sees = w != v or j in (w.source if side == "source" else w.target)
        moved = abs(before[i].log_probability - after[i].log_probability) > 1e-4
        assert moved == sees
    if name == "sentence":
        assert [b == a for b, a in zip(before, after, strict=True)].count(False) == 1


def test_a_batch_is_scored_in_the_order_given() -> None:
    t = translator(SYSTEMS["window"])
    documents = [OTHER, DOCUMENT, changed("target", 0)]
    forwards, backwards = t.score(documents), t.score(documents[::-1])[::-1]
    for a, b in zip(forwards, backwards, strict=True):
        assert all(close(x, y) for x, y in zip(a, b, strict=True))


def test_scores_that_are_not_finite_are_refused() -> None:
    require_finite([SentenceScore(-3.0, 2)])
    for bad in (float("nan"), float("-inf")):
        with pytest.raises(CotextError, match="not finite"):
            require_finite([SentenceScore(-3.0, 2), SentenceScore(bad, 1)])


def test_nothing_to_score() -> None:
    t = translator(SYSTEMS["window"])
    assert t.score([]) == []
    assert t.score_sentences([(DOCUMENT, ())]) == [SentenceScore(0, 0)]
