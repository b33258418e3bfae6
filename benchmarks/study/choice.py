"""A choice in real text: the reference, and the same sentence with other words chosen."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice in one sentence of a document.

    Attributes:
        phenomenon: What is chosen, such as `pronoun`.
        sentence: Index of the sentence, from 0.
        right: The sentence of the reference.
        wrong: The same sentence with each other choice.
        distance: Number of sentences back to the nearest clue; None if the rule does not find it.
        tags: Further facts, such as the chosen form.
    """

    phenomenon: str
    sentence: int
    right: str
    wrong: tuple[str, ...]
    distance: int | None
    tags: dict[str, str]
