"""Loss and training settings: the sections `loss` and `train`."""

from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeFloat

from cotext.config.fields import BelowOne, Closed, Count, Fraction, PositiveInt, Seed

Blended = Literal["positions", "score", "mean", "separators", "symbols"]
# Validation metrics in `metrics.jsonl`, by the value of `train.best_by`. BLEU is maximised, losses minimised.
BEST_BY: Final = {"loss": "nll_current", "objective": "loss", "undiscounted": "undiscounted", "bleu": "bleu"}


class LossConfig(Closed):
    """The loss that training minimises."""

    name: Literal["cross_entropy", "glancing"] = "cross_entropy"
    """The loss: `cross_entropy`, or `glancing` for non-autoregressive models."""
    label_smoothing: BelowOne = 0.1
    """Label smoothing: probability mass spread over the vocabulary."""
    context_discount: Fraction = 1.0
    """Weight of context sentences in the loss; 1 is the weight of current sentences."""
    foreign_weight: NonNegativeFloat = 0.0
    """Weight of a term that rewards true over foreign context, for `cross_entropy`. For one current sentence
    of each row, it is max(0, 1 + log p(foreign) - log p(true)), in nats. p is the probability of the sentence
    after true or foreign context. Foreign context comes from another document. Training takes about twice as
    long."""
    glancing: tuple[Fraction, Fraction] = (0.5, 0.3)
    """For `glancing`: share of the wrongly predicted positions revealed to the decoder, at the start and at
    the end of training."""


