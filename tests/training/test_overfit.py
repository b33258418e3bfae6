"""A handful of documents, learned by heart and given back word for word by decoding.

The windows are needed: the same sentence has another translation in another document, which its context
alone decides. A system that mistakes its windows or its own translations cannot get there.
"""

from pathlib import Path

import pytest
import torch

from cotext.config.recipe import Config, load_config
from cotext.data.build import build_mixture, special_symbols
from cotext.data.documents import Document, ParallelDocument
from cotext.data.sampling import Arrangement, Cursor, Sampler
from cotext.data.store import StoreWriter, TokenStore
from cotext.losses.build import build_loss
from cotext.models.build import build_model
from cotext.models.interface import Model
from cotext.training.trainer import learning_rate
from cotext.translation.translator import DocumentTranslator
from tests.tiny import PlainWordTokenizer

CPU = torch.device("cpu")

# "it" has the gender of a noun up to three sentences back.
CORPUS = [
    ParallelDocument(
        "table",
        ("the table was new", "it was green", "she saw it", "then it broke"),
        ("der tisch war neu", "er war grün", "sie sah ihn", "dann zerbrach er"),
    ),
    ParallelDocument(
        "lamp",
        ("the lamp was old and green", "it was new", "she saw it", "then it broke"),
        ("die lampe war alt und grün", "sie war neu", "sie sah sie", "dann zerbrach sie"),
    ),
    ParallelDocument("one", ("she saw the lamp and the table",), ("sie sah die lampe und den tisch",)),
    ParallelDocument(
        "house",
        ("the house was green", "", "she saw it", "then she saw the table", "it was old"),
        ("das haus war grün", "", "sie sah es", "dann sah sie den tisch", "er war alt"),
    ),
]
# Where every sentence has one translation, which is all that a sentence system can learn.
UNAMBIGUOUS = [
    CORPUS[0],
    CORPUS[2],
    ParallelDocument(
        "house",
        ("the house was green", "", "then she saw the table", "the lamp was old and green"),
        ("das haus war grün", "", "dann sah sie den tisch", "die lampe war alt und grün"),
    ),
    ParallelDocument("table", CORPUS[0].source[::-1], CORPUS[0].target[::-1]),
]

TOKENIZER = PlainWordTokenizer(
    sorted({word for d in CORPUS for side in (d.source, d.target) for s in side for word in s.split()})
)


def configuration(recipe: str, paper: str = "focused-concatenation") -> Config:
    """A shipped recipe, made small and fit for learning by heart."""
    overrides = ["model.dimension=64", "model.feed_forward=128", "model.dropout=0", "loss.label_smoothing=0"]
    overrides += ["train.max_tokens=300", "train.learning_rate=3e-3", "train.warmup_updates=40"]
    overrides += ["decode.beam=2"]
    shift = ["model.shift=5"] if "shift" in recipe and "sequence" not in recipe else []
    return load_config(f"{paper}/{recipe}", "tiny", overrides + shift)


def trained(config: Config, corpus: list[ParallelDocument], updates: int, folder: Path) -> Model:
    """What the trainer does to a model, without its reports, and a loss near zero at the end."""
    with StoreWriter(folder / "train.arrow", TOKENIZER.fingerprint) as writer:
        for document in corpus:
            source, target = map(TOKENIZER.encode_batch, (document.source, document.target))
            writer.add(document.id, source, target)
    sampler = Sampler(
        TokenStore(folder / "train.arrow"),
        build_mixture(config.view),
        special_symbols(TOKENIZER, config.view),
        Arrangement(config.train.max_tokens, config.view.max_tokens, config.train.pool_tokens, seed=1),
    )
    torch.manual_seed(1)
    model, loss = build_model(config, TOKENIZER.vocabulary_size), build_loss(config.loss)
    optimizer = torch.optim.AdamW(
        model.parameters(), config.train.learning_rate, betas=config.train.adam_betas, weight_decay=0.0
    )
    figures = []
    for update, (batch, _) in enumerate(sampler.batches(Cursor()), start=1):
        optimizer.param_groups[0]["lr"] = learning_rate(config.train, update)
        parts = loss(model, batch, update / updates)
        (parts.loss / parts.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.train.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        figures.append({n: float(total) / max(int(count), 1) for n, (total, count) in parts.parts.items()})
        if update == updates:
            break
    assert max(each["nll_current"] for each in figures[-10:]) < 0.02
    # Discounted to a hundredth, it is learned later.
    assert max(each.get("nll_context", 0.0) for each in figures[-10:]) < 0.3
    return model.eval()


def translations(model: Model, config: Config, corpus: list[ParallelDocument]) -> list[Document]:
    translator = DocumentTranslator(model, config, TOKENIZER, CPU)
    found = dict(translator.translate(Document(d.id, d.source) for d in corpus))
    return [found[i].document for i in range(len(corpus))]


@pytest.mark.parametrize(
    ("recipe", "updates"),
    [
        pytest.param("base", 100, marks=pytest.mark.slow),  # windows hold what single sentences do
        pytest.param("s4to4", 130, marks=pytest.mark.slow),  # its windows are those of the next
        ("s4to4-shift-cd", 160),
        pytest.param("s4to4-shift-cd-sequence", 250, marks=pytest.mark.slow),
        pytest.param("s4to4-lrn-cd", 250, marks=pytest.mark.slow),
        pytest.param("s4to4-sin-cd", 250, marks=pytest.mark.slow),
    ],
)
def test_documents_learnt_by_heart_are_given_back(recipe: str, updates: int, tmp_path: Path) -> None:
    config = configuration(recipe)
    corpus = UNAMBIGUOUS if recipe == "base" else CORPUS
    references = [Document(d.id, d.target) for d in corpus]
    model = trained(config, corpus, updates, tmp_path)
    for target_context in ("prefix", "regenerate"):
        decode = config.decode.model_copy(update={"target_context": target_context})
        chosen = config.model_copy(update={"decode": decode})
        assert translations(model, chosen, corpus) == references, target_context


@pytest.mark.parametrize(
    ("recipe", "updates"),
    [
        ("casa", 100),
        pytest.param("glat", 150, marks=pytest.mark.slow),  # its loss is that of the first
        pytest.param("glat-ctc", 150, marks=pytest.mark.slow),
        pytest.param("latent", 250, marks=pytest.mark.slow),
        pytest.param("latent-glat", 250, marks=pytest.mark.slow),
    ],
)
def test_documents_written_at_once_are_given_back(recipe: str, updates: int, tmp_path: Path) -> None:
    config = configuration(recipe, "casa")
    references = [Document(d.id, d.target) for d in CORPUS]
    model = trained(config, CORPUS, updates, tmp_path)
    chosen = config.model_copy(update={"decode": config.decode.model_copy(update={"beam": 1})})
    assert translations(model, chosen, CORPUS) == references
