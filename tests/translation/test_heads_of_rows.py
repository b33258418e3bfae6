"""Language symbols at the start of rows: read by every system, never predicted or counted."""

from typing import Any

import pytest
import torch

from cotext.data.batch import Instance, SpecialSymbols, extra_rows, hide_words, make_batch, source_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.views import Window
from cotext.layers.kernels import gated_others
from cotext.models.build import build_model
from cotext.models.build_views import special_symbols
from cotext.models.interface import TranslationModel
from cotext.training.losses import CrossEntropy
from cotext.translation.scorer import CandidateSet, score_candidates
from cotext.translation.translator import DocumentTranslator
from tests.cover import GATED, each_filling
from tests.refusals import must_raise
from tests.tiny import PlainWordTokenizer, pieces, random_model, random_translator, tiny_config, window

WORDS = ["the", "cat", "sat", "on", "a", "mat", "it", "saw", "again"]
CPU = torch.device("cpu")


class ManyLanguages(PlainWordTokenizer):
    """Words of two languages, and a symbol of each, the last two pieces."""

    def __init__(self, source: bool = True, target: bool = True) -> None:
        super().__init__([*WORDS, "<en>", "<de>"])
        self.unwritten = (self.pieces - 2, self.pieces - 1)
        self.source_prefix = self.unwritten[:1] if source else ()
        self.target_prefix = self.unwritten[1:] if target else ()

    def decode(self, ids: Any, side: Any = "target") -> str:
        return super().decode([i for i in ids if i not in self.unwritten])


TOKENIZER, NONE = ManyLanguages(), ManyLanguages(False, False)
SOURCE, TARGET = TOKENIZER.unwritten
CORPUS = [
    Document("a", ("the cat sat", "it", "", "on a mat saw again it", "cat")),
    Document("b", ("again",)),
    Document("c", ("on a the cat", "sat it saw the mat on the")),
]
BRACKET = {"separators": "bracket"}
# Sections of a configuration, by name of the case.
SYSTEMS: dict[str, dict[str, Any]] = {
    "sentence": {"view": {"kind": "sentence"}},
    "indexed": {"view": {**window(2), "separators": "indexed", "indexed_separators": 2}},
    "numbered": {"view": {**window(2), "separators": "numbered", "numbers": 3}},
    "regenerate": {"view": window(2), "decode": {"target_context": "regenerate"}},
    "free": {"view": window(1), "decode": {"align": "free", "beam": 1}},
    "documents": {"view": pieces()},
    "sentence by sentence": {"view": {**pieces(), **BRACKET}, "decode": {"beam_per": "sentence"}},
    "cumulative": {"view": pieces(kind="cumulative")},
    **{
        f"batch context {name}": {
            "view": window(1),
            "model": {"batch_context": name},
            "decode": {"group_windows": 2},
        }
        for name in ("flat", "datapoints", "mean")
    },
    **{
        f"others {name}, {kind}": {
            "model": {"attention": {**span, "others": "gated"}, "positions": "reset"},
            "view": {**view, **BRACKET},
            "decode": {"beam": 3, "beam_per": per},
        }
        for name, span in (("gated", {}), ("biased", GATED))
        for kind, view, per in (
            ("windows", window(3), "document"),
            ("documents", pieces(), "document"),
            ("sentence by sentence", pieces(), "sentence"),
        )
    },
    **{name: {"model": model, "view": window(2, after=1)} for name, model in each_filling().items()},
}


def rows(symbols: SpecialSymbols) -> list[Instance]:
    """A window whose target begins with its second sentence, and a sentence."""
    return [
        Instance(0, Window(range(3, 6), range(4, 6), range(5, 6)), [[4], [5, 6], [7]], [[8], [9, 10]]),
        Instance(1, Window(range(1), range(1), range(1)), [[4, 5]], [[6]]),
    ]


def sides(batch: Any) -> list[tuple[list[int], list[int]]]:
    """Source, decoder input and labels of the first row, each with its sentences."""
    pairs = (
        (batch.source.tokens, batch.source.sentence),
        (batch.target_input, batch.input_sentence),
        (batch.target_label, batch.label_sentence),
    )
    return [(tokens[0].tolist(), sentence[0].tolist()) for tokens, sentence in pairs]


