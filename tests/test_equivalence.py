"""Properties of all systems; add new components to `tests/cover.py` and, if possible, to `NEUTRAL`.

neutral          with a neutral setting, a system equals the baseline Transformer with the same weights
incremental      decoding token by token, or in chunks, equals the full forward pass
single           a row does not depend on padding or on other rows
greedy           a beam of one is greedy search
re-scored        search reports the log-probability of teacher forcing
saved            a model gives the same output after saving and loading
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from cotext.config.model import AttentionConfig, ModelConfig
from cotext.config.parts import DOCUMENT_LAYERS
from cotext.config.recipe import Config
from cotext.data.batch import Instance, SpecialSymbols, make_batch, source_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.tokenizer import SentencePieceTokenizer, TokenizerSettings
from cotext.data.views import Window
from cotext.models import checkpoint
from cotext.models.build import BATCH_CONTEXTS, CONTEXT_ENCODERS, build_model
from cotext.models.build_views import build_view, special_symbols
from cotext.models.checks import document_layer
from cotext.models.interface import TranslationModel
from cotext.models.likelihood import RowsToRead
from cotext.search.beam_search import search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.hypotheses import Hypothesis, SearchOptions
from cotext.training.losses import CrossEntropy
from cotext.translation.scorer import score_instances
from cotext.translation.translator import DocumentTranslator
from tests.cover import COVER, FACTORS, cover, each_filling, goes_together, uncovered
from tests.tiny import PlainWordTokenizer, full, logits, random_model, shake, split, tiny_config, window

# Systems as overrides of `model`, in windows of two sentences before and one after.
# Models without a source do not translate, and have few of the slots of the cover.
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "language model": {"reads_source": False},
    "language model, alibi, shifted": {
        "reads_source": False,
        "decoder": {"score": "alibi"},
        **{"positions": "shifted", "shift": 5, "segments": "learned", "output_bias": True, "pre_norm": True},
    },
}
MEMORY = {"span": "memory", "score": "transformer_xl"}
# The systems of the pairwise cover, and systems whose gates begin at zero (`model.neutral_start`).
SYSTEMS = (
    cover()
    | LANGUAGE_MODELS
    | {
        f"gated from zero: {name}": {**model, "neutral_start": True}
        for name, model in {
            "positions": {"attention": {"score": "positions"}, "batch_context": "flat"},
            "datapoints": {"batch_context": "datapoints", "decoder": MEMORY},
            "others": {"attention": {"others": "gated"}},
            "MCN": {
                "encoder": {"span": "sentence"},
                "decoder": MEMORY,
                "cross": {"span": "sentence"},
                "document_layer": "segment_gate",
            },
        }.items()
    }
)
# Non-autoregressive models, as overrides of `model`.
NODES = {"span": "sentence", "top": {"layers": 2, "span": "nodes"}}
PARALLEL: dict[str, dict[str, Any]] = {
    "CASA": {"attention": NODES},
    "CASA, absolute positions": {"attention": {**NODES, "score": "absolute"}},
    "CASA-Latent": {"attention": NODES, "nat": {"latent": True}},
    "GLAT+CTC": {"nat": {"path": "row", "soft_copy": "row"}},
    "GLAT": {"nat": {"path": "length", "soft_copy": "row"}},
    "CASA, as mBART": {
        "attention": {**NODES, "score": "absolute"},
        **{"position_encoding": "learned", "learned_positions": 30, "first_position": 2},
        **{"embedding_norm": True, "activation": "gelu", "pre_norm": True},
    },
    "CASA-Latent, as Marian": {
        "attention": NODES,
        "nat": {"latent": True},
        **{"wavelengths": "half", "activation": "swish", "separate_embeddings": True},
    },
}


@dataclass(frozen=True)
class Neutral:
    """Overrides that make a slot neutral, and weights that the baseline lacks, which are set to zero."""

    model: dict[str, Any]
    zeros: tuple[str, ...] = ()
    view: dict[str, Any] = field(default_factory=lambda: window(2, after=1))
    rounded: bool = False  # equal except for rounding: the order of summation differs


SENTENCE = {"kind": "sentence"}
NO_SIDE = {"source": False, "target": False}
# Sinusoidal segments have no neutral setting: no weight scales them, and even the first is not zero.
NEUTRAL: dict[str, Neutral] = {
    "shift 0": Neutral({"positions": "shifted", "shift": 0}),
    "reset in one sentence": Neutral({"positions": "reset"}, view=SENTENCE),
    "zero segments": Neutral({"segments": "learned"}, zeros=("embedding.segment",)),
    "zero segments of current sentences": Neutral({"segments": "current"}, zeros=("embedding.segment",)),
    "zero relative positions": Neutral(
        {"attention": {"score": "relative"}}, zeros=("relative",), rounded=True
    ),
    "sentences, in one sentence": Neutral({"attention": {"span": "sentence"}}, view=SENTENCE, rounded=True),
    "current sentences without context": Neutral(
        {"encoder": {"top": {"layers": 1, "span": "current"}}}, view=SENTENCE
    ),
    "cross-attention to current sentences without context": Neutral(
        {"cross": {"span": "current"}}, view=SENTENCE
    ),
    "segment distances, all zero": Neutral(
        {"encoder": {"score": "segment_distance"}},
        zeros=tuple(f"encoder.0.attention.score.of_{of}" for of in ("keys", "values")),
        rounded=True,
    ),
    "all source sentences": Neutral({"source_sentences": 3}),
    "zero output bias": Neutral({"output_bias": True}, zeros=("output_bias",)),
    **{f"{kind} on no side": Neutral({"batch_context": kind, "batch": NO_SIDE}) for kind in BATCH_CONTEXTS},
    **{
        f"{kind} context encoder in one sentence": Neutral(
            {"context_encoder": kind}, view=SENTENCE, rounded=True
        )
        for kind in CONTEXT_ENCODERS
    },
    "long masks without weight": Neutral(
        {"attention": {"others": "projected"}},
        view=SENTENCE,
        zeros=tuple(
            f"{stack}.{layer}.{attention}.span.long.weight"
            for stack, layer, attention in (
                ("encoder", 0, "attention"),
                *(("decoder", layer, each) for layer in (0, 1) for each in ("attention", "cross")),
            )
        ),
        rounded=True,
    ),
    **{
        f"{layer} in one sentence": Neutral(
            {"document_layer": layer, "document": {"target": document_layer(layer).on_target}},
            view=SENTENCE,
            rounded=True,
        )
        for layer in DOCUMENT_LAYERS
    },
}

# `ids` makes pytest use the complete names, so that `-k hierarchical` selects systems.
systems = pytest.mark.parametrize("name", SYSTEMS, ids=str)
# Systems for tests of single parts, not of their combinations.
PARTS = {
    name
    for name in SYSTEMS
    if name in each_filling() or name.startswith(("gated from zero", "language model"))
}
parts = pytest.mark.parametrize("name", sorted(PARTS), ids=str)

WORDS = ["the", "cat", "sat", "on", "a", "mat", "it", "saw", "again"]
TOKENIZER = PlainWordTokenizer(WORDS)
SYMBOLS = special_symbols(TOKENIZER, tiny_config().view)
CPU = torch.device("cpu")

# Documents of unequal lengths; one has empty sentences, one a single sentence.
CORPUS = [
    [[4, 5, 6], [7], [], [8, 9, 4, 5, 7, 12], [5, 5]],
    [[10]],
    [[11, 12, 4, 4], [6, 7, 8, 9, 10, 11, 12, 4, 5]],
]
TARGETS = [[[9], [8, 7, 6, 5, 4], [10], [], [11, 12, 4]], [[4, 5, 6, 7, 8, 9]], [[10, 11], [12]]]


# There are fewer indexed separators than sentences, so several sentences use the last one.
SEPARATORS: dict[str, dict[str, Any]] = {
    "plain": {"separators": "plain"},
    "indexed": {"separators": "indexed", "indexed_separators": 2},
    "bracket": {"separators": "bracket"},
}
# Each part with one kind of separators, in turn.
parts_with_separators = pytest.mark.parametrize(
    ("name", "kind"), list(zip(sorted(PARTS), itertools.cycle(SEPARATORS), strict=False)), ids=str
)


def config_of(name: str, kind: str = "plain") -> Config:
    return tiny_config(model=SYSTEMS[name], view=window(2, after=1) | SEPARATORS[kind])


@cache
def model_of(name: str, kind: str = "plain") -> TranslationModel:
    """Return a model that is shared by all tests, which must not change it."""
    return random_model(config_of(name, kind), TOKENIZER)


def instances(config: Config) -> list[Instance]:
    """Return every window as a separate document, because in some systems rows of a document interact."""
    rows: list[Instance] = []
    for source, target in zip(CORPUS, TARGETS, strict=True):
        for w in build_view(config.view).split([len(s) for s in source], [len(t) for t in target]):
            rows.append(Instance(len(rows), w, [source[j] for j in w.source], [target[j] for j in w.target]))
    return rows


def assert_same_where_real(a: Tensor, b: Tensor, real: Tensor) -> None:
    torch.testing.assert_close(a[real], b[real], rtol=1e-9, atol=1e-9)


# --- neutral settings


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("name", NEUTRAL)
def test_a_neutral_system_is_the_baseline(name: str, pre_norm: bool) -> None:
    neutral = NEUTRAL[name]
    off = tiny_config(model={**neutral.model, "pre_norm": pre_norm}, view=neutral.view)
    baseline = random_model(tiny_config(model={"pre_norm": pre_norm}, view=neutral.view), TOKENIZER)
    weights = baseline.state_dict()
    system = random_model(off, TOKENIZER, seed=1)
    zeros = {key: torch.zeros_like(system.state_dict()[key]) for key in neutral.zeros}
    # Document layers and context encoders have their own weights, which single sentences do not use.
    apart = {
        key: value for key, value in system.state_dict().items() if "_document." in key or "context_" in key
    }
    system.load_state_dict({**apart, **weights, **zeros})  # strict: the baseline has all other weights
    batch = make_batch(instances(off), SYMBOLS)
    found, expected = full(system, batch), full(baseline, batch)
    if neutral.rounded:
        assert_same_where_real(found, expected, batch.is_label)
    else:
        assert torch.equal(found[batch.is_label], expected[batch.is_label])


def test_windows_of_one_sentence_are_the_sentence_view() -> None:
    """The same rows, and the same translation however the window is decoded."""
    sentence, single = tiny_config(), tiny_config(view=window(0))
    regenerate = tiny_config(view=window(0), decode={"target_context": "regenerate"})
    model = random_model(sentence, TOKENIZER)
    first, second = (make_batch(instances(config), SYMBOLS) for config in (sentence, single))
    for name in ("target_input", "input_sentence", "target_label", "label_sentence"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    for name in ("tokens", "sentence", "current", "document", "first_sentence"):
        assert torch.equal(getattr(first.source, name), getattr(second.source, name))
    documents = [Document(str(d), tuple(map(TOKENIZER.decode, source))) for d, source in enumerate(CORPUS)]
    translations = [
        dict(DocumentTranslator(model, config, TOKENIZER, CPU).translate(documents))
        for config in (sentence, single, regenerate)
    ]
    assert translations[0] == translations[1] == translations[2]


# --- incremental = full


@pytest.mark.parametrize(
    ("name", "chunk"), list(zip(SYSTEMS, itertools.cycle((1, 3)), strict=False)), ids=str
)
def test_incremental_decoding_is_the_full_forward_pass(name: str, chunk: int) -> None:
    """Rows begin with prefixes of unequal lengths, and continue together, `chunk` tokens at a time."""
    model = model_of(name)
    batch = make_batch(instances(config_of(name)), SYMBOLS)
    wanted = full(model, batch)
    lengths = batch.is_label.sum(dim=1)
    begun = [1 + (3 * i + 1) % int(length) for i, length in enumerate(lengths)]
    assert len(set(begun)) > 2
    beyond = int(lengths.max()) + chunk
    with torch.no_grad():
        state = model.encode(batch.source)
        state.open(max(begun) + beyond)
        first = torch.arange(max(begun)) < torch.tensor(begun)[:, None]
        tokens, sentence = batch.target_input[:, : max(begun)], batch.input_sentence[:, : max(begun)]
        hidden = model.decode(
            tokens.where(first, SYMBOLS.pad), sentence.where(first, torch.tensor(-1)), state
        )
        assert_same_where_real(hidden, wanted[:, : max(begun)], first)
        compared = first.sum()
        for step in range(0, beyond - min(begun), chunk):
            at = torch.tensor(begun)[:, None] + step + torch.arange(chunk)
            real = at < lengths[:, None]
            if not bool(real.any()):
                break
            # Rows that have ended get further tokens, as in a beam; their outputs are ignored.
            within = at.clamp(max=lengths[:, None] - 1)
            tokens = batch.target_input.gather(1, within)
            sentence = batch.input_sentence.gather(1, within)
            hidden = model.decode(tokens, sentence, state)
            index = within[:, :, None].expand(-1, -1, hidden.size(2))
            assert_same_where_real(hidden, wanted.gather(1, index), real)
            compared += real.sum()
    assert int(compared) == int(lengths.sum())


# --- batch = single


@systems
def test_a_row_does_not_depend_on_the_batch_around_it(name: str) -> None:
    model, config = model_of(name), config_of(name)
    rows = instances(config)
    together = make_batch(rows, SYMBOLS)
    hidden = full(model, together)
    lengths = [sum(map(len, row.target)) for row in rows]
    chosen = {lengths.index(min(lengths)), len(rows) // 2, lengths.index(max(lengths)), len(rows) - 1}
    for i, row in ((i, rows[i]) for i in sorted(chosen)):
        single = make_batch([row], SYMBOLS)
        assert bool(single.is_label.all())
        length = single.target_label.size(1)
        torch.testing.assert_close(full(model, single)[0], hidden[i, :length], rtol=1e-9, atol=1e-9)


@parts
def test_gradients_reach_every_parameter_with_dropout(name: str) -> None:
    dropout = {"dropout": 0.2, "attention_dropout": 0.2}
    config = tiny_config(model=SYSTEMS[name] | dropout, view=window(2, after=1))
    model = random_model(config, TOKENIZER).train()
    rows, loss = instances(config), CrossEntropy(0.1, 1.0)
    model.recomputes = True
    for chosen in ([row for row in rows if len(row.source) == 1], rows):
        model.zero_grad()
        loss(model, make_batch(chosen, SYMBOLS)).loss.backward()  # type: ignore[no-untyped-call]
        unused = [parameter for parameter, value in model.named_parameters() if value.grad is None]
        assert not unused or model.spares_parameters, unused
    of_one = SYSTEMS[name].get("document", {}).get("sentences") == 1
    for parameter, value in model.named_parameters():
        assert value.grad is not None, parameter
        assert bool(value.grad.isfinite().all()), parameter
        # With a single sentence, there is no choice, so the query has no gradient.
        chosen = not (of_one and ".of_sentences.query." in parameter)
        assert (float(value.grad.abs().sum()) > 0) == chosen, parameter


# --- search


def requests(symbols: SpecialSymbols) -> tuple[list[Instance], list[SearchRequest]]:
    """Whole windows, windows with a forced prefix, and one with the beginning of its first sentence."""
    rows = [
        Instance(0, Window(range(0, 3), range(0, 3), range(2, 3)), CORPUS[0][:3], []),
        Instance(1, Window(range(2, 5), range(2, 4), range(3, 4)), CORPUS[0][2:5], []),
        Instance(2, Window(range(1), range(1), range(1)), CORPUS[1], []),
        Instance(3, Window(range(2), range(2), range(1, 2)), CORPUS[2], []),
    ]
    return rows, [
        SearchRequest([], 0, (4, 2, 3)),
        SearchRequest([9, 10, symbols.separator(0)], 0, (4,)),
        SearchRequest([], 0, (3,)),
        SearchRequest([symbols.separator(0), 8], 0, (5,)),
    ]


def found(model: TranslationModel, symbols: SpecialSymbols, beam: int) -> list[Hypothesis]:
    rows, asked = requests(symbols)
    unused = (TOKENIZER.sep,) if symbols.bracket else ()
    search_symbols = SearchSymbols(symbols, TOKENIZER.unk, unused=unused)
    return search(model, source_batch(rows, symbols), asked, search_symbols, SearchOptions(beam))


def decoder_side(labels: list[int], first: int, symbols: SpecialSymbols) -> tuple[Tensor, Tensor]:
    """Return decoder inputs for the labels and for the next label, with the sentence of each."""
    inputs, sentence = [symbols.bos], [first]
    for label in labels:
        closes = label in symbols.separators
        inputs.append(symbols.bos if closes and symbols.bracket else label)
        sentence.append(sentence[-1] + closes)
    return torch.tensor([inputs]), torch.tensor([sentence])


def greedy(
    model: TranslationModel, row: Instance, request: SearchRequest, symbols: SpecialSymbols, found: list[int]
) -> list[int]:
    """Return the most probable allowed token after each prefix of `found`, up to the first difference.

    All are computed by one forward pass of the causal decoder.
    """
    tokens, sentence = decoder_side([*request.prefix, *found], request.first_sentence, symbols)
    with torch.no_grad():
        hidden = model.decode(tokens, sentence, model.encode(source_batch([row], symbols)))[0]
        scores = logits(model, hidden).tolist()
    written: list[int] = []
    while written == found[: len(written)]:
        labels = [*request.prefix, *written]
        *closed, own = split(written, symbols.separators)
        begun = bool(labels) and labels[-1] not in symbols.separators
        last = len(closed) + 1 == request.sentences
        closer = symbols.eos if last else symbols.separator(int(sentence[0, len(labels)]))
        full = len(own) + 1 >= request.max_tokens[len(closed)]
        words = [] if begun and full else [i for i in range(TOKENIZER.pieces) if i != TOKENIZER.unk]
        best = max([*words, closer] if begun else words, key=scores[len(labels)].__getitem__)
        if best == closer and last:
            break
        written.append(best)
    return written


@parts_with_separators
def test_a_beam_of_one_is_greedy(name: str, kind: str) -> None:
    model, symbols = model_of(name, kind), special_symbols(TOKENIZER, config_of(name, kind).view)
    rows, asked = requests(symbols)
    for row, request, hypothesis in zip(rows, asked, found(model, symbols, 1), strict=True):
        assert hypothesis.tokens == greedy(model, row, request, symbols, hypothesis.tokens)


@parts_with_separators
def test_the_score_that_search_reports_is_that_of_teacher_forcing(name: str, kind: str) -> None:
    """Compare by sentence; the beginning of the first sentence in the prefix is scored separately."""
    model, symbols = model_of(name, kind), special_symbols(TOKENIZER, config_of(name, kind).view)
    rows, asked = requests(symbols)
    for row, request, hypothesis in zip(rows, asked, found(model, symbols, 4), strict=True):
        sentences = split([*request.prefix, *hypothesis.tokens], symbols.separators)
        w = row.window
        first = len(sentences) - request.sentences
        written = Window(w.source, w.target, range(w.target.start + first, w.target.stop))
        if written != w and reads_current(SYSTEMS[name]):
            continue  # the current sentences would differ
        instance = Instance(row.document, written, row.source, sentences)
        [scores] = score_instances(RowsToRead(model, [instance], symbols, 8000, CPU))
        begun = len(split(request.prefix, symbols.separators)[-1])
        own = _log_probabilities_of_beginning(model, row, request, begun, symbols)
        own += hypothesis.token_log_probabilities
        for score in scores:
            assert sum(own[: score.tokens]) == pytest.approx(score.log_probability, abs=1e-4)
            own = own[score.tokens :]
        assert own == []
        length = len(hypothesis.tokens) + 1
        assert hypothesis.log_probability == pytest.approx(sum(hypothesis.token_log_probabilities))
        assert hypothesis.score == pytest.approx(hypothesis.log_probability / length**0.6)


def reads_current(model: dict[str, Any]) -> bool:
    """Whether outputs depend on which sentences of a row are current."""
    spans = [model.get(stack, {}) for stack in ("encoder", "cross")]
    current = any("current" in (each.get("span"), each.get("top", {}).get("span")) for each in spans)
    return (
        current
        or "context_encoder" in model
        or model.get("segments") == "current"
        or model.get("batch_context") in ("flat", "datapoints")
    )


def _log_probabilities_of_beginning(
    model: TranslationModel, row: Instance, request: SearchRequest, begun: int, symbols: SpecialSymbols
) -> list[float]:
    """Score the last `begun` labels of the prefix, which begin the sentence that search finished."""
    tokens, sentence = decoder_side(list(request.prefix), request.first_sentence, symbols)
    with torch.no_grad():
        hidden = model.decode(tokens, sentence, model.encode(source_batch([row], symbols)))[0]
        log_p = logits(model, hidden).log_softmax(dim=1)
    places = range(len(request.prefix) - begun, len(request.prefix))
    return [float(log_p[t, request.prefix[t]]) for t in places]


# --- save -> load


@pytest.fixture(scope="module")
def pieces() -> SentencePieceTokenizer:
    sample = ["the cat sat on a mat", "it saw the cat again", "on the mat"] * 4
    return SentencePieceTokenizer.train(sample, TokenizerSettings(num_threads=1))


def saved_and_loaded(config: Config, pieces: SentencePieceTokenizer, folder: Path) -> tuple[Any, Any]:
    """Return a model with random weights, and the run loaded from its files."""
    torch.manual_seed(5)
    model = build_model(config, pieces.vocabulary_size).eval()
    shake(model)
    pieces.save(folder / "tokenizer")
    weights = folder / "model.safetensors"
    checkpoint.save_model(weights, model.state_dict(), config, pieces.fingerprint, [3, 4])
    torch.manual_seed(6)
    return model, checkpoint.load_run(folder)


# Translation depends on the output of the model, tokenizer and settings: a third of the systems is enough.
TRANSLATED = sorted(PARTS - LANGUAGE_MODELS.keys())[::3]


@parts
def test_a_saved_model_is_loaded_as_it_was(name: str, pieces: SentencePieceTokenizer, tmp_path: Path) -> None:
    config = config_of(name)
    model, loaded = saved_and_loaded(config, pieces, tmp_path)
    assert loaded.config == config
    assert loaded.updates == [3, 4]
    assert not loaded.model.training
    if name in TRANSLATED:
        documents = [Document("a", ("the cat sat", "", "it saw a mat")), Document("b", ("again",))]
        before, after = (
            dict(DocumentTranslator(*each, CPU).translate(documents))
            for each in ((model, config, pieces), (loaded.model, loaded.config, loaded.tokenizer))
        )
        assert before == after
    symbols = special_symbols(pieces, config.view)
    batch = make_batch(
        [Instance(0, Window(range(2), range(2), range(1, 2)), [[1, 2], [3]], [[4], [5]])], symbols
    )
    assert torch.equal(full(model, batch), full(loaded.model, batch))


@pytest.mark.parametrize("name", PARALLEL)
def test_a_parallel_model_that_was_saved_and_loaded_writes_and_scores_the_same(
    name: str, pieces: SentencePieceTokenizer, tmp_path: Path
) -> None:
    """Other properties of these models are tested in test_casa, test_glancing and test_parallel."""
    config = tiny_config(
        model={"writes": "non_autoregressive", "encoder_layers": 2, **PARALLEL[name]},
        view={"kind": "document", "separators": "bracket"},
        loss={"name": "glancing"},
        decode={"beam": 1, "max_ratio": 2.0, "max_extra": 20},
    )
    model, loaded = saved_and_loaded(config, pieces, tmp_path)
    documents = [Document("a", ("the cat sat", "", "it saw a mat")), Document("b", ("again",))]
    pairs = [ParallelDocument(d.id, d.sentences, d.sentences) for d in documents]
    found = []
    for each in (model, loaded.model):
        translator = DocumentTranslator(each, config, pieces, CPU)
        found.append((dict(translator.translate(documents)), translator.score(pairs)))
    assert found[0] == found[1]


def test_the_cover_is_complete() -> None:
    """Any two compatible options of slots occur together in one of the systems."""
    chosen = json.loads(COVER.read_text(encoding="utf-8"))
    assert not uncovered(chosen), "run `.venv/bin/python -m tests.cover`, which takes half a minute"
    assert all(map(goes_together, chosen))


def test_the_cover_knows_every_filling() -> None:
    """Every option must be named by a factor, or it would not be tested."""
    named = {value for _, value in leaves([list(values.values()) for values in FACTORS.values()])}
    of_model = ["positions", "segments", "batch_context", "context_encoder", "document_layer"]
    of_model += ["activation", "wavelengths", "position_encoding"]
    choices = [*((AttentionConfig, key) for key in ("span", "score", "others"))]
    for model, key in (*choices, *((ModelConfig, key) for key in of_model)):
        default = model.model_fields[key].default
        # Nodes are for non-autoregressive models: PARALLEL has them.
        field = model.model_fields[key]
        parts = [getattr(each, "func", None) for each in field.metadata]
        names = {name for part in parts for name in getattr(part, "names", ())} or set(
            get_args(field.annotation)
        )
        assert default in names
        unnamed = names - named - {default, "nodes"}
        assert not unnamed, f"{key}: a line in FACTORS of tests/cover.py for {unnamed}"


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, key)
    else:
        yield key, value
