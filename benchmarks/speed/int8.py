"""Translation in int8 or bfloat16 beside float32, for a system of each kind, on the CPU.

    python -m benchmarks.speed.int8 [--size base] [--systems sentence p ...] [--cells one batch document]
    python -m benchmarks.speed.int8 --precision bfloat16

Random weights of 6 + 6 layers and 32,000 subwords; both precisions write sentences as long as their source,
with the recipes' beams. Sentences have 24 tokens. `one`: a document of one sentence; `batch`: 32 of them side
by side; `document`: a document of 12 sentences. Both take turns; ratios are those of one round, and the table
shows medians with the smallest and the largest. The processor's features and the load come first.

    python -m benchmarks.speed.int8 --layers       single layers by width and rows: where it begins to pay
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.speed.harness import apply, parser, table
from benchmarks.speed.systems import Numerals, config_of, random_documents, random_model, translated
from cotext.layers.half_linear import HalfLinear
from cotext.layers.int8_linear import Int8Linear
from cotext.layers.kernels.int8 import fastest, quantised_weight
from cotext.models.interface import Model
from cotext.models.precision import LEAST, halved, quantised
from cotext.runtime.timing import Clock, in_turn
from cotext.translation.translator import DocumentTranslator

SYSTEMS = {
    "sentence": "p-transformer/transformer-sent",
    "s4to4": "focused-concatenation/s4to4-cd",
    "p": "p-transformer/doc",
    "g": "g-transformer/randinit",
    "docflat": "docflat/docflat-c",
    "mcn": "mcn/final-tl",
    "han": "han/joint",
    "rotary": "modern/rotary",
    "mixture": "mixtures/docflat-p-transformer",
    "casa": "casa/casa",
}
WORDS = 24
CELLS = {"one": (1, 1), "batch": (32, 1), "document": (1, 12)}  # documents, sentences of each
WIDTHS = ((128, 128), (128, 512), (256, 256), (256, 1024), (512, 512), (512, 2048), (512, 32_000))
ROWS = (1, 4, 32, 256)
CONVERTED: dict[str, Callable[[Model], Model]] = {
    "int8": lambda model: quantised(model, LEAST),
    "bfloat16": lambda model: halved(model, "bfloat16", LEAST),
}
LAYERS: dict[str, Callable[[nn.Linear], nn.Module]] = {
    "int8": lambda layer: Int8Linear(*quantised_weight(layer.weight.detach()), layer.bias.detach()),
    "bfloat16": lambda layer: HalfLinear(layer, torch.bfloat16),
}


def systems(options: argparse.Namespace, clock: Clock) -> None:
    """A row for each system: seconds in float32, and how many times as long that takes, by cell."""
    rows, precision = [], options.precision
    for name in options.systems:
        settings = ["decode.max_ratio=1", "decode.max_extra=0", "decode.first_pass=''", "view.numbers=100"]
        config = config_of(SYSTEMS[name], options.size, *settings)
        model = random_model(config)
        both = {"float32": model, precision: CONVERTED[precision](model)}
        translators = {
            key: DocumentTranslator(each, config, Numerals(), torch.device("cpu"))
            for key, each in both.items()
        }
        row = [name]
        for cell in options.cells:
            documents = random_documents(*CELLS[cell], WORDS)

            def once(translator: DocumentTranslator, given: list = documents) -> None:
                translated(translator, given)

            ways = {key: partial(once, each) for key, each in translators.items()}
            times = in_turn(ways, options.rounds, clock)
            row += [f"{times.median('float32'):.2f}", times.ratio("float32", precision)]
        print(*row, sep="  ", flush=True)
        rows.append(row)
    heads = (head for cell in options.cells for head in (f"{cell} [s]", f"float32 / {precision}"))
    table(["", *heads], rows)


def layers(options: argparse.Namespace, clock: Clock) -> None:
    """Microseconds of single layers, many of each in turn, so that none stays in the cache."""
    rows, precision = [], options.precision
    for inputs, outputs in WIDTHS:
        count = max(1, 2**25 // (inputs * outputs))
        plain = [nn.Linear(inputs, outputs) for _ in range(count)]
        converted = [LAYERS[precision](each) for each in plain]
        for n in ROWS:
            x = torch.randn(n, inputs)
            each = max(1, 256 // count // n)

            def many(made: list[nn.Module], x: torch.Tensor = x, each: int = each) -> float:
                with torch.inference_mode():
                    for _ in range(each):
                        for layer in made:
                            layer(x)
                return each * len(made)

            ways = {"float32": partial(many, plain), precision: partial(many, converted)}
            times = in_turn(ways, options.rounds, clock)
            microseconds = f"{1e6 * times.median('float32'):.0f}"
            rows.append([f"{inputs} x {outputs}", str(n), microseconds, times.ratio("float32", precision)])
    table(["layer", "rows", "float32 [us]", f"float32 / {precision}"], rows)


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("--size", choices=["base", "small"], default="base")
    made.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    made.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    made.add_argument("--precision", choices=list(CONVERTED), default="int8")
    made.add_argument("--layers", action="store_true", help="single layers")
    options = made.parse_args()
    clock = apply(options)
    cpu = torch.backends.cpu.get_cpu_capability()
    amx = torch.cpu._is_amx_tile_supported()
    kind = fastest().__name__
    print(f"{cpu}, AMX {amx}, int8 by {kind}, torch {torch.__version__}")
    (layers if options.layers else systems)(options, clock)


if __name__ == "__main__":
    main()
