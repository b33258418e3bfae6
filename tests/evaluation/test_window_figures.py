"""Losses by sentence of the window, and attention of windows, against sums over single rows by hand."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tiny import PlainWordTokenizer, pieces, random_model, tiny_config, window
from torch import Tensor

from cotext.data.batch import Batch
from cotext.data.collate import make_batch
from cotext.data.documents import ParallelDocument
from cotext.evaluation.statistics.significance import Resampling, paired_test
from cotext.evaluation.studies.attention.sentence_maps import calls
from cotext.evaluation.studies.windows.report import FIGURES, WindowFigures, measure_windows
from cotext.layers.kernels.sdpa import TokenIndices, watch_weights
from cotext.runtime.errors import CotextError
from cotext.translation.scorer import document_rows
from cotext.translation.translator import DocumentTranslator

TOKENIZER = PlainWordTokenizer(["the", "cat", "sat", "on", "a", "mat", "it", "die", "katze", "sass"])
DOCUMENTS = [
    ParallelDocument(
        "d",
        ("the cat sat on a mat", "it sat", "", "on the mat it sat", "cat"),
        ("die katze sass", "sass die sass die", "", "sass", "katze die"),
    ),
    ParallelDocument("e", ("it", "the cat"), ("sass katze sass", "die")),
    ParallelDocument("f", ("it sat",), ("sass",)),
    ParallelDocument("g", ("",), ("",)),
]


def system(
    before: int, seed: int = 0, asked: int | None = None, slots: dict[str, Any] | None = None
) -> DocumentTranslator:
    chosen = {"positions": "shifted", "shift": "sequence"} if slots is None else slots
    config = tiny_config(view=window(before), model=chosen, decode={"before": asked})
    model = random_model(config, TOKENIZER, seed)
    return DocumentTranslator(model, config, TOKENIZER, torch.device("cpu"))


def measured(translator: DocumentTranslator) -> WindowFigures:
    return measure_windows(translator, translator.model, DOCUMENTS, "signature", 1)


def rows(translator: DocumentTranslator) -> Iterator[Batch]:
    """Every window in a batch of its own."""
    for d in DOCUMENTS:
        sides = [TOKENIZER.encode_batch(side) for side in (d.source, d.target)]
        for group in document_rows(translator.plan, *sides).groups:
            for row in group:
                yield make_batch([row.instance], translator.plan.symbols)


@torch.inference_mode()
def token_losses(translator: DocumentTranslator, batch: Batch) -> Iterator[tuple[int, float]]:
    """Every label of a row: how many sentences before the current one, and its loss."""
    model = translator.model
    hidden = model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    log_p = (hidden.double() @ model.output_weight.double().T).log_softmax(dim=-1)
    current = int(batch.source.current[0, 0])
    for t, label in enumerate(batch.target_label[0].tolist()):
        yield current - int(batch.label_sentence[0, t]), -float(log_p[0, t, label])


# Attention that takes another way where it is watched: the loss is measured in the same pass.
OTHER_WAYS: list[dict[str, Any]] = [
    {"encoder": {"score": "segment_distance"}},
    {"attention": {"score": "relative"}},
    {"attention": {"span": "sentence"}},
]


@pytest.mark.parametrize(
    ("before", "asked", "slots"),
    [(1, None, None), (2, None, None), (1, 3, None), (2, 0, None), *((2, None, way) for way in OTHER_WAYS)],
)
def test_losses_by_sentence_are_those_of_rows_alone(
    before: int, asked: int | None, slots: dict[str, Any] | None
) -> None:
    translator = system(before, asked=asked, slots=slots)
    found = measured(translator)
    losses: dict[int, list[float]] = {}
    sentences: dict[int, int] = {}
    pairs: list[tuple[float, list[float]]] = []  # of windows with context: current, and each context sentence
    for batch in rows(translator):
        of_row: dict[int, float] = {}
        for place, loss in token_losses(translator, batch):
            losses.setdefault(place, []).append(loss)
            of_row[place] = of_row.get(place, 0.0) + loss
        for place in of_row:
            sentences[place] = sentences.get(place, 0) + 1
        if len(of_row) > 1:
            pairs.append((of_row[0], [loss for place, loss in of_row.items() if place]))
    size = before if asked is None else asked
    assert found.before == size
    assert list(found.places) == sorted(losses) == list(range(min(size, 3) + 1))
    for place, each in found.places.items():
        assert each.nats == pytest.approx(sum(losses[place]), rel=1e-5)
        assert (each.tokens, each.sentences) == (len(losses[place]), sentences[place])
    assert found.value("loss") == pytest.approx(sum(losses[0]) / len(losses[0]), rel=1e-5)
    if pairs:
        context = [loss for _, each in pairs for loss in each]
        expected = sum(current for current, _ in pairs) / len(pairs) / (sum(context) / len(context))
        assert found.value("ratio") == pytest.approx(expected, rel=1e-5)
    else:
        assert found.value("ratio") is None


def test_the_loss_of_current_sentences_is_their_score() -> None:
    translator = system(2)
    scores = [s for of_document in translator.score(DOCUMENTS) for s in of_document]
    place = measured(translator).places[0]
    assert place.nats == pytest.approx(-sum(s.log_probability for s in scores), rel=1e-6)
    assert place.tokens == sum(s.tokens for s in scores)


def test_every_window_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = system(2)
    read = {"encode": 0, "decode": 0}
    for name in read:
        plain = getattr(translator.model, name)

        def counted(*given: Any, plain: Any = plain, name: str = name) -> Any:
            read[name] += 1
            return plain(*given)

        monkeypatch.setattr(translator.model, name, counted)
    measured(translator)
    # A batch for each of the three documents that have words.
    assert read == {"encode": 3, "decode": 3}


def test_attention_is_that_of_rows_alone() -> None:
    translator = system(2)
    model, found = translator.model, measured(translator)
    sums: dict[str, list[float]] = {}

    def add(name: str, value: float, count: float) -> None:
        entry = sums.setdefault(name, [0.0, 0.0])
        entry[0] += value
        entry[1] += count

    for batch in rows(translator):
        sides = {"encoder": batch.source.sentence[0], "decoder": batch.input_sentence[0]}
        current = int(batch.source.current[0, 0])

        def note(
            weights: Tensor,
            real: Tensor,
            places: TokenIndices | None,
            sides: dict[str, Tensor] = sides,
            current: int = current,
        ) -> None:
            name = calling[-1]
            stack = "cross" if "cross" in name else name.partition(".")[0]
            query = sides["encoder" if stack == "encoder" else "decoder"]
            key = sides["decoder" if stack == "decoder" else "encoder"]
            for head in weights[0].double():
                for q, row in enumerate(head):
                    add(f"entropy, {stack}", -sum(float(w) * math.log(w) for w in row if w > 0), 1)
                    if int(query[q]) == current:
                        add(f"share, {stack}", float(row[key == current].sum()), 1)

        with torch.inference_mode(), calls(model) as calling, watch_weights(note):
            model.decode(batch.target_input, batch.input_sentence, model.encode(batch.source))
    for name, (value, count) in sums.items():
        assert found.value(name) == pytest.approx(value / count, rel=1e-5), name
    pooled = [sum(sums[f"entropy, {stack}"][i] for stack in ("encoder", "decoder", "cross")) for i in (0, 1)]
    assert found.value("entropy") == pytest.approx(pooled[0] / pooled[1], rel=1e-5)
    low, high = sorted(found.value(f"share, {stack}") or 0.0 for stack in ("encoder", "decoder"))
    assert low < (found.value("share") or 0.0) < high
    assert 0 < (found.value("share") or 0) < 1


def test_a_window_of_one_sentence_looks_nowhere_else() -> None:
    found = measured(system(2, asked=0))
    assert found.value("share") == pytest.approx(1)
    assert found.value("share, cross") == pytest.approx(1)


def test_runs_are_compared_by_swapping_documents() -> None:
    one, other = measured(system(1)), measured(system(1, seed=1))
    resampling = Resampling(samples=200)
    for figure in FIGURES:
        same = paired_test({"a": one.statistics(figure), "b": one.statistics(figure)}, None, resampling)
        assert (same.units, same.comparisons[0].difference, same.comparisons[0].p) == (4, 0.0, 1.0)
        test = paired_test({"a": one.statistics(figure), "b": other.statistics(figure)}, None, resampling)
        expected = (other.value(figure) or 0.0) - (one.value(figure) or 0.0)
        assert test.comparisons[0].difference == pytest.approx(expected)
        assert 0 < test.comparisons[0].p <= 1
        assert all(map(math.isfinite, test.comparisons[0].interval_95))


def test_what_reads_no_windows_is_refused() -> None:
    config = tiny_config(view=pieces(40))
    translator = DocumentTranslator(random_model(config, TOKENIZER), config, TOKENIZER, torch.device("cpu"))
    with pytest.raises(CotextError, match="reads no windows"):
        measured(translator)
    with pytest.raises(CotextError, match="no sentence of the corpus has words"):
        measure_windows(system(1), system(1).model, DOCUMENTS[3:], "", 1)
