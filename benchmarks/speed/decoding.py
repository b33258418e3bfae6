"""Decoding speed of our search beside Hugging Face Marian and CTranslate2, on the CPU.

    python -m benchmarks.speed.decoding [--quick] [--threads 1] [--clock cpu] [--cases batch ...] [--int8]

All sides hold the same random weights at base size (512/2048/8 heads/6 + 6 layers, vocabulary 32,000); logits
and greedy outputs are checked to be equal before anything is timed. Every output has the same forced length:
the embeddings of special symbols are zero, so that none of them is ever among the candidates, and the length
limit closes. Encoding counts. Systems take turns; a ratio is that of two neighbours in one round; the table
shows medians, of as many rounds as a case needs. Processor time of one thread, for a machine that others use
too; `--threads 2 --clock wall` on a quiet one.

With `--int8`, ours in int8 beside CTranslate2 in int8 alone, whose greedy search has no scores: so has our
`unscored` one (`decode.scores = false`).

batch       sentences of about 25 tokens to 25 tokens, one or 32 at a time
document    512 source tokens to 512 target tokens
prefix      K = 4: the current sentence after three given ones, against all four produced anew (ours alone)
"""

import copy
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ctranslate2
import numpy as np
import torch
from ctranslate2.converters.transformers import BartLoader
from transformers import MarianConfig, MarianMTModel
from transformers.utils import logging

from benchmarks.speed.harness import apply, parser
from benchmarks.speed.systems import plain_model
from cotext.data.batch import Source, SpecialSymbols
from cotext.layers.blocks import Size
from cotext.models.precision import LEAST, quantised
from cotext.models.transformer import Transformer
from cotext.runtime.timing import Clock, in_turn
from cotext.search.beam_search import SearchOptions, search
from cotext.search.constraints import SearchRequest, SearchSymbols

VOCABULARY = 32_000
SYMBOLS = SpecialSymbols(pad=31_995, bos=31_996, eos=31_997, separators=(31_998,))
SEARCH_SYMBOLS = SearchSymbols(SYMBOLS, unk=31_999)
SIZE = Size(512, 2048, 8, encoder_layers=6, decoder_layers=6)
SENTENCE = 25


@dataclass(frozen=True)
class Task:
    """What is translated: source rows, how many new tokens for each, and how widely to search."""

    name: str
    sources: list[list[int]]
    tokens: int
    beam: int
    rounds: int


Translate = Callable[[Task], list[list[int]]]


def our_model() -> Transformer:
    """Base size, random weights, special symbols out of the race."""
    torch.manual_seed(1)
    model = plain_model(SIZE).eval()
    model.embedding.weight.data[SYMBOLS.pad :] = 0
    return model


def marian(model: Transformer) -> MarianMTModel:
    """The same model as Hugging Face's; whose position table has other wavelengths, and ours takes it."""
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=SIZE.dimension,
            encoder_layers=SIZE.encoder_layers,
            decoder_layers=SIZE.decoder_layers,
            encoder_attention_heads=SIZE.heads,
            decoder_attention_heads=SIZE.heads,
            encoder_ffn_dim=SIZE.feed_forward,
            decoder_ffn_dim=SIZE.feed_forward,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=SYMBOLS.pad,
            eos_token_id=SYMBOLS.eos,
            decoder_start_token_id=SYMBOLS.bos,
            forced_eos_token_id=None,
        )
    ).eval()
    names = set(theirs.state_dict())
    given = {name: tensor for name, tensor in marian_weights(model).items() if name in names}
    unmatched = [n for n in names - set(given) if "embed_positions" not in n and n != "final_logits_bias"]
    if unmatched:
        raise SystemExit(f"weights without a counterpart: {unmatched}")
    theirs.load_state_dict(given, strict=False)
    model.embedding.table.table = theirs.model.encoder.embed_positions.weight.data.clone()
    return theirs


def marian_weights(model: Transformer) -> dict[str, torch.Tensor]:
    """Our weights under Marian's names."""
    weights = dict.fromkeys(
        (
            "lm_head.weight",
            "model.shared.weight",
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
        ),
        model.embedding.weight.data,
    )
    for side, blocks in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, block in enumerate(blocks):
            at = f"model.{side}.layers.{i}"
            parts = {
                f"{at}.fc1": block.feed_forward.widen,
                f"{at}.fc2": block.feed_forward.narrow,
                f"{at}.final_layer_norm": block.after_feed_forward.norm,
                f"{at}.self_attn_layer_norm": block.after_attention.norm,
                f"{at}.self_attn.out_proj": block.attention.out,
            }
            fused = {f"{at}.self_attn": (("q_proj", "k_proj", "v_proj"), block.attention.qkv)}
            if side == "decoder":
                parts[f"{at}.encoder_attn_layer_norm"] = block.after_cross.norm
                parts[f"{at}.encoder_attn.q_proj"] = block.cross.query
                parts[f"{at}.encoder_attn.out_proj"] = block.cross.out
                fused[f"{at}.encoder_attn"] = (("k_proj", "v_proj"), block.cross.key_value)
            for name, module in parts.items():
                weights[f"{name}.weight"] = module.weight.data
                weights[f"{name}.bias"] = module.bias.data
            for name, (projections, module) in fused.items():
                for kind in ("weight", "bias"):
                    thirds = getattr(module, kind).data.chunk(len(projections))
                    for projection, part in zip(projections, thirds, strict=True):
                        weights[f"{name}.{projection}.{kind}"] = part
    return weights


def padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows to [B, S] tokens and a mask of what is real."""
    tokens = torch.full((len(rows), max(map(len, rows))), SYMBOLS.pad)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.tensor(row)
    return tokens, tokens != SYMBOLS.pad


def source(rows: Sequence[Sequence[int]]) -> Source:
    """Our batch; every row counts as one sentence, which the model without segments does not see."""
    tokens, real = padded(rows)
    n = len(rows)
    return Source(
        tokens,
        torch.where(real, 0, -1),
        torch.tensor([[0, 1]] * n),
        torch.zeros(n, dtype=torch.long),
        torch.zeros(n, dtype=torch.long),
    )


def ours(model: Transformer, scored: bool = True) -> Translate:
    """Our search; the last of `tokens` steps writes `eos`. `scored`: greedy search too."""

    def translate(task: Task) -> list[list[int]]:
        requests = [SearchRequest((), 0, (task.tokens,))] * len(task.sources)
        options = SearchOptions(task.beam, 0.6, scored=scored or task.beam > 1)
        found = search(model, source(task.sources), requests, SEARCH_SYMBOLS, options)
        return [hypothesis.tokens for hypothesis in found]

    return translate


def hugging_face(model: MarianMTModel) -> Translate:
    """`generate`, with its default attention and cache."""

    def translate(task: Task) -> list[list[int]]:
        tokens, real = padded(task.sources)
        found = model.generate(
            input_ids=tokens,
            attention_mask=real.long(),
            num_beams=task.beam,
            do_sample=False,
            length_penalty=0.6,
            max_new_tokens=task.tokens,
        )
        return [row[1:] for row in found.tolist()]

    return translate


def ctranslate(model: MarianMTModel, compute_type: str, threads: int, folder: Path) -> Translate:
    """CTranslate2's engine on the converted weights."""
    model = copy.deepcopy(model)  # the conversion works on the weights where they lie
    model.config.normalize_before = False
    model.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(model)
    names = [f"t{i}" for i in range(VOCABULARY)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.bos_token = spec.config.decoder_start_token = names[SYMBOLS.bos]
    spec.config.eos_token, spec.config.unk_token = names[SYMBOLS.eos], names[SEARCH_SYMBOLS.unk]
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization="int8" if compute_type == "int8" else None)
    folder.mkdir()
    spec.save(str(folder))
    engine = ctranslate2.Translator(
        str(folder), device="cpu", compute_type=compute_type, intra_threads=threads, inter_threads=1
    )

    def translate(task: Task) -> list[list[int]]:
        found = engine.translate_batch(
            [[names[token] for token in row] for row in task.sources],
            beam_size=task.beam,
            length_penalty=0.6,
            max_decoding_length=task.tokens,
            min_decoding_length=task.tokens,
            max_input_length=0,
        )
        return [[int(name[1:]) for name in result.hypotheses[0]] for result in found]

    return translate


def random_rows(lengths: Sequence[int], seed: int) -> list[list[int]]:
    """Source rows of random tokens, each closed by `eos`."""
    generator = np.random.default_rng(seed)
    return [[*generator.integers(0, SYMBOLS.pad, n - 1).tolist(), SYMBOLS.eos] for n in lengths]


def check_equal(model: Transformer, theirs: MarianMTModel, systems: dict[str, Translate]) -> None:
    """Stop unless logits and greedy outputs are the same everywhere (int8 excepted)."""
    rows = random_rows([9, 6], seed=7)
    targets = torch.tensor([[SYMBOLS.bos, 5, 6, 7], [SYMBOLS.bos, 8, 9, 10]])
    tokens, real = padded(rows)
    with torch.inference_mode():
        hidden = model.decode(targets, torch.zeros_like(targets), model.encode(source(rows)))
        expected = theirs(input_ids=tokens, attention_mask=real.long(), decoder_input_ids=targets).logits
        torch.testing.assert_close(hidden @ model.output_weight.T, expected, atol=1e-4, rtol=1e-4)
    task = Task("check", rows, tokens=12, beam=1, rounds=1)
    answers = {name: [row[:11] for row in run(task)] for name, run in systems.items() if "int8" not in name}
    if len({str(answer) for answer in answers.values()}) != 1:
        raise SystemExit(f"the systems disagree on greedy outputs: {answers}")