def test_language_symbols_are_at_the_start_of_a_row_and_belong_to_its_first_sentence() -> None:
    symbols = special_symbols(TOKENIZER, tiny_config(view=window(2)).view)
    pad, bos, eos, [sep] = symbols.pad, symbols.bos, symbols.eos, symbols.separators
    batch = make_batch(rows(symbols), symbols)
    assert sides(batch) == [
        ([SOURCE, 4, sep, 5, 6, sep, 7, eos], [0, 0, 0, 1, 1, 1, 2, 2]),
        ([bos, TARGET, 8, sep, 9, 10], [1, 1, 1, 2, 2, 2]),
        ([pad, 8, sep, 9, 10, eos], [-1, 1, 1, 2, 2, 2]),
    ]
    assert batch.target_input[1].tolist() == [bos, TARGET, 6, pad, pad, pad]
    assert batch.is_label.sum(dim=1).tolist() == [5, 2]
    extra = extra_rows(rows(symbols), symbols)
    assert extra.source.tokens.equal(batch.source.tokens)
    assert extra.target_input.equal(batch.target_input)
    assert extra.input_sentence.equal(batch.input_sentence)


@pytest.mark.parametrize("separators", ["bracket", "numbered"])
def test_language_symbols_precede_source_brackets_and_follow_the_target_bracket(separators: str) -> None:
    view = {**window(2), "separators": separators, **({"numbers": 9} if separators == "numbered" else {})}
    symbols = special_symbols(TOKENIZER, tiny_config(view=view).view)
    eos, (a, b, c) = symbols.eos, (symbols.opening(k) for k in (3, 4, 5))
    source, target, label = sides(make_batch(rows(symbols), symbols))
    assert source[0] == [SOURCE, a, 4, eos, b, 5, 6, eos, c, 7, eos]
    assert target == ([b, TARGET, 8, c, 9, 10], [1, 1, 1, 2, 2, 2])
    assert label == ([symbols.pad, 8, eos, 9, 10, eos], [-1, 1, 1, 2, 2, 2])


def test_word_dropout_hides_only_words() -> None:
    symbols = special_symbols(TOKENIZER, tiny_config(view=window(2)).view)
    hidden = hide_words(make_batch(rows(symbols), symbols), 1.0, symbols, unknown=0)
    source, target, _ = sides(hidden)
    sep, eos = symbols.separators[0], symbols.eos
    assert source[0] == [SOURCE, 0, sep, 0, 0, sep, 0, eos]
    assert target[0] == [symbols.bos, TARGET, 0, sep, 0, 0]


def test_lengths_do_not_count_language_symbols() -> None:
    """What fits into view.max_tokens is the same text, and training leaves no row out for them."""
    with_them, without = (special_symbols(t, tiny_config(view=window(2)).view) for t in (TOKENIZER, NONE))
    for row in rows(with_them):
        assert row.row_tokens(with_them) == row.row_tokens(without)


def test_the_loss_depends_on_language_symbols_and_does_not_predict_them() -> None:
    """Against rows that are written out by hand, and another symbol changes what is predicted."""
    config = tiny_config()
    model = random_model(config, TOKENIZER)
    symbols = special_symbols(TOKENIZER, config.view)
    row = Instance(0, Window(range(1), range(1), range(1)), [[4, 5, 6]], [[7, 8]])
    found = CrossEntropy(0.0, 1.0)(model, make_batch([row], symbols))
    assert int(found.count) == 3
    source = source_batch([row], symbols)
    source.tokens = torch.tensor([[SOURCE, 4, 5, 6, symbols.eos]])
    inputs = torch.tensor([[symbols.bos, TARGET, 7, 8]])
    with torch.no_grad():
        hidden = model.decode(inputs, torch.zeros_like(inputs), model.encode(source))[0, 1:]
    wanted = (hidden @ model.output_weight.T).log_softmax(dim=1)[range(3), [7, 8, symbols.eos]]
    assert found.loss.item() == pytest.approx(-wanted.sum().item(), rel=1e-9)
    for other in (NONE, ManyLanguages(target=False), ManyLanguages(source=False)):
        changed = CrossEntropy(0.0, 1.0)(model, make_batch([row], special_symbols(other, config.view)))
        assert int(changed.count) == 3
        assert changed.loss.item() != pytest.approx(found.loss.item(), rel=1e-4)


def translator_of(**sections: Any) -> DocumentTranslator:
    return random_translator(tiny_config(**sections), TOKENIZER)


