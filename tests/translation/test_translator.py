"""Translation of documents with random models: every view, context and kind of search."""

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, product
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotext.config.recipe import Config
from cotext.data.batch import Instance, RowCache, source_batch
from cotext.data.documents import Document, ParallelDocument
from cotext.data.tokenizer import SentencePieceTokenizer, Tokenizer, TokenizerSettings
from cotext.models.transformer import Transformer
from cotext.search.beam_search import search
from cotext.search.constraints import SearchRequest
from cotext.search.hypotheses import Hypothesis
from cotext.translation import plan as plan_module
from cotext.translation.document_state import OpenDocument
from cotext.translation.translator import DocumentTranslator, Translation
from tests.cover import cover
from tests.refusals import must_raise
from tests.tiny import (
    PlainWordTokenizer,
    WordTokenizer,
    pieces,
    random_translator,
    split,
    tiny_config,
    window,
)
from tests.tiny import translations as translated

CPU = torch.device("cpu")
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "it", "there", "today", "again"]
TOKENIZER = WordTokenizer(WORDS)
PLAIN = PlainWordTokenizer(WORDS)

# Fewer than some documents have sentences.
INDEXED = {"separators": "indexed", "indexed_separators": 3}

# Every way in which documents are taken apart, with every kind of position somewhere.
STRATEGIES: dict[str, Config] = {
    "sentence": tiny_config(),
    "prefix": tiny_config(view=window(2), model={"positions": "shifted", "shift": "sequence"}),
    "prefix, future": tiny_config(view=window(1, after=1), model={"positions": "reset"}),
    "future alone": tiny_config(view=window(0, after=2), model={"segments": "sinusoidal"}),
    "prefix, shed": tiny_config(
        view=window(3, max_tokens=9), model={"segments": "learned", "segments_from": "current"}
    ),
    "regenerate": tiny_config(
        view=window(2),
        model={"positions": "shifted", "pre_norm": True},
        decode={"target_context": "regenerate"},
    ),
    "regenerate, future": tiny_config(
        view=window(1, after=1),
        model={"segments": "learned"},
        decode={"target_context": "regenerate", "beam": 1},
    ),
    "source context": tiny_config(
        view=window(2) | {"target_before": 0}, model={"segments": "sinusoidal", "segments_from": "current"}
    ),
    "prefix, bracket": tiny_config(view=window(2) | {"separators": "bracket"}),
    "prefix, indexed": tiny_config(view=window(2) | INDEXED, model={"segments": "learned"}),
    "cumulative": tiny_config(view=pieces(20, "cumulative")),
    "document": tiny_config(view=pieces(12), model={"positions": "shifted"}),
    "document, indexed": tiny_config(view=pieces(40) | INDEXED, model={"segments": "sinusoidal"}),
    "document, bracket": tiny_config(
        view=pieces(20) | {"separators": "bracket"}, model={"positions": "reset"}, decode={"beam": 3}
    ),
    "by sentence, bracket": tiny_config(
        view=pieces(20) | {"separators": "bracket"}, decode={"beam": 3, "beam_per": "sentence"}
    ),
    "document, in parts": tiny_config(view=pieces(40, parts=2), decode={"beam": 1}),
}
FREE: dict[str, Config] = {
    f"{name}, free": tiny_config(
        view=STRATEGIES[name].view.model_dump(),
        decode={**STRATEGIES[name].decode.model_dump(), "align": "free"},
    )
    for name in ("sentence", "prefix", "prefix, indexed", "regenerate", "document", "document, indexed")
}
SEQUENTIAL = [name for name in STRATEGIES if name.startswith("prefix")]
WHOLE = [name for name in STRATEGIES if name.startswith("document")]
strategies = pytest.mark.parametrize("name", STRATEGIES)
all_strategies = pytest.mark.parametrize(
    "config", [*STRATEGIES.values(), *FREE.values()], ids=[*STRATEGIES, *FREE]
)

sentence_texts = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
corpora = st.lists(st.lists(sentence_texts, min_size=1, max_size=5), min_size=1, max_size=4).map(
    lambda texts: [Document(f"d{i}", tuple(sentences)) for i, sentences in enumerate(texts)]
)

