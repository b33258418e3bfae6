"""How documents are translated: the section `decode`."""

from typing import Annotated, Literal

from pydantic import Field

from cotext.config.fields import Closed, Count, PositiveInt, Seed, Sentences

LengthPenaltyForm = Literal["power", "gnmt"]
Precision = Literal["float32", "bfloat16", "float16", "int8"]
EngineChoice = Literal["auto", "ctranslate2", "torch"]


class SamplingConfig(Closed):
    """How tokens are drawn at random, if translations are sampled."""

    temperature: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Log-probabilities are divided by it. Below 1, probable tokens become more probable."""
    top_k: Count = 0
    """Draw only from this number of the most probable tokens; 0: from all tokens."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Draw only from the most probable tokens: the smallest set whose probabilities sum to at least this
    value; 1: from all tokens."""
    seed: Seed = 1
    """Seed of the random numbers. With the same seed, the translation of a document depends only on its
    sentences."""


class DecodeConfig(Closed):
    """Beam search, and the order in which the sentences of a document are translated."""

    beam: Annotated[int, Field(gt=0, le=1000, strict=True)] = 4
    """Beam size; 1 is greedy search."""
    beam_per: Literal["document", "sentence"] = "document"
    """For documents translated as a whole. `document`: hypotheses compete until the end of the document (or
    chunk). `sentence`: they compete until the end of each sentence, and the best hypothesis becomes the
    context of the next sentence; needs `view.separators: bracket`."""
    nbest: Annotated[int, Field(gt=0, le=1000, strict=True)] = 1
    """Number of different translations of every sentence to write into an n-best list next to the output, at
    most `beam` (mbr.md); 1: no list."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 0.6
    """Exponent of the length penalty; 0: no penalty."""
    length_penalty_form: LengthPenaltyForm = "power"
    """Divisor of the log-probability of n tokens; n includes the end of sentence. `power`: n **
    `length_penalty`, as in fairseq. `gnmt`: ((5 + n) / 6) ** `length_penalty`, as in Wu et al. 2016 and
    Vaswani et al. 2017."""
    sampling: SamplingConfig | None = None
    """Draw translations at random instead of searching for the most probable ones: `{temperature: 1.0, top_k:
    0, top_p: 1.0, seed: 1}`; each key may be left out. Needs `beam: 1`. Default: search."""
    align: Literal["constrained", "free"] = "constrained"
    """`constrained`: search is forced to generate the number of sentences of the source, none of them empty.
    `free`: search has no such constraint; sentences are recovered from separators, and missing sentences
    are empty."""
    target_context: Literal["prefix", "regenerate"] = "prefix"
    """For windows with target context. `prefix`: the existing translations of context sentences are forced,
    and only the current sentence is searched. `regenerate`: the whole window is translated again, and its
    last sentence is kept, as in Lupo et al. 2022."""
    before: Sentences | None = None
    """For windows: number of context sentences before the current sentence, on both sides, in translation and
    scoring. Default: `view.before`, as in training."""
    group_windows: Annotated[int, Field(gt=0, le=10_000, strict=True)] = 16
    """For batch-level context: number of consecutive windows of a document that attend to each other."""
    schedule: Literal["sequential", "simultaneous"] = "sequential"
    """Order of the windows that attend to each other. `sequential`: one after the other; each attends to
    the finished translations of the windows before it. `simultaneous`: all at once; each attends to the
    partial translations of the others. This needs `first_pass` if the target has context."""
    first_pass: str = ""
    """Run whose translations are used as target context instead of the system's own; `init`: the run that
    training started from."""
    language_model: str = ""
    """For sentence models: run of a language model of target documents with the same tokenizer
    (monolingual.md). The pointwise mutual information of each sentence with the translations before it is
    added to its score, in translation and scoring."""
    precision: Precision = "float32"
    """Precision of the model's large matrices (speed.md). `int8`: fastest on a CPU. `bfloat16`: for GPUs, and
    CPUs with instructions for it. `float16`: for GPUs only."""
    engine: EngineChoice = "auto"
    """Program that runs the model and the search (speed.md). `auto`: CTranslate2 for single sentences on a
    CPU, if it is installed and supports the run and the settings, else PyTorch. `ctranslate2`: also for
    windows and documents; an error if it is not possible. `torch`: always PyTorch."""
    shortlist: Annotated[int, Field(ge=0, le=100, strict=True)] = 0
    """Restrict search to this number of most probable target tokens for each source token, and to the most
    frequent target tokens (speed.md). Needs the table of `cotext shortlist`. 0: the whole
    vocabulary."""
    scores: bool = True
    """Whether to compute the log-probabilities of translations. `false`: greedy search is slightly faster and
    gives the same translations (speed.md), but `--scores` and confidence are not available."""
    source_language: str = ""
    """For multilingual tokenizers: the source language. Default: the source language of the run's data."""
    target_language: str = ""
    """For multilingual tokenizers: the target language. Default: the target language of the run's data."""
    max_ratio: Annotated[float, Field(gt=0, le=20)] = 2.0
    """Length limit: a sentence has at most `max_ratio` times the tokens of its source, plus `max_extra`."""
    max_extra: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 20
    """See `max_ratio`."""
    max_source_tokens: Annotated[int, Field(gt=0, le=1_000_000, strict=True)] = 1024
    """Maximum length of a source sentence, in tokens. Longer sentences are reported as an error before
    translation begins. In scoring, target sentences longer than the length limit for such a source (see
    `max_ratio`) are errors, too."""
    max_tokens: PositiveInt = 8000
    """Batch size in tokens while decoding, beams included."""
