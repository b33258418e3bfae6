"""What MCN costs: the parts `training`, `decoding` and `memory` of `benchmarks.mcn`."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from benchmarks.batch_context_cost import Numerals, speed_rows
from benchmarks.data import PeakMemory
from benchmarks.documents import table
from benchmarks.training import SYMBOLS, VOCABULARY, instance, lengths
from cotext.config.recipe import Config, load_config
from cotext.data.batch import Batch, Source, SpecialSymbols
from cotext.data.batching import pack
from cotext.data.collate import make_batch
from cotext.data.documents import Document
from cotext.decoding.translator import DocumentTranslator
from cotext.layers.kernels.relative import attend_from_memory
from cotext.layers.masks import causal
from cotext.layers.state import DecoderState
from cotext.layers.transformer_xl import RecurrentSelfAttention
from cotext.losses.build import build_loss
from cotext.models.build import build_model
from cotext.models.interface import AutoregressiveModel
from cotext.models.mcn import MCN

DOCUMENTS = 8  # of a round of training
SENTENCES = 20  # of a document
BATCH_TOKENS = 2048
LENGTHS = (10, 20, 50, 100, 200)  # sentences of a document whose training takes memory
TOKENS = 25  # of their sentences
BRACKETS = SpecialSymbols(SYMBOLS.pad, SYMBOLS.bos, SYMBOLS.eos, (SYMBOLS.eos,), bracket=True)


def config_of(recipe: str, size: str, *overrides: str) -> Config:
    """A recipe of a size, without dropout; documents of any number of sentences."""
    return load_config(recipe, size, ["model.dropout=0", *overrides])


class Pupil:
    """A model with its optimiser; `in_turn` trains it sentence after sentence."""

    def __init__(self, config: Config, in_turn: bool = False) -> None:
        torch.manual_seed(0)
        self.model = build_model(config, VOCABULARY)
        self.seen: AutoregressiveModel = self.model
        if in_turn:
            assert isinstance(self.model, MCN)
            self.seen = InTurn(self.model)
        self.loss = build_loss(config.loss)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.losses: list[float] = []

    def seconds_per_label(self, batches: Sequence[Batch]) -> float:
        """One update a batch."""
        labels = 0.0
        before = time.process_time()
        for batch in batches:
            outcome = self.loss(self.seen, batch)
            (outcome.loss / outcome.count).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            labels += float(outcome.count)
            self.losses.append(float(outcome.loss.detach() / outcome.count))
        return (time.process_time() - before) / labels


@dataclass(slots=True)
class Memory:
    """What a sentence remembers of the one before: padding stands on the left."""

    states: list[Tensor] = field(default_factory=list)  # per layer: [R, M, D]
    real: Tensor | None = None  # [R, M]


class InTurn:
    """A model as training sees it whose decoder is called for one sentence of every row after the other.

    To the same loss and gradients as all sentences at once. Of the paper's memory alone: one sentence.
    """

    def __init__(self, model: MCN) -> None:
        assert model.memory_sentences == 1
        self.model = model

    @property
    def output_weight(self) -> Tensor:
        return self.model.output_weight

    def encode(self, source: Source) -> DecoderState:
        return self.model.encode(source)

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Hidden states [R, T, D] of decoder inputs [R, T] and their sentences."""
        assert state.cross_spans is not None
        hidden = state.cross[0][0].new_zeros(*tokens.shape, self.output_weight.size(1))
        memory = Memory()
        for k in range(int(sentence.max()) + 1):
            start = ((sentence >= 0) & (sentence < k)).sum(dim=1)
            at, real = _span(start, (sentence == k).sum(dim=1))
            first, stop = state.cross_spans[:, k].unbind(dim=1)
            source_at, source_real = _span(first, stop - first)
            cross = [tuple(_taken(part, source_at) for part in parts) for parts in state.cross]
            x = self.model.embedding.words(tokens.gather(1, at), None)
            x, memory = self._sentence(x, real, memory, cross, source_real[:, None, None])
            row = torch.arange(len(tokens))[:, None].expand_as(at)
            hidden = hidden.index_put((row[real], at[real]), self.model.decoder_norm(x)[real])
        return hidden

    def _sentence(
        self, x: Tensor, real: Tensor, memory: Memory, cross: Sequence[tuple[Tensor, ...]], mask: Tensor
    ) -> tuple[Tensor, Memory]:
        noted = Memory(real=_right_aligned(real[..., None], real)[..., 0])
        for i, block in enumerate(self.model.decoder):
            past = memory.states[i] if memory.states else None
            attention, look = block.attention, block.cross

            def own(x: Tensor, attention: Any = attention, past: Tensor | None = past) -> Tensor:
                # What enters the attention is what the next sentence remembers.
                noted.states.append(_right_aligned(x.detach(), real))
                return self._attend(attention, x, past, memory.real)

            def other(x: Tensor, look: Any = look, i: int = i) -> Tensor:
                return look(x, cross[i], mask)  # type: ignore[no-any-return]

            x = block.after_attention(x, own)
            x = block.after_cross(x, other)
            x = block.after_feed_forward(x, block.feed_forward)
        return x, noted

    def _attend(
        self, attention: RecurrentSelfAttention, x: Tensor, past: Tensor | None, remembered: Tensor | None
    ) -> Tensor:
        dimension, longest = x.size(-1), x.size(1)
        q, k, v = attention.qkv(x).chunk(3, dim=-1)
        mask = causal(longest, longest + (0 if past is None else past.size(1)), x.device)[None, None]
        if past is not None and remembered is not None:
            weight, bias = attention.qkv.weight[dimension:], attention.qkv.bias[dimension:]
            before = linear(past, weight, bias).chunk(2, dim=-1)
            k, v = (torch.cat(pair, dim=1) for pair in zip(before, (k, v), strict=True))
            real = torch.cat((remembered, remembered.new_ones(x.shape[:2])), dim=1)
            mask = mask & real[:, None, None]
        distance = torch.arange(k.size(1) - 1, -longest, -1).clamp(min=0)
        r = attention.place(self.model.embedding.table(distance))
        biases = torch.stack((attention.content_bias, attention.place_bias))
        out: Tensor = attention.out(attend_from_memory(q, k, v, biases, r, mask, attention.heads, 0.0))
        return out


