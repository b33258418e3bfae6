"""The plain way through a stack of decoder blocks, for all systems that differ elsewhere.

Shapes: R rows, T tokens, D model.
"""

from torch import Tensor, nn

from cotext.layers.attention import CrossAttention
from cotext.layers.blocks import DecoderBlock, Stack
from cotext.layers.ragged import Ragged
from cotext.layers.state import DecoderState


def decode_rows(
    blocks: Stack[DecoderBlock[CrossAttention]],
    norm: nn.Module,
    x_RTD: Tensor,
    sentence: Tensor,
    rank: Tensor,
    state: DecoderState,
) -> Tensor:
    """Embedded decoder inputs [R, T, D] -> hidden states; on an open state they follow those before them.

    Self-attention looks back over the whole row, cross-attention at all that the state has of the source.
    `sentence` and `rank` [R, T] are those of the inputs.
    """
    own = state.reach(sentence.size(1), sentence.device)
    # Only complete rows have padding that is worth leaving out.
    ragged = None if state.caches else Ragged.of(sentence)
    x = x_RTD if ragged is None else ragged.pack(x_RTD)
    for i, block in enumerate(blocks):
        x = block(x, (own, ragged, state.cache(i)), (state.cross[i], state.cross_mask, ragged))
    if state.caches:
        state.step(sentence, rank)
    x = norm(x)
    return x if ragged is None else ragged.unpack(x)