CORPUS = [
    Document("long", ("the cat sat", "", "it saw a mat and a cat", "again", "on the mat there today", "")),
    Document("one", ("and it sat there",)),
    Document("empty", ("",)),
    Document("three", ("a cat", "a mat a mat a mat", "sat sat")),
    Document("opens empty", ("", "", "today")),
]


def has_text(document: Document) -> list[bool]:
    return [bool(sentence.split()) for sentence in document.sentences]


def translator(
    config: Config, tokenizer: Tokenizer = TOKENIZER, seed: int = 0, **decode: Any
) -> DocumentTranslator:
    return random_translator(config, tokenizer, seed, **decode)


def same(a: Translation, b: Translation) -> bool:
    known = [(t.document, t.truncated, t.long, t.missing, t.recovered) for t in (a, b)]
    return known[0] == known[1] and a.log_probabilities == pytest.approx(b.log_probabilities, abs=1e-9)


class Spy:
    """Stands before `search` and remembers what was asked for and what was found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[tuple[int, int, SearchRequest, Hypothesis]] = []  # document, current sentence
        self.batches = 0

        def spying(
            model: Any, source: Any, requests: Sequence[SearchRequest], symbols: Any, options: Any
        ) -> list[Hypothesis]:
            found = search(model, source, requests, symbols, options)
            self.batches += 1
            for i, (request, hypothesis) in enumerate(zip(requests, found, strict=True)):
                document, current = int(source.document[i]), int(source.current[i, 0])
                self.rows.append((document, current, request, hypothesis))
            return found

        monkeypatch.setattr(plan_module, "search", spying)

    def of_document(self, index: int) -> list[tuple[int, SearchRequest, Hypothesis]]:
        return [row[1:] for row in self.rows if row[0] == index]


VIEWS = [
    *({"kind": "sentence"}, window(2), window(1, after=1), window(2) | {"target_before": 0}),
    *(pieces(14), pieces(40), pieces(40, parts=2), pieces(14, "cumulative")),
]


@settings(max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    documents=corpora,
    # Non-autoregressive systems have views of its own: tests/search/test_non_autoregressive.py.
    model=st.sampled_from(list(cover().values())),
    view=st.sampled_from(VIEWS),
    separators=st.sampled_from(["plain", "indexed", "bracket"]),
    target_context=st.sampled_from(["prefix", "regenerate"]),
    align=st.sampled_from(["constrained", "free"]),
    beam=st.integers(1, 4),
    max_tokens=st.sampled_from([1, 60, 8000]),
    seed=st.integers(0, 5),
)
def test_as_many_sentences_come_out_as_went_in(
    documents: list[Document],
    model: dict[str, Any],
    view: dict[str, Any],
    separators: str,
    target_context: str,
    align: str,
    beam: int,
    max_tokens: int,
    seed: int,
) -> None:
    if separators == "bracket":
        align = "constrained"
    view = view | {"separators": separators, "indexed_separators": 3}
    decode = {"target_context": target_context, "align": align, "beam": beam, "max_tokens": max_tokens}
    config = tiny_config(model=model, view=view, decode=decode)
    t = translator(config, seed=seed)
    done: list[int] = []
    found = dict(t.translate(documents, done.append))
    assert sum(done) == t.check(documents) == sum(len(d.sentences) for d in documents)
    for i, document in enumerate(documents):
        out = found[i].document
        assert out.id == document.id
        assert len(out.sentences) == len(document.sentences) == len(found[i].log_probabilities)
        missing = [j for j, s in enumerate(document.sentences) if s and not out.sentences[j]]
        assert list(found[i].missing) == missing
        assert not (missing and found[i].recovered)
        for j, (source, target) in enumerate(zip(document.sentences, out.sentences, strict=True)):
            assert target == " ".join(target.split())
            if not source:
                assert (target, found[i].log_probabilities[j]) == ("", 0)
            elif align == "constrained":
                assert target
                assert found[i].log_probabilities[j] < 0
        assert found[i].recovered or align == "free"


@all_strategies
def test_sentences_without_a_token_are_no_part_of_their_document(config: Config) -> None:
    """They go in and come out, and their neighbours know nothing of them."""
    t = translator(config)
    for document in CORPUS:
        [whole] = translated(t, [document])
        text = tuple(s for s in document.sentences if s)
        [rest] = translated(t, [Document(document.id, text)])
        places = list(accumulate(has_text(document), initial=0))
        for j, has in enumerate(has_text(document)):
            k = places[j]
            assert whole.document.sentences[j] == (rest.document.sentences[k] if has else "")
            assert whole.log_probabilities[j] == pytest.approx(rest.log_probabilities[k] if has else 0)
        kept = [j for j, has in enumerate(has_text(document)) if has]
        for name in ("truncated", "long", "shed", "missing"):
            assert getattr(whole, name) == tuple(kept[k] for k in getattr(rest, name))
        assert whole.recovered == rest.recovered


@all_strategies
def test_a_document_is_translated_alone_as_amid_others(config: Config) -> None:
    """Documents of one id, which end in another order than they began: their place tells them apart."""
    documents = [Document("same id", d.sentences) for d in CORPUS]
    t = translator(config, seed=1)
    alone = [translated(t, [d])[0] for d in documents]
    # At last with fewer tokens than a beam has.
    for others, max_tokens in ((documents * 3, 8000), (documents, 30), (documents, 1)):
        crowd = translated(translator(config, seed=1, max_tokens=max_tokens), others)
        assert [len(each.document.sentences) for each in crowd] == [len(d.sentences) for d in others]
        for i, translation in enumerate(crowd):
            assert same(translation, alone[i % len(documents)])


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_the_context_forced_on_a_window_was_output(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    t = translator(STRATEGIES[name], PLAIN)
    for i, translation in enumerate(translated(t, CORPUS)):
        outputs = [PLAIN.encode(sentence) for sentence in translation.document.sentences if sentence]
        source = [PLAIN.encode(sentence) for sentence in CORPUS[i].sentences if sentence]
        windows = t.plan.view.split([len(s) for s in source], [])
        rows = spy.of_document(i)
        assert len(rows) == len(windows)
        asked = [(list(request.prefix), hypothesis.tokens) for _, request, hypothesis in rows]
        assert sorted(asked) == sorted(
            (joined(t, outputs[w.target.start : w.current.start]), outputs[w.current.start]) for w in windows
        )
        assert all(request.sentences == 1 for _, request, _ in rows)
        assert all(r.first_sentence + r.closed_before(t.plan.search_symbols) == c for c, r, _ in rows)


def joined(t: DocumentTranslator, sentences: Sequence[Sequence[int]]) -> list[int]:
    """In windows that begin where their source does."""
    return [
        token for k, sentence in enumerate(sentences) for token in (*sentence, t.plan.symbols.separator(k))
    ]


def test_a_window_that_shed_its_context_has_none_forced_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    config = tiny_config(view=window(2, max_tokens=6))
    document = Document("d", ("a", "the cat sat on a mat", "it", "saw a"))
    translated(translator(config, PLAIN), [document])
    counts = [list(r.prefix).count(PLAIN.sep) for _, r, _ in spy.of_document(0)]
    assert counts == [0, 0, 0, 1]


@pytest.mark.parametrize("name", ["regenerate", "regenerate, future"])
def test_regenerate_keeps_the_last_sentence_of_windows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    t = translator(STRATEGIES[name], PLAIN)
    document = Document("d", ("the cat sat", "it saw a mat", "again", "there today"))
    [translation] = translated(t, [document])
    before = STRATEGIES[name].view.before
    by_window = {
        (request.sentences, tuple(hypothesis.tokens)) for _, request, hypothesis in spy.of_document(0)
    }
    wanted = [min(j, before) + 1 for j in range(4)]
    assert sorted(n for n, _ in by_window) == sorted(wanted)
    for n, sentence in zip(wanted, translation.document.sentences, strict=True):
        texts = [_texts(tokens) for count, tokens in by_window if count == n]
        assert all(len(t) == n for t in texts)
        assert sentence in [t[-1] for t in texts]
    assert all(not request.prefix for _, request, _ in spy.of_document(0))
    # All windows are known from the beginning, so that the document is one batch.
    assert spy.batches == 1


@pytest.mark.parametrize("name", WHOLE)
def test_long_documents_come_back_whole_and_in_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    t = translator(STRATEGIES[name], PLAIN, max_tokens=100_000)
    document = Document("d", ("a cat", "it", "the cat sat on a mat", "", "again", "saw it", "today") * 4)
    [translation] = translated(t, [document])
    # Its pieces are independent of each other: all of them are one batch.
    assert spy.batches == 1
    assert len(spy.rows) > 1
    closing = {PLAIN.eos, *t.plan.symbols.separators}
    source = [s for s in document.sentences if s]
    windows = t.plan.view.split([len(s.split()) for s in source], [])
    assert sorted(len(w.current) for w in windows) == sorted(r.sentences for _, _, r, _ in spy.rows)
    out = [s for s in translation.document.sentences if s]
    answers = [_texts(h.tokens, closing) for _, _, _, h in spy.rows]
    assert all([out[j] for j in w.current] in answers for w in windows)
    assert has_text(translation.document) == has_text(document)
    assert translation.recovered


class TestSentenceBySentence:
    """Documents translated whole, of which every sentence is searched by itself."""

    DOCUMENT = Document("d", ("a cat", "it", "the cat sat on a mat", "", "again", "saw it"))

    MODELS: ClassVar[dict[str, dict[str, Any]]] = {
        "transformer": {},
        "gated": {"attention": {"span": "sentence", "top": {"layers": 1, "span": "row", "mix": "gated"}}},
        "memory": {"decoder": {"span": "memory", "score": "transformer_xl"}, "target_positions": "none"},
        "sentences": {"attention": {"span": "sentence"}},
        "earlier": {
            "attention": {"span": "sentence"},
            "positions": "reset",
            "document_layer": "hierarchical",
            "document": {"sentences": 1, "target": True},
        },
    }

    def translators(self, beam: int, model: str = "transformer") -> list[DocumentTranslator]:
        """The same model, without and with."""
        view = STRATEGIES["by sentence, bracket"].view.model_dump()
        config = tiny_config(view=view, model=self.MODELS[model])
        return [translator(config, PLAIN, beam=beam, beam_per=per) for per in ("document", "sentence")]

    @pytest.mark.parametrize("model", MODELS)
    def test_greedy_search_is_the_same(self, model: str) -> None:
        """One hypothesis is the best one; memories and positions go on as they do otherwise."""
        whole, by_sentence = self.translators(1, model)
        table = by_sentence.model.embedding.table
        table.table = table.table[:1]  # it must grow in the middle of a row
        whole, by_sentence = (translated(t, [self.DOCUMENT])[0] for t in (whole, by_sentence))
        assert whole.document == by_sentence.document
        assert whole.log_probabilities == pytest.approx(by_sentence.log_probabilities)

    @pytest.mark.parametrize("model", MODELS)
    def test_a_chunk_is_encoded_once_and_read_once(self, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also if some rows of a batch have no cache."""
        t, known = self.translators(3, model)[1], OpenDocument.cache
        draw, rows, inputs = random.Random(1), list[int](), list[int]()
        encode, decode = Transformer._through_encoder, Transformer._next

        def encoding(model: Transformer, x: Tensor, layout: Any) -> Any:
            rows.append(len(x))
            return encode(model, x, layout)

        def decoding(model: Transformer, tokens: Tensor, sentence: Tensor, state: Any) -> Tensor:
            inputs.append(int((sentence >= 0).sum()) if state.beam == 1 else 0)
            return decode(model, tokens, sentence, state)

        monkeypatch.setattr(Transformer, "_through_encoder", encoding)
        monkeypatch.setattr(Transformer, "_next", decoding)
        found = translated(t, [*CORPUS, self.DOCUMENT])
        tokens = sum(len(PLAIN.encode(sentence)) for each in found for sentence in each.document.sentences)
        sources = [[len(PLAIN.encode(s)) for s in d.sentences if s] for d in (*CORPUS, self.DOCUMENT)]
        chunks = [chunk for lengths in sources for chunk in t.plan.view.split(lengths, [])]
        assert sum(rows) == len(chunks)
        # With the symbol that begins each sentence.
        assert sum(inputs) <= tokens + sum(map(len, sources))
        for cache in (lambda *_: RowCache(), lambda *o: known(*o) if draw.random() < 0.6 else RowCache()):
            monkeypatch.setattr(OpenDocument, "cache", cache)
            assert all(map(same, translated(t, [*CORPUS, self.DOCUMENT]), found))
        assert sum(rows) > 2 * len(chunks)

    def test_a_long_document_has_few_caches_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        t = translator(STRATEGIES["by sentence, bracket"], PLAIN, max_tokens=60)
        known, numbers = OpenDocument.cache, list[int]()

        def counting(opened: OpenDocument, number: int) -> RowCache:
            numbers.append(len(opened._caches))
            return known(opened, number)

        monkeypatch.setattr(OpenDocument, "cache", counting)
        [found] = translated(t, [Document("d", self.DOCUMENT.sentences * 40)])
        assert len(found.pieces) > 100
        assert 1 < max(numbers) < 20
        assert numbers[-1] <= 1

    def test_the_best_translation_of_a_sentence_is_the_context_of_the_next(self) -> None:
        """By hand: the windows of a piece, one search after the other."""
        _, t = self.translators(4)
        [found] = translated(t, [self.DOCUMENT])
        source = [PLAIN.encode(s) for s in self.DOCUMENT.sentences if s]
        texts = []
        for piece in t.plan.view.split([len(s) for s in source], []):
            row = source_batch([Instance(0, piece, [source[j] for j in piece.source], [])], t.plan.symbols)
            prefix: list[int] = []
            for k, j in enumerate(piece.current):
                request = SearchRequest(list(prefix), 0, (len(source[j]) + 4,), piece.source.start)
                [best] = search(t.model, row, [request], t.plan.search_symbols, t.plan.options)
                assert request.closed_before(t.plan.search_symbols) == k
                prefix += [*best.tokens, t.plan.symbols.separator(k)]
                texts.append(PLAIN.decode(best.tokens))
        assert [s for s in found.document.sentences if s] == texts
        assert "|beam:4|beam_per:sentence|" in t.signature

    def test_scores_are_those_of_the_same_rows(self) -> None:
        whole, by_sentence = self.translators(4)
        pair = ParallelDocument("d", self.DOCUMENT.sentences, self.DOCUMENT.sentences)
        assert whole.score([pair]) == by_sentence.score([pair])

    def test_what_brackets_allow_and_forbid(self) -> None:
        config = tiny_config(view=pieces(20), decode={"beam_per": "sentence"})
        must_raise(r"beam_per = sentence needs view.separators = bracket", translator, config)
        view, decode = pieces(20) | {"separators": "bracket"}, {"beam_per": "sentence"}
        for model in ({"segments": "current"}, {"cross": {"span": "current"}}, {"batch_context": "mean"}):
            config = tiny_config(model=model, view=view, decode=decode)
            must_raise(r"all sentences of a document as current", translator, config)
        config = tiny_config(view=pieces() | {"separators": "bracket"}, decode={"align": "free"})
        must_raise(r"decode\.align = constrained", translator, config)

    def test_beam_per_sentence_changes_nothing_for_windows(self) -> None:
        config = tiny_config(view=window(2), decode={"beam_per": "sentence"})
        assert translator(config).signature == translator(tiny_config(view=window(2))).signature


