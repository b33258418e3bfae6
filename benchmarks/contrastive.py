"""Speed of scoring a contrastive suite: each candidate alone, all in batches, and with shared prefixes.

    python -m benchmarks.contrastive SUITE [--size small] [--recipe NAME] [--examples 400] [--clock cpu]

Random weights of the recipe, subwords learned from the suite itself. The three ways take turns in one
process, the way one by one on a part of the examples; a ratio is that of the mean times per candidate of one
round, and the table shows medians. Before anything is timed, scores are checked to be the same. Then what the
controls cost: the same examples in their own context, in none and in that of other documents.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from cotext.analysis.contrastive_contexts import ForeignSentences, score_in_contexts
from cotext.config.recipe import load_config
from cotext.data.contrastive_suites import read_suite
from cotext.data.documents import ParallelDocument
from cotext.data.tokenizer import TokenizerSettings, train_tokenizer
from cotext.decoding.candidate_scoring import CandidateSet, score_candidates
from cotext.decoding.scorer import SentenceScore
from cotext.decoding.translator import DocumentTranslator
from cotext.models.build import build_model

Scores = list[list[SentenceScore]]


def one_by_one(translator: DocumentTranslator, choices: Sequence[CandidateSet]) -> Scores:
    return [
        [translator.score_sentences([(_document(c, candidate), c.compared)])[0] for candidate in c.candidates]
        for c in choices
    ]


def batches(translator: DocumentTranslator, choices: Sequence[CandidateSet]) -> Scores:
    todo = [(_document(c, candidate), c.compared) for c in choices for candidate in c.candidates]
    found = iter(translator.score_sentences(todo))
    return [[next(found) for _ in c.candidates] for c in choices]


def _document(choice: CandidateSet, candidate: Sequence[str]) -> ParallelDocument:
    return ParallelDocument("", tuple(choice.source), tuple(candidate))


WAYS: dict[str, Callable[[DocumentTranslator, Sequence[CandidateSet]], Scores]] = {
    "one by one": one_by_one,
    "batches": batches,
    "shared prefixes": score_candidates,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("suite", type=Path)
    parser.add_argument("--recipe", default="focused-concatenation/s2to2")
    parser.add_argument("--size", default="small")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--alone", type=int, default=40, help="Examples that are scored one by one.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    suite = read_suite(arguments.suite)
    texts = [s for e in suite.examples for side in (e.source, *e.candidates[:1]) for s in side]
    settings = TokenizerSettings(vocabulary=arguments.vocabulary, num_threads=1)
    tokenizer = train_tokenizer(texts[: 10 * arguments.vocabulary], settings)
    config = load_config(arguments.recipe, arguments.size)
    torch.manual_seed(1)
    model = build_model(config, tokenizer.vocabulary_size).eval()
    translator = DocumentTranslator(model, config, tokenizer, torch.device("cpu"))
    # From all over the suite, which may be sorted.
    step = max(1, len(suite.examples) // arguments.examples)
    examples = suite.examples[::step][: arguments.examples]
    choices = [CandidateSet(e.source, e.candidates, e.differing_sentences) for e in examples]
    alone = choices[: arguments.alone]
    todo = {name: alone if name == "one by one" else choices for name in WAYS}
    found = {name: way(translator, todo[name]) for name, way in WAYS.items()}
    worst = max(
        abs(a.log_probability - b.log_probability)
        for name in ("batches", "shared prefixes")
        for ours, theirs in zip(found["one by one"], found[name], strict=False)
        for a, b in zip(ours, theirs, strict=True)
    )
    print(
        f"{suite.name}: {len(choices)} examples, {sum(len(c.candidates) for c in choices)} candidates; "
        f"{arguments.recipe} {arguments.size}, {tokenizer.vocabulary_size} subwords, "
        f"{arguments.threads} thread(s); scores differ by {worst:.1e} nats at most"
    )
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    foreign = ForeignSentences.of(suite)
    controls = []
    for _ in range(arguments.rounds):
        start = clock()
        score_in_contexts(translator, examples, foreign)
        controls.append((clock() - start) / sum(len(c.candidates) for c in choices))
        for name, way in WAYS.items():
            start = clock()
            way(translator, todo[name])
            seconds[name].append((clock() - start) / sum(len(c.candidates) for c in todo[name]))
    for name, times in seconds.items():
        ratios = [a / b for a, b in zip(seconds["one by one"], times, strict=True)]
        beside = [a / b for a, b in zip(seconds["batches"], times, strict=True)]
        print(
            f"{name:16}  {1 / statistics.median(times):8.0f} candidates/s   "
            f"{statistics.median(ratios):5.1f} x one by one   {statistics.median(beside):5.2f} x batches"
        )
    longer = [a / b for a, b in zip(controls, seconds["shared prefixes"], strict=True)]
    print(
        f"{'with controls':16}  {1 / statistics.median(controls):8.0f} candidates/s   "
        f"{statistics.median(longer):5.2f} x the time of shared prefixes"
    )


if __name__ == "__main__":
    main()