def _span(start: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Places [R, L] of the tokens of a span of every row, and which of them are real."""
    at = torch.arange(int(length.max()))
    real = at < length[:, None]
    return torch.where(real, start[:, None] + at, 0), real


def _taken(x_RHSK: Tensor, at: Tensor) -> Tensor:
    return x_RHSK.gather(2, at[:, None, :, None].expand(-1, x_RHSK.size(1), -1, x_RHSK.size(3)))


def _right_aligned(x_RLD: Tensor, real_RL: Tensor) -> Tensor:
    """Padding from the right to the left."""
    longest = x_RLD.size(1)
    at = torch.arange(longest) - (longest - real_RL.sum(dim=1))[:, None]
    moved = x_RLD.gather(1, at.clamp(min=0)[..., None].expand_as(x_RLD))
    return torch.where(at[..., None] >= 0, moved, torch.zeros_like(moved))


# ----------------------------------------------------------------------------------------------- training


def training(size: str, rounds: int) -> None:
    """Labels a second on the same sentences: as documents, and as batches of sentences of like length."""
    cases = {
        "Transformer (sent)": ("mcn/sent", False),
        "MCN": ("mcn/final", False),
        "MCN, no memory": ("mcn/final", False),
        "MCN, sentence after sentence": ("mcn/final", True),
    }
    without = ("model.mcn.memory_sentences=0",)
    pupils = {
        name: Pupil(config_of(recipe, size, *(without if "no memory" in name else ())), in_turn)
        for name, (recipe, in_turn) in cases.items()
    }
    random = np.random.default_rng(7)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        documents = [[lengths(random) for _ in range(SENTENCES)] for _ in range(DOCUMENTS)]
        as_documents, as_sentences = document_batches(documents, random), sentence_batches(documents, random)
        for name, pupil in pupils.items():
            batches = as_sentences if "sent)" in name else as_documents
            took = pupil.seconds_per_label(batches)
            if number:  # the first round warms up
                seconds[name].append(took)
    parallel, in_turn = pupils["MCN"].losses, pupils["MCN, sentence after sentence"].losses
    assert np.allclose(parallel, in_turn, rtol=1e-4), "the two ways of training differ"
    print(
        f"training, {size}: {DOCUMENTS} documents of {SENTENCES} sentences a round, {BATCH_TOKENS:,} a batch;"
    )
    print("losses of MCN and of the same model trained sentence after sentence agree")
    table(("system", "labels a second", "against Transformer (sent)"), speed_rows(seconds, 1, "{:,.0f}"))
    others = {name: seconds[name] for name in ("MCN, sentence after sentence", "MCN")}
    table(("the same model", "labels a second", "against in turn"), speed_rows(others, 1, "{:,.0f}"))


def document_batches(documents: Sequence[list[tuple[int, int]]], random: np.random.Generator) -> list[Batch]:
    """Rows that are documents, as many as the budget takes, longest last."""
    rows = sorted(
        (instance(document, random) for document in documents), key=lambda r: r.row_tokens(BRACKETS)
    )
    groups = pack([[row.row_tokens(BRACKETS)] for row in rows], BATCH_TOKENS)
    return [make_batch([rows[i] for i in group], BRACKETS) for group in groups]


def sentence_batches(documents: Sequence[list[tuple[int, int]]], random: np.random.Generator) -> list[Batch]:
    """Rows that are the sentences of the documents, those of like length together."""
    rows = [instance([pair], random) for document in documents for pair in document]
    rows.sort(key=lambda row: row.row_tokens(SYMBOLS))
    groups = pack([[row.row_tokens(SYMBOLS)] for row in rows], BATCH_TOKENS)
    return [make_batch([rows[i] for i in group], SYMBOLS) for group in groups]


# ----------------------------------------------------------------------------------------------- decoding


def translator_of(recipe: str, size: str, beam: int, rows: int) -> DocumentTranslator:
    """Random weights; special symbols are never among the candidates, so that the limit closes a sentence.

    A batch takes so many sentences in rows of their own, 26 tokens of the source and half of those written.
    """
    tokens = rows * beam * (TOKENS + 1 + TOKENS // 2)
    decode = [
        f"decode.beam={beam}",
        "decode.max_ratio=1",
        "decode.max_extra=0",
        f"decode.max_tokens={tokens}",
    ]
    config = config_of(recipe, size, *decode)
    torch.manual_seed(0)
    model = build_model(config, VOCABULARY).eval()
    with torch.no_grad():
        model.output_weight[Numerals.pieces :] = 0
    return DocumentTranslator(model, config, Numerals(), torch.device("cpu"))


def decoding(size: str, rounds: int, counts: Sequence[int], beams: Sequence[int]) -> None:
    """Sentences a second, so many documents side by side in one batch, all their sentences of one length.

    The sentence model writes all sentences of these documents at once; or, to tell what small batches cost,
    at most as many as MCN, which writes one of each document.
    """
    random = np.random.default_rng(5)
    for beam in beams:
        for count in counts:
            documents = [
                Document(
                    str(i),
                    tuple(" ".join(map(str, random.integers(1, 31_000, TOKENS))) for _ in range(SENTENCES)),
                )
                for i in range(count)
            ]
            everything = 2 * count * SENTENCES
            cases = {
                "Transformer (sent)": ("mcn/sent", everything),
                "as many sentences as documents side by side": ("mcn/sent", count),
                "MCN": ("mcn/final", everything),
                "DocNMT": ("mcn/docnmt", everything),
            }
            systems = {n: translator_of(recipe, size, beam, rows) for n, (recipe, rows) in cases.items()}
            seconds: dict[str, list[float]] = {name: [] for name in systems}
            for number in range(rounds + 1):
                for name, translator in systems.items():
                    before = time.process_time()
                    written = sum(len(t.document) for _, t in translator.translate(documents))
                    assert written == SENTENCES * count
                    if number:
                        seconds[name].append(time.process_time() - before)
            print(f"\ndecoding, {size}, beam {beam}, {count} documents of {SENTENCES} sentences side by side")
            head = ("system", "sentences a second", "against Transformer (sent)")
            table(head, speed_rows(seconds, SENTENCES * count, "{:.1f}"))


# ------------------------------------------------------------------------------------------------- memory


def own_peak(recipe: str, size: str, sentences: int) -> None:
    """Print the MiB that three updates on one document add to a process that holds the model."""
    pupil = Pupil(config_of(recipe, size, *of_any_length(recipe, sentences)))
    random = np.random.default_rng(0)
    document = [(TOKENS, TOKENS)] * sentences
    kinds: dict[bool, Callable[..., list[Batch]]] = {True: sentence_batches, False: whole}
    batches = kinds[recipe == "mcn/sent"]([document], random)
    for parameter in pupil.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    pupil.optimizer.step()  # what the optimiser keeps is not counted
    memory = PeakMemory()
    time.sleep(0.05)
    resting = memory.kibibytes
    for _ in range(3):
        pupil.seconds_per_label(batches)
    print(json.dumps(max(0, memory.stop() - resting) / 1024))


def of_any_length(recipe: str, sentences: int) -> list[str]:
    return [] if recipe == "mcn/sent" else [f"view.max_sentences={sentences}", "view.max_tokens=20000"]


def whole(documents: Sequence[list[tuple[int, int]]], random: np.random.Generator) -> list[Batch]:
    return [make_batch([instance(document, random)], BRACKETS) for document in documents]


def memory(size: str) -> None:
    """Peak by sentences of a document, a row of its own."""
    recipes = {
        "sentences, 2,048 tokens": "mcn/sent",
        "MCN": "mcn/final",
        "Doc2Sent": "mcn/doc2sent",
        "DocNMT": "mcn/docnmt",
    }
    rows = []
    for sentences in LENGTHS:
        peaks = []
        for recipe in recipes.values():
            command = [sys.executable, "-m", "benchmarks.mcn", "own-peak", recipe, size, str(sentences)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            peaks.append(f"{float(json.loads(done.stdout.splitlines()[-1])):,.0f}")
        rows.append((str(sentences), f"{sentences * (TOKENS + 2):,}", *peaks))
    print(f"training, {size}: MiB beside model, gradients and optimiser, one document of so many sentences")
    table(("sentences", "source tokens", *recipes), rows)