@pytest.mark.parametrize("name", ["source context", "cumulative"])
def test_without_target_context_sentences_are_one_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    translated(translator(STRATEGIES[name], PLAIN), [CORPUS[0]])
    assert spy.batches == 1
    assert all(not r.prefix and r.sentences == 1 for _, _, r, _ in spy.rows)
    last = 2 if name == "source context" else 3
    assert sorted(r.first_sentence for _, _, r, _ in spy.rows) == [0, 1, 2, last]


def _texts(tokens: Sequence[int], closing: Container[int] = (PLAIN.sep,)) -> list[str]:
    return [PLAIN.decode(sentence) for sentence in split(tokens, closing)]


@pytest.mark.parametrize(
    ("name", "beam"),
    [
        (name, (1, 3)[number % 2])
        for number, name in enumerate(n for n in STRATEGIES if not n.startswith("regenerate"))
    ],
)
def test_reported_log_probabilities_are_those_of_scoring(name: str, beam: int) -> None:
    """However long the translation: scoring cuts documents as translation did."""
    t = translator(STRATEGIES[name], PLAIN, beam=beam)
    found = translated(t, CORPUS)
    pairs = [
        ParallelDocument(d.id, d.sentences, f.document.sentences) for d, f in zip(CORPUS, found, strict=True)
    ]
    for translation, scores in zip(found, t.score(pairs), strict=True):
        rescored = [score.log_probability for score in scores]
        assert translation.log_probabilities == pytest.approx(rescored, abs=1e-4)


