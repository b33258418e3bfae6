"""The effect of a clue on the choice that depends on it, in nats; finer than accuracy.

    python -m benchmarks.experiments.clue_weight RUN SUITE.json OUT.json [GROUPS]

The two members of a group of the controlled corpus differ only in the clue and have the same two
candidates. For each member, take the log-odds of the first candidate. The *weight* of the clue is half of
their difference, positive if the clue favours its own candidate. The *preference* of the run is the
absolute value of their mean. Both members are right if the weight is larger than the preference. OUT.json
has both by distance, as means over GROUPS groups (default: 30).
"""

import json
import sys
from collections import defaultdict
from itertools import islice
from pathlib import Path
from statistics import mean

from cotext.data.contrastive_suites import ContrastiveExample
from cotext.data.suite_files import read_suite
from cotext.translation.candidate_scoring import CandidateSet, score_candidates
from cotext.translation.open import open_scorer


def pairs_of(suite: Path, groups: int) -> list[tuple[ContrastiveExample, ContrastiveExample]]:
    """Return the members of `groups` groups of each distance; the suite must have two candidates each."""
    members = defaultdict(list)
    for example in read_suite(suite).examples:
        members[example.document].append(example)
    by_distance = defaultdict(list)
    for first, second in members.values():
        by_distance[first.distance].append((first, second))
    return [pair for pairs in by_distance.values() for pair in islice(pairs, groups)]


def main(run: str, suite: str, out: str, groups: str = "30") -> None:
    """Measure a run on a suite."""
    pairs = pairs_of(Path(suite), int(groups))
    sets = [CandidateSet(e.source, e.candidates, e.differing_sentences) for pair in pairs for e in pair]
    scores = score_candidates(open_scorer(Path(run)).translator, sets)
    odds = [first.log_probability - second.log_probability for first, second in scores]
    weights, preferences = defaultdict(list), defaultdict(list)
    for (first, _), here, there in zip(pairs, odds[::2], odds[1::2], strict=True):
        side = 1 if first.correct == 0 else -1
        weights[str(first.distance)].append(side * (here - there) / 2)
        preferences[str(first.distance)].append(abs(here + there) / 2)
    figures = {
        name: {distance: mean(values) for distance, values in found.items()}
        for name, found in (("weight", weights), ("preference", preferences))
    }
    Path(out).write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
