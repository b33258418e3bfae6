"""CoWord dropout hides source words of current sentences, and nothing else."""

import torch

from cotext.data.batch import Instance, hide_current_source
from cotext.data.build import special_symbols
from cotext.data.collate import make_batch
from cotext.data.views import Window
from tests.tiny import PlainWordTokenizer, tiny_config, window

TOKENIZER = PlainWordTokenizer([*"abcdefgh"])


def test_only_source_words_of_the_current_sentence_are_hidden() -> None:
    symbols = special_symbols(TOKENIZER, tiny_config(view=window(1)).view)
    row = Instance(0, Window(range(2), range(2), range(1, 2)), [[4, 5], [6, 7, 8]], [[9], [10, 11]])
    batch = make_batch([row], symbols)
    hidden = hide_current_source(batch, 0.999999, symbols, TOKENIZER.unk)
    source = batch.source
    is_word = (source.sentence == 1) & (source.tokens != TOKENIZER.eos)
    assert int(is_word.sum()) == 3
    assert torch.equal(hidden.source.tokens, torch.where(is_word, TOKENIZER.unk, source.tokens))
    assert hidden.target_input is batch.target_input
    assert torch.equal(hide_current_source(batch, 0.0, symbols, TOKENIZER.unk).source.tokens, source.tokens)