@pytest.mark.parametrize("name", ["regenerate", "regenerate, future"])
def test_of_a_regenerated_window_one_sentence_is_reported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    [translation] = translated(translator(STRATEGIES[name], PLAIN), [CORPUS[0]])
    reported = []
    for _, _, _, hypothesis in spy.rows:
        count = len(PLAIN.encode(_texts(hypothesis.tokens)[-1])) + 1
        reported.append(sum(hypothesis.token_log_probabilities[-count:]))
    own = [p for p in translation.log_probabilities if p]
    assert sorted(own) == pytest.approx(sorted(reported))


@strategies
def test_sentences_of_bytes_that_form_no_character_are_searched_again(name: str) -> None:
    """The model all but insists on a piece that shows nothing by itself."""
    config = STRATEGIES[name]
    t = translator(config)
    found = translated(_obsessed(t, WordTokenizer.FIRST_HALF), CORPUS)
    for document, translation in zip(CORPUS, found, strict=True):
        pairs = zip(document.sentences, translation.document.sentences, strict=True)
        assert all((target == "") == (source == "") for source, target in pairs)
    assert all(same(found[i], translated(t, [CORPUS[i]])[0]) for i in (0, 3))


def _obsessed(t: DocumentTranslator, piece: int) -> DocumentTranslator:
    """Make a piece by far the most probable everywhere."""
    assert isinstance(t.model, Transformer)
    norm = t.model.decoder_norm if t.config.model.pre_norm else t.model.decoder[-1].after_feed_forward.norm
    with torch.no_grad():
        norm.bias.fill_(3.0)
        t.model.output_weight[piece] = 3.0
    return t


