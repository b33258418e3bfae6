"""How documents are cut into instances: the section `view`."""

from typing import Annotated, Literal

from pydantic import Field

from cotext.config.fields import Closed, Count, PositiveInt, Sentences, Symbols


class CutConfig(Closed):
    """One way of cutting documents into instances."""

    kind: Literal["sentence", "window", "document", "cumulative"] = "sentence"
    """`sentence`: each alone. `window`: each with sentences around it. `document`: pieces of at most
    `max_tokens`, translated whole. `cumulative`: each with all those before it in its piece, on the source
    side alone."""
    before: Sentences = 0
    """Of a window: sentences of context before the current one; sKtoK has K - 1."""
    after: Sentences = 0
    """Of a window: sentences of context after the current one, source alone."""
    target_before: Sentences | None = None
    """Of a window: sentences of context on the target side; not given: as many as `before`."""
    parts: PositiveInt = 1
    """Of `document` and `cumulative`: equal parts that every piece is cut into."""


class SharedCut(CutConfig):
    """Further instances to train on."""

    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """How often an epoch shows each of them, on average."""


class ViewConfig(CutConfig):
    """How documents are cut into instances, and what stands between sentences."""

    max_tokens: Annotated[int, Field(gt=0, le=1_000_000, strict=True)] = 512
    """Per side of an instance: a longer window sheds context, a longer document is cut, a longer sentence is
    left out of training."""
    max_sentences: Count = 0
    """Of `document` and `cumulative`: per piece, beside `max_tokens`; 0: any number."""
    separators: Literal["plain", "indexed", "bracket", "numbered"] = "plain"
    """Between sentences: one symbol for all, one for every place in the row, a begin and an end around
    every sentence, or these with the number of the sentence in its document as the begin."""
    open_source: bool | None = None
    """With `bracket` and `numbered`: a begin before every source sentence too. Not given: as published, with
    it; without where `model.neutral_start` is true, since no sentence model has seen one."""
    indexed_separators: Symbols = 100
    """How many there are; the last one serves all later places too."""
    numbers: Symbols | Literal["corpus"] = "corpus"
    """How many numbers of sentences there are; `corpus`: as many as the longest training document has
    sentences, and never more. The last one serves all later sentences too."""
    mixed_with: Annotated[tuple[SharedCut, ...], Field(max_length=100)] = ()
    """Further ways of cutting to train on (`kind`, ..., `weight`); translation and validation use the
    first."""

    @property
    def bracketed(self) -> bool:
        """Whether every sentence has a begin and an end of its own."""
        return self.separators in ("bracket", "numbered")
