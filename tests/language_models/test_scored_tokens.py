"""The tokens of a target: exactly its characters, whatever a tokenizer makes of the text around it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotext.language_models.scored_tokens import NoBoundaryError, Token, UntoldError, target_tokens


def tokens(*texts: str) -> list[Token]:
    """Tokens with the log-probabilities -1, -2, ..., the first without one."""
    return [Token(text, -float(n) if n else None) for n, text in enumerate(texts)]


def never() -> Sequence[Token]:
    raise AssertionError("the prompt alone was asked for")


def found(texts: Sequence[str], target: str, prompt: Sequence[str] | None = None) -> list[float]:
    def alone() -> Sequence[Token]:
        return tokens(*(prompt or ()))

    scored = target_tokens(tokens(*texts), target, never if prompt is None else alone)
    return [token.log_probability for token in scored]


def test_the_last_tokens_that_are_the_target() -> None:
    assert found(["<s>", "Deutsch", ":", "\n", "Er", " geht", "."], "Er geht.") == [-4, -5, -6]
    assert found(["<s>", "[1]", " Er", " geht"], " Er geht") == [-2, -3]
    # The same words in the prompt are not the target.
    assert found(["Er", " geht", "\n", "Er", " geht"], "Er geht") == [-3, -4]


@pytest.mark.parametrize(
    ("texts", "target"),
    [
        (["Deutsch", ":", "\nEr", " geht"], "Er geht"),
        (["[1", "] Er", " geht"], " Er geht"),
        (["Deutsch:Er geht"], "Er geht"),
    ],
)
def test_a_token_over_the_boundary_is_refused(texts: Sequence[str], target: str) -> None:
    with pytest.raises(NoBoundaryError, match="holds the beginning of the target"):
        found(texts, target)


def test_tokens_of_another_text_are_refused() -> None:
    with pytest.raises(NoBoundaryError, match="do not spell"):
        found(["Deutsch", ":", "\n", "Sie", " geht"], "Er geht")
    # What a template puts behind the target.
    with pytest.raises(NoBoundaryError, match="do not spell"):
        found(["\n", "Er", " geht", "<|im_end|>"], "Er geht")
    with pytest.raises(NoBoundaryError, match="beginning"):
        found(["geht"], "Er geht")


def test_divided_characters_are_told_by_the_prompt_alone() -> None:
    # "Ü" in two tokens, which are shown as U+FFFD, or as nothing and the whole.
    assert found(["\n", "\ufffd", "\ufffd", "ber"], "Über", ["\n"]) == [-1, -2, -3]
    assert found(["\n", "", "Ü", "ber"], "Über", ["\n"]) == [-1, -2, -3]
    assert found(["\n", "Ü", "\ufffd", "\ufffd", "ber"], "ber", ["\n", "Ü", "\ufffd", "\ufffd"]) == [-4]
    # The end of the prompt is divided, and its tokens are others once the target follows.
    with pytest.raises(NoBoundaryError, match="others where"):
        found(["\n", "\ufffd", "\ufffdber"], "ber", ["\n", "\ufffd", "\ufffd"])
    with pytest.raises(NoBoundaryError, match="do not spell"):
        found(["\n", "\ufffd", "ben"], "Über", ["\n"])
    # Divided characters stand for one at least.
    with pytest.raises(NoBoundaryError, match="do not spell"):
        found(["\n", "\ufffd", "ber"], "ber", ["\n"])


def test_a_target_without_log_probability_is_refused() -> None:
    with pytest.raises(UntoldError, match="None"):
        found(["Er", " geht"], "Er geht")
    with pytest.raises(UntoldError, match="nan"):
        target_tokens([Token("x", None), Token("Er", float("nan"))], "Er", never)
    with pytest.raises(UntoldError, match=r"3\.0"):
        target_tokens([Token("x", None), Token("Er", 3.0)], "Er", never)
    assert target_tokens([Token("x", None), Token("Er", 0.001)], "Er", never)


@given(st.text("aeÜ \n", min_size=1), st.text("aeÜ \n", min_size=1), st.data())
def test_any_division_of_a_text_scores_the_target_or_is_refused(
    prompt: str, target: str, data: st.DataObject
) -> None:
    text = prompt + target
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1))))
    texts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    told = [Token(each, -1.0) for each in texts]
    if len(prompt) in cuts:
        scored = target_tokens(told, target, never)
        assert "".join(token.text for token in scored) == target
    else:
        with pytest.raises(NoBoundaryError):
            target_tokens(told, target, never)