@pytest.fixture(scope="module")
def bytes_tokenizer() -> SentencePieceTokenizer:
    """All bytes are pieces, line feeds and halves of characters included."""
    sample = ["the cat sat on a mat", "and saw it there", "today again"] * 5
    return SentencePieceTokenizer.train(sample, TokenizerSettings(byte_fallback=True, num_threads=1))


@pytest.mark.parametrize(("name", "seed"), [("sentence", 0), ("prefix", 1), ("regenerate", 2)])
def test_each_text_is_a_line_not_empty(name: str, seed: int, bytes_tokenizer: SentencePieceTokenizer) -> None:
    t = translator(STRATEGIES[name], bytes_tokenizer, seed)
    for document, translation in zip(CORPUS, translated(t, CORPUS), strict=True):
        for source, target in zip(document.sentences, translation.document.sentences, strict=True):
            assert (target == "") == (source == "")
            assert len(target.splitlines()) == bool(target)


def test_a_sentence_that_is_too_long_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    t = translator(STRATEGIES["prefix"], max_source_tokens=3)
    documents = [Document("fine", ("a cat",)), Document("news/7", ("a cat", "the cat sat on a mat"))]
    message = r"document news/7, sentence 2: 6 tokens, at most 3 .* raise decode\.max_source_tokens"
    must_raise(message, t.check, documents)
    must_raise(message, t.translate, documents)
    assert spy.batches == 0
    assert t.check(documents[:1]) == 1


