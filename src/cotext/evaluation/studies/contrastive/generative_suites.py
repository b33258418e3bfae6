"""Generative suites with a run: has what it writes the expected form, and because of its context?

The tested sentence is translated as the last of its document, in the context of the system's own
translations. The controls are those of contrastive suites: the sentence alone (`none`), and after as many
sentences of another document (`foreign`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any, Final

from cotext.data.ctxpro import GenerativeExample, GenerativeSuite
from cotext.data.documents import Document
from cotext.evaluation.metrics.ctxpro import FormsFound, LastSentence, forms_found, render_forms_found
from cotext.evaluation.statistics.significance import McNemar, holm, mcnemar_by_document
from cotext.evaluation.studies.contrastive.contrastive import translated
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import render_p, render_rows
from cotext.translation.translator import DocumentTranslator

CONTEXTS: Final = ("true", "none", "foreign")
SEED: Final = 1  # of the sentences of other documents
_DRAWS: Final = 20


@dataclass(frozen=True, slots=True)
class FormsInContexts:
    """The forms that a system writes in each kind of context, its own first."""

    forms: dict[str, FormsFound]

    @property
    def tests(self) -> dict[str, McNemar]:
        """The true context against each of the controls, examples of a document flipped together."""
        first, *controls = self.forms
        own = self.forms[first]
        return {
            name: mcnemar_by_document(self.forms[name].right, own.right, own.documents) for name in controls
        }

    def as_dict(self) -> dict[str, Any]:
        """Everything, for a JSON file: the first context as if it were the only one, then the controls."""
        first, *controls = self.forms
        tests = self.tests
        corrected = holm([test.p_mid for test in tests.values()])
        return {
            **self.forms[first].as_dict(),
            **({"controls": {name: self.forms[name].as_dict() for name in controls}} if controls else {}),
            **{
                f"against_{name}": {**tests[name].as_dict(), "p_corrected": p}
                for name, p in zip(controls, corrected, strict=True)
            },
        }

    def render(self) -> str:
        """Plain text."""
        lines = [render_forms_found({f"{name} context": each for name, each in self.forms.items()})]
        tests = self.tests
        if tests:
            rows = [
                ("true context against", "difference", "95 % interval", "lost", "won", "p mid", "corrected")
            ]
            corrected = holm([test.p_mid for test in tests.values()])
            for (name, test), p in zip(tests.items(), corrected, strict=True):
                low, high = test.interval_95
                rows.append(
                    (
                        name,
                        f"{test.difference:+.2f}",
                        f"[{low:+.2f}, {high:+.2f}]",
                        f"{test.only_baseline}",
                        f"{test.only_system}",
                        render_p(test.p_mid),
                        render_p(p),
                    )
                )
            lines.append(render_rows(rows, left=1))
        lines.append("\n".join(each.signature for each in self.forms.values()))
        return "\n\n".join(lines)


def write_forms(
    translator: DocumentTranslator,
    suite: GenerativeSuite,
    contexts: Sequence[str],
    last: LastSentence,
    recipe: Mapping[str, str] | None = None,
    on_start: Callable[[int], None] = lambda count: None,
    on_sentences: Callable[[int], None] = lambda count: None,
) -> FormsInContexts:
    """Translate a suite in some of CONTEXTS, and look for the expected forms in the tested sentences.

    `last` takes of a translated sentence, which may be several, what is read; all of it as a rule. `on_start`
    hears how many sentences are to be translated, `on_sentences` how many more are.

    Raises:
        CotextError: a sentence longer than the system takes, before any work is done; foreign context of a
            suite of one document.
    """
    sources = {context: in_context(suite, context) for context in contexts}
    every = list(dict.fromkeys(source for each in sources.values() for source in each))
    translator.check(Document(str(n), source) for n, source in enumerate(every))
    on_start(sum(map(len, every)))
    written = dict(zip(every, translated(translator, every, on_sentences), strict=True))
    return FormsInContexts(
        {
            context: forms_found(
                suite,
                [written[source].sentences[-1] for source in each],
                last,
                {**(recipe or {}), "context": context},
            )
            for context, each in sources.items()
        }
    )


def in_context(suite: GenerativeSuite, context: str) -> list[tuple[str, ...]]:
    """The documents to translate in one of CONTEXTS, in the order of the suite."""
    if context == "true":
        return [example.source for example in suite.examples]
    if context == "none":
        return [example.source[-1:] for example in suite.examples]
    if len({example.document for example in suite.examples}) < 2:
        raise CotextError(
            f"{suite.name}: all examples are of one document, and foreign context is drawn from others; "
            "leave the controls out"
        )
    return [_in_foreign(example, suite.examples) for example in suite.examples]


def _in_foreign(example: GenerativeExample, examples: Sequence[GenerativeExample]) -> tuple[str, ...]:
    """The tested sentence after as many sentences as precede it, of those before one of another document.

    Where an example has fewer of them, others are drawn; the longest of a few draws is taken then.
    """
    wanted = len(example.source) - 1
    generator = Random(f"{SEED} {example.source}")
    best: tuple[str, ...] = ()
    for _ in range(_DRAWS):
        if len(best) == wanted:
            break
        start = generator.randrange(len(examples))
        others = chain(range(start, len(examples)), range(start))
        other = next(examples[n] for n in others if examples[n].document != example.document)
        best = max(best, other.source[:-1][-wanted:], key=len)
    return (*best, example.source[-1])
