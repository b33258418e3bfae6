"""Speed of scoring a contrastive suite: each candidate alone, all in batches, and with shared prefixes.

    python -m benchmarks.speed.contrastive SUITE [--size small] [--recipe NAME] [--examples 400]

Random weights of the recipe, subwords learned from the suite itself. The three ways take turns in one
process, the way one by one on a part of the examples; a ratio is that of the mean times per candidate of one
round, and the table shows medians. Before anything is timed, scores are checked to be the same. Then what the
controls cost: the same examples in their own context, in none and in that of other documents.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from benchmarks.speed.harness import apply, parser, table
from cotext.config.recipe import load_config
from cotext.data.documents import ParallelDocument
from cotext.data.suite_files import read_suite
from cotext.data.tokenizer import TokenizerSettings, train_tokenizer
from cotext.evaluation.studies.contrastive.contrastive import ForeignSentences, score_in_contexts
from cotext.models.build import build_model
from cotext.runtime.timing import Way, in_turn, spread
from cotext.translation.candidate_scoring import CandidateSet, score_candidates
from cotext.translation.scorer import SentenceScore
from cotext.translation.translator import DocumentTranslator

Scores = list[list[SentenceScore]]
Scoring = Callable[[DocumentTranslator, Sequence[CandidateSet]], Scores]


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


WAYS: dict[str, Scoring] = {
    "one by one": one_by_one,
    "batches": batches,
    "shared prefixes": score_candidates,
}


def main() -> None:
    made = parser(__doc__, rounds=3)
    made.add_argument("suite", type=Path)
    made.add_argument("--recipe", default="focused-concatenation/s2to2")
    made.add_argument("--size", default="small")
    made.add_argument("--vocabulary", type=int, default=8000)
    made.add_argument("--examples", type=int, default=400)
    made.add_argument("--alone", type=int, default=40, help="Examples that are scored one by one.")
    arguments = made.parse_args()
    clock = apply(arguments)
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
    foreign = ForeignSentences.of(suite)
    ways: dict[str, Way] = {
        name: partial(candidates_of, way, translator, todo[name]) for name, way in WAYS.items()
    }

    def with_controls() -> float:
        score_in_contexts(translator, examples, foreign)
        return sum(len(c.candidates) for c in choices)

    ways["with controls"] = with_controls
    times = in_turn(ways, arguments.rounds, clock, warm_up=0)
    rows = [
        (
            name,
            times.rate(name, "{:.0f}"),
            *(spread(times.ratios(other, name)) for other in ("one by one", "batches")),
        )
        for name in ways
    ]
    table(("", "candidates a second", "against one by one", "against batches"), rows)
    longer = times.ratio("with controls", "shared prefixes")
    print(f"with controls: {longer} times the time of shared prefixes")


def candidates_of(way: Scoring, translator: DocumentTranslator, choices: Sequence[CandidateSet]) -> float:
    """Score; give the number of candidates."""
    way(translator, choices)
    return sum(len(c.candidates) for c in choices)


if __name__ == "__main__":
    main()
