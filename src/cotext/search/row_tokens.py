"""The tokens of the rows of a batch, found again in what an attention shows of its weights.

Shapes: B rows, T tokens; primed where an attention sets them in another order.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from cotext.data.batch import Source
from cotext.layers.kernels.sdpa import TokenIndices
from cotext.layers.masks import is_current
from cotext.runtime.errors import CotextError

NOWHERE: Final = -1  # of a key that is no token of a row


@dataclass(frozen=True, slots=True)
class RowTokens:
    """The tokens of one side of a batch: where they stand, and in which sentence of the document."""

    sentence: Tensor  # [B, T] within the row, -1 on padding
    document: Tensor  # [B, T] within the document
    current: Tensor  # [B, T], True on tokens of sentences that the row answers for

    @classmethod
    def of(cls, sentence: Tensor, source: Source) -> "RowTokens":
        """The tokens of a side, given the sentence of each within its row, -1 on padding."""
        document = torch.where(sentence >= 0, sentence + source.first_sentence[:, None], NOWHERE)
        return cls(sentence, document, is_current(sentence, source.current))

    def places(self, shown: Tensor) -> Tensor:
        """Which tokens stand where an attention shows its real queries or keys: [B', T'], True = real.

        Attention over whole rows, over their current sentences alone, over those of all rows in a row, or
        over whole rows behind one more vector; in any case in order.

        Raises:
            CotextError: it is none of these.
        """
        real = self.sentence >= 0
        place = torch.arange(real.numel(), device=real.device).view_as(real)
        counts, found = shown.sum(dim=1), torch.full(shown.shape, NOWHERE, device=shown.device)
        for tokens in (real, self.current):
            if torch.equal(counts, tokens.sum(dim=1)) or (len(counts) == 1 and counts == tokens.sum()):
                found[shown] = place[tokens]
                return found
        if torch.equal(counts, real.sum(dim=1) + 1):
            behind = shown.clone()
            behind[torch.arange(len(shown)), shown.int().argmax(dim=1)] = False
            found[behind] = place[real]
            return found
        raise CotextError(
            f"attention over rows of {counts.tolist()} tokens, where those of the batch have "
            f"{real.sum(dim=1).tolist()}: which sentence they belong to cannot be told"
        )

    def queries(self, place: Tensor) -> Tensor:
        """The document's sentence of the tokens at these places, where they are current."""
        asks = torch.where(self.current, self.document, NOWHERE).flatten()
        return torch.where(place >= 0, asks[place.clamp(min=0)], NOWHERE)

    def keys(self, place: Tensor) -> Tensor:
        """The document's sentence of the tokens at these places."""
        return torch.where(place >= 0, self.document.flatten()[place.clamp(min=0)], NOWHERE)


def token_indices(weights_BHTS: Tensor, real_BT: Tensor, own: RowTokens, keys: RowTokens) -> TokenIndices:
    """The indices of the queries and keys of an attention that does not tell them.

    Raises:
        CotextError: as `RowTokens.places`.
    """
    visible = (weights_BHTS > 0) & real_BT[:, None, :, None]
    return TokenIndices(own.places(real_BT), keys.places(visible.any(dim=2).any(dim=1)))
