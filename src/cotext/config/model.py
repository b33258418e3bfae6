"""The options of a model (the section `model`).

The attention of each stack is span x score x mix:

    span     which keys a query attends to       row, sentence, memory, nodes, current
    score    how query and key are compared      content, absolute, relative, positions, transformer_xl,
                                                 segment_distance, rotary, alibi
    mix      of the two spans of top layers      one (only the top span) or gated (both)

`models/checks.py` lists the combinations that are possible.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeFloat

from cotext.config.parts import DOCUMENT_LAYERS, Part
from cotext.runtime.sections import BelowOne, Closed, Count, Fraction, Layers, Sentences, Symbols, Width

Span = Literal["row", "sentence", "memory", "nodes", "current"]
SCORES = (
    "content",
    "absolute",
    "relative",
    "positions",
    "transformer_xl",
    "segment_distance",
    "rotary",
    "alibi",
)
ScoreKind = Annotated[str, AfterValidator(Part(SCORES))]
DocumentLayerKind = Annotated[str, AfterValidator(Part(("none", *DOCUMENT_LAYERS)))]
Positions = Literal["absolute", "reset", "shifted", "none"]
SegmentsKind = Literal["none", "learned", "sinusoidal", "current"]
Activation = Literal["relu", "swish", "gelu", "gelu_sigmoid"]
Wavelengths = Literal["half_minus_one", "half"]
StackName = Literal["encoder", "decoder", "cross"]
Others = Literal["joint", "gated", "projected"]
Level = Literal["both", "sentences", "words"]
Weights = Literal["softmax", "sparsemax"]


class TopConfig(Closed):
    """Top layers of a stack with another attention span than the layers below."""

    layers: Count = 0
    """Number of these layers; 0: none."""
    span: Span = "row"
    """Their span; see `attention.span`."""
    mix: Literal["one", "gated"] = "one"
    """`one`: this span replaces the lower span. `gated`: both spans, mixed by a gate (Bao et al. 2021)."""


class AttentionConfig(Closed):
    """Attention of all stacks; the sections `encoder`, `decoder` and `cross` can override it."""

    span: Span = "row"
    """The tokens that a token attends to. `row`: the whole row, which is a sequence of the batch (in a
    left-to-right decoder, up to the token). `sentence`: its own sentence (in cross-attention, the source
    sentence that it translates). `memory`: its sentence and `memory_sentences` before it; decoder only.
    `nodes`: its sentence, and the first and last token of every other sentence (Yu et al. 2024). `current`:
    the sentences to translate, without context; encoder and cross-attention only."""
    score: ScoreKind = "content"
    """Inputs of attention scores. `content`: only the states. `absolute`: absolute positions, added to
    queries and keys in every layer. `relative`: a table of relative positions, in self-attention.
    `positions`: `absolute` and `relative` (Li et al. 2022). `transformer_xl`: relative positions with biases,
    with the span `memory`. `segment_distance`: the distance in sentences (Zheng et al. 2020); encoder only.
    `rotary`: queries and keys rotated by their positions (Su et al. 2021), in self-attention. `alibi`: a
    penalty for distance, in cross-attention measured between aligned sentences (Press et al. 2022; Post and
    Junczys-Dowmunt 2023). Or a class in your own file: `idea.py:MyScore`."""
    others: Others = "joint"
    """How the span `row` weighs other sentences. `joint`: one softmax over all tokens. `gated`: one softmax
    over the token's own sentence, plus one over the others, with a bias by distance, behind a gate per head.
    The gate starts closed: at first, the output is that of the sentence model from which training starts.
    With `top.mix: gated`, a top span has the bias, but no second gate. `projected`: one softmax over all
    tokens and one over the token's own sentence, joined by a projection (P. Zhang et al. 2020)."""
    gate_rate: Annotated[float, Field(gt=0, le=1000)] = 30.0
    """With `others: gated`: learning rate of gates and biases, as a multiple of `train.learning_rate`."""
    memory_sentences: Sentences = 1
    """For the span `memory`: number of previous target sentences that a token attends to."""
    top: TopConfig = TopConfig()
    """Top layers with another span."""

    @property
    def spans(self) -> set[str]:
        """All spans that layers of the stack use."""
        return {self.span, self.top.span} if self.top.layers else {self.span}


