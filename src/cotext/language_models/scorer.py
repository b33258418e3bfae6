"""Targets scored by a language model behind an API: the log-probabilities of exactly their characters."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Final

from cotext.language_models.client import Client
from cotext.language_models.prompts import prompt_of
from cotext.language_models.scored_tokens import TargetToken, Token, UntoldError, target_tokens
from cotext.language_models.scoring_offer import Messages, Way, told_tokens
from cotext.runtime.errors import CotextError

BLANK: Final = " "


@dataclass(frozen=True, slots=True)
class ForcedTarget:
    """A target after a prompt: the messages of a chat, and what of the answer stands before the target."""

    messages: tuple[
        tuple[tuple[str, str], ...], ...
    ]  # of each message the items, so that equal ones are found
    begins: str
    target: str

    @classmethod
    def of(cls, messages: Messages, begins: str, target: str) -> "ForcedTarget":
        """From messages as they are sent.

        A blank between the beginning of the answer and the target is scored with the target: tokenizers
        make it part of the word that follows.
        """
        kept = begins.rstrip(BLANK)
        return cls(tuple(tuple(each.items()) for each in messages), kept, begins[len(kept) :] + target)


class PromptScorer:
    """A language model that scores targets after its prompts; equal ones are asked for once."""

    def __init__(self, client: Client, way: Way) -> None:
        self.client, self.endpoint, self.way = client, client.endpoint, way
        self.prompt = prompt_of(client.endpoint)

    def score(
        self, asked: Sequence[ForcedTarget], on_scored: Callable[[int], None] = lambda count: None
    ) -> list[tuple[TargetToken, ...]]:
        """The tokens of every target with their log-probabilities; none of a target without a character.

        Raises:
            NoBoundaryError: a target that begins within a token.
            CotextError: no answer; what was answered before is kept.
        """
        counts = Counter(asked)
        found: dict[ForcedTarget, tuple[TargetToken, ...]] = {
            each: () for each in counts if not each.target.strip()
        }
        on_scored(sum(counts[each] for each in found))
        threads = ThreadPoolExecutor(self.endpoint.at_once)
        try:
            waiting = {threads.submit(self._scored, each): each for each in counts if each not in found}
            for done in as_completed(waiting):
                each = waiting[done]
                found[each] = done.result()
                on_scored(counts[each])
        except CotextError:
            self.client.stop()  # whoever waits to send again ends; answers that are under way are kept
            raise
        except BaseException:
            self.client.close()  # an interrupt waits for no answer
            raise
        finally:
            threads.shutdown(cancel_futures=True)
        return [found[each] for each in asked]

    def _scored(self, asked: ForcedTarget) -> tuple[TargetToken, ...]:
        """The tokens of one target; what is told without them is asked for again, as often as is set."""
        for repeat in range(self.endpoint.repeats):
            try:
                return self._told(asked, repeat)
            except UntoldError:
                continue
        return self._told(asked, self.endpoint.repeats)

    def _told(self, asked: ForcedTarget, repeat: int) -> tuple[TargetToken, ...]:
        messages = [dict(each) for each in asked.messages]

        def told(begins: str) -> list[Token]:
            return told_tokens(self.client, self.endpoint, self.way, messages, begins, repeat)

        return target_tokens(told(asked.begins + asked.target), asked.target, lambda: told(asked.begins))