def test_context_that_did_not_fit_is_reported() -> None:
    """Places in the document, an empty sentence among them; the current sentence alone is shown anyhow."""
    document = Document("x", ("the cat", "", "sat on a mat", "it saw", "again and again and again"))
    for limit, shed in ((40, ()), (9, (3, 4)), (6, (2, 3, 4))):
        [(_, found)] = translator(tiny_config(view=window(2, max_tokens=limit))).translate([document])
        assert found.shed == shed


def test_long_and_truncated_sentences_are_reported() -> None:
    """Rows of up to view.max_tokens were trained on, the symbol that closes the sentence included."""
    config = tiny_config(view={"max_tokens": 4}, decode={"max_ratio": 1.0, "max_extra": 0})
    t = _obsessed(translator(config, PLAIN), PLAIN.ids["cat"])
    [found] = translated(t, [Document("d", ("a cat sat", "a cat sat there", "", "it saw"))])
    assert found.long == (1,)
    assert found.truncated == (0, 1, 3)
    assert found.document.sentences == ("cat cat", "cat cat cat", "", "cat")


@pytest.mark.parametrize("name", ["sentence", "prefix", "regenerate"])
def test_no_limit_is_too_tight_for_a_word_per_sentence(name: str) -> None:
    t = translator(STRATEGIES[name], max_ratio=0.01, max_extra=0)
    for document, translation in zip(CORPUS, translated(t, CORPUS), strict=True):
        targets = [s.split() for s in translation.document.sentences]
        assert [bool(s) for s in document.sentences] == [bool(t) for t in targets]