class StackTopConfig(Closed):
    """Top layers of one stack; missing keys have the values of `attention.top`."""

    layers: Count | None = None
    span: Span | None = None
    mix: Literal["one", "gated"] | None = None


class StackConfig(Closed):
    """Attention of one stack; missing keys have the values of `attention`."""

    span: Span | None = None
    """See `attention.span`."""
    score: ScoreKind | None = None
    """See `attention.score`."""
    others: Others | None = None
    """See `attention.others`."""
    memory_sentences: Sentences | None = None
    """See `attention.memory_sentences`."""
    top: StackTopConfig | None = None
    """See `attention.top`."""


class BatchConfig(Closed):
    """Attention between the rows of a document, if `batch_context` is set."""

    source: bool = True
    """Whether source rows attend to other rows (for `mean`: begin with the mean)."""
    target: bool = True
    """Whether target rows attend to rows that end before them (for `mean`: begin with the source mean)."""
    gate: Literal["continuous", "discrete", "identity"] = "continuous"
    """For `flat`: gate of the context (Wu et al. 2023). `continuous`: between 0 and 1. `discrete`: 0 or 1.
    `identity`: no gate."""
    threshold: Fraction = 0.5
    """For the gate `discrete`: it opens at this value and above."""
    cross_document: bool = False
    """Whether rows of different documents attend to each other in training, as in the papers cited
    at `batch_context`. They never do in translation, scoring and validation."""


class DocumentConfig(Closed):
    """The layer on top of a stack, if `document_layer` is set."""

    source: bool = True
    """Whether the encoder has this layer."""
    target: bool = False
    """Whether the decoder has this layer; not all kinds support it."""
    sentences: Annotated[Sentences, Field(gt=0)] | None = None
    """For `hierarchical`: number of previous sentences to which a token attends. Default: 3."""
    relative: bool = True
    """For `segment_gate`: whether attention depends on the distance of two tokens in sentences."""
    gate: bool = True
    """For `segment_gate`: whether a gate mixes local and global states; otherwise they are added."""
    feed_forward: bool = True
    """For `segment_gate`: whether the layer has a feed-forward part. The parameter counts in table 1 of Zheng
    et al. 2020 imply one; their equations have none."""
    level: Level = "both"
    """For `selective`: what a token attends to. `both`: other sentences, and the words of each. `sentences`:
    the means of other sentences. `words`: all their words."""
    word_weights: Weights = "softmax"
    """For `selective` with `level: both`: weights of the words of a sentence. With `sparsemax`, many are
    zero."""
    later: bool = True
    """For `selective` in the encoder: whether a token also attends to later sentences."""

    @property
    def before(self) -> int:
        """For `hierarchical`: number of previous sentences to attend to; 3 in Miculicich et al. 2018."""
        return 3 if self.sentences is None else self.sentences

    @property
    def resolved(self) -> "DocumentConfig":
        """The settings with the default number of sentences, as document layers receive them."""
        return self.model_copy(update={"sentences": self.before})


class NatConfig(Closed):
    """How all tokens of a row are predicted in parallel, if `writes` is `non_autoregressive`."""

    path: Literal["sentences", "row", "length"] = "sentences"
    """Alignment of tokens with decoder positions. `sentences`: one CTC path per sentence. `row`: one CTC path
    for the whole row. `length`: one position per token; the model predicts the number of positions."""
    soft_copy: Literal["sentences", "row"] = "sentences"
    """Whether encoder states are copied to the decoder's positions sentence by sentence or over the whole
    row."""
    latent: bool = False
    """Whether a second decoder predicts a code for every position, which a gate mixes into the decoder's
    input."""
    codes: Symbols = 64
    """For `latent`: number of codes."""
    code_mixing: Literal["drawn", "all"] = "drawn"
    """For `latent`: where the decoder reads the correct codes in training. `drawn`: at random positions, half
    as many as there are wrong predictions; elsewhere the input has no code. `all`: at every position of the
    best path."""
    code_weight: NonNegativeFloat = 0.5
    """For `latent`: weight of the loss of predicted codes; 1.0 in the scripts of Bao et al. 2022."""
    length_offsets: Symbols = 128
    """For the path `length`: how many tokens more or fewer than its source a row may have."""


