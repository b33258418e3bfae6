"""D-LM (Sugiyama and Yoshinaga 2021): a language model of targets, and its pointwise mutual information."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cotext.config.recipe import load_config
from cotext.data.batch import Instance, Source, SpecialSymbols, make_batch
from cotext.data.views import Window
from cotext.models.build import build_model
from cotext.models.build_views import special_symbols
from cotext.models.checks import check
from cotext.models.interface import TranslationModel
from cotext.models.language_model import WithLanguageModel
from cotext.models.likelihood import label_nll, sentence_sums
from cotext.search.beam_search import search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.hypotheses import SearchOptions
from tests.refusals import must_raise
from tests.test_leaks import TOKENIZER
from tests.tiny import TINY_MODEL, random_model, shake, tiny_config, window

LM = {"reads_source": False}
SENTENCES = [[4, 9, 5], [17, 6], [7, 8, 21, 30], [12, 11]]
TARGETS = [[24, 9], [7, 16, 5, 33], [27, 8, 21], [13, 2, 15]]
SYMBOLS = special_symbols(TOKENIZER, tiny_config(view=window(2)).view)


def language_model(seed: int = 1, **model: Any) -> TranslationModel:
    return random_model(tiny_config(model=LM | model, view=window(2)), TOKENIZER, seed)


def sentence_model(seed: int = 2) -> TranslationModel:
    return random_model(tiny_config(), TOKENIZER, seed)


def row(first: int, current: int) -> Instance:
    """Sentence `current` after the sentences from `first` on."""
    span = range(first, current + 1)
    window = Window(span, span, range(current, current + 1))
    return Instance(0, window, *(side[first : current + 1] for side in (SENTENCES, TARGETS)))


@torch.no_grad()
def log_p(model: TranslationModel, inputs: list[int], source: list[int]) -> Tensor:
    """In plain words: log-probabilities after every input, of one sentence or of a language model's row."""
    tokens = torch.tensor([[*source, TOKENIZER.eos]])
    sentence = torch.tensor([[0, *itertools.accumulate(t == TOKENIZER.sep for t in inputs[1:])]])
    one = torch.zeros(1, dtype=torch.long)
    state = model.encode(Source(tokens, torch.zeros_like(tokens), torch.tensor([[0, 1]]), one, one))
    hidden = model.decode(torch.tensor([inputs]), sentence, state)
    return (hidden[0] @ model.output_weight.T).log_softmax(dim=1)


def test_a_language_model_has_no_weights_for_a_source() -> None:
    """That it reads none, and the target before: tests/models/test_reach.py."""
    config = load_config("d-lm/lm", None, [f"model.{k}={v}" for k, v in TINY_MODEL.items()])
    model = build_model(config, TOKENIZER.vocabulary_size)
    assert not [name for name, _ in model.named_parameters() if "encoder" in name or "cross" in name]


@pytest.mark.parametrize(
    "model",
    [
        {"writes": "non_autoregressive"},
        {"batch_context": "flat"},
        {"document_layer": "hierarchical"},
        {"separate_embeddings": True},
        {"decoder": {"span": "sentence"}},
        {"positions": "shifted", "shift": "sequence"},
    ],
)
def test_parts_that_read_the_source_are_refused(model: dict[str, Any]) -> None:
    must_raise(r"reads_source = false", check, tiny_config(model=LM | model, view=window(2)))


def test_the_score_of_a_sentence_is_that_of_the_equation() -> None:
    """log p(y | x) + log p(y | c) - log p(y), token by token, in a batch of rows with unequal contexts."""
    of_sentence, lm = sentence_model(), language_model()
    model = WithLanguageModel(of_sentence, lm, SYMBOLS, "lm")
    spans = [(0, 0), (0, 1), (0, 2), (1, 3), (2, 3), (3, 3)]
    batch = make_batch([row(*span) for span in spans], SYMBOLS)
    with torch.no_grad():
        tokens = label_nll(model, batch)
        sums = sentence_sums(batch, tokens)
    expected = []
    for first, current in spans:
        labels = [*TARGETS[current], TOKENIZER.eos]
        alone = [TOKENIZER.bos, *TARGETS[current]]
        context = [TOKENIZER.bos]
        for target in TARGETS[first:current]:
            context += [*target, TOKENIZER.sep]
        in_context = [*context, *TARGETS[current]]
        own = torch.tensor(labels)[:, None]
        terms = [
            log_p(of_sentence, alone, SENTENCES[current]),
            log_p(lm, in_context, [])[-len(labels) :],
            -log_p(lm, alone, []),
        ]
        expected.append(sum(term.gather(1, own)[:, 0] for term in terms))
    assert torch.allclose(-tokens, torch.cat(expected))
    assert (-sums).tolist() == pytest.approx([float(each.sum()) for each in expected])
    # Without context, the two rows of the language model cancel out.
    first = log_p(of_sentence, [TOKENIZER.bos, *TARGETS[0]], SENTENCES[0])
    assert -sums[0] == pytest.approx(first.gather(1, torch.tensor([[*TARGETS[0], TOKENIZER.eos]]).T).sum())


