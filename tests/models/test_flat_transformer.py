"""Flat-Transformer: context reaches the current sentence through the lower encoder layers alone."""

import torch

from cotext.data.batch import Instance, make_batch
from cotext.models.build_views import build_view, special_symbols
from tests.layers.layouts import layout
from tests.tiny import PlainWordTokenizer, random_model, tiny_config, window

TOKENIZER = PlainWordTokenizer(["the", "cat", "sat", "on", "a", "mat", "it", "saw", "again"])
DOCUMENT = [[4, 5, 6], [7], [8, 9, 4, 5, 7, 12], [5, 5]]


@torch.no_grad()
def test_top_layers_by_hand() -> None:
    """Row by row: lower block over all, then upper block over the current tokens, at the row's positions."""
    top = {"encoder_layers": 2, "segments": "current", "encoder": {"top": {"layers": 1, "span": "current"}}}
    config = tiny_config(model=top, view={**window(2, after=1), "target_before": 0})
    windows = build_view(config.view).split([len(s) for s in DOCUMENT], [1] * len(DOCUMENT))
    rows = [Instance(0, w, [DOCUMENT[j] for j in w.source], [[9] for _ in w.target]) for w in windows]
    model = random_model(config, TOKENIZER)
    source = make_batch(rows, special_symbols(TOKENIZER, config.view)).source
    state = model.encode(source)
    lower, upper = model.encoder
    for i in range(len(DOCUMENT)):
        length = int((source.sentence[i] >= 0).sum())
        sentence = source.sentence[i : i + 1, :length]
        is_current = (sentence[0] >= source.current[i, 0]) & (sentence[0] < source.current[i, 1])
        row, current = layout(sentence, 16), layout(sentence[:, is_current], 16)
        assert model.embedding.segment is not None
        x = model.embedding.bare(source.tokens[i : i + 1, :length], "source")
        x = x + model.embedding.table(row.position)
        x = x + model.embedding.segment[(~is_current).long()]
        x = upper(lower(x, row)[:, is_current], current)
        wanted = model.decoder[0].cross.project(x, current)
        for got, want in zip(state.source.keys_values[0], wanted, strict=True):
            torch.testing.assert_close(got[i : i + 1, :, : x.size(1)], want, rtol=1e-9, atol=1e-9)
