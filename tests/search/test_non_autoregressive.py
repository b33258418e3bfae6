"""Models that write all at once, up to translated files: n sentences in, n out, whatever the weights."""

import json
import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.config.recipe import load_config
from cotext.data.batch import Instance, source_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.tokenizer import load_tokenizer
from cotext.evaluation.studies.attention.report import document_attention
from cotext.models.build import build_model
from cotext.models.likelihood import RowsToRead
from cotext.models.nat import NonAutoregressiveTransformer
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.hypotheses import Hypothesis, SearchOptions
from cotext.search.non_autoregressive import _FrameSearch, collapse, search_frames
from cotext.translation.scorer import score_instances
from cotext.translation.translator import DocumentTranslator
from tests.command_line import TINY as SMALLEST
from tests.command_line import WITH_BLEU, cotext, prepare_arguments, succeed, write_corpus
from tests.models.test_casa import (
    CONTEXT,
    SYMBOLS,
    SYSTEMS,
    TOKENIZER,
    config_of,
    instances,
    model_of,
    systems,
)
from tests.refusals import must_raise
from tests.tiny import WordTokenizer, split
from tests.tiny_runs import write_run

CPU = torch.device("cpu")
SEARCH = SearchSymbols(SYMBOLS, TOKENIZER.unk, unused=(TOKENIZER.sep,))
GREEDY = SearchOptions(beam=1)


def requests(rows: list[Instance], limit: int = 60) -> list[SearchRequest]:
    return [SearchRequest([], 0, (limit,) * len(row.source)) for row in rows]


def found(
    model: NonAutoregressiveTransformer,
    rows: list[Instance],
    options: SearchOptions = GREEDY,
    symbols: SearchSymbols = SEARCH,
) -> list[Hypothesis]:
    return search_frames(model, source_batch(rows, SYMBOLS), requests(rows), symbols, options)


def test_collapse_by_hand() -> None:
    """Blank is 0; 9 stands for nothing."""
    path = [9, 0, 4, 4, 0, 4, 5, 5, 9, 6, 0, 0]
    log_p = [-float(2**i) for i in range(len(path))]
    text = collapse(path, log_p, {0, 9})
    assert text.tokens == [4, 4, 5, 6]
    assert text.log_p == [-(1 + 2 + 4 + 8), -(16 + 32), -(64 + 128), -(256 + 512)]
    assert text.rest == -(1024 + 2048)
    assert collapse(path, log_p, {0, 9}, repeats=False).tokens == [4, 4, 4, 5, 5, 6]
    assert collapse([], [], {0}).tokens == []


@systems
@given(
    seed=st.integers(0, 2**16),
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    blank=st.booleans(),
)
@settings(max_examples=12)
def test_as_many_sentences_each_with_a_word(name: str, seed: int, lengths: list[int], blank: bool) -> None:
    model = model_of(SYSTEMS[name], seed=seed % 97)
    if blank:  # which the model then writes everywhere
        with torch.no_grad():
            model.embedding.weight[model.blank] += 3 * model.decoder[-1].after_feed_forward.norm.bias
    generator = torch.Generator().manual_seed(seed)
    source = [torch.randint(4, 13, (n,), generator=generator).tolist() for n in lengths]
    whole = range(len(source))
    row = replace(instances()[0], source=source, target=[])
    row = replace(row, window=replace(row.window, source=whole, target=whole, current=whole))
    [hypothesis] = found(model, [row])
    texts = split(hypothesis.tokens, [SYMBOLS.eos])
    assert len(texts) == len(lengths)
    for text in texts:
        assert text
        assert all(token < TOKENIZER.pieces and token != TOKENIZER.unk for token in text)
    assert len(hypothesis.token_log_probabilities) == len(hypothesis.tokens) + 1
    assert hypothesis.log_probability == pytest.approx(sum(hypothesis.token_log_probabilities))
    assert all(p <= 1e-9 for p in hypothesis.token_log_probabilities)


def test_a_word_in_an_empty_sentence_is_no_bracket() -> None:
    model, rows = model_of(CONTEXT), instances()
    assert model.path == "sentences"
    search = _FrameSearch(model, SEARCH, GREEDY)
    with torch.no_grad():
        for row in search.rows(source_batch(rows, SYMBOLS), requests(rows)):
            inner = row.frames(0)[1:-1]
            total, rest = sum(row.log_p[i] for i in inner), search._content_token(row, 0).rest
            assert min(abs(total - row.log_p[i] - rest) for i in inner) < 1e-5


