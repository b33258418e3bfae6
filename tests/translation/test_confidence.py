"""Confidence of sentences, and which of a file are marked."""

import math

import pytest

from cotext.data.documents import Document
from cotext.files.bilingual_page import least_sure
from tests.tiny import PlainWordTokenizer, random_translator, tiny_config, window


def test_it_is_the_mean_probability_of_the_tokens_that_were_written() -> None:
    tokenizer = PlainWordTokenizer(["a", "b", "c", "d", "e", "f"])
    translator = random_translator(tiny_config(view=window(1)), tokenizer)
    [(_, found)] = translator.translate([Document("0", ("a b", "", "c d e", "c"))], taken={0: {3: "f"}})
    sure = found.confidences
    assert (sure[1], sure[3]) == (None, None)
    for j in (0, 2):
        value = sure[j]
        assert value is not None
        assert 0 < value <= 1
        assert value ** found.tokens[j] == pytest.approx(math.exp(found.log_probabilities[j]))


def test_a_tenth_is_marked_the_lowest_and_of_equals_the_first() -> None:
    values = [0.5, None, *(0.9 - n / 100 for n in range(17)), 0.4, 0.95]
    assert [values[j] for j, low in enumerate(least_sure(values)) if low] == [0.5, 0.4]
    assert least_sure([0.3] * 10) == [True, *[False] * 9]
    for few in ([], [None] * 30, [0.1] * 9):
        assert least_sure(few) == [False] * len(few)
