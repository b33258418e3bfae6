"""How documents are cut into instances: the section `view`."""

from typing import Annotated, Literal

from pydantic import Field

from cotext.config.fields import Closed, Count, PositiveInt, Sentences, Symbols


class CutConfig(Closed):
    """A way to cut documents into instances."""

    kind: Literal["sentence", "window", "document", "cumulative"] = "sentence"
    """What an instance is. `sentence`: one sentence. `window`: a sentence with sentences around it.
    `document`: a whole document, or a chunk of it of at most `max_tokens`. `cumulative`: a sentence with all
    sentences before it in its chunk, on the source side only."""
    before: Sentences = 0
    """For `window`: context sentences before the current one; sKtoK has K - 1."""
    after: Sentences = 0
    """For `window`: context sentences after the current one, on the source side only."""
    target_before: Sentences | None = None
    """For `window`: context sentences before the current one on the target side. Default: as many as
    `before`."""
    parts: PositiveInt = 1
    """For `document` and `cumulative`: number of equal parts into which every chunk is cut."""

    @property
    def target_context(self) -> int:
        """For `window`: number of context sentences before the current one on the target side."""
        return self.before if self.target_before is None else self.target_before


class MixedCut(CutConfig):
    """Additional instances to train on."""

    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """How often an epoch shows each of these instances, on average."""


class ViewConfig(CutConfig):
    """How documents are cut into instances, and the symbols between sentences."""

    max_tokens: Annotated[int, Field(gt=0, le=1_000_000, strict=True)] = 512
    """Largest number of tokens on a side of an instance. A longer window loses context sentences, a longer
    document is cut into chunks, and a longer sentence is left out of training."""
    max_sentences: Count = 0
    """For `document` and `cumulative`: maximum number of sentences in a chunk, in addition to `max_tokens`;
    0: no limit."""
    separators: Literal["plain", "indexed", "bracket", "numbered"] = "plain"
    """Symbols between sentences. `plain`: one symbol for all. `indexed`: a different symbol after the first,
    second, third ... sentence of the row. `bracket`: a begin and an end symbol around every sentence.
    `numbered`: the same, with the number of the sentence in its document as the begin symbol."""
    open_source: bool | None = None
    """With `bracket` and `numbered`: whether source sentences have a begin symbol, too. Default: yes, as
    published, but no if `model.neutral_start` is true: sentence models are trained without this symbol."""
    indexed_separators: Symbols = 100
    """With `indexed`: number of different symbols; all later sentences use the last symbol."""
    numbers: Symbols | Literal["corpus"] = "corpus"
    """With `numbered`: number of different sentence numbers. The maximum is the number of sentences of the
    longest training document (`corpus`: exactly this number). All later sentences use the last number."""
    mixed_with: Annotated[tuple[MixedCut, ...], Field(max_length=100)] = ()
    """Additional kinds of instances to train on, each with `weight`, `kind`, `before`, `after`,
    `target_before` and `parts`. Translation and validation use only the main kind."""

    @property
    def bracketed(self) -> bool:
        """Whether every sentence has its own begin and end symbol."""
        return self.separators in ("bracket", "numbered")