def test_limits_hold_and_are_reported() -> None:
    row = instances()[2]
    for seed in range(60):  # the first that has much to say
        model = model_of({}, seed=seed)
        free = split(found(model, [row])[0].tokens, [SYMBOLS.eos])
        longest = max(range(2), key=lambda k: len(free[k]))
        if len(free[longest]) > 3:
            break
    assert len(free[longest]) > 3
    limits = [60] * 2
    limits[longest] = len(free[longest])
    source = source_batch([row], SYMBOLS)
    [cut] = search_frames(model, source, [SearchRequest([], 0, tuple(limits))], SEARCH, GREEDY)
    texts = split(cut.tokens, [SYMBOLS.eos])
    assert texts[longest] == free[longest][:-1]
    assert [text for k, text in enumerate(texts) if k != longest] == [
        text for k, text in enumerate(free) if k != longest
    ]
    closers = [i for i, token in enumerate([*cut.tokens, SYMBOLS.eos]) if token == SYMBOLS.eos]
    assert cut.truncated == (closers[longest],)


@pytest.mark.parametrize("seed", [0, 5, 7])
def test_argmax_by_hand(seed: int) -> None:
    """Of every place by itself, as one matrix product gives it."""
    model = model_of({}, seed=seed)
    rows = instances()
    with torch.no_grad():
        draft = model.encode(source_batch(rows, SYMBOLS))
        log_p = (model.decode(draft) @ model.output_weight.T).log_softmax(dim=2)
    log_p[:, :, [TOKENIZER.unk, TOKENIZER.sep]] = -math.inf
    for i, hypothesis in enumerate(found(model, rows)):
        texts = split(hypothesis.tokens, [SYMBOLS.eos])
        own = iter(hypothesis.token_log_probabilities)
        for k, text in enumerate(texts):
            inner = log_p[i][draft.sentence[i] == k][1:-1]
            best = inner.max(dim=1)
            path = [
                b
                for b, a in zip(best.indices.tolist(), [None, *best.indices.tolist()], strict=False)
                if b != a
            ]
            expected = [b for b in path if b < TOKENIZER.pieces]
            if expected:
                assert text == expected
                total = sum(next(own) for _ in range(len(text) + 1))
                assert total == pytest.approx(float(best.values.sum()))
            else:
                assert len(text) == 1
                for _ in range(2):
                    next(own)


@pytest.mark.parametrize("settings", [CONTEXT, SYSTEMS["GLAT"]])
def test_a_beam_is_refused(settings: dict[str, object]) -> None:
    must_raise(r"choose decode\.beam = 1", found, model_of(settings), instances(), SearchOptions(beam=2))


def test_output_that_is_not_a_number_is_refused() -> None:
    model = model_of(CONTEXT)
    with torch.no_grad():
        model.decoder[0].feed_forward.narrow.bias.fill_(math.nan)
    must_raise("not a number", found, model, instances())


def test_scores_are_the_likelihood_over_all_paths() -> None:
    """Of a sentence of one token: every path between its brackets, one by one."""
    model = model_of(CONTEXT)
    row = replace(instances()[1], target=[[4]])
    [[score]] = score_instances(RowsToRead(model, [row], SYMBOLS, 8000, CPU))
    assert score.tokens == 2
    with torch.no_grad():
        draft = model.encode(source_batch([row], SYMBOLS))
        log_p = (model.decode(draft) @ model.output_weight.T).log_softmax(dim=2)[0]
    bos, eos, blank = SYMBOLS.bos, SYMBOLS.eos, SYMBOLS.pad
    total = 0.0
    for inner in product((bos, 4, eos, blank), repeat=len(log_p) - 2):
        path = [bos, *inner, eos]
        kept = [b for a, b in zip([None, *path], path, strict=False) if a != b and b != blank]
        if kept == [bos, 4, eos]:
            total += math.exp(sum(float(log_p[t + 1, symbol]) for t, symbol in enumerate(inner)))
    assert score.log_probability == pytest.approx(math.log(total), abs=1e-5)


