"""Documents in, documents out, with models that never learnt anything: whatever they say comes out right."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import PlainWordTokenizer, WordTokenizer, random_model, tiny_config, window

from cotext import translate as translate_module
from cotext.config import Config
from cotext.data.documents import Document, ParallelDocument
from cotext.data.tokenizer import SentencePieceTokenizer, Tokenizer, TokenizerSettings
from cotext.errors import CotextError
from cotext.models.transformer import Transformer
from cotext.search import Hypothesis, Request, search
from cotext.translate import DocumentTranslator, Translation

CPU = torch.device("cpu")
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "it", "there", "today", "again"]
TOKENIZER = WordTokenizer(WORDS)
PLAIN = PlainWordTokenizer(WORDS)

# Every way in which documents are taken apart, with every kind of position somewhere.
STRATEGIES: dict[str, Config] = {
    "sentence": tiny_config(),
    "prefix": tiny_config(view=window(2), model={"positions": "shifted", "shift": "sequence"}),
    "prefix, future": tiny_config(view=window(1, after=1), model={"positions": "reset"}),
    "future alone": tiny_config(view=window(0, after=2), model={"segments": "sinusoidal"}),
    "prefix, shed": tiny_config(view=window(3, max_tokens=9), model={"segments": "learned"}),
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
}
SEQUENTIAL = [name for name in STRATEGIES if name.startswith("prefix")]
strategies = pytest.mark.parametrize("name", STRATEGIES)

sentence_texts = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
corpora = st.lists(st.lists(sentence_texts, min_size=1, max_size=5), min_size=1, max_size=4).map(
    lambda texts: [Document(f"d{i}", tuple(sentences)) for i, sentences in enumerate(texts)]
)
few = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

CORPUS = [
    Document("long", ("the cat sat", "", "it saw a mat and a cat", "again", "on the mat there today", "")),
    Document("one", ("and it sat there",)),
    Document("empty", ("",)),
    Document("three", ("a cat", "a mat a mat a mat", "sat sat")),
    Document("opens empty", ("", "", "today")),
]


def translator(
    config: Config, tokenizer: Tokenizer = TOKENIZER, seed: int = 0, **decode: Any
) -> DocumentTranslator:
    changed = config.model_copy(update={"decode": config.decode.model_copy(update=decode)})
    return DocumentTranslator(random_model(config, tokenizer, seed), changed, tokenizer, CPU)


def translated(translator: DocumentTranslator, documents: Sequence[Document]) -> list[Translation]:
    found = dict(translator.translate(documents))
    assert sorted(found) == list(range(len(documents)))
    return [found[i] for i in range(len(documents))]


def same(a: Translation, b: Translation) -> bool:
    return (a.document, a.cut, a.long) == (b.document, b.cut, b.long) and a.log_probabilities == (
        pytest.approx(b.log_probabilities, abs=1e-9)
    )


class Spy:
    """Stands before `search` and remembers what was asked for and what was found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[tuple[int, int, Request, Hypothesis]] = []  # document, current sentence
        self.batches = 0

        def spying(
            model: Any, source: Any, requests: Sequence[Request], symbols: Any, options: Any
        ) -> list[Hypothesis]:
            found = search(model, source, requests, symbols, options)
            self.batches += 1
            for i, (request, hypothesis) in enumerate(zip(requests, found, strict=True)):
                document, current = int(source.document[i]), int(source.current[i, 0])
                self.rows.append((document, current, request, hypothesis))
            return found

        monkeypatch.setattr(translate_module, "search", spying)

    def of_document(self, index: int) -> list[tuple[int, Request, Hypothesis]]:
        return [row[1:] for row in self.rows if row[0] == index]


@strategies
@few
@given(documents=corpora)
def test_as_many_sentences_come_out_as_went_in(name: str, documents: list[Document]) -> None:
    done: list[int] = []
    t = translator(STRATEGIES[name])
    found = dict(t.translate(documents, done.append))
    assert sum(done) == t.check(documents) == sum(len(d.sentences) for d in documents)
    for i, document in enumerate(documents):
        out = found[i].document
        assert out.id == document.id
        assert len(out.sentences) == len(document.sentences) == len(found[i].log_probabilities)
        for source, target in zip(document.sentences, out.sentences, strict=True):
            assert (target == "") == (source == "")
            assert target == " ".join(target.split())


@strategies
@few
@given(documents=corpora, max_tokens=st.sampled_from([1, 40, 200]), place=st.integers(0, 3))
def test_a_document_is_translated_alone_as_amid_others(
    name: str, documents: list[Document], max_tokens: int, place: int
) -> None:
    t = translator(STRATEGIES[name])
    together = translated(t, documents)
    crowded = translated(translator(STRATEGIES[name], max_tokens=max_tokens), documents[::-1])[::-1]
    place = min(place, len(documents) - 1)
    alone = translated(t, [documents[place]])[0]
    assert same(alone, together[place])
    for a, b in zip(together, crowded, strict=True):
        assert same(a, b)


