"""How documents are translated: the section `decode`."""

from typing import Annotated, Literal

from pydantic import Field

from cotext.config.fields import Closed, PositiveInt, Sentences

Precision = Literal["float32", "bfloat16", "float16", "int8"]


class DecodeConfig(Closed):
    """Beam search, and how documents are translated sentence after sentence."""

    beam: Annotated[int, Field(gt=0, le=1000, strict=True)] = 4
    """Hypotheses side by side; 1: greedy."""
    beam_per: Literal["document", "sentence"] = "document"
    """Of documents translated whole: hypotheses compete to the end of their piece, or to the end of every
    sentence, where the best one becomes the context of the next; the latter needs `bracket`."""
    nbest: Annotated[int, Field(gt=0, le=1000, strict=True)] = 1
    """Of a corpus that is translated: how many different translations of every sentence are written beside it
    (mbr.md), `beam` at most; the first is the translation. 1: none."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Scores are log-probabilities divided by length to this power."""
    align: Literal["constrained", "free"] = "constrained"
    """`constrained`: as many sentences as the source has, each with a word, whatever the model would write;
    `free`: sentences are recovered from the separators that the model writes, and missing ones stay empty."""
    target_context: Literal["prefix", "regenerate"] = "prefix"
    """`prefix` forces the translations already made and writes the current sentence alone; `regenerate`
    writes the whole window and keeps its last sentence, as the paper does."""
    before: Sentences | None = None
    """Of windows: sentences of context before the current one, on both sides; not given: `view.before`, as in
    training. Also of windows that are scored."""
    group_windows: Annotated[int, Field(gt=0, le=10_000, strict=True)] = 16
    """Of models that see other rows: how many consecutive windows of a document see each other."""
    schedule: Literal["sequential", "simultaneous"] = "sequential"
    """Of these windows: one after the other, each beside the finished translations of those before it, or all
    at once, beside what they have written so far; the latter needs `first_pass` where the target has
    context."""
    first_pass: str = ""
    """Run whose translations are the target context, instead of the system's own; `init`: that which training
    started from."""
    precision: Precision = "float32"
    """Of the large matrices of the model (speed.md). `int8`: fastest on a CPU; `bfloat16`: where the CPU
    multiplies in it, or on a GPU; `float16`: on a GPU alone."""
    shortlist: Annotated[int, Field(ge=0, le=100, strict=True)] = 0
    """Write only the tokens that go with those of the source, so many for each, and the most frequent ones
    (speed.md); 0: the whole vocabulary. Made by `cotext shortlist`."""
    source_language: str = ""
    """Of tokenizers with a symbol for each language: that of the source; else that of the run's data."""
    target_language: str = ""
    """Of these tokenizers: the language to translate into; else that of the run's data."""
    max_ratio: Annotated[float, Field(gt=0, le=20)] = 2.0
    """A sentence holds at most max_ratio times its source tokens, plus `max_extra`."""
    max_extra: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 20
    """See `max_ratio`."""
    max_source_tokens: Annotated[int, Field(gt=0, le=1_000_000, strict=True)] = 1024
    """A longer sentence is refused before any work is done; to score, so is a target sentence that is longer
    than what would be written for one of so many."""
    max_tokens: PositiveInt = 8000
    """Of a batch being decoded, beams included."""