def once(translate: Translate, task: Task) -> None:
    """Translate, and count it as one."""
    translate(task)


def against_others(task: Task, systems: dict[str, Translate], clock: Clock) -> None:
    """Print the medians of one task: milliseconds of ours, the first, and the others' time over ours."""
    ways = {name: partial(once, translate, task) for name, translate in systems.items()}
    times = in_turn(ways, task.rounds, clock)
    first, *others = systems
    cells = [f"{task.name:<28}{1e3 * times.median(first):>10.0f} ms"]
    cells += [f"{statistics.median(times.ratios(name, first)):>14.2f}" for name in others]
    print("".join(cells), flush=True)


def prefix_against_regenerate(model: Transformer, beam: int, rounds: int, clock: Clock) -> None:
    """Print the time of K = 4 sentences produced anew over that of the last one after a given prefix."""
    [row] = random_rows([4 * (SENTENCE + 1)], seed=3)
    [given] = random_rows([3 * (SENTENCE + 1)], seed=4)
    given[SENTENCE :: SENTENCE + 1] = [SYMBOLS.separator(0)] * 3
    requests = {
        "prefix": SearchRequest(given, 0, (SENTENCE + 1,)),
        "regenerate": SearchRequest((), 0, (SENTENCE + 1,) * 4),
    }

    def searched(request: SearchRequest) -> None:
        search(model, source([row]), [request], SEARCH_SYMBOLS, SearchOptions(beam, 0.6))

    ways = {name: partial(searched, request) for name, request in requests.items()}
    times = in_turn(ways, rounds, clock)
    ratio = statistics.median(times.ratios("regenerate", "prefix"))
    name = f"prefix K=4, beam {beam}"
    print(f"{name:<28}{1e3 * times.median('prefix'):>10.0f} ms   regenerate: {ratio:.2f} times as long")


def tasks(quick: bool) -> dict[str, list[Task]]:
    """The tasks of the table, by case."""
    generator = np.random.default_rng(5)
    one = random_rows([SENTENCE], seed=1)
    many = random_rows(generator.integers(15, 36, 32).tolist(), seed=2)
    length, few = (128, 1) if quick else (512, 2)
    document = random_rows([length], seed=6)
    return {
        "batch": [
            Task("batch 1, greedy", one, SENTENCE, 1, 5 if quick else 11),
            Task("batch 1, beam 5", one, SENTENCE, 5, 5 if quick else 11),
            Task("batch 32, greedy", many, SENTENCE, 1, 3 if quick else 5),
            Task("batch 32, beam 5", many, SENTENCE, 5, 2 if quick else 4),
        ],
        "document": [Task(f"document of {length}, beam 5", document, length, 5, few)],
    }


def main() -> None:
    made = parser(__doc__, rounds=0)
    made.add_argument("--quick", action="store_true", help="fewer rounds, a document of 128 tokens")
    made.add_argument("--cases", nargs="+", choices=["batch", "document", "prefix"])
    made.add_argument(
        "--int8", action="store_true", help="ours, with and without scores, and CTranslate2 in int8"
    )
    options = made.parse_args()
    clock = apply(options)
    logging.set_verbosity_error()
    model = our_model()
    theirs = marian(model)
    with tempfile.TemporaryDirectory() as folder:
        systems = {
            "ours": ours(model),
            "Hugging Face": hugging_face(theirs),
            "CT2 float32": ctranslate(theirs, "float32", options.threads, Path(folder) / "float32"),
            "CT2 int8": ctranslate(theirs, "int8", options.threads, Path(folder) / "int8"),
        }
        check_equal(model, theirs, systems)
        if options.int8:
            int8 = quantised(model, LEAST)
            systems = {
                "unscored int8": ours(int8, scored=False),
                "ours int8": ours(int8),
                "CT2 int8": systems["CT2 int8"],
            }
        print("others: their time / ours")
        first, *others = systems
        print(f"{'':<28}{first:>13}{''.join(f'{name:>14}' for name in others)}", flush=True)
        for case, members in tasks(options.quick).items():
            for task in members:
                if options.cases is None or case in options.cases:
                    against_others(task, systems, clock)
    if options.cases is None or "prefix" in options.cases:
        for beam in (1, 5):
            prefix_against_regenerate(model, beam, 3 if options.quick else 7, clock)


if __name__ == "__main__":
    main()
