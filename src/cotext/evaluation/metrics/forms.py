"""The words in which the candidates of a contrastive example differ: what is chosen between."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from cotext.data.contrastive_suites import ContrastiveExample

_HAN_AND_KANA: Final = "\\u3040-\\u30ff\\u3400-\\u9fff"
_WORD: Final = re.compile(f"[{_HAN_AND_KANA}]|[^\\W{_HAN_AND_KANA}]+|[^\\w\\s]")

Form = tuple[str, ...]
CandidateSet = tuple[frozenset[Form], Form]


def words_of(sentence: str) -> Counter[str]:
    """Word counts of a sentence, case-folded.

    Words are runs of letters and digits, marks that are neither, and single characters of Chinese and
    Japanese.
    """
    return Counter(_WORD.findall(sentence.casefold()))


def forms_of(example: ContrastiveExample) -> list[Form]:
    """Of every candidate the words, sorted, that not all candidates have, in the sentences that differ.

    As in (er,), (sie,), (es,); two candidates that differ in case or order alone have the same.
    """
    differing = example.differing_sentences
    words = [sum((words_of(candidate[j]) for j in differing), Counter()) for candidate in example.candidates]
    common = words[0].copy()
    for each in words[1:]:
        common &= each
    return [tuple(sorted((each - common).elements())) for each in words]


def choice_of(example: ContrastiveExample) -> CandidateSet:
    """The forms that are to choose from, and the one that is right."""
    forms = forms_of(example)
    return frozenset(forms), forms[example.correct]


def balanced_weights(choices: Sequence[CandidateSet]) -> list[float]:
    """Weights of examples in balanced accuracy, which add up to 1.

    Balanced accuracy is the mean of the recalls of the forms that are right (Brodersen et al. 2010), among
    examples with the same forms to choose from (er, sie, es are one choice, ihn, sie, es another), and over
    these the mean, each counting by its examples. Whoever prefers one form whatever the context has the
    accuracy of guessing, however often that form happens to be right.
    """
    of_choice, of_form = Counter(forms for forms, _ in choices), Counter(choices)
    kinds = Counter(forms for forms, _ in of_form)
    return [of_choice[c[0]] / len(choices) / kinds[c[0]] / of_form[c] for c in choices]
