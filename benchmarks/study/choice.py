"""A choice in real text: the reference, and the same sentence with other words chosen."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice in one sentence of a document."""

    phenomenon: str  # such as `pronoun`
    sentence: int  # index, from 0
    right: str  # the sentence of the reference
    wrong: tuple[str, ...]  # the same sentence with each other choice
    distance: int | None  # sentences back to the nearest clue; None if the rule does not find it
    tags: dict[str, str]  # such as the chosen form
