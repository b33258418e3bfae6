"""Weights of training sentences: the file, what it is compared with, and where they stand in a batch."""

import json
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import prepare_toy, write_weights

from cotext.data.batch import Batch, Instance, SpecialSymbols
from cotext.data.collate import make_batch
from cotext.data.sampling import Arrangement, Cursor, Sampler, instances_of
from cotext.data.sentence_weights import digest_of_store, read_weights
from cotext.data.store import StoreWriter, TokenDocument, TokenStore
from cotext.data.views import Mixture, Window, WindowView
from cotext.runtime.errors import CotextError

SYMBOLS = SpecialSymbols(pad=1000, bos=1001, eos=1002, separators=(1003,))
# Target tokens of the sentences; the second document has a pair without a token.
DOCUMENTS = ([1, 3], [2, 0, 1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prepared")
    with StoreWriter(path / "train.arrow", "no tokenizer") as writer:
        for number, lengths in enumerate(DOCUMENTS):
            sides = [[7] * length for length in lengths]
            writer.add(f"d{number}", sides, sides)
    return path


def written(folder: Path, path: Path, *weights: list[float]) -> Path:
    write_weights(path, folder, [(f"d{n}", each) for n, each in enumerate(weights)])
    return path


def test_the_mean_over_labels_is_one(folder: Path, tmp_path: Path) -> None:
    """Labels: a token each, and what closes the sentence: 2, 4, 3, 1, 2."""
    store = TokenStore(folder / "train.arrow")
    path = written(folder, tmp_path / "w.jsonl", [3, 0], [1, 5, 2])
    mean = (2 * 3 + 4 * 0 + 3 * 1 + 1 * 5 + 2 * 2) / 12
    found = read_weights(path, folder, store)
    assert found.of(0) == pytest.approx([3 / mean, 0])
    assert found.of(1) == pytest.approx([1 / mean, 5 / mean, 2 / mean])
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert header == {
        "format": "cotext-weights",
        "version": 1,
        "data": digest_of_store(folder),
        "signature": "by:hand",
    }
    assert lines[1] == {"document": "d1", "weights": [1, 5, 2]}


def test_a_pair_without_a_token_takes_its_weight_along(folder: Path, tmp_path: Path) -> None:
    path = written(folder, tmp_path / "w.jsonl", [1, 1], [1, 1, 1])
    plain = TokenStore(folder / "train.arrow")
    assert plain[1].weights is None
    store = plain.weighted({0: [1, 2], 1: [3, 4, 5]}.__getitem__)
    assert list(store[1].without_empty_pairs().weights or ()) == [3, 5]
    assert plain[1].weights is None  # the other store is as it was
    assert read_weights(path, folder, plain).of(1) == [1, 1, 1]


def line(weights: str, document: int = 0) -> str:
    return f'{{"document": "d{document}", "weights": {weights}}}'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["[]"], r"w.jsonl:1: no JSON object"),
        ([], "no weights of sentences"),
        (['{"format": "cotext-weights", "version": 2}'], "no weights of sentences"),
        (['{"format": "cotext-weights", "version": 1, "data": "0"}'], "weights of other data than .*train"),
        (
            ["HEAD", line("[1, 1, 1]", 1), line("[1, 1]")],
            r"w.jsonl:2: weights of document 'd1', where the data has 'd0'",
        ),
        (["HEAD", '{"weights": [1, 1]}'], r"w.jsonl:2: weights of document None, where"),
        (["HEAD", line("[1, 1]")], r"weights of 1 documents, and .*train.arrow has 2"),
        (
            ["HEAD", line("[1]")],
            r"w.jsonl:2: 1 weights; the document there has 2 sentences",
        ),
        (["HEAD", line("1")], r"w.jsonl:2: no list of weights"),
        (
            ["HEAD", line("[1, -0.5]")],
            r"w.jsonl:2: a weight is -0.5; a number from 0 to 1,000,000",
        ),
        (["HEAD", line("[1, true]")], r"w.jsonl:2: a weight is True"),
        (["HEAD", line("[1, 1e9]")], r"w.jsonl:2: a weight is 1000000000.0"),
        (["HEAD", line("[1, NaN]")], r"w.jsonl:2: not valid JSON"),
        (["HEAD", *[line("[1, 1]"), line("[1, 1, 1]", 1)] * 2], r"w.jsonl:4: more documents"),
        (["HEAD", line("[0, 0]"), line("[0, 0, 0]", 1)], "all weights are 0"),
    ],
)
def test_what_does_not_match_is_refused(folder: Path, tmp_path: Path, lines: list[str], message: str) -> None:
    head = json.dumps({"format": "cotext-weights", "version": 1, "data": digest_of_store(folder)})
    path = tmp_path / "w.jsonl"
    path.write_text("".join(f"{head if each == 'HEAD' else each}\n" for each in lines))
    with pytest.raises(CotextError, match=message):
        read_weights(path, folder, TokenStore(folder / "train.arrow"))


