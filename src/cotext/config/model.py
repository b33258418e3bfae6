"""The slots of a model and what fills them: the section `model`.

Attention is span x score x mix, per stack:

    span     which keys a query sees             row, sentence, memory, nodes, node_queries, current
    score    how it compares itself with them    content, absolute, relative, positions, transformer_xl,
                                                 segment_distance, rotary, alibi
    mix      of the top layers' two spans        one (the top span alone) or gated (both)

`models/build.py` says which of them go together.
"""

from typing import Literal

from pydantic import NonNegativeFloat

from cotext.config.fields import BelowOne, Closed, Count, Fraction, Layers, Sentences, Symbols, Width

Span = Literal["row", "sentence", "memory", "nodes", "node_queries", "current"]
ScoreKind = Literal[
    "content", "absolute", "relative", "positions", "transformer_xl", "segment_distance", "rotary", "alibi"
]
Positions = Literal["absolute", "reset", "shifted", "none"]
SegmentsKind = Literal["none", "learned", "sinusoidal", "current"]
Activation = Literal["relu", "swish", "gelu", "gelu_sigmoid"]
Wavelengths = Literal["half_minus_one", "half"]


class TopConfig(Closed):
    """Top layers of a stack whose attention has another span than those below."""

    layers: Count = 0
    """How many; 0: none."""
    span: Span = "row"
    """Their span."""
    mix: Literal["one", "gated"] = "one"
    """`one`: this span in place of the other; `gated`: both, mixed by a gate (Bao et al. 2021)."""


class AttentionConfig(Closed):
    """Attention of all stacks, as far as these do not say otherwise."""

    span: Span = "row"
    """Keys of a query. `row`: the whole row, of the target all that stands before. `sentence`: its sentence;
    of the source the one that it translates. `memory`: its sentence and `memory_sentences` before it, decoder
    alone. `nodes`: its sentence and the first and last tokens of the others (Yu et al. 2024). `node_queries`:
    its sentence, but from first and last tokens the row (equation 14 as printed). `current`: current
    sentences alone, encoder alone."""
    score: ScoreKind = "content"
    """What a query compares. `content`: states alone. `absolute`: positions added to queries and keys, in
    every layer. `relative`: a table of relative positions, in self-attention. `positions`: both of these (Li
    et al. 2022). `transformer_xl`: relative positions with biases, with `memory`. `segment_distance`: how
    many sentences apart tokens are (Zheng et al. 2020), encoder alone. `rotary`: queries and keys rotated by
    their positions (Su et al. 2021), in self-attention. `alibi`: a penalty by distance, in cross-attention
    that of aligned sentences (Press et al. 2022; Post and Junczys-Dowmunt 2023)."""
    memory_sentences: Sentences = 1
    """Of the span `memory`: target sentences before its own that a token sees."""
    top: TopConfig = TopConfig()
    """Top layers with another span."""

    @property
    def spans(self) -> set[str]:
        """All spans that are chosen for layers of the stack."""
        return {self.span, self.top.span} if self.top.layers else {self.span}


class StackConfig(Closed):
    """Attention of one stack; a key that is not given is that of `attention`."""

    span: Span | None = None
    """See `attention.span`."""
    score: ScoreKind | None = None
    """See `attention.score`."""
    memory_sentences: Sentences | None = None
    """See `attention.memory_sentences`."""
    top: TopConfig | None = None
    """See `attention.top`."""


class BatchConfig(Closed):
    """How rows of a document see each other, where `batch_context` lets them."""

    source: bool = True
    """On the source side."""
    target: bool = True
    """On the target side, where only rows that end before are seen."""
    gate: Literal["continuous", "discrete", "identity"] = "continuous"
    """Of `flat`: of what was seen, a share passes, all or nothing, or all of it is added (Wu et al. 2023)."""
    threshold: Fraction = 0.5
    """Of the discrete gate: what opens it."""
    cross_document: bool = False
    """In training, rows of different documents see each other, as in the paper; translation, scores and
    validation keep documents apart."""


class DocumentConfig(Closed):
    """The layer on top of a stack, where `document_layer` puts one."""

    source: bool = True
    """On top of the encoder."""
    target: bool = False
    """On top of the decoder, where the layer can stand there."""
    sentences: Sentences | None = None
    """Of a layer that reads sentences one by one: how many before its own a token sees; not given: 3."""
    relative: bool = True
    """Of `segment_gate`: attention that knows how many sentences apart two tokens are."""
    gate: bool = True
    """Of `segment_gate`: a gate mixes local and global states; if not, they are added."""
    feed_forward: bool = True
    """Of `segment_gate`: a whole layer, as the parameter count of Zheng et al.'s table 1 has it; if not, its
    attention alone, as the equations have it."""


class NatConfig(Closed):
    """How all tokens of a row are predicted at once, where `writes` is `non_autoregressive`."""

    path: Literal["sentences", "row", "length"] = "sentences"
    """How tokens are aligned with positions: a path (CTC) for every sentence, one for the whole row, or as
    many positions as tokens, whose number the model predicts."""
    soft_copy: Literal["sentences", "row"] = "sentences"
    """Of what the encoder's states are copied to the positions: each sentence by itself, or the row."""
    latent: bool = False
    """A second decoder predicts a code for every position, which a gate mixes into the decoder's input."""
    codes: Symbols = 64
    """Of `latent`: how many there are."""
    code_mixing: Literal["drawn", "all"] = "drawn"
    """Of `latent`, in training: where the decoder reads the right codes. `drawn`: at random positions, half
    as many as were predicted wrong, and its own input elsewhere; `all`: at every position of the best
    path."""
    code_weight: NonNegativeFloat = 0.5
    """Of `latent`: weight of the loss of predicted codes; 1.0 in the scripts of Bao et al. 2022."""
    length_offsets: Symbols = 128
    """Of the path `length`: how many tokens more or fewer than the source a row may have."""


