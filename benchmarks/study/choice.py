"""A choice that real text makes: the reference as it is, and as it would be otherwise."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen in a sentence of a document, by its number from 0.

    `right` is the reference, `wrong` are the same sentence with another choice; `distance` counts the
    sentences back to the nearest clue, None where the rule does not find it.
    """

    phenomenon: str
    sentence: int
    right: str
    wrong: tuple[str, ...]
    distance: int | None
    tags: dict[str, str]
