"""The callbacks of a training run."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class TrainingCallbacks:
    """Functions that training calls, on the main process alone.

    `on_update` and `on_validation` get the figures of `metrics.jsonl` as flat dictionaries, `on_message` a
    line of text. `on_start` gets the number of updates done by earlier processes of the same run; `on_stage`
    gets what happens between two updates, how much of it is done, and out of how much.
    """

    on_update: Callable[[dict[str, float]], None]
    on_validation: Callable[[dict[str, float]], None]
    on_message: Callable[[str], None]
    on_start: Callable[[int], None] = lambda update: None
    on_stage: Callable[[str, int, int], None] = lambda stage, done, total: None