def test_empty_input_gives_empty_output() -> None:
    t = translator(STRATEGIES["prefix"])
    [found] = translated(t, [Document("white space", ("  ", "a cat", "\t"))])
    assert [bool(s) for s in found.document.sentences] == [False, True, False]
    assert list(t.translate([])) == []
    assert translated(t, [Document("none", ())])[0].document == Document("none", ())
    assert t.score([]) == []


def answering(t: DocumentTranslator, *answers: str) -> None:
    """Search finds these labels, in the order of the requests; each token has a log-probability of -1."""

    def found(model: Any, source: Any, requests: Any, symbols: Any, options: Any) -> list[Hypothesis]:
        ids = {"|": symbols.special.separators[0], "|2": symbols.special.separators[-1]}
        hypotheses = []
        for answer, request in zip(answers, requests, strict=True):
            tokens = [ids[word] if word in ids else PLAIN.ids[word] for word in answer.split()]
            cut = (len(tokens),) if len(tokens) + 1 == sum(request.max_tokens) else ()
            scores = [-1.0] * (len(tokens) + 1)
            hypotheses.append(Hypothesis(tokens, scores, float(-len(scores)), 0.0, cut))
        return hypotheses

    t.plan = replace(t.plan, kind=replace(t.plan.kind, search=found))


def test_sentences_that_free_search_left_out_are_reported() -> None:
    document = Document("d", ("a cat", "", "it sat", "the mat", "again"))
    t = translator(tiny_config(view={"kind": "document"}, decode={"align": "free"}), PLAIN)
    answering(t, "cat | sat it")
    [found] = translated(t, [document])
    assert found.document.sentences == ("cat", "", "sat it", "", "")
    assert found.log_probabilities == (-2, 0, -3, 0, 0)
    assert (found.missing, found.pieces, found.truncated) == ((3, 4), (False,), ())
    answering(t, "cat | sat | | the | mat again")
    [found] = translated(t, [document])
    assert found.document.sentences == ("cat", "", "sat", "", "the mat again")
    assert found.log_probabilities == (-2, 0, -2, -1, -5)
    assert (found.missing, found.recovered) == ((3,), False)
    answering(t, "cat | sat | the | mat")
    [found] = translated(t, [document])
    assert (found.missing, found.recovered) == ((), True)
    # 7 words and 4 sentences, 4 tokens more for each: 23 tokens in all.
    answering(t, "cat | " + "sat " * 20)
    [found] = translated(t, [document])
    assert (found.missing, found.truncated) == ((3, 4), (2,))


