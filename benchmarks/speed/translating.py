"""Speed of translation: systems with random weights in turn on the same random documents.

    python -m benchmarks.speed.translating [--systems GROUP | 'RECIPE key=value ...' | RIVAL ...]
        [--size base] [--shapes 1x1x25 32x1x25 1x12x25] [--beam 1] [--device cuda]

A shape is documents x sentences x tokens: 32x1x25 is a batch of 32 sentences of 25 tokens, 1x12x25 a
document of 12 sentences. Every output is as long as its source. The table has sentences a second, and the
speed over that of the first system in the same round (above 1: faster), as medians with the smallest and
the largest.

RIVAL: `marian` (Hugging Face), `ctranslate2` and `ctranslate2-int8`, with the weights of our sentence model
on all sentences at once. Before they are timed, greedy outputs in float32 must be equal to ours.
"""

import torch

from benchmarks.speed.harness import Way, apply, parser, table, timed
from benchmarks.speed.systems import (
    RIVALS,
    Translate,
    add_options,
    config_of,
    named,
    numbers,
    random_documents,
    translations,
    translator_of,
)
from cotext.data.documents import Document
from cotext.runtime.progress import Clock, spread

WARM_UP = (2, 2, 5)  # a shape


def settings(beam: int) -> tuple[str, ...]:
    """Return settings of decoding with which outputs are as long as their sources."""
    return f"decode.beam={beam}", "decode.max_ratio=1", "decode.max_extra=0"


def opened(name: str, size: str, beam: int, threads: int, device: torch.device) -> Translate:
    """Return the function that translates with a system, or with another program."""
    if name not in RIVALS:
        return translations(translator_of(config_of(name, size, *settings(beam)), device))
    from benchmarks.speed import rivals

    return rivals.translate_by(name, rivals.sentence_config(size, *settings(beam)), threads, device)


def require_equal(names: list[str], size: str, threads: int, device: torch.device) -> None:
    """Stop the benchmark unless other programs write greedily what ours writes."""
    from benchmarks.speed import rivals

    documents = random_documents(*WARM_UP)
    config = rivals.sentence_config(size, *settings(1))
    expected = translations(translator_of(config, device))(documents)
    for name in names:
        found = rivals.translate_by(name, config, threads, device)(documents)
        # The last token of ours is the end of the sentence.
        shortened = [row[: len(own)] for row, own in zip(found, expected, strict=True)]
        if shortened != expected:
            raise SystemExit(f"{name} writes {shortened} where we write {expected}")


def rows(
    ways: dict[str, Translate], documents: list[Document], rounds: int, clock: Clock
) -> list[tuple[str, ...]]:
    """Time the systems on some documents; return rows of the table."""
    sentences = sum(map(len, documents))

    def once(translate: Translate) -> Way:
        def way() -> float:
            translate(documents)
            return sentences

        return way

    times = timed({name: once(translate) for name, translate in ways.items()}, rounds, clock)
    first = next(iter(ways))
    rates = {name: [1.0 / seconds for seconds in times[name]] for name in ways}
    return [(name, spread(rates[name]), spread(times.ratios(first, name))) for name in ways]


def main() -> None:
    """Print a table for each shape."""
    made = parser(__doc__, rounds=3)
    add_options(made, ("1x1x25", "32x1x25", "1x12x25"), "DOCUMENTSxSENTENCESxTOKENS")
    made.add_argument("--beam", type=int, default=1)
    options = made.parse_args()
    device, clock = apply(options)
    names = named(options.systems)
    exact = [name for name in names if name in RIVALS and not name.endswith("int8")]
    if exact:
        require_equal(exact, options.size, options.threads, device)
    ways = {name: opened(name, options.size, options.beam, options.threads, device) for name in names}
    for shape in options.shapes:
        print(f"\n{options.size}, beam {options.beam}, {shape}")
        found = rows(ways, random_documents(*numbers(shape)), options.rounds, clock)
        table(("system", "sentences a second", "to the first"), found)


if __name__ == "__main__":
    main()
