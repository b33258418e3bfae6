"""Search with shortlists: a row uses only its own list, whatever shares its batch."""

import numpy as np
import pytest
import torch

from cotext.config.recipe import Config
from cotext.data.batch import Instance, source_batch
from cotext.data.documents import ParallelDocument
from cotext.data.shortlist import Shortlist
from cotext.data.views import Window
from cotext.models.checkpoint import quantised
from cotext.models.interface import Model
from cotext.runtime import CotextError
from cotext.translation.translator import DocumentTranslator
from tests.models.test_int8_systems import CPU, DOCUMENTS, TOKENIZER
from tests.models.test_int8_systems import system as single_precision
from tests.tiny import translations

SYSTEMS = ("focused-concatenation/s4to4-shift-cd", "docflat/docflat-c", "mcn/final-tl", "casa/casa")
# Of a token: itself, and the one after it; of all: three.
NEXT = np.array([[i, (i + 1) % TOKENIZER.pieces] for i in range(TOKENIZER.pieces)], np.int32)
OWN = Shortlist("words", NEXT, np.array([4, 10, 20], np.int32))
WHOLE = Shortlist("words", NEXT, np.arange(TOKENIZER.pieces, dtype=np.int32))


def system(recipe: str) -> tuple[Model, Config]:
    beam = ["decode.beam=1"] if recipe.startswith("casa/") else []
    model, config = single_precision(recipe, ["decode.first_pass=''", *beam])
    return model.double(), config


def translator(model: Model, config: Config, table: Shortlist | None, count: int = 2) -> DocumentTranslator:
    decode = config.decode.model_copy(update={"shortlist": 0 if table is None else count})
    changed = config.model_copy(update={"decode": decode})
    return DocumentTranslator(model, changed, TOKENIZER, CPU, shortlist=table)


@pytest.mark.parametrize("recipe", SYSTEMS)
def test_a_list_of_the_whole_vocabulary_changes_nothing(recipe: str) -> None:
    model, config = system(recipe)
    plain, listed = (translations(translator(model, config, t), DOCUMENTS) for t in (None, WHOLE))
    for one, other in zip(plain, listed, strict=True):
        assert one.document == other.document
        # Symbols that are never written have no probability on a list.
        pairs = zip(one.log_probabilities, other.log_probabilities, strict=True)
        assert all(alone <= listed < 0 for alone, listed in pairs)


@pytest.mark.parametrize("recipe", SYSTEMS)
@pytest.mark.parametrize("int8", [False, True])
def test_a_document_holds_its_own_tokens_whatever_shares_its_batch(recipe: str, int8: bool) -> None:
    model, config = system(recipe)
    made = translator(quantised(model.float(), least=0) if int8 else model, config, OWN)
    together = translations(made, DOCUMENTS)
    for document, found in zip(DOCUMENTS, together, strict=True):
        own = OWN.of(TOKENIZER.encode(" ".join(document.sentences)), 2)
        written = TOKENIZER.encode(" ".join(found.document.sentences))
        assert written
        assert set(written) <= set(own.tolist())
        [alone] = translations(made, [document])
        assert alone.document == found.document
        assert alone.log_probabilities == pytest.approx(found.log_probabilities, abs=1e-2 if int8 else 1e-9)


def test_probabilities_are_among_the_tokens_of_the_list() -> None:
    model, config = system("focused-concatenation/base")
    made = translator(model, config, OWN)
    [found] = translations(made, DOCUMENTS[2:])
    source = TOKENIZER.encode(DOCUMENTS[2].sentences[0])
    labels = [*TOKENIZER.encode(found.document.sentences[0]), TOKENIZER.eos]
    with torch.inference_mode():
        batch = source_batch(
            [Instance(0, Window(range(1), range(1), range(1)), [source], [])], made.plan.symbols
        )
        inputs = torch.tensor([[TOKENIZER.bos, *labels[:-1]]])
        hidden = model.decode(inputs, torch.zeros_like(inputs), model.encode(batch))[0]
        logits = hidden @ model.output_weight.T
        listed = [*OWN.of(source, 2), TOKENIZER.eos, TOKENIZER.sep]
        outside = torch.ones_like(logits, dtype=torch.bool).index_fill_(1, torch.tensor(listed), value=False)
        log_p = logits.masked_fill(outside, -torch.inf).log_softmax(dim=1)
    expected = float(log_p[range(len(labels)), labels].sum())
    assert found.log_probabilities[0] == pytest.approx(expected)


def test_signatures_tell_of_it_and_scores_of_given_text_are_without() -> None:
    model, config = system("focused-concatenation/base")
    made, plain = translator(model, config, OWN), translator(model, config, None)
    assert "|shortlist:2" in made.signature
    assert made.signature != translator(model, config, WHOLE).signature  # another table
    assert "|shortlist_table:" in made.signature
    assert "shortlist" not in plain.signature
    pair = ParallelDocument("c", DOCUMENTS[2].sentences, ("w9 w21",))
    assert made.score([pair]) == plain.score([pair])


def test_a_shortlist_that_is_not_there_is_refused() -> None:
    model, config = system("focused-concatenation/base")
    with pytest.raises(CotextError, match="no shortlist was loaded"):
        DocumentTranslator(model, translator(model, config, OWN).config, TOKENIZER, CPU)