class TrainConfig(Closed):
    """Optimiser, schedule, validation and checkpoints."""

    init: str = ""
    """Run whose weights training starts from (`--init RUN`). `required`: the recipe needs such a run."""
    init_parts: Literal["all", "encoder"] = "all"
    """Parameters to take from that run. `all`: all matching parameters. `encoder`: the same without the
    parameters that only the decoder uses; embeddings are shared, and are taken."""
    init_copies: bool = True
    """Whether a weight of that run initialises both of its counterparts, such as G-Transformer's local and
    global attention; otherwise the second starts at random. With `model.neutral_start`, both always
    start from it."""
    init_architecture: Literal["auto", "recipe", "run"] = "auto"
    """Whether the model's sizes, norms, activation, kind of positions and output layer come from the `recipe`
    or from the `run` that training starts from. `auto`: from the run if it is an imported model or descends
    from an imported model, otherwise from the recipe."""
    freeze: Literal["none", "init"] = "none"
    """Parameters that training leaves unchanged. `init`: those that come from the run that training starts
    from, completely or in part."""
    blend: tuple[Blended, ...] | None = None
    """New parts that are blended in gradually, because they change the output from the start. `positions`:
    removal of the input positions of the other run. `score`: rotary or ALiBi. `mean`: MBE's mean before
    the row. `separators`, `symbols`: new separators or sentence numbers that the output layer can predict.
    Default: all of these that the other run does not have, if `model.neutral_start` is true; otherwise
    none."""
    blend_updates: Count | None = None
    """Number of updates over which these parts are blended in, linearly. Translation and validation have them
    in full, except at update 0. Default: the warm-up."""
    fresh_rate: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Learning rate of parameters that do not come from the other run, as a multiple of `learning_rate`."""
    seed: Seed = 1
    """Random seed for initial weights, dropout and the order of the data."""
    max_updates: PositiveInt = 100_000
    """Number of updates (optimiser steps)."""
    max_epochs: Count = 0
    """Maximum number of epochs; 0: no limit. Schedules depend only on `max_updates`."""
    max_cpu_minutes: NonNegativeFloat = 0.0
    """Maximum processor time of training, in minutes, summed over threads and processes, without validation
    and checkpoints; 0: no limit. Schedules depend only on `max_updates`."""
    max_tokens: PositiveInt = 16_000
    """Batch size in tokens for each process: rows times the length of the longer side, padding included."""
    checkpoint_activations: bool = False
    """Keep only layer inputs for the backward pass and recompute the rest: the same results, with less
    memory and about a third more time."""
    order: Literal["shuffled", "documents"] = "shuffled"
    """Instances of a batch. `shuffled`: random instances of similar length. `documents`: consecutive
    instances of a document."""
    context: Literal["own", "foreign"] = "own"
    """Context sentences in training: the document's `own`, or `foreign` sentences from another document, for
    a control experiment."""
    word_dropout: BelowOne = 0.0
    """Share of the tokens of source and target input that training replaces by the unknown token; labels
    stay."""
    word_dropout_epochs: Count = 0
    """Number of epochs with `word_dropout`; 0: all of them."""
    coword_dropout: BelowOne = 0.0
    """Share of the source tokens of current sentences that training replaces by the unknown token, so that
    context is worth reading (Fernandes et al. 2021)."""
    position_offset: Annotated[int, Field(ge=0, le=50_000, strict=True)] = 0
    """Maximum random shift of the positions of a row in training. Shifts are drawn separately for source and
    target, so that the model learns not to depend on absolute positions (Kiyono et al. 2021)."""
    accumulate: Annotated[int, Field(gt=0, le=10_000, strict=True)] = 1
    """Gradient accumulation: batches per update."""
    learning_rate: Annotated[float, Field(gt=0)] = 7e-4
    """Peak learning rate, reached at the end of the warm-up."""
    warmup_updates: Count = 4000
    """Updates over which the learning rate rises linearly; afterwards it falls with the inverse square root
    of the update."""
    adam_betas: tuple[BelowOne, BelowOne] = (0.9, 0.98)
    """Decay rates of Adam's moments."""
    adam_epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-9
    """Added to the root of Adam's second moment (Vaswani et al. 2017, section 5.3)."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay, decoupled from the gradient (AdamW)."""
    clip_norm: NonNegativeFloat = 1.0
    """Maximum gradient norm; 0: no limit."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision of matrix products; weights, sums and losses stay in fp32. `bf16`: for GPUs, and for CPUs
    with AMX or AVX512-BF16. `fp16`: for GPUs without bfloat16. With `fp32`, GPUs multiply in TF32."""
    shard_model: bool = False
    """Divide weights, gradients and Adam's moments among processes, for models too large for one device."""
    validate_every: PositiveInt | Literal["epoch"] = 1000
    """Updates between validations, or `epoch`: after every epoch. Every validation writes a checkpoint."""
    validate_bleu: bool = True
    """Whether validation also translates development documents (greedily) and computes BLEU."""
    validate_sentences: PositiveInt = 300
    """Number of development sentences, from the first, that are translated for BLEU; the last document
    may be cut."""
    best_by: Literal["loss", "objective", "undiscounted", "bleu"] = "loss"
    """The figure on the development set that decides the best checkpoint and patience. `loss`:
    negative log-likelihood of current sentences, without smoothing. `objective`: the loss that training
    minimises, with smoothing and discount. `undiscounted`: smoothed loss of all labels without discount, like
    fairseq's default. `bleu`: BLEU."""
    patience: Count = 12
    """Stop after this many validations without improvement; 0: never."""
    keep: PositiveInt = 5
    """Number of most recent checkpoints to keep, in addition to the checkpoints needed for averaging."""
    average: PositiveInt = 5
    """Number of checkpoints averaged into the final model; if the best checkpoint is better on the
    development set, it is the final model instead. 1: no averaging."""
    average_by: Literal["best", "last"] = "best"
    """Checkpoints to average: the `best` and the closest ones in time, or the `last` checkpoints."""
    log_every: PositiveInt = 100
    """Updates between progress reports."""
    pool_tokens: PositiveInt = 2_000_000
    """Number of tokens read ahead, for shuffling and for batching by length."""
    threads: Annotated[int, Field(ge=0, le=1024, strict=True)] = 0
    """CPU threads of each process, at most the number of cores. 0: one thread for models with `dimension`
    below 256, otherwise all cores."""

    def blended(self, done: int) -> float:
        """Return the weight of blended parts after `done` updates, from 0 to 1."""
        return min(done / self.blend_updates, 1.0) if self.blend and self.blend_updates else 1.0
