"""No prediction depends on its own label: tested for every recipe, and every slot in every view.

left to right     what is predicted for a label does not move when a target token at or after it in its
                  document changes: in all rows that hold it, as in another document, or in one of them alone
all at once       what is predicted does not move when a target token changes that was not revealed
candidates        the score of one does not move when another changes, or when there is no other

The rows are those that training, validation and translation make of a small corpus. Every source sentence
opens with a name of its own, so that a row tells what it holds, whatever is said of it.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from cotext.config.parts import DOCUMENT_LAYERS
from cotext.config.recipe import Config, load_config, recipe_names
from cotext.data import sampling
from cotext.data.batch import Instance, SpecialSymbols, make_batch
from cotext.data.documents import Document
from cotext.data.sampling import Arrangement, Cursor, Sampler, ordered_batches
from cotext.data.store import TokenStore, store_writer
from cotext.models.build import BATCH_CONTEXTS as BATCH_CONTEXTS_BUILT
from cotext.models.build import CONTEXT_ENCODERS, OTHERS, SCORES, SPANS, build_model
from cotext.models.build_views import build_mixture, build_view, special_symbols
from cotext.models.interface import Draft, Model, NonAutoregressiveModel, TranslationModel
from cotext.runtime import CotextError
from cotext.training.losses import Glancing
from cotext.translation.document_state import OpenDocument, SentenceHypothesis, source_of
from cotext.translation.scorer import CandidateSet, score_candidates
from cotext.translation.translator import DocumentTranslator
from tests.noting import calls_of
from tests.tiny import TINY_DECODE, TINY_MODEL, PlainWordTokenizer, pieces, random_model, tiny_config, window

TOKENIZER = PlainWordTokenizer([f"w{i}" for i in range(4, 40)])
WORDS = 20  # ids from here on are names of sentences
# Number of target tokens of every sentence of every document.
LENGTHS = [[2, 1, 3, 2, 2, 1], [2], [3, 1, 2], [1, 2, 2, 1]]
SENTENCES = [(d, k) for d, lengths in enumerate(LENGTHS) for k in range(len(lengths))]
BUDGET = 9000  # tokens of a batch: one batch holds all rows, so that their order does not matter
SMALL = [
    "view.numbers=100",
    *(f"model.{key}={value}" for key, value in TINY_MODEL.items()),
    *(f"decode.{key}={value}" for key, value in TINY_DECODE.items()),
    "model.encoder_layers=2",
    "model.attention_dropout=0",  # random numbers depend on the shapes of batches
    "model.activation_dropout=0",
    "decode.group_windows=4",
]
VIEWS: dict[str, dict[str, Any]] = {
    "sentence": {"kind": "sentence"},
    "window": window(2, after=1),
    "numbered": window(4) | {"separators": "numbered", "numbers": 100},
    "source context": window(2) | {"target_before": 0},
    "document": pieces(),
    "parts": pieces(parts=2),
    "cumulative": pieces(kind="cumulative"),
    # Rows with equal current sentences, and rows that contain other rows.
    "mixture": window(2)
    | {
        "mixed_with": [
            {"kind": "sentence", "weight": 2},
            {"kind": "document", "parts": 2},
            {"kind": "window", "before": 3, "target_before": 1},
        ]
    },
}
GATED = {"layers": 1, "span": "row", "mix": "gated"}
MEMORY = {"span": "memory", "memory_sentences": 2, "score": "transformer_xl"}
BATCH_CONTEXTS = ("flat", "datapoints", "mean")
SHOW_TARGETS = ("flat", "datapoints")  # contexts through which rows may see target tokens of others
# Every value of every slot, as overrides of `model`.
SYSTEMS: dict[str, dict[str, Any]] = {
    "nothing": {},
    **{
        f"{context}{' across documents' if crosses else ''}": {
            "batch_context": context,
            "batch": {"cross_document": crosses},
        }
        for context in BATCH_CONTEXTS
        for crosses in (False, True)
    },
    "sentences": {"attention": {"span": "sentence"}},
    "gated": {"attention": {"span": "sentence", "top": GATED}},
    "projected": {"attention": {"others": "projected"}},
    "current": {"encoder": {"top": {"layers": 1, "span": "current"}}, "segments": "current"},
    "cross-attention to current sentences": {"cross": {"span": "current"}},
    "memory": {"decoder": MEMORY, "target_positions": "none", "cross": {"span": "sentence"}},
    "language model": {"reads_source": False},
    **{
        score: {"attention": {"score": score}}
        for score in ("absolute", "relative", "positions", "rotary", "alibi")
    },
    "positions in gated layers": {"attention": {"span": "sentence", "top": GATED, "score": "positions"}},
    "segment distance": {"encoder": {"score": "segment_distance"}},
    "segment gate": {"document_layer": "segment_gate", "encoder": {"span": "sentence"}},
    "hierarchical": {"document_layer": "hierarchical", "document": {"target": True}},
    "selective": {"document_layer": "selective", "document": {"target": True, "word_weights": "sparsemax"}},
    "selective, earlier words": {
        "document_layer": "selective",
        "document": {"target": True, "level": "words", "later": False},
    },
    "separate context": {"context_encoder": "separate"},
    "shared context": {"context_encoder": "shared"},
    "shifted, learned": {"positions": "shifted", "shift": "sequence", "segments": "learned"},
    "flat, gated": {"batch_context": "flat", "attention": {"span": "sentence", "top": GATED}},
    "flat, positions": {"batch_context": "flat", "attention": {"score": "positions"}},
    "datapoints, hierarchical, memory": {
        "batch_context": "datapoints",
        "document_layer": "hierarchical",
        "document": {"target": True},
        "decoder": MEMORY,
    },
}
# Systems that predict all tokens at once, in addition to those of recipes.
AT_ONCE: dict[str, dict[str, Any]] = {
    "gated nodes": {"attention": {"span": "sentence", "top": {"layers": 1, "span": "nodes", "mix": "gated"}}},
    "positions in sentences": {"attention": {"score": "positions", "top": {"layers": 0, "span": "row"}}},
    "rotary": {"attention": {"span": "row", "score": "rotary", "top": {"layers": 0, "span": "row"}}},
    "alibi": {"attention": {"span": "row", "score": "alibi", "top": {"layers": 0, "span": "row"}}},
}


def test_every_value_of_a_slot_is_among_the_systems() -> None:
    told = set(re.findall(r"\w+", json.dumps([SYSTEMS, AT_ONCE]))) | {"content", "joint"}  # defaults
    slots = (SPANS, SCORES, OTHERS, BATCH_CONTEXTS_BUILT, CONTEXT_ENCODERS, DOCUMENT_LAYERS)
    missing = {name for slot in slots for name in slot} - told
    assert not missing, f"a line in SYSTEMS (or AT_ONCE) with {missing}"


def config_of(system: str, view: str, **train: str) -> Config:
    return tiny_config(
        model={"encoder_layers": 2, **SYSTEMS[system]},
        view={"separators": "bracket", **VIEWS[view]},
        train=train,
        decode={"group_windows": 4},
    )


def recipes_of(paper: str) -> dict[str, Config]:
    """Return the recipes of a folder; only one if several have the same model and rows."""
    found: dict[str, tuple[str, Config]] = {}
    for name in recipe_names():
        if name.startswith(f"{paper}/"):
            config = load_config(name, "tiny", SMALL)
            rows = config.view, config.train.order, config.train.context
            found.setdefault(repr((config.model, *rows)), (name, config))
    return dict(found.values())


papers = pytest.mark.parametrize("paper", sorted({name.split("/")[0] for name in recipe_names()}))


def shows_targets(config: Config) -> bool:
    """Whether rows may see target tokens of others."""
    return config.model.batch_context in SHOW_TARGETS and config.model.batch.target


def model_of(config: Config) -> Model:
    if config.model.writes == "left_to_right":
        return random_model(config, TOKENIZER)
    # With a single code, the codes that training reveals contain no information.
    nat = config.model.nat.model_copy(update={"codes": 1})
    config = config.model_copy(update={"model": config.model.model_copy(update={"nat": nat})})
    return build_model(config, TOKENIZER.vocabulary_size).double().eval()


def source_sentence(number: int, length: int) -> list[int]:
    return [WORDS + number, *((3 * number + i) % WORDS for i in range(length))]


def target_sentence(number: int, length: int) -> list[int]:
    return [(7 * number + 5 * i) % WORDS for i in range(length)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    path = tmp_path_factory.mktemp("leaks") / "train.arrow"
    with store_writer(path, TOKENIZER.fingerprint) as writer:
        for d, lengths in enumerate(LENGTHS):
            numbered = [(SENTENCES.index((d, k)), length) for k, length in enumerate(lengths)]
            sides = ([make(*pair) for pair in numbered] for make in (source_sentence, target_sentence))
            writer.add(f"d{d}", *sides)
    return TokenStore(path)


def batches(
    config: Config, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[list[Instance], bool]]:
    """Yield the rows of a training epoch, in one batch, then those of validation; True for training."""
    made = calls_of(monkeypatch, sampling, "make_batch", lambda instances, symbols: list(instances))
    symbols = special_symbols(TOKENIZER, config.view)
    arrangement = Arrangement(BUDGET, 60, BUDGET, 1, config.train.order, config.train.context)
    sampler = Sampler(store, build_mixture(config.view), symbols, arrangement)
    _, after = next(sampler.batches(Cursor()))
    assert after.document == len(store)
    yield made[-1], True
    for _ in ordered_batches(
        store, build_view(config.view), symbols, BUDGET, 60, config.decode.group_windows
    ):
        yield made[-1], False


# --- what stands where

Position = tuple[int, int, int]  # document, sentence, token: of a label, or of a target token
Rows = list[Instance]


def places(row: Instance) -> list[Position]:
    """Return the position of every label of a row."""
    held = [SENTENCES[int(s[0]) - WORDS] for s in row.source[row.target_offset :]]
    return [(*held[k], t) for k, sentence in enumerate(row.target) for t in range(len(sentence) + 1)]


def numbered(place: Position) -> int:
    """Return a number that orders the positions of a document."""
    document, sentence, token = place
    return 10_000 * document + 100 * sentence + token


def changed(row: Instance, where: Callable[[Position], bool]) -> Instance:
    """Return the row with other words at the chosen positions."""
    at = iter(places(row))
    target = []
    for sentence in row.target:
        held = [next(at) for _ in range(len(sentence) + 1)]
        target.append([(int(t) + where(place)) % WORDS for t, place in zip(sentence, held, strict=False)])
    return replace(row, target=target)


@dataclass(frozen=True)
class Change:
    """A change of all target tokens of a document from a position on, in some rows of a batch.

    `shorter`: sentences that continue after this position also lose a token.
    """

    first: Position
    rows: range
    shorter: bool

    def behind(self, place: Position) -> bool:
        return place[0] == self.first[0] and place >= self.first

    def of(self, rows: Rows) -> Rows:
        return [self._of(row) if i in self.rows else row for i, row in enumerate(rows)]

    def _of(self, row: Instance) -> Instance:
        other = changed(row, self.behind)
        if not self.shorter:
            return other
        last = [place for place, after in pairwise([*places(row), None]) if after is None or after[2] == 0]
        target = [
            sentence[: len(sentence) - (end[2] > 1 and self.behind((*end[:2], end[2] - 2)))]
            for sentence, end in zip(other.target, last, strict=True)
        ]
        return replace(other, target=target)


def some(of: Sequence[Any]) -> Sequence[Any]:
    """Return a few items, evenly spaced."""
    return of[:: max(1, len(of) // 3)]


def changes(rows: Rows, meet: bool, shorter: bool = True) -> list[Change]:
    """Return changes in all rows; if rows interact (`meet`), also changes in a single row."""
    held = sorted({p for row in rows for p in places(row) if p[1] and p[2] < 2})
    found = [Change(first, range(len(rows)), shorter) for first in some(held)]
    if meet:
        begins = [(p, i) for i, row in enumerate(rows) for p in places(row) if p[2] == 0]
        found += [Change(first, range(i, i + 1), shorter) for first, i in some(begins)]
    return found


# --- left to right


@dataclass
class Moved:
    """Number of allowed effects on labels, and of those that come from a change in another row."""

    labels: int = 0
    across: int = 0

    def check(self, rows: Rows, made: Sequence[Change], found: Sequence[Tensor], apart: bool) -> None:
        """Check the hidden states [B, T, D] `found` before all changes and after each of them.

        `apart`: changes in other documents must not affect a label either.
        """
        longest = found[0].size(1)
        where = torch.tensor(
            [([numbered(p) for p in places(row)] + [-1] * longest)[:longest] for row in rows]
        )
        for change, after in zip(made, found[1:], strict=True):
            width = min(longest, after.size(1))  # rows may be shorter after the change
            place = where[:, :width]
            document = place.div(10_000, rounding_mode="floor")
            moved = ((after[:, :width] - found[0][:, :width]).abs().amax(dim=2) > 1e-9) & (place >= 0)
            own = document == change.first[0]
            may_not = own & (place <= numbered(change.first))
            if apart:
                may_not |= ~own.any(dim=1, keepdim=True)
            assert not bool((moved & may_not).any()), (change, place[moved & may_not].tolist(), rows)
            self.labels += int(moved.sum())
            moved[list(change.rows)] = False
            self.across += int(moved.sum())


def by_teacher_forcing(
    model: TranslationModel, symbols: SpecialSymbols, versions: Sequence[Rows], crosses: bool
) -> list[Tensor]:
    """Return the hidden states of every version; in one batch if documents do not attend to each other."""
    together = [list(versions)] if not crosses else [[version] for version in versions]
    found: list[Tensor] = []
    for group in together:
        rows = [
            replace(row, document=row.document + len(LENGTHS) * n)
            for n, version in enumerate(group)
            for row in version
        ]
        batch = make_batch(rows, symbols)
        with torch.no_grad():
            hidden = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
        found += hidden.chunk(len(group))
    return found


def check_rows(
    model: TranslationModel, config: Config, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> Moved:
    """Check the rows of training and, if rows of the model interact, those of validation."""
    moved, symbols = Moved(), special_symbols(TOKENIZER, config.view)
    for rows, training in batches(config, store, monkeypatch):
        if training or model.sees_other_rows:
            # Whether rows of different documents meet.
            crosses = training and model.sees_other_rows and config.model.batch.cross_document
            # With foreign context, positions of words depend on its length, so lengths must stay the same.
            made = changes(rows, model.sees_other_rows, shorter=config.train.context == "own")
            versions = [rows, *(change.of(rows) for change in made)]
            found = by_teacher_forcing(model.train(training), symbols, versions, crosses)
            moved.check(rows, made, found, apart=not crosses)
    model.eval()
    return moved


# --- all at once


def check_at_once(model: NonAutoregressiveModel, rows: Rows, symbols: SpecialSymbols) -> None:
    """A changed token has an effect exactly if it changes what is revealed; both cases must occur.

    In validation, no token has an effect. Lengths stay the same, because models without paths get them.
    """
    seen: list[tuple[Tensor | None, Tensor]] = []
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    decode = model.decode

    def noting(draft: Draft, revealed: Tensor | None = None) -> Tensor:
        hidden = decode(draft, revealed)
        seen.append((revealed, hidden))
        return hidden

    def written(version: Rows, training: bool) -> tuple[Tensor | None, Tensor]:
        torch.manual_seed(3)
        with torch.no_grad():
            model.load_state_dict(weights)  # reading codes changes them
            Glancing((0.4, 0.4), 0.0)(model.train(training), make_batch(version, symbols))
        return seen[-1]

    model.decode = noting  # type: ignore[method-assign]
    rows = rows[-2:]
    anything = [changed(row, lambda place: True) for row in rows]
    assert torch.equal(written(anything, False)[1], written(rows, False)[1])
    before = written(rows, True)
    assert before[0] is not None
    kinds: set[bool] = set()
    for place in places(rows[-1]):
        after = written([changed(row, place.__eq__) for row in rows], True)
        assert after[0] is not None
        differs = not torch.equal(after[0], before[0])
        assert differs != torch.equal(after[1], before[1]), place
        kinds.add(differs)
        if len(kinds) == 2:
            return
    raise AssertionError(kinds)


# --- every recipe, and every slot in every view


@papers
def test_every_recipe(paper: str, store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for recipe, config in recipes_of(paper).items():
        model = model_of(config)
        if isinstance(model, NonAutoregressiveModel):
            rows, _ = next(batches(config, store, monkeypatch))
            check_at_once(model, rows, special_symbols(TOKENIZER, config.view))
            continue
        moved = check_rows(model, config, store, monkeypatch)
        assert moved.labels, recipe
        assert bool(moved.across) == shows_targets(config), recipe


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_slot_in_every_view(system: str, store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, view in enumerate(VIEWS):
        contexts = ["own", "foreign"] if number % 2 == 0 else ["foreign", "own"]
        for context in contexts:
            config = config_of(system, view, context=context)
            try:
                model = model_of(config)
            except CotextError:
                assert context == "foreign"  # not possible in this view
                continue
            assert isinstance(model, TranslationModel)
            moved = check_rows(model, config, store, monkeypatch)
            assert moved.labels, view
            sees = shows_targets(config) and (view != "document" or "across" in system)
            assert bool(moved.across) == sees, view
            if not model.sees_other_rows:
                break  # the context has no effect: one kind per view is enough, in turn


@pytest.mark.parametrize("slots", AT_ONCE)
def test_slots_of_parallel_models(slots: str, store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = [f"model.{key}={json.dumps(value)}" for key, value in AT_ONCE[slots].items()]
    config = load_config("casa/casa", "tiny", [*SMALL, *overrides])
    model = model_of(config)
    assert isinstance(model, NonAutoregressiveModel)
    rows, _ = next(batches(config, store, monkeypatch))
    check_at_once(model, rows, special_symbols(TOKENIZER, config.view))


def opened(config: Config, store: TokenStore) -> list[OpenDocument]:
    view, in_turn = build_view(config.view), config.decode.group_windows
    found = []
    for d in (store[index] for index in range(len(store))):
        document = Document(d.id, ("",) * len(d.source))
        source = [s.tolist() for s in d.source]
        found.append(OpenDocument(d.index, document, source, view, prefix=True, sequential_windows=in_turn))
    return found


@pytest.mark.parametrize("view", [v for v in VIEWS if v != "mixture"])
@pytest.mark.parametrize(
    # Interaction of documents in training has no effect here: tests/translation/test_window_groups.py.
    "system",
    [s for s, slots in SYSTEMS.items() if "batch_context" in slots and "across" not in s],
)
def test_windows_that_are_translated_in_turn(system: str, view: str, store: TokenStore) -> None:
    """One window of every document, with extra rows: in a group of four windows, and in the next group."""
    config = config_of(system, view)
    model, symbols = model_of(config), special_symbols(TOKENIZER, config.view)
    assert isinstance(model, TranslationModel)
    documents, moved = opened(config, store), Moved()
    for number in {"document": [0], "parts": [1]}.get(view, [3, 5]):
        asked = [(d, n) for d in documents if number < len(d.windows) for n in range(number + 1)]
        rows = [
            Instance(
                d.index, w, [d.source[j] for j in w.source], [store[d.index].target[j] for j in w.target]
            )
            for d, n in asked
            for w in [d.windows[n]]
        ]
        made = changes(rows, meet=True)
        found = []
        for version in [rows, *(change.of(rows) for change in made)]:
            for (d, n), row in zip(asked, version, strict=True):
                d._found[n] = [SentenceHypothesis(tuple(map(int, sentence))) for sentence in row.target]
            last = [i for i, (_, n) in enumerate(asked) if n == number]
            source = source_of([asked[i] for i in last], config.decode.group_windows, symbols)
            batch = make_batch([version[i] for i in last], symbols)
            with torch.no_grad():
                hidden = model.decode(batch.target_input, batch.input_sentence, model.encode(source))
            # Extra rows have no outputs, so nothing in them can change.
            found.append(
                hidden.new_zeros(len(rows), *hidden.shape[1:]).index_copy(0, torch.tensor(last), hidden)
            )
        moved.check(rows, made, found, apart=True)
    assert moved.labels
    on_target = shows_targets(config) and view != "document"
    assert bool(moved.across) == on_target


# --- candidates


def score_alone_and_together(config: Config) -> None:
    """A candidate has the same score alone, and together with any other candidate."""
    translator = DocumentTranslator(model_of(config), config, TOKENIZER, torch.device("cpu"))

    def text(*sentences: list[int]) -> tuple[str, ...]:
        return tuple(map(TOKENIZER.decode, sentences))

    source = text(*(source_sentence(n, 2) for n in range(4)))
    # They differ in the second and in the fourth sentence; the fourth also in length.
    one, two = (text(*(target_sentence(n + n % 2 * c, 2 - n * c // 3) for n in range(4))) for c in (0, 1))
    choices = [CandidateSet(source, (one, two), (1, 3)), CandidateSet(source[:2], (one[:2], two[:2]), (1,))]
    together = score_candidates(translator, choices)
    for choice, scores in zip(choices, together, strict=True):
        assert scores[0].log_probability != scores[1].log_probability
        other = (*choice.candidates[0][:-1], *text(target_sentence(9, 2)))
        for candidate, score in zip(choice.candidates, scores, strict=True):
            [[alone]] = score_candidates(translator, [replace(choice, candidates=[candidate])])
            [[beside, _]] = score_candidates(translator, [replace(choice, candidates=[candidate, other])])
            for again in (alone, beside):
                assert again.tokens == score.tokens
                assert again.log_probability == pytest.approx(score.log_probability, abs=1e-9)


@papers
def test_candidates_of_every_recipe(paper: str) -> None:
    """Recipes whose rows interact, or that predict all tokens at once; others are in
    `test_candidate_scoring.py`."""
    for config in recipes_of(paper).values():
        if config.model.batch_context != "none" or config.model.writes != "left_to_right":
            score_alone_and_together(config)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("system", [s for s in SYSTEMS if "across" in s])
def test_candidates_where_documents_meet_in_training(system: str, view: str) -> None:
    score_alone_and_together(config_of(system, view))