def test_a_sentence_without_a_path_is_impossible() -> None:
    row = replace(instances()[1], target=[[4] * 9])
    [[score]] = score_instances(RowsToRead(model_of(CONTEXT), [row], SYMBOLS, 8000, CPU))
    assert score.log_probability == -math.inf
    translator = DocumentTranslator(model_of(CONTEXT), config_of(CONTEXT), TOKENIZER, CPU)
    [[told]] = translator.score([ParallelDocument("d", ("cat",), ("cat " * 9,))])
    assert told.log_probability == -math.inf


WITH_PATHS = [
    name for name in SYSTEMS if SYSTEMS[name].get("nat", {}).get("path", "sentences") == "sentences"
]
PARALLEL = ParallelDocument(
    "d", ("the cat sat", "on", "", "it saw a mat again"), ("mat on", "cat cat cat", "", "the cat")
)


@pytest.mark.parametrize("name", WITH_PATHS)
def test_tokens_share_the_likelihood_of_their_sentence(name: str) -> None:
    translator = DocumentTranslator(model_of(SYSTEMS[name]), config_of(SYSTEMS[name]), TOKENIZER, CPU)
    [scores] = translator.score([PARALLEL])
    [tokens] = translator.score_tokens([(PARALLEL, range(4))])
    assert [len(each) for each in tokens] == [3, 0, 0, 3]  # "cat cat cat" has no path of six positions
    for j in (0, 3):
        assert sum(tokens[j]) == pytest.approx(scores[j].log_probability)
        assert all(log_p < 1e-9 for log_p in tokens[j])
    assert scores[1].log_probability == -math.inf


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - set(WITH_PATHS)))
def test_tokens_have_no_probability_where_a_row_has_one_path(name: str) -> None:
    translator = DocumentTranslator(model_of(SYSTEMS[name]), config_of(SYSTEMS[name]), TOKENIZER, CPU)
    must_raise("one likelihood for the whole sequence", translator.score_tokens, [(PARALLEL, range(4))])


@systems
def test_which_sentence_looks_at_which(name: str) -> None:
    """Every position and source token asks, and what it gives to sentences sums to one."""
    translator = DocumentTranslator(model_of(SYSTEMS[name]), config_of(SYSTEMS[name]), TOKENIZER, CPU)
    found = document_attention(translator, PARALLEL, "", own=False)
    assert found.numbers == (1, 2, 4)
    for each in found.maps.values():
        torch.testing.assert_close(each.share.nansum(dim=1), torch.ones(3, dtype=torch.float64))
        seen = ~each.share.isnan()
        assert seen.diagonal().all()
        if each.kind.endswith("local"):
            assert int(seen.sum()) == 3
    if name == "CASA":
        assert not found.maps["encoder.1.attention"].share.isnan().any()
        other = document_attention(
            translator, replace(PARALLEL, target=("it", "it", "", "it")), "", own=False
        )
        for each, same in zip(found.maps.values(), other.maps.values(), strict=True):
            torch.testing.assert_close(each.share, same.share, equal_nan=True)


DOCUMENTS = [
    Document("a", ("the cat sat", "", "it saw a mat again", "cat")),
    Document("b", ("again",)),
    Document("c", ("the cat", "on a mat", "it")),
]


@systems
def test_a_document_is_translated_alone_as_beside_others(name: str) -> None:
    translator = DocumentTranslator(model_of(SYSTEMS[name]), config_of(SYSTEMS[name]), TOKENIZER, CPU)
    together = dict(translator.translate(DOCUMENTS))
    for i, document in enumerate(DOCUMENTS):
        [(_, alone)] = translator.translate([document])
        assert alone.document == together[i].document
        assert alone.log_probabilities == pytest.approx(together[i].log_probabilities, abs=1e-4)
        assert len(alone.document.sentences) == len(document.sentences)
        assert [bool(s) for s in alone.document.sentences] == [bool(s) for s in document.sentences]


@pytest.mark.parametrize("seed", range(6))
def test_no_sentence_shows_nothing(seed: int) -> None:
    """Pieces that show nothing alone: blank ones, and halves of a character."""
    tokenizer = WordTokenizer(["the", "cat", "sat"])
    torch.manual_seed(seed)
    model = build_model(config_of(CONTEXT), tokenizer.vocabulary_size).double().eval()
    with torch.no_grad():
        model.output_weight[tokenizer.FIRST_HALF] *= 5
        model.output_weight[tokenizer.BLANK] *= 3
    translator = DocumentTranslator(model, config_of(CONTEXT), tokenizer, CPU)
    [(_, translation)] = translator.translate([Document("d", ("the", "cat sat the", "sat"))])
    assert all(translation.document.sentences)
    assert translation.recovered


