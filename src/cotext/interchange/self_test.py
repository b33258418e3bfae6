"""Self-test of an import: ids, logits and a greedy translation are compared with results of `transformers`.

Texts are random subwords of the model, so that the test does not depend on the language. `transformers` reads
the weights from the folder again.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.interchange.foreign import ForeignModel
from cotext.models.checkpoint import LoadedModel
from cotext.models.interface import Model, TranslationModel
from cotext.runtime.errors import CotextError

TOLERANCE = 1e-3  # of logits, relative to the largest; half-precision weights cause differences of this size
SENTENCES = 8
PIECES = 12  # subwords of a sentence
WRITTEN = 10  # most tokens of a greedy translation
SEED = 17


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The results of the comparison; `skipped`: the reason why nothing was compared."""

    skipped: str = ""
    against: str = ""
    sentences: int = 0
    equal_ids: int = 0
    largest_difference: float = 0.0  # of logits
    largest_logit: float = 0.0
    greedy_tokens: int = 0
    equal_greedy_tokens: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def render(self) -> str:
        if self.skipped:
            return f"none: {self.skipped}"
        return (
            f"against {self.against}: ids of {self.equal_ids} of {self.sentences} sentences equal; logits "
            f"(up to {self.largest_logit:.1f}) differ by at most {self.largest_difference:.1e}; greedy "
            f"translations: {self.equal_greedy_tokens} of {self.greedy_tokens} tokens equal"
        )


def run_self_test(folder: Path, foreign: ForeignModel, model: Model) -> SelfTest:
    """Compare an imported model with the model of `transformers`; raise CotextError if they differ."""
    if find_spec("transformers") is None:
        return SelfTest("transformers is not installed (pip install 'cotext[pretrained]')")
    own = LoadedModel(model, foreign.config, foreign.tokenizer, [0]).left_to_right("the self-test")
    try:
        with torch.no_grad(), _quiet():
            result = _compared(foreign, own, _theirs(folder, foreign.kind))
    except Exception as error:  # another program, which may fail in any way
        reason = str(error).partition("\n")[0]
        return SelfTest(f"transformers {version('transformers')} fails on this folder: {reason}")
    if not result.largest_difference <= TOLERANCE * max(1.0, result.largest_logit):
        raise CotextError(
            f"{folder}: the self-test failed, nothing was written: {result.render()}; the model has "
            "a property that is not supported"
        )
    return result


@dataclass(frozen=True, slots=True)
class _Other:
    """Model and tokenizer of transformers."""

    model: Any
    tokenizer: Any


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress messages and progress bars of transformers."""
    import transformers

    messages: Any = transformers.logging
    before = messages.get_verbosity()
    messages.set_verbosity_error()
    messages.disable_progress_bar()
    try:
        yield
    finally:
        messages.set_verbosity(before)
        messages.enable_progress_bar()


def _theirs(folder: Path, kind: str) -> _Other:
    """Load model and tokenizer of a folder with transformers, without network and code of the folder."""
    import transformers

    given = {"local_files_only": True, "trust_remote_code": False}
    model = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32, **given)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **given)
    return _Other(model.eval(), tokenizer)


def _compared(foreign: ForeignModel, model: TranslationModel, other: _Other) -> SelfTest:
    own, rows = foreign.tokenizer, foreign.symbol_rows
    source = foreign.parts.get("embedding.source_weight")
    source_rows = rows if source is None or source.rows is None else source.rows
    equal_ids = greedy = equal_greedy = 0
    difference = largest = 0.0
    # Padding is never predicted; a bias may suppress it, which would dominate the comparison.
    compared = [i for i in range(len(rows)) if i not in (*foreign.absent, own.pad)]
    compared_rows = [rows[i] for i in compared]
    generator = random.Random(SEED)
    for _ in range(SENTENCES):
        text = own.decode(generator.choices(range(own.unk + 1, own.pieces), k=PIECES), "source")
        ids = [*own.source_prefix, *own.encode(text), own.eos]
        mapped = [source_rows[i] for i in ids]
        equal_ids += _their_ids(foreign, other.tokenizer, text) == mapped
        written = other.model.generate(
            torch.tensor([mapped]),
            num_beams=1,
            do_sample=False,
            max_new_tokens=WRITTEN,
            forced_eos_token_id=None,
        )[0].tolist()
        own_ids = _own_ids(written[1:], rows, own.pieces, own.eos)
        inputs = [own.bos, *own_ids[:-1]]
        logits = _logits(model, ids, inputs)[:, compared]
        given = torch.tensor([written[: len(inputs)]])
        output = other.model(input_ids=torch.tensor([mapped]), decoder_input_ids=given)
        their_logits = output.logits[0][:, compared_rows]
        difference = max(difference, float((logits - their_logits).abs().max()))
        largest = max(largest, float(their_logits.abs().max()))
        greedy += len(inputs)
        equal_greedy += int((logits.argmax(dim=1) == their_logits.argmax(dim=1)).sum())
    against = f"transformers {version('transformers')}"
    return SelfTest("", against, SENTENCES, equal_ids, difference, largest, greedy, equal_greedy)


def _their_ids(foreign: ForeignModel, tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a source sequence from the tokenizer of `transformers`, for the chosen languages."""
    own = foreign.tokenizer
    if own.kind == "marian":
        tag = f">>{own.chosen.target}<< " if own.source_prefix else ""
        return list(tokenizer(f"{tag}{text}").input_ids)
    ids = list(tokenizer(text).input_ids)
    # The first id is its default source language: replace it.
    prefix = [foreign.symbol_rows[i] for i in own.source_prefix]
    return [*prefix, *ids[1:]]


def _own_ids(written: list[int], rows: tuple[int, ...], pieces: int, eos: int) -> list[int]:
    """Return own ids of the generated rows, up to the end."""
    by_row = {row: i for i, row in enumerate(rows[:pieces])}
    ids = []
    for row in written:
        ids.append(by_row.get(row, eos))
        if ids[-1] == eos:
            break
    return ids


def _logits(model: TranslationModel, ids: list[int], inputs: list[int]) -> Tensor:
    """Return the logits of a row for decoder inputs: [T, V]."""
    one = torch.zeros(1, dtype=torch.long)
    tokens = torch.tensor([ids])
    source = Source(tokens, torch.zeros_like(tokens), torch.tensor([[0, 1]]), one, one)
    given = torch.tensor([inputs])
    hidden = model.decode(given, torch.zeros_like(given), model.encode(source))[0]
    logits = hidden @ model.output_weight.T
    return logits if model.output_bias is None else logits + model.output_bias