PAD, BOS, UNK, EOS, SEP, A, B, C = range(8)
TOY = SearchSymbols(SpecialSymbols(PAD, BOS, EOS, (SEP,)), UNK)


def toy(seed: int, **model: Any) -> TranslationModel:
    """A model over a toy vocabulary, with differences in probability that are worth a search."""
    config = tiny_config(model=model, view=window(2) if model else {})
    torch.manual_seed(seed)
    built = build_model(config, 8).double().eval()
    shake(built, 0.4)
    assert isinstance(built, TranslationModel)
    return built


def toy_source(rows: list[list[list[int]]]) -> Source:
    instances = []
    for sentences in rows:
        span = range(len(sentences))
        instances.append(Instance(0, Window(span, span, span[-1:]), sentences, [[A]] * len(sentences)))
    return make_batch(instances, TOY.special).source


ROWS = [[[A, B], [C]], [[B]], [[C, C], [A], [B, A, C]]]
CONTEXTS = [[[B, C]], [], [[A], [C, B, A]]]
LIMIT = 4  # tokens, the end included


def enumerated(
    of_sentence: TranslationModel, lm: TranslationModel, number: int
) -> dict[tuple[int, ...], float]:
    """The score of every translation of a row, by the equation."""
    source, context = ROWS[number][-1], [BOS]
    for target in CONTEXTS[number]:
        context += [*target, SEP]
    found = {}
    for length in range(1, LIMIT):
        for tokens in itertools.product((A, B, C), repeat=length):
            total = 0.0
            rows = ((of_sentence, [BOS], source, 1), (lm, context, [A], 1), (lm, [BOS], [A], -1))
            for model, before, read, sign in rows:
                inputs = torch.tensor([[*before, *tokens]])
                closed = torch.tensor([[t == SEP for t in inputs[0].tolist()]]).cumsum(dim=1)
                state = model.encode(toy_source([[read]]))
                hidden = model.decode(inputs, closed, state)[0, len(before) - 1 :]
                rows_log_p = (hidden @ model.output_weight.T).log_softmax(dim=1)
                total += sign * float(rows_log_p.gather(1, torch.tensor([[*tokens, EOS]]).T).sum())
            found[tokens] = total
    return found


def requests() -> list[SearchRequest]:
    prefixes = [[t for target in context for t in (*target, SEP)] for context in CONTEXTS]
    return [SearchRequest(prefix, 0, (LIMIT,)) for prefix in prefixes]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0])
@torch.no_grad()
def test_a_wide_beam_finds_the_best_of_all_translations(length_penalty: float) -> None:
    """Also where a token raises the score, so that a longer hypothesis is better than its beginning."""
    rises = 0
    for seed, number in itertools.product(range(3), range(len(ROWS))):
        of_sentence, lm = toy(10 + seed), toy(20 + seed, **LM)
        model, source = WithLanguageModel(of_sentence, lm, TOY.special, "lm"), toy_source(ROWS)
        hypothesis, listed = (
            search(model, source, requests(), TOY, SearchOptions(40, length_penalty, nbest=n))[number]
            for n in (1, 5)
        )
        scores = enumerated(of_sentence, lm, number)
        rises += sum(scores[tokens] > scores[tokens[:-1]] for tokens in scores if len(tokens) > 1)
        ranked = sorted(scores, key=lambda t: scores[t] / (len(t) + 1) ** length_penalty, reverse=True)
        assert tuple(hypothesis.tokens) == ranked[0]
        assert hypothesis.log_probability == pytest.approx(scores[ranked[0]])
        assert math.fsum(hypothesis.token_log_probabilities) == pytest.approx(scores[ranked[0]])
        assert listed.tokens == hypothesis.tokens
        [others] = listed.others
        assert [other.tokens for other in others[:4]] == ranked[1:5]
    assert rises > 0  # search cannot count on falling scores
