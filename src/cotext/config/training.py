"""What training minimises and how: the sections `loss` and `train`."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat

from cotext.config.fields import BelowOne, Closed, Count, Fraction, PositiveInt, Seed

Blended = Literal["positions", "score", "mean", "separators", "symbols"]


class LossConfig(Closed):
    """What training minimises."""

    name: Literal["cross_entropy", "glancing"] = "cross_entropy"
    """File in `cotext/losses`; `glancing` for models that write all at once."""
    label_smoothing: BelowOne = 0.1
    """Probability mass spread over the vocabulary."""
    context_discount: Fraction = 1.0
    """Weight of labels of context sentences; 1: like all others."""
    glancing: tuple[Fraction, Fraction] = (0.5, 0.3)
    """Of the places that are wrong, the share revealed in training: at its start, and at its end."""


class LoraConfig(Closed):
    """Low-rank adaptation (Hu et al. 2022), where training starts from another run."""

    rank: Annotated[int, Field(ge=0, le=65_536, strict=True)] = 0
    """Where training starts from another run: train corrections of this rank to the matrices of linear layers
    that come from there, and what is new in the model, and nothing else. Models are saved with them. 0: train
    all weights. Usual: 8 to 64."""
    alpha: Annotated[float, Field(gt=0, le=65_536)] = 16.0
    """The corrections count `alpha / rank` times."""


class TrainConfig(Closed):
    """Optimiser, schedule, validation and checkpoints."""

    init: str = ""
    """Run whose weights training starts from (`--init RUN`); `required` in a recipe that needs one."""
    init_parts: Literal["all", "encoder"] = "all"
    """What starts from them: all that fits, or all but what is the decoder's alone; embeddings are shared."""
    init_copies: bool = True
    """Where one of them has two counterparts, as in G-Transformer's local and global attention, both start
    from it; if not, the first alone, and the other at random. With `model.neutral_start` both always."""
    init_architecture: Literal["auto", "recipe", "run"] = "auto"
    """Whose sizes, norms, activation, kind of positions and output layer the model has: those of the recipe
    or of the run that training starts from. `auto`: of the run where it is an import, or has its own from
    one; else of the recipe."""
    blend: tuple[Blended, ...] | None = None
    """What cannot begin without effect, and comes into force by and by: `positions`, none at the input where
    the other run has them; `score`, rotary or ALiBi; `mean`, in front of the row; `separators` and `symbols`,
    as what the output layer may predict (further separators, numbers of sentences). Not given: all of it that
    the other run does not have, where `model.neutral_start` is true, else nothing."""
    blend_updates: Count | None = None
    """Over how many updates it comes into force, in proportion. Outside training it is in force. Not given:
    over the warm-up."""
    fresh_rate: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Learning rate of parameters that have nothing to start from there, as a multiple of `learning_rate`;
    low-rank corrections are among them."""
    lora: LoraConfig = LoraConfig()
    seed: Seed = 1
    """Of initial weights, dropout and the order of the data."""
    max_updates: PositiveInt = 100_000
    """Optimiser steps."""
    max_epochs: Count = 0
    """Epochs after which training ends, if `max_updates` does not end it before; 0: no limit. Schedules go by
    `max_updates`."""
    max_cpu_minutes: NonNegativeFloat = 0.0
    """Processor time of updates and their batches, summed over threads and processes, after which training
    ends, if nothing else ends it before; 0: no limit. Validation and checkpoints do not count. Schedules go
    by `max_updates`."""
    max_tokens: PositiveInt | Literal["auto"] = 16_000
    """Of a batch on one process: rows times the longer side, padding included. `auto`: as many as memory
    holds, found when training begins and noted in the run; learning rate and warm-up stay as they are."""
    checkpoint_activations: bool = False
    """Keep the inputs of layers alone for the backward pass, and compute what is inside them once more: the
    same numbers in less memory and about a third more time."""
    order: Literal["shuffled", "documents"] = "shuffled"
    """Of the instances in a batch: `shuffled` ones of like length, or consecutive ones of a document."""
    weight_by: str = ""
    """File with a weight for every training sentence, made by `cotext select --weights`: its labels, current
    or context, count so many times; divided by the mean over all labels. Empty: all count alike."""
    weights_digest: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = ""
    """Filled in: SHA-256 of that file."""
    context: Literal["own", "foreign"] = "own"
    """Sentences around the current one: its own, or as a control those of another document."""
    word_dropout: BelowOne = 0.0
    """Share of the words of source and target input that training hides, as unknown words; labels stay."""
    word_dropout_epochs: Count = 0
    """For how many epochs; afterwards all words are seen. 0: always."""
    position_offset: Annotated[int, Field(ge=0, le=50_000, strict=True)] = 0
    """Training moves the positions of a row by a number drawn from 0 to this one, those of source and target
    apart, so that what is learned does not hang on where a row begins (Kiyono et al. 2021)."""
    accumulate: Annotated[int, Field(gt=0, le=10_000, strict=True)] = 1
    """Batches per update."""
    learning_rate: Annotated[float, Field(gt=0)] = 7e-4
    """At the end of the warm-up, its peak."""
    warmup_updates: Count = 4000
    """Linear rise; afterwards the rate falls with the inverse square root."""
    adam_betas: tuple[BelowOne, BelowOne] = (0.9, 0.98)
    """Decay rates of Adam's moments."""
    adam_epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-9
    """Added to the root of Adam's second moment (Vaswani et al. 2017, section 5.3)."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled from the gradient."""
    clip_norm: NonNegativeFloat = 1.0
    """Largest gradient norm; 0: no limit."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of matrix products; weights, sums and losses stay fp32. `bf16` pays on a GPU, and on a CPU that has
    instructions for it (AMX, AVX512-BF16); `fp16` is for GPUs without. In `fp32`, GPUs multiply in TF32."""
    shard_model: bool = False
    """Divide weights, gradients and Adam's moments among processes, for models too large for one device."""
    validate_every: PositiveInt | Literal["epoch"] = 1000
    """Updates between validations, or `epoch`: one after each; a checkpoint is written at each."""
    validate_bleu: bool = True
    """Translate development documents (greedily) at every validation."""
    validate_documents: PositiveInt = 50
    """How many of them."""
    best_by: Literal["loss", "bleu"] = "loss"
    """What makes a checkpoint the best; `loss` is that of the current sentences, per token."""
    patience: Count = 12
    """Validations without a better one before training stops; 0: never."""
    keep: PositiveInt = 5
    """Most recent checkpoints kept, beside those that averaging needs."""
    average: PositiveInt = 5
    """Checkpoints averaged into the final model, unless the development set prefers the best of them; 1: the
    best alone."""
    average_by: Literal["best", "last"] = "best"
    """Those closest to the best, itself included, or the last."""
    log_every: PositiveInt = 100
    """Updates between reports."""
    pool_tokens: PositiveInt = 2_000_000
    """Tokens of documents read ahead, to shuffle and to bucket by length."""
    threads: Annotated[int, Field(ge=0, le=1024, strict=True)] = 0
    """Per process on the CPU, never more than there are cores; 0: one for models narrower than 256, else all
    cores."""

    @property
    def batch_tokens(self) -> int:
        """`max_tokens` of a run, which is settled."""
        assert self.max_tokens != "auto"
        return self.max_tokens
