"""Systems that decide contrastive suites by rules: what they choose, and how sure they are."""

from collections.abc import Callable, Sequence
from random import Random

from cotext.data.contrastive_suites import ContrastiveExample, ContrastiveSuite
from cotext.evaluation.metrics.contrastive import CONTEXTS, Reading, Readings
from cotext.evaluation.studies.contrastive.decisions import Decisions

FORMS = ("er", "sie", "es")
# What a system chooses of FORMS, and the log-probability of the right candidate.
Rule = Callable[[str, str, Random], tuple[str, float]]


def natural_suite(
    counts: dict[str, int], name: str = "contrapro-ctx1", distance: int | None = 1, per_document: int = 1
) -> ContrastiveSuite:
    """As a suite of real texts: some forms are right more often than others."""
    forms = [form for form, count in counts.items() for _ in range(count)]
    examples = tuple(
        ContrastiveExample(
            id=str(number),
            phenomenon="pronoun",
            distance=distance,
            source=(f"the thing {number} is new .", f"it is {number} ."),
            candidates=tuple((f"neu {number} .", f"{form} ist {number} .") for form in FORMS),
            correct=FORMS.index(right),
            document=f"d{number // per_document}",
        )
        for number, right in enumerate(forms)
    )
    return ContrastiveSuite(name, "en", "de", examples)


UNBALANCED = natural_suite({"sie": 120, "es": 60, "er": 20})


def dashes(context: str, right: str, random: Random) -> tuple[str, float]:
    """Writes dashes whatever it reads: `es` without context, and `sie` in any, which is often right."""
    prefers = "es" if context == "none" else "sie"
    chosen = prefers if random.random() < 0.97 else random.choice(FORMS)
    return chosen, -9.0 + random.gauss(0, 0.01)


def reader(context: str, right: str, random: Random) -> tuple[str, float]:
    """Takes the form from its true context nine times of ten, and guesses without."""
    if context == "true" and random.random() < 0.9:
        return right, -0.5 + random.gauss(0, 0.1)
    return random.choice(FORMS), -1.5 + random.gauss(0, 0.1)


def guesser(context: str, right: str, random: Random) -> tuple[str, float]:
    """Knows nothing."""
    return random.choice(FORMS), -1.5 + random.gauss(0, 0.1)


def decided(suite: ContrastiveSuite, rule: Rule, controls: bool = True, seed: int = 0) -> Decisions:
    """The decisions of a system that follows a rule."""
    readings = readings_of(suite.examples, rule, seed)
    signature = f"suite:{suite.name}|tie:wrong|score:sum"
    right = dict(readings.by_context["true"].right)
    return Decisions(suite.name, signature, right, {}, readings if controls else None)


def readings_of(examples: Sequence[ContrastiveExample], rule: Rule, seed: int = 0) -> Readings:
    by_context = {}
    for context in CONTEXTS:
        random = Random(f"{seed} {context}")
        right, nats = {}, {}
        for example in examples:
            form = example.candidates[example.correct][-1].split()[0]
            chosen, log_probability = rule(context, form, random)
            right[example.id], nats[example.id] = chosen == form, log_probability
        by_context[context] = Reading(right, nats)
    return Readings(by_context, dict.fromkeys(by_context["true"].right, 3))