@pytest.mark.parametrize("name", SYSTEMS)
def test_all_translate_and_score_with_language_symbols(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many sentences as there were, with the scores of reading them; languages head every row."""
    translator, free = translator_of(**SYSTEMS[name]), name == "free"
    model, read = translator.model, {"source": 0, "target": 0}
    assert isinstance(model, TranslationModel)
    encode, decode = model.encode, model.decode

    def encoded(source: Any) -> Any:
        extra = [] if source.extra_rows is None else [source.extra_rows.source]
        for each in (source, *extra):
            assert each.tokens[:, 0].eq(SOURCE).all()
            assert each.tokens.eq(SOURCE).sum(dim=1).eq(1).all()
        if extra and bool((source.extra_rows.input_sentence >= 0).any()):
            there = (source.extra_rows.input_sentence >= 0).any(dim=1)
            assert source.extra_rows.target_input[there, 1].eq(TARGET).all()
        read["source"] += 1
        return encode(source)

    def decoded(tokens: Any, sentence: Any, state: Any) -> Any:
        if tokens.size(1) > 1 and tokens[0, 1] == TARGET:
            assert tokens[:, 1].eq(TARGET).all()
            assert tokens.eq(TARGET).sum(dim=1).eq(1).all()
            assert sentence[:, 0].equal(sentence[:, 1])
            read["target"] += 1
        else:
            assert not tokens.eq(TARGET).any()
        return decode(tokens, sentence, state)

    # A step has a query for each hypothesis. So steps and rows are computed in different ways.
    monkeypatch.setattr(gated_others, "FEW", translator.config.decode.beam)
    monkeypatch.setattr(model, "encode", encoded)
    monkeypatch.setattr(model, "decode", decoded)
    found = dict(translator.translate(CORPUS))
    assert read["source"] == read["target"] > 0
    translations = [found[i].document for i in range(len(CORPUS))]
    for document, translation in zip(CORPUS, translations, strict=True):
        assert len(translation) == len(document)
        for sentence, written in zip(document.sentences, translation.sentences, strict=True):
            assert "<" not in written
            assert free or bool(written) == bool(sentence)
    if free or translator.config.decode.target_context == "regenerate":
        return
    pairs = [
        ParallelDocument(d.id, d.sentences, t.sentences) for d, t in zip(CORPUS, translations, strict=True)
    ]
    for i, scores in enumerate(translator.score(pairs)):
        assert tuple(s.tokens for s in scores) == found[i].tokens
        for score, reported in zip(scores, found[i].log_probabilities, strict=True):
            assert score.log_probability == pytest.approx(reported, abs=1e-9)


@pytest.mark.parametrize("view", ["sentence", "indexed", "documents"])
def test_candidates_are_scored_with_language_symbols(view: str) -> None:
    scorer = translator_of(**SYSTEMS[view])
    source = CORPUS[2].sentences
    candidates = (("it saw", "again"), ("it sat", "again the"), ("it saw", "on"))
    found = score_candidates(scorer, [CandidateSet(source, candidates, (0, 1))])[0]
    pairs = [ParallelDocument("c", source, each) for each in candidates]
    for score, sentences in zip(found, scorer.score(pairs), strict=True):
        assert score.tokens == sum(s.tokens for s in sentences)
        assert score.log_probability == pytest.approx(sum(s.log_probability for s in sentences), abs=1e-9)
    tokens = scorer.score_tokens([(pairs[0], (0, 1))])[0]
    assert [len(each) for each in tokens] == [3, 2]


def test_a_non_autoregressive_model_reads_the_source_language_symbol() -> None:
    tokenizer = ManyLanguages(target=False)
    config = tiny_config(
        model={
            "writes": "non_autoregressive",
            "attention": {"span": "sentence", "top": {"layers": 1, "span": "nodes"}},
        },
        view={**pieces(), **BRACKET},
        loss={"name": "glancing"},
        decode={"beam": 1},
    )
    torch.manual_seed(0)
    model = build_model(config, tokenizer.vocabulary_size).double().eval()
    translator = DocumentTranslator(model, config, tokenizer, CPU)
    for document, (_, found) in zip(CORPUS, sorted(translator.translate(CORPUS)), strict=True):
        assert [bool(s) for s in found.document.sentences] == [bool(s) for s in document.sentences]
    pairs = [ParallelDocument(d.id, d.sentences, d.sentences) for d in CORPUS]
    assert [s.tokens for s in translator.score(pairs)[0]] == [4, 2, 0, 7, 2]


def test_separators_of_a_recipe_need_room_behind_both_vocabularies() -> None:
    tokenizer = ManyLanguages()
    tokenizer.source_vocabulary_size = tokenizer.vocabulary_size + 5
    config = tiny_config(view={**window(2), "separators": "indexed", "indexed_separators": 2})
    must_raise("indexed: this tokenizer has a vocabulary", special_symbols, tokenizer, config.view)
    assert special_symbols(tokenizer, tiny_config(view=window(2)).view).separators == (tokenizer.sep,)
    # Pieces of the source alone, behind the special symbols, are words too.
    symbols = special_symbols(tokenizer, tiny_config().view)
    row = Instance(0, Window(range(1), range(1), range(1)), [[4, tokenizer.vocabulary_size + 1]], [[5]])
    hidden = hide_words(make_batch([row], symbols), 1.0, symbols, unknown=0)
    assert hidden.source.tokens.tolist() == [[SOURCE, 0, 0, symbols.eos]]
