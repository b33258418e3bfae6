"""Generative suites with a run: does the translation have the expected form, and because of context?

The tested sentence is translated as the last of its document, in the context of the system's own
translations. The controls are those of contrastive suites: the sentence alone (`none`), and after the same
number of sentences of another document (`foreign`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from random import Random
from typing import Any, Final

from cotext.data.ctxpro import GenerativeExample, GenerativeSuite
from cotext.data.documents import Document
from cotext.evaluation.metrics.ctxpro import FormsFound, LastSentence, forms_found, render_forms_found
from cotext.evaluation.statistics.significance import McNemar, holm, mcnemar_by_document
from cotext.evaluation.studies.contrastive.contrastive import translated
from cotext.evaluation.studies.contrastive.decisions import mcnemar_cells
from cotext.runtime.errors import CotextError
from cotext.runtime.tables import render_p, render_rows
from cotext.translation.translator import DocumentTranslator

CONTEXTS: Final = ("true", "none", "foreign")
SEED: Final = 1  # for drawing sentences of other documents
_DRAWS: Final = 20


@dataclass(frozen=True, slots=True)
class FormsInContexts:
    """The forms that a system generates in each kind of context, the true context first."""

    forms: dict[str, FormsFound]

    @property
    def tests(self) -> dict[str, tuple[McNemar, float]]:
        """Test the true context against each control, by document; return the tests and corrected p."""
        true, *controls = self.forms.values()
        tests = [mcnemar_by_document(control.right, true.right, true.documents) for control in controls]
        corrected = holm([test.p_mid for test in tests])
        return dict(zip([*self.forms][1:], zip(tests, corrected, strict=True), strict=True))

    def as_dict(self) -> dict[str, Any]:
        """Return everything for a JSON file: the first context at the top level, then the controls."""
        first, *controls = self.forms
        return {
            **self.forms[first].as_dict(),
            **({"controls": {name: self.forms[name].as_dict() for name in controls}} if controls else {}),
            **{
                f"against_{name}": {**asdict(test), "p_corrected": p}
                for name, (test, p) in self.tests.items()
            },
        }

    def render(self) -> str:
        lines = [render_forms_found({f"{name} context": forms for name, forms in self.forms.items()})]
        if tests := self.tests:
            header = (
                "true context against",
                "difference",
                "95 % interval",
                "lost",
                "won",
                "p mid",
                "corrected",
            )
            rows = [
                (name, *mcnemar_cells(test), render_p(test.p_mid), render_p(p))
                for name, (test, p) in tests.items()
            ]
            lines.append(render_rows([header, *rows], left=1))
        lines.append("\n".join(forms.signature for forms in self.forms.values()))
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

    `last` selects the part of a translated sentence that is searched, usually all of it. `on_start` is called
    with the number of sentences to translate, `on_sentences` with the number of newly translated ones.

    Raises:
        CotextError: a sentence longer than the system accepts, before any work is done; foreign context for a
            suite of one document.
    """
    sources = {context: in_context(suite, context) for context in contexts}
    every = list(dict.fromkeys(source for of_context in sources.values() for source in of_context))
    translator.check(Document(str(n), source) for n, source in enumerate(every))
    on_start(sum(map(len, every)))
    written = dict(zip(every, translated(translator, every, on_sentences), strict=True))
    return FormsInContexts(
        {
            context: forms_found(
                suite,
                [written[source].sentences[-1] for source in of_context],
                last,
                {**(recipe or {}), "context": context},
            )
            for context, of_context in sources.items()
        }
    )


def in_context(suite: GenerativeSuite, context: str) -> list[tuple[str, ...]]:
    """Return the documents to translate in one of CONTEXTS, in the order of the suite."""
    if context == "true":
        return [example.source for example in suite.examples]
    if context == "none":
        return [example.source[-1:] for example in suite.examples]
    if len({example.document for example in suite.examples}) < 2:
        raise CotextError(
            f"{suite.name}: all examples are from one document, but foreign context is drawn from other "
            f"documents;  "
            "remove --controls"
        )
    return [_in_foreign(example, suite.examples) for example in suite.examples]


def _in_foreign(example: GenerativeExample, examples: Sequence[GenerativeExample]) -> tuple[str, ...]:
    """Put sentences of another document before the tested sentence, as many as precede it in its own.

    They are those before the tested sentence of another example. If that one has fewer, others are drawn, and
    the longest of a few draws is used.
    """
    count = len(example.source) - 1
    generator = Random(f"{SEED} {example.source}")
    best: tuple[str, ...] = ()
    for _ in range(_DRAWS):
        if len(best) == count:
            break
        start = generator.randrange(len(examples))
        others = chain(range(start, len(examples)), range(start))
        other = next(examples[n] for n in others if examples[n].document != example.document)
        best = max(best, other.source[:-1][-count:], key=len)
    return (*best, example.source[-1])