def test_signatures_say_how_it_is_written() -> None:
    translator = DocumentTranslator(model_of(CONTEXT), config_of(CONTEXT), TOKENIZER, CPU)
    assert "|beam:1|path:sentences|" in translator.signature
    assert "lp:" not in translator.signature


TINY = (*SMALLEST, "model.encoder_layers=2", "model.attention.top.layers=1", WITH_BLEU)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("casa")
    write_corpus(made)
    succeed(*prepare_arguments(made, made / "data"))
    return made


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("recipe", ["latent", "glat", "glat-ctc"])
def test_train_translate_score_and_contrast(recipe: str, folder: Path) -> None:
    run, out = folder / recipe, folder / f"{recipe}.de"
    told = succeed("train", f"casa/{recipe}", *TINY, "--data", folder / "data", "--out", run).err
    figures = [json.loads(line) for line in lines(run / "metrics.jsonl")]
    assert {"nll_current", "revealed"} <= figures[0].keys()
    latent = "latent" in recipe
    assert ({"codes_used", "code_perplexity"} <= figures[0].keys()) == latent
    assert (re.search(r"\d codes, perplexity \d", told) is not None) == latent
    assert ("without_path" in figures[0]) == ("glat" not in recipe or recipe == "glat-ctc")
    assert figures[-1]["kind"] == "final"
    succeed("translate", run, folder / "test.en", "--out", out)
    assert [bool(line) for line in lines(out)] == [bool(line) for line in lines(folder / "test.en")]
    scored = succeed("score", run, "--source", folder / "test.en", "--target", out).out
    assert scored.count("\n") > len([line for line in lines(out) if line])
    assert "nan" not in scored
    contrasted = succeed("contrastive", run, folder / "suite.json").out
    assert "toy/order" in contrasted


def fresh(folder: Path, name: str, recipe: str) -> Path:
    """A run with fresh weights, layers and lengths as those that are trained here."""
    tokenizer = load_tokenizer(folder / "data" / "tokenizer")
    settings = [s for s in TINY if s.startswith(("model", "decode", "view"))]
    return write_run(folder / name, load_config(recipe, None, [*settings, "train.threads=1"]), tokenizer)


def test_context_is_measured_by_the_likelihood_of_texts(folder: Path) -> None:
    """`cxmi`, `context` and `attention`, of a system with a path for every sentence."""
    run = fresh(folder, "measured", "casa/latent")
    source, target, out = folder / "test.en", folder / "test.de", folder / "measured.json"
    told = succeed("cxmi", run, "--source", source, "--target", target, "--out", out).out
    found = json.loads(out.read_text())
    assert found["conditions"]["true"]["sentences_with_context"] > 0
    assert found["conditions"]["true"]["per_sentence"] != 0
    assert (f"{found['without_path']} have no valid CTC alignment" in told) == (found["without_path"] > 0)
    page = folder / "measured.html"
    succeed("context", run, source, "--target", target, "--out", page)
    [*_, last] = json.loads(page.with_suffix(".json").read_text())["sentences"]
    assert sum(word["nats"] for word in last["words"]) == pytest.approx(last["cxmi"], abs=1e-2)
    maps = folder / "maps"
    succeed("attention", run, source, "--target", target, "--out", maps)
    kinds = set(json.loads((maps / "attention.json").read_text())["kinds"])
    assert {"encoder", "decoder", "cross", "codes", "codes_cross"} <= kinds


def test_what_reads_from_left_to_right_is_refused(folder: Path) -> None:
    run, glat = fresh(folder, "refused", "casa/casa"), fresh(folder, "glat-refused", "casa/glat-ctc")
    source = folder / "test.en"
    for command in (
        ("translate", run, source, "--out", folder / "free.de", "--set", "align=free"),
        ("cxmi", glat, "--source", source, "--target", folder / "test.de"),
        ("context", glat, source, "--out", folder / "page.html"),
    ):
        outcome = cotext(*command)
        assert outcome.code == 2, (command, outcome)
        assert "nat(" in outcome.err or "decode.align" in outcome.err, outcome.err