class ModelConfig(Closed):
    """The size and the components of the model."""

    writes: Literal["left_to_right", "non_autoregressive"] = "left_to_right"
    """`left_to_right`: an autoregressive decoder. `non_autoregressive`: predicts all tokens of a row at
    once."""
    reads_source: bool = True
    """`false`: a language model of the target side, without encoder and cross-attention."""
    attention: AttentionConfig = AttentionConfig()
    encoder: StackConfig = StackConfig()
    """Settings for the encoder's self-attention."""
    decoder: StackConfig = StackConfig()
    """Settings for the decoder's self-attention."""
    cross: StackConfig = StackConfig()
    """Settings for cross-attention."""
    relative_span: Symbols = 512
    """For the scores `relative` and `positions`: largest distance, in tokens and in either direction, that
    has its own vector. Larger distances share the last vector. Li et al. (2022) have a vector for every
    distance: for this, set it to `view.max_tokens` if that is larger."""
    source_sentences: Sentences | None = None
    """For the span `row`: a token attends only to source sentences at most this far from its own, in
    sentences. Default: no limit."""
    batch_context: Literal["none", "flat", "datapoints", "mean"] = "none"
    """Attention to other rows of the same document, before the first layer. `none`: none. `flat`: to their
    current tokens (DocFlat; Wu et al. 2023). `datapoints`: to the mean of each row (ABD; Kossen et al. 2021).
    `mean`: to one mean of all rows (MBE; Morishita et al. 2021)."""
    batch: BatchConfig = BatchConfig()
    context_encoder: Literal["none", "separate", "shared"] = "none"
    """An encoder for the context sentences of source rows, to which blocks attend. `none`: none. `separate`:
    a separate stack; all blocks of encoder and decoder attend to it (DocT; J. Zhang et al. 2018). `shared`:
    all layers of the encoder except the last, then separate layers, to which the last layer of the encoder
    attends (Voita et al. 2018)."""
    context_layers: Count = 1
    """For `context_encoder`: number of separate layers."""
    document_layer: DocumentLayerKind = "none"
    """A layer on top in which sentences attend to other sentences of their row. `segment_gate`: the gated
    layer of MCN (Zheng et al. 2020). `hierarchical`: the attention of HAN (Miculicich et al. 2018).
    `selective`: the attention of SAN (Maruf et al. 2019). Or a class in your own file: `idea.py:MyLayer`."""
    document: DocumentConfig = DocumentConfig()
    nat: NatConfig = NatConfig()
    dimension: Width = 512
    """Model dimension (size of embeddings and states); a multiple of `heads`."""
    feed_forward: Width = 2048
    """Inner dimension of the feed-forward layers."""
    heads: Width = 8
    """Number of attention heads."""
    encoder_layers: Layers = 6
    """Number of encoder layers."""
    decoder_layers: Layers = 6
    """Number of decoder layers."""
    dropout: BelowOne = 0.3
    """Dropout on embeddings and sublayer outputs (Vaswani et al. 2017, section 5.4)."""
    activation_dropout: BelowOne = 0.0
    """Dropout inside the feed-forward layers, after the activation."""
    attention_dropout: BelowOne = 0.0
    """Dropout on attention weights; above 0, attention on a CPU is several times slower."""
    pre_norm: bool = False
    """Whether layer norm comes before each sublayer; otherwise it comes after it."""
    activation: Activation = "relu"
    """Activation of feed-forward layers. `relu`: max(0, x). `swish`: x * sigmoid(x), as in most Marian
    models. `gelu`: x * Phi(x), with the normal distribution function, as in mBART. `gelu_sigmoid`: x *
    sigmoid(1.702 x), Marian's gelu."""
    output_bias: bool = False
    """Whether the output layer has a trained bias for every symbol, as in Marian's models."""
    separate_embeddings: bool = False
    """Whether the source has its own embedding, and possibly its own vocabulary. The target embedding is
    always shared with the output layer."""
    embedding_norm: bool = False
    """Whether embeddings are layer-normalised, after positions and segments are added (mBART)."""
    initialisation: Literal["xavier", "fairseq", "normal"] = "fairseq"
    """Initial weights. `xavier`: Xavier uniform. `fairseq`: as fairseq initialises each kind of layer.
    `normal`: a normal distribution with standard deviation 0.02, as in BERT."""
    positions: Positions = "absolute"
    """Positions added to embeddings. `absolute`: counted from the start of the row. `reset`: from the start
    of the sentence. `shifted`: absolute, plus `shift` for every sentence (Lupo et al. 2022). `none`: none."""
    target_positions: Positions | None = None
    """Positions added to embeddings of the target side. Default: the value of `positions`."""
    position_encoding: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Whether positions are sinusoids or trained vectors, with a table for each side."""
    learned_positions: Symbols = 1026
    """Number of trained vectors in each table; all later positions use the last vector."""
    wavelengths: Wavelengths = "half_minus_one"
    """Wavelengths of sinusoids in D dimensions, for i = 0 ... D/2 - 1. `half_minus_one`: 2 pi * 10,000^(i /
    (D/2 - 1)), as in fairseq and tensor2tensor. `half`: 2 pi * 10,000^(i / (D/2)), as in Vaswani et al. 2017
    and Marian."""
    first_position: Sentences = 0
    """Position of the first token of a row; 2 in fairseq's models."""
    shift: Sentences | Literal["corpus", "sequence"] = "corpus"
    """With `positions: shifted`: positions added for every sentence. `corpus`: the mean sentence length of
    the training corpus in tokens. `sequence`: the mean sentence length of the source window, rounded up;
    closing symbols count as tokens."""
    segments: SegmentsKind = "none"
    """Segment embeddings added at the input. `learned`, `sinusoidal`: one for each sentence index. `current`:
    one for current sentences and one for context."""
    target_segments: SegmentsKind | None = None
    """Segment embeddings of the target side. Default: the value of `segments`."""
    segments_from: Literal["first", "current"] = "first"
    """Where the numbers of `learned` and `sinusoidal` segments start. `first`: forwards from the first
    sentence of the row, 0, 1, 2 ... `current`: backwards from the current sentence, 1, 2, 3 ..., so that its
    segment does not depend on the number of context sentences. `current` needs views with one current
    sentence, which is the last."""
    from_first: bool | None = None
    """Whether shifted positions and sinusoidal segments begin with the first sentence of a row, as published,
    or with the second. Default: with the first. If training starts from a run without them (`train.init`),
    the default is the second, so that first sentences are encoded as in that run."""
    neutral_start: bool | None = None
    """Whether new parts of a model have no effect before the first update. The output is then that of the run
    from which training starts. For this, gates that start at zero are added, even if the paper has none. If
    that run is a sentence model and rows have several sentences, they have `view.separators: bracket` (or
    `numbered`), `attention.others: gated` and `positions: reset` instead of `absolute`. Default: yes if the
    run is an imported model, or this setting is true there; otherwise no."""

    def stack(self, name: StackName) -> AttentionConfig:
        """Return the attention settings of a stack; missing settings are taken from `attention`."""
        stack: StackConfig = {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[name]
        given = stack.model_dump(exclude_none=True)
        given["top"] = self.attention.top.model_copy(update=given.get("top", {}))
        return self.attention.model_copy(update=given)

    def layer_spans(self, name: StackName, layer: int) -> tuple[str, ...]:
        """Return the spans of a layer, counted from the bottom: one span, or two that a gate mixes."""
        attention = self.stack(name)
        layers = self.encoder_layers if name == "encoder" else self.decoder_layers
        if layer < layers - attention.top.layers:
            return (attention.span,)
        top = attention.top
        return (attention.span, top.span) if top.mix == "gated" else (top.span,)
