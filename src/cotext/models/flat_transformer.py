"""Top layers of the current sentence (Flat-Transformer; Ma et al. 2020).

A source row is the context and the current sentence one after the other, told apart by a segment embedding.
The lower encoder blocks attend over the whole row; the top blocks, and the decoder, have the states of the
current sentence alone, which by then carry what they took from the context:

    context current -> embedding -> lower blocks -> the current sentence's states -> top blocks -> decoder

Where several sentences of a row are current they all go on. The segment is a matter of context or current,
not of which sentence it is; positions are those of the row.

Shapes: B rows, S source tokens, D model.
"""

from cotext.layers.multi_head import RowSpan


class CurrentSpan(RowSpan):
    """Current sentences alone, from the first layer with this span on; in an encoder only."""

    current_only = True
