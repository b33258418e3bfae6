"""The benchmarks of speed, in miniature on the CPU."""

from argparse import Namespace
from time import perf_counter

import pytest
import torch
from torch import nn

from benchmarks.speed import operators, training, translating
from benchmarks.speed.harness import in_own_process
from benchmarks.speed.systems import GATED, GROUPS, SENTENCE, config_of, named, random_batches
from cotext.layers.spans import GatedOthersSpan

CPU = torch.device("cpu")
SMALL = "model.dimension=16 model.feed_forward=32 model.heads=2 model.encoder_layers=2 model.decoder_layers=2"
SYSTEMS = [f"g-transformer/randinit {SMALL}", f"casa/casa {SMALL}"]


@pytest.fixture(autouse=True)
def _small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(training.CEILING_SHAPES, "cpu", ((64, 64, 64),))


def test_training() -> None:
    options = Namespace(systems=SYSTEMS, size="base", tokens=100, precisions=["fp32", "bf16"], rounds=1)
    rows = training.rows(options, CPU, perf_counter, "1x3")
    assert [row[0] for row in rows] == [f"{s}, {p}" for s in SYSTEMS for p in ("fp32", "bf16")]
    assert rows[0][2] == "1.00 (1.00-1.00)"
    assert all(row[4] == "-" for row in rows)  # memory of a GPU


def test_memory_of_training() -> None:
    # In a process of its own: this one may have room left from earlier tests.
    given = SYSTEMS[0], "base", 4096, "fp32", torch.get_num_threads(), [1, 20]
    assert 0 < in_own_process(training.own_peak, *given) < 100


def test_rows_of_a_batch_are_of_similar_length_and_whole_documents_come_back() -> None:
    config = config_of(SENTENCE, "tiny")
    batches = random_batches(config, 3, 20, 300)
    lengths = [batch.source.sentence.ge(0).sum(dim=1) for batch in batches]
    assert sum(len(each) for each in lengths) == 60
    assert all(batch.source.tokens.numel() <= 300 for batch in batches if len(batch.source.tokens) > 1)
    assert [int(each.max()) for each in lengths] == sorted(int(each.max()) for each in lengths)


def test_translating_beside_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    rivals = pytest.importorskip("benchmarks.speed.rivals")
    monkeypatch.setattr(rivals, "AS_MARIAN", (*rivals.AS_MARIAN, *SMALL.split()))
    names = [f"{SENTENCE} {SMALL}", "marian", "ctranslate2", "ctranslate2-int8"]
    translating.require_equal(names[1:3], "base", 1, CPU)
    ways = {name: translating.opened(name, "base", 2, 1, CPU) for name in names}
    documents = translating.random_documents(2, 1, 5)
    rows = translating.rows(ways, documents, 1, perf_counter)
    assert [row[0] for row in rows] == names
    own = rivals.random_model
    monkeypatch.setattr(rivals, "random_model", lambda config: own(config).apply(_another))
    with pytest.raises(SystemExit, match="marian writes"):
        translating.require_equal(["marian"], "base", 1, CPU)


def _another(module: nn.Module) -> None:
    if isinstance(module, nn.LayerNorm):
        nn.init.normal_(module.weight)


def test_operators_of_a_step_and_values_that_the_cpu_reads_are_counted() -> None:
    counts = operators.operators(f"{SENTENCE} {SMALL}", sentences=1, beam=1)
    steps = operators.STEPS
    # Attention to the target and to the source, in two layers.
    assert counts["scaled_dot_product_attention"] == 4 * steps
    assert counts["log_softmax"] == steps
    assert sum(counts.values()) < 125 * steps
    x = torch.arange(4)
    with operators.HostReads() as reads:
        float(x.sum())
        x[x > 1]
        x.nonzero()
        x.repeat_interleave(x, output_size=6)
    assert reads.counts.total() == 3
    with operators.HostReads() as reads:
        x.repeat_interleave(x)
        x[torch.tensor([0, 1])] = 0
    assert reads.counts.total() == 1
    assert operators.values_read(SYSTEMS[0], "base", "1x3", CPU) == 0


def test_every_system_of_a_group_is_known_and_gates_are_open() -> None:
    for system in named(list(GROUPS)):
        config_of(system, "tiny")
    translator = translating.translator_of(config_of(f"{GATED} model.attention.others=gated", "tiny"), CPU)
    gates = [m.gate for m in translator.model.modules() if isinstance(m, GatedOthersSpan)]
    assert gates
    assert all(bool((gate != 0).all()) for gate in gates)