def test_recovery_is_reported_by_window() -> None:
    """Chunks of at most six tokens, as Li et al. 2022 count them in table VII, and windows."""
    document = Document("d", ("a cat", "it sat", "the mat", "again the cat", "a mat"))
    chunks = {"kind": "document", "max_tokens": 6}
    indexed = {"kind": "document", "separators": "indexed", "indexed_separators": 2}
    regenerate = {"target_context": "regenerate"}
    three, four = document.sentences[:3], ("a cat", "it sat there", "the mat and a mat and a cat")
    early = "it | sat | the | mat"
    # The last chunk comes first; the first two sentences are together.
    lost, cut = (False, True, True, True), (True, True, False, True)
    cases: list[tuple[Any, Any, tuple[str, ...], tuple[str, ...], Any, Any, tuple[int, ...]]] = [
        (chunks, {}, document.sentences, ("mat", "mat", "cat", "cat"), None, lost, (1,)),
        (chunks, {}, document.sentences, ("mat", "mat", "cat | sat", "cat | sat"), None, cut, ()),
        (indexed, {}, three, ("cat |2 sat",), ("", "cat", "sat"), (False,), (0,)),
        # A window that was closed early keeps its last sentence.
        (window(2), regenerate, four, ("cat", "sat", early), ("cat", "sat", "mat"), None, ()),
        # After a prefix, a separator may close the sentence.
        (window(2), {}, ("a cat",), ("it sat |",), ("it sat",), (True,), ()),
        (window(2), {}, ("a cat",), ("it | sat",), ("it sat",), (False,), ()),
    ]
    for view, decode, sentences, answers, texts, recovered, missing in cases:
        t = translator(tiny_config(view=view, decode={"align": "free", **decode}), PLAIN)
        answering(t, *answers)
        [found] = translated(t, [Document("d", sentences)])
        assert found.missing == missing, answers
        assert texts in (None, found.document.sentences), answers
        assert recovered in (None, found.pieces), answers
        if decode:
            assert (found.log_probabilities, found.recovered) == ((-2, -2, -2), False)


def read_to_translate(t: DocumentTranslator, count: int) -> int:
    """How many documents of an endless stream are read until so many are translated."""
    read = 0

    def endless() -> Iterator[Document]:
        nonlocal read
        while True:
            read += 1
            yield Document(str(read), ("the cat sat", "it saw"))

    stream = t.translate(endless())
    assert sorted(next(stream)[0] for _ in range(count)) == list(range(count))
    return read


def test_documents_are_read_as_they_are_needed() -> None:
    assert read_to_translate(translator(STRATEGIES["prefix"], max_tokens=50), 60) < 120


@pytest.mark.parametrize("name", ["prefix", "regenerate", "document", "document, indexed"])
def test_nan_weights_are_an_error(name: str) -> None:
    t = translator(STRATEGIES[name])
    with torch.no_grad():
        t.model.output_weight[0].fill_(torch.nan)
    must_raise("NaN", t.translate, CORPUS)
    must_raise("not finite", t.score, [ParallelDocument("d", ("a cat",), ("a cat",))])


def test_a_sentence_longer_than_a_row_is_reported_in_every_view() -> None:
    source = ("a cat", "the cat sat on a mat", "it sat on a mat")
    for view, separators in product((pieces(6), window(1, max_tokens=6)), ("plain", "bracket")):
        t = translator(tiny_config(view=view | {"separators": separators}), PLAIN)
        [found] = translated(t, [Document("d", source)])
        # With its closing symbol a sentence of 6 takes 7 places, and with both brackets one of 5 does too.
        assert found.long == ((1,) if separators == "plain" else (1, 2))


def test_the_signature_says_how_documents_are_decoded() -> None:
    signatures = {name: translator(config).signature for name, config in (STRATEGIES | FREE).items()}
    assert signatures["sentence"] == "view:sentence|align:constrained|beam:2|lp:0.6|limit:1x+4"
    assert signatures["prefix, future"] == (
        "view:window-1+1+1-512|separators:plain|align:constrained|beam:2|lp:0.6|limit:1x+4|target:prefix"
    )
    assert signatures["regenerate"] == (
        "view:window-2+1+0-512|separators:plain|align:constrained|beam:2|lp:0.6|limit:1x+4|target:regenerate"
    )
    assert signatures["source context"] == (
        "view:window-2+1+0to1-512|separators:plain|align:constrained|beam:2|lp:0.6|limit:1x+4"
    )
    assert (
        signatures["document, indexed, free"]
        == "view:document-40|separators:indexed|align:free|beam:2|lp:0.6|limit:1x+4"
    )
    assert len(set(signatures.values())) == len(signatures)
    other = translator(STRATEGIES["sentence"], length_penalty_form="gnmt").signature
    assert other == "view:sentence|align:constrained|beam:2|lp:gnmt-0.6|limit:1x+4"
