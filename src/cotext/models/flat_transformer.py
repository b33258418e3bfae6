"""Top layers of the current sentence (Flat-Transformer; Ma et al. 2020).

A source row is the context followed by the current sentence, distinguished by segment embeddings. Lower
encoder blocks attend over the whole row. Top blocks and the decoder get only the states of the current
sentence, which by then contain information from the context:

    context current -> embedding -> lower blocks -> states of the current sentence -> top blocks -> decoder

If several sentences of a row are current, all of them are kept. The segment only distinguishes context from
current sentences; positions are counted over the row.

Shapes: B rows, S source tokens, D model.
"""

from cotext.layers.multi_head import RowSpan


class CurrentSpan(RowSpan):
    """Only current sentences, from the first layer with this span on."""

    current_only = True