class ModelConfig(Closed):
    """How large the model is, and what fills its slots."""

    writes: Literal["left_to_right", "non_autoregressive"] = "left_to_right"
    """`left_to_right`: an autoregressive decoder; `non_autoregressive`: all tokens of a row at once."""
    attention: AttentionConfig = AttentionConfig()
    encoder: StackConfig = StackConfig()
    """Of the encoder's self-attention."""
    decoder: StackConfig = StackConfig()
    """Of the decoder's self-attention."""
    cross: StackConfig = StackConfig()
    """Of cross-attention."""
    source_sentences: Sentences | None = None
    """How many source sentences away attention over whole source rows sees; not given: all of the row."""
    batch_context: Literal["none", "flat", "datapoints", "mean"] = "none"
    """What rows of one document see of each other before the first layer: nothing, each other's current
    tokens (DocFlat; Wu et al. 2023), each other's means (ABD; Kossen et al. 2021), or one mean of all (MBE;
    Morishita et al. 2021)."""
    batch: BatchConfig = BatchConfig()
    document_layer: Literal["none", "segment_gate", "hierarchical"] = "none"
    """A layer on top in which sentences see others of their row: none, the gated layer of MCN (Zheng et
    al. 2020), or the hierarchical attention of HAN (Miculicich et al. 2018)."""
    document: DocumentConfig = DocumentConfig()
    nat: NatConfig = NatConfig()
    dimension: Width = 512
    """Width of the stream; a multiple of `heads`."""
    feed_forward: Width = 2048
    """Inner width of the feed-forward layers."""
    heads: Width = 8
    """Attention heads."""
    encoder_layers: Layers = 6
    """Encoder blocks."""
    decoder_layers: Layers = 6
    """Decoder blocks."""
    dropout: BelowOne = 0.3
    """On embeddings and sublayer outputs (Vaswani et al. 2017, section 5.4)."""
    activation_dropout: BelowOne = 0.0
    """Inside the feed-forward layers, on what comes out of their activation; base systems have none there."""
    attention_dropout: BelowOne = 0.0
    """On attention weights; above 0, attention on a CPU is several times slower."""
    pre_norm: bool = False
    """Layer norm before each sublayer, not after it."""
    activation: Activation = "relu"
    """Between the projections of feed-forward layers: max(0, x); x * sigmoid(x), which Marian's models have;
    x * Phi(x) with the normal distribution function (mBART); or x * sigmoid(1.702 x), what Marian computes
    for it."""
    output_bias: bool = False
    """A trained bias for every symbol in the output layer, as Marian's models have it."""
    separate_embeddings: bool = False
    """An embedding of its own for the source, whose vocabulary may be another; the target's embedding is the
    output layer in any case."""
    embedding_norm: bool = False
    """A layer norm on embeddings, on either side, after positions and segments are added (mBART)."""
    initialisation: Literal["xavier", "fairseq", "normal"] = "fairseq"
    """Distribution of initial weights: Xavier's; that of the toolkit which the papers used, layer for layer;
    or a normal one of standard deviation 0.02, as BERT's."""
    positions: Positions = "absolute"
    """Added to embeddings: positions from the start of the row, from the start of the sentence,
    segment-shifted, or none."""
    target_positions: Positions | None = None
    """Of the target; not given: as `positions`."""
    position_encoding: Literal["sinusoidal", "learned"] = "sinusoidal"
    """What stands for a position: sinusoids, or trained vectors, a table on either side."""
    learned_positions: Symbols = 1026
    """Rows of these tables; later positions share the last one."""
    wavelengths: Wavelengths = "half_minus_one"
    """Of sinusoids in D dimensions, for i = 0 ... D/2 - 1: 2 pi * 10,000^(i / (D/2 - 1)), as in fairseq and
    tensor2tensor, or `half`: 2 pi * 10,000^(i / (D/2)), as in Vaswani et al. 2017 and in Marian."""
    first_position: Sentences = 0
    """What the first token of a row counts as; 2 in models of fairseq."""
    shift: Sentences | Literal["corpus", "sequence"] = "corpus"
    """Positions added per sentence if shifted; `corpus`: the mean sentence length of the training corpus in
    tokens, `sequence`: that of the source window."""
    segments: SegmentsKind = "none"
    """Embeddings added at the input: none, of the sentence index (learned or sinusoidal), or of current
    sentence and context (`current`)."""
    target_segments: SegmentsKind | None = None
    """Of the target; not given: as `segments`."""
    from_first: bool | None = None
    """Shifted positions and sinusoidal segments begin with the first sentence of a row, as published; if not,
    with the second. Not given: as published, but with the second in training that starts from a run without
    them (`train.init`), which knows first sentences as they are."""

    def stack(self, name: Literal["encoder", "decoder", "cross"]) -> AttentionConfig:
        """Attention of a stack, with what it does not say itself taken from `attention`."""
        own: StackConfig = {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[name]
        said = {key: value for key, value in own if value is not None}
        return self.attention.model_copy(update=said)