def test_weights_of_another_corpus_of_the_same_shape_are_refused(tmp_path: Path) -> None:
    folders = [prepare_toy(tmp_path / name, documents=4, seed=seed) for name, seed in (("a", 0), ("b", 5))]
    stores = [TokenStore(folder / "train.arrow") for folder in folders]
    weights = [[1.0] * len(document.source) for document in stores[0]]
    path = tmp_path / "w.jsonl"
    write_weights(path, folders[0], [(d.id, w) for d, w in zip(stores[0], weights, strict=True)])
    assert read_weights(path, folders[0], stores[0]).flat.tolist() == [1.0] * sum(map(len, weights))
    with pytest.raises(CotextError, match="weights of other data"):
        read_weights(path, folders[1], stores[1])


def document(index: int, count: int, first: int) -> TokenDocument:
    """Each sentence has a token of its own, which is its weight, too."""
    sentences = [np.array([first + j], np.int32) for j in range(count)]
    return TokenDocument(str(index), index, sentences, sentences, [float(first + j) for j in range(count)])


def of_labels(batch: Batch) -> list[tuple[int, float]]:
    """The tokens among the labels with their weights."""
    weight = batch.labels.weight
    assert weight is not None
    pairs = zip(batch.labels.token.tolist(), weight.tolist(), strict=True)
    return [(token, weight) for token, weight in pairs if token < 1000]


def test_every_label_has_the_weight_of_its_sentence() -> None:
    """Target context shorter than that of the source: sentence indices count from the first of the source."""
    for view in (WindowView(before=2, after=1), WindowView(before=2, target_before=0)):
        batch = make_batch(list(instances_of(document(0, 4, 10), view)), SYMBOLS)
        found = of_labels(batch)
        assert found
        assert all(token == weight for token, weight in found)
        assert {token for token, _ in found} == {10, 11, 12, 13}


def test_foreign_context_has_weights_of_its_own(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "train.arrow", "no tokenizer") as writer:
        for first in (10, 20, 30):
            sides = [[first + j] for j in range(4)]
            writer.add(str(first), sides, sides)
    store = TokenStore(tmp_path / "train.arrow")
    weighted = store.weighted(lambda index: [10.0 * (index + 1) + j for j in range(4)])
    sampler = Sampler(
        weighted,
        Mixture([(WindowView(before=2), 1.0)]),
        SYMBOLS,
        max_tokens=60,
        max_row_tokens=25,
        pool_tokens=1000,
        seed=1,
        arrangement=Arrangement(context="foreign"),
    )
    found = [b for b, _ in takewhile(lambda pair: pair[1].epoch < 1, sampler.batches(Cursor()))]
    labels = [pair for batch in found for pair in of_labels(batch)]
    assert len(labels) > 20
    assert all(token == weight for token, weight in labels)


def test_a_row_without_weights_beside_one_with() -> None:
    rows = [
        Instance(0, Window(range(1), range(1), range(1)), [[1]], [[2]], [0.5]),
        Instance(1, Window(range(2), range(2), range(2)), [[1], [1]], [[3], [4]]),
    ]
    batch = make_batch(rows, SYMBOLS)
    assert of_labels(batch) == [(2, 0.5), (3, 1), (4, 1)]
    assert make_batch(rows[1:], SYMBOLS).weights is None
    moved = batch.weights_of(torch.tensor([[0, -1], [1, 0]]))
    assert moved is not None
    assert moved.tolist() == [[0.5, 0.5], [1, 1]]
