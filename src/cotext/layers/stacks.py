"""The plain way through encoder and decoder blocks, for all systems that differ elsewhere.

Shapes: B entries, S source tokens, R rows, T tokens, D model, H heads, K per head.
"""

from torch import Tensor, nn

from cotext.layers.blocks import DecoderBlock, EncoderBlock, Stack
from cotext.layers.kernels.packing import Ragged
from cotext.layers.masks import visible
from cotext.layers.multi_head import CrossAttention
from cotext.layers.state import DecoderState, SelfReach


def encode_rows(
    blocks: Stack[EncoderBlock],
    norm: nn.Module,
    x_BSD: Tensor,
    sentence: Tensor,
    readers: Stack[DecoderBlock[CrossAttention]],
) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None]:
    """Embedded source tokens [B, S, D] -> keys and values for the cross-attention of all readers, and a mask.

    Self-attention sees the whole row. `sentence` [B, S] is -1 on padding. Keys and values are [B, H, S, K],
    the mask [B, 1, 1, S], or None where nothing is padded.
    """
    mask, ragged = visible(sentence), Ragged.of(sentence)
    x = x_BSD if ragged is None else ragged.pack(x_BSD)
    for block in blocks:
        x = block(x, (SelfReach(mask), ragged))
    x = norm(x)
    return [block.cross.project(x, ragged) for block in readers], mask


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