@strategies
def test_a_document_of_unequal_sentences_among_many(name: str) -> None:
    t = translator(STRATEGIES[name], seed=1)
    alone = [translated(t, [d])[0] for d in CORPUS]
    for others in (CORPUS, CORPUS * 3):
        for i, translation in enumerate(translated(t, others)):
            assert same(translation, alone[i % len(CORPUS)])


@strategies
def test_documents_can_be_told_apart_by_their_place_in_the_input(name: str) -> None:
    """Documents of one id, which end in another order than they began."""
    documents = [Document("same id", tuple(d.sentences)) for d in CORPUS]
    t = translator(STRATEGIES[name], max_tokens=30)
    found = translated(t, documents)
    assert [len(f.document.sentences) for f in found] == [len(d.sentences) for d in documents]
    assert all(same(f, translated(t, [d])[0]) for f, d in zip(found, documents, strict=True))


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_the_context_forced_on_a_window_is_what_was_output(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = Spy(monkeypatch)
    t = translator(STRATEGIES[name], PLAIN)
    for i, translation in enumerate(translated(t, CORPUS)):
        outputs = [PLAIN.encode(sentence) for sentence in translation.document.sentences]
        source = [PLAIN.encode(sentence) for sentence in CORPUS[i].sentences]
        windows = t.view.split([len(s) for s in source], [])
        searched = [w for w in windows if source[w.current.start]]
        rows = spy.of_document(i)
        assert len(rows) == len(searched)
        asked = [(list(request.prefix), hypothesis.tokens) for _, request, hypothesis in rows]
        assert sorted(asked) == sorted(
            (joined(outputs[w.target.start : w.current.start]), outputs[w.current.start]) for w in searched
        )
        assert all(request.sentences == 1 for _, request, _ in rows)
        assert all(r.first_sentence + list(r.prefix).count(PLAIN.sep) == c for c, r, _ in rows)


def joined(sentences: Sequence[Sequence[int]]) -> list[int]:
    return [token for sentence in sentences for token in (*sentence, PLAIN.sep)]


def test_a_window_that_shed_its_context_has_none_forced_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    config = tiny_config(view=window(2, max_tokens=6))
    document = Document("d", ("a", "the cat sat on a mat", "it", "saw a"))
    translated(translator(config, PLAIN), [document])
    counts = [list(r.prefix).count(PLAIN.sep) for _, r, _ in spy.of_document(0)]
    assert counts == [0, 0, 0, 1]


@pytest.mark.parametrize("name", ["regenerate", "regenerate, future"])
def test_regenerate_keeps_the_last_sentence_of_each_window(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_regenerate_takes_empty_sentences_and_what_precedes_them_as_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Search would fill an empty sentence of the context with words, and go on from there."""
    spy = Spy(monkeypatch)
    config = tiny_config(view=window(3), decode={"target_context": "regenerate"})
    document = Document("d", ("the cat", "", "it saw", "again there", "", "today", "a mat"))
    [translation] = translated(translator(config, PLAIN), [document])
    outputs = [PLAIN.encode(sentence) for sentence in translation.document.sentences]
    given = [joined(outputs[first:stop]) for first, stop in ((0, 0), (0, 2), (0, 2), (2, 5), (3, 5))]
    rows = sorted((list(r.prefix), r.sentences, _texts(h.tokens)[-1]) for _, r, h in spy.of_document(0))
    current = [PLAIN.decode(outputs[j]) for j in (0, 2, 3, 5, 6)]
    assert rows == sorted(zip(given, [1, 1, 2, 1, 2], current, strict=True))


def _texts(tokens: Sequence[int]) -> list[str]:
    sentences: list[list[int]] = [[]]
    for token in tokens:
        if token == PLAIN.sep:
            sentences.append([])
        else:
            sentences[-1].append(token)
    return [PLAIN.decode(s) for s in sentences]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", ["sentence", *SEQUENTIAL])
def test_reported_log_probabilities_are_those_of_scoring(name: str, beam: int) -> None:
    t = translator(STRATEGIES[name], PLAIN, beam=beam)
    # Long translations could shed what the sources alone do not.
    documents = [d for d in CORPUS if d.id != "long"] if "shed" in name else CORPUS
    found = translated(t, documents)
    pairs = [
        ParallelDocument(d.id, d.sentences, f.document.sentences)
        for d, f in zip(documents, found, strict=True)
    ]
    for document, translation, scores in zip(documents, found, t.score(pairs), strict=True):
        for source, reported, score in zip(
            document.sentences, translation.log_probabilities, scores, strict=True
        ):
            assert reported == (pytest.approx(score.log_probability, abs=1e-4) if source else 0.0)


@strategies
def test_sentences_of_bytes_that_form_no_character_are_searched_again(name: str) -> None:
    """The model all but insists on a piece that shows nothing by itself."""
    config = STRATEGIES[name]
    t = translator(config)
    found = translated(_obsessed(t, WordTokenizer.FIRST_HALF), CORPUS)
    for document, translation in zip(CORPUS, found, strict=True):
        pairs = zip(document.sentences, translation.document.sentences, strict=True)
        assert all((target == "") == (source == "") for source, target in pairs)
    assert all(same(f, translated(t, [d])[0]) for f, d in zip(found, CORPUS, strict=True))


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


@pytest.mark.parametrize("name", ["sentence", "prefix", "regenerate"])
@pytest.mark.parametrize("seed", range(3))
def test_texts_are_one_line_each_and_never_empty(
    name: str, seed: int, bytes_tokenizer: SentencePieceTokenizer
) -> None:
    t = translator(STRATEGIES[name], bytes_tokenizer, seed)
    for document, translation in zip(CORPUS, translated(t, CORPUS), strict=True):
        for source, target in zip(document.sentences, translation.document.sentences, strict=True):
            assert (target == "") == (source == "")
            assert len(target.splitlines()) == bool(target)


def test_white_space_alone_is_an_empty_sentence() -> None:
    [found] = translated(translator(STRATEGIES["prefix"]), [Document("d", ("  ", "a cat", "\t"))])
    assert [bool(s) for s in found.document.sentences] == [False, True, False]


def test_a_sentence_that_is_too_long_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    t = translator(STRATEGIES["prefix"], max_source_tokens=3)
    documents = [Document("fine", ("a cat",)), Document("news/7", ("a cat", "the cat sat on a mat"))]
    message = r"document news/7, sentence 2: 6 tokens, at most 3 .* raise decode\.max_source_tokens"
    with pytest.raises(CotextError, match=message):
        t.check(documents)
    with pytest.raises(CotextError, match=message):
        list(t.translate(documents))
    assert spy.batches == 0
    assert t.check(documents[:1]) == 1


def test_what_is_longer_than_in_training_or_cut_short_is_reported() -> None:
    """Rows of up to view.max_tokens were trained on, the symbol that closes the sentence included."""
    config = tiny_config(view={"max_tokens": 4}, decode={"max_ratio": 1.0, "max_extra": 0})
    t = _obsessed(translator(config, PLAIN), PLAIN.ids["cat"])
    [found] = translated(t, [Document("d", ("a cat sat", "a cat sat there", "", "it saw"))])
    assert found.long == (1,)
    assert found.cut == (0, 1, 3)
    assert found.document.sentences == ("cat cat", "cat cat cat", "", "cat")


@pytest.mark.parametrize("name", ["sentence", "prefix", "regenerate"])
def test_no_limit_is_too_tight_for_a_word_per_sentence(name: str) -> None:
    t = translator(STRATEGIES[name], max_ratio=0.01, max_extra=0)
    for document, translation in zip(CORPUS, translated(t, CORPUS), strict=True):
        targets = [s.split() for s in translation.document.sentences]
        assert [bool(s) for s in document.sentences] == [bool(t) for t in targets]


def test_a_budget_smaller_than_the_beam_still_translates_everything() -> None:
    t = translator(STRATEGIES["prefix"], max_tokens=1, beam=8)
    assert all(
        same(a, b)
        for a, b in zip(
            translated(t, CORPUS), translated(translator(STRATEGIES["prefix"], beam=8), CORPUS), strict=True
        )
    )


def test_nothing_in_nothing_out() -> None:
    t = translator(STRATEGIES["prefix"])
    assert list(t.translate([])) == []
    assert translated(t, [Document("none", ())])[0].document == Document("none", ())
    assert t.score([]) == []


def test_documents_are_read_as_they_are_needed() -> None:
    """An endless stream is translated in bounded memory."""
    read = 0

    def endless() -> Iterator[Document]:
        nonlocal read
        while True:
            read += 1
            yield Document(str(read), ("the cat sat", "it saw"))

    stream = translator(STRATEGIES["prefix"], max_tokens=50).translate(endless())
    places = [next(stream)[0] for _ in range(60)]
    assert sorted(places) == list(range(60))
    assert read < 120


@strategies
def test_weights_that_are_not_numbers_are_an_error(name: str) -> None:
    t = translator(STRATEGIES[name])
    with torch.no_grad():
        t.model.output_weight[0].fill_(torch.nan)
    with pytest.raises(CotextError, match="NaN"):
        list(t.translate(CORPUS))
    with pytest.raises(CotextError, match="not finite"):
        t.score([ParallelDocument("d", ("a cat",), ("a cat",))])


def test_the_signature_says_how_documents_are_decoded() -> None:
    signatures = {name: translator(config).signature for name, config in STRATEGIES.items()}
    assert signatures["sentence"] == "view:sentence|beam:2|lp:0.6"
    assert signatures["prefix, future"] == "view:window-1+1+1|beam:2|lp:0.6|target:prefix"
    assert signatures["regenerate"] == "view:window-2+1+0|beam:2|lp:0.6|target:regenerate"
