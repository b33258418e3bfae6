"""Which model, and its switches: the section `model`."""

from typing import Literal

from pydantic import NonNegativeFloat

from cotext.config.fields import BelowOne, Closed, Count, Fraction, Layers, Sentences, Symbols, Width


class PTransformerConfig(Closed):
    """Where attention is made aware of positions: the switches of Li et al. 2022, table VI."""

    self_source: bool = True
    """Absolute positions in the encoder's self-attention."""
    self_target: bool = True
    """Absolute positions in the decoder's self-attention."""
    cross: bool = True
    """Absolute positions in cross-attention."""
    relative: bool = True
    """Relative positions in self-attention on both sides."""


class GTransformerConfig(Closed):
    """Where attention leaves the sentence."""

    global_layers: Count = 2
    """Top layers of encoder and decoder with global attention beside the local one."""


class FlatTransformerConfig(Closed):
    """Where the context ends."""

    current_layers: Count = 1
    """Top encoder layers that see the current sentence alone."""


class DocFlatConfig(Closed):
    """Where current sentences see those of other rows, and how much of them passes: Wu et al. 2023."""

    source: bool = True
    """Flat-batch attention over the source."""
    target: bool = True
    """Flat-batch attention over the target, causal."""
    gate: Literal["continuous", "discrete", "identity"] = "continuous"
    """Of what was seen: a share, all or nothing, or all of it added."""
    threshold: Fraction = 0.5
    """Of the discrete gate: what opens it."""
    cross_document: bool = False
    """In training, rows of different documents see each other, as in the paper; translation, scores and
    validation keep documents apart."""


class BatchEmbeddingConfig(Closed):
    """Which side begins with the mean of all source embeddings of the batch: Morishita et al. 2021."""

    source: bool = True
    """Source rows."""
    target: bool = True
    """Target rows."""
    cross_document: bool = False
    """See `docflat.cross_document`."""


class DatapointsConfig(Closed):
    """Which side has attention between the means of rows: Wu et al. 2023, appendix C."""

    source: bool = True
    """Source rows."""
    target: bool = False
    """Target rows: every current token sees the mean of those of its row so far, and of rows before it."""
    cross_document: bool = False
    """See `docflat.cross_document`."""


class MCNConfig(Closed):
    """The switches of Zheng et al. 2020, table 3, and how far the model sees."""

    local: bool = True
    """The encoder's layers stay inside sentences, and one more on top sees the whole row; if not, there is no
    further layer, and every layer sees the whole row."""
    relative: bool = True
    """Attention over the row knows how many sentences apart two tokens are."""
    gate: bool = True
    """A gate mixes local and global states of the encoder; if not, they are added."""
    xl: bool = True
    """The decoder has relative positions and a memory; if not, ordinary positions, and its sentences are
    apart."""
    memory_sentences: Sentences = 1
    """Of `xl`: target sentences before the current one that the decoder remembers."""
    context: Sentences | None = None
    """Source sentences before and after its own that a token sees; not given: all of the row."""
    feed_forward: bool = True
    """The layer that sees the row is a whole one, as the parameter count of table 1 has it; if not, it is its
    attention alone, as the equations have it."""
    cross_context: bool = False
    """Cross-attention sees all source sentences of the row; if not, that of its target sentence alone."""


class CasaConfig(Closed):
    """How a document is written at once: what makes CASA of GLAT (Yu et al. 2024, tables 6, 7 and 9)."""

    path: Literal["sentences", "row", "length"] = "sentences"
    """How tokens come to stand on places: a path (CTC) for every sentence, one for the whole row, or as many
    places as tokens, whose number the model predicts."""
    local: bool = True
    """Lower layers stay inside sentences; if not, they see the whole row."""
    context_layers: Count = 2
    """Top layers of every stack, all if it has fewer, that see their sentence and the first and last tokens
    of the others."""
    context_nodes: Literal["keys", "queries"] = "keys"
    """What first and last tokens are in these layers: `keys`, seen by every token of the row, as the paper's
    text has it, or `queries`, which see every token, as its equation 14 is printed."""
    soft_copy: Literal["sentences", "row"] = "sentences"
    """Of what the encoder's states are copied to the places: each sentence by itself, or the row."""
    source_context: bool = True
    """Context layers of the encoder, and of the decoder looking at it; if not, they stay inside sentences."""
    target_context: bool = True
    """Context layers of the decoder looking at itself; if not, they stay inside sentences."""
    latent: bool = False
    """A second decoder predicts a code for every place, which a gate mixes into the decoder's input."""
    codes: Symbols = 64
    """Of `latent`: how many there are."""
    code_mixing: Literal["drawn", "all"] = "drawn"
    """Of `latent`, in training: where the decoder reads the right codes. `drawn`: at random places, half as
    many as were predicted wrong, and its own input elsewhere; `all`: at every place of the best path."""
    code_weight: NonNegativeFloat = 0.5
    """Of `latent`: weight of the loss of predicted codes; 1.0 in the scripts of Bao et al. 2022."""
    length_offsets: Symbols = 128
    """Of the path `length`: how many tokens more or fewer than the source a row may have."""


class ModelConfig(Closed):
    """Which model, how large, and where its tokens think they stand."""

    name: Literal[
        "transformer",
        "p_transformer",
        "g_transformer",
        "flat_transformer",
        "docflat",
        "batch_embedding",
        "datapoints",
        "mcn",
        "casa",
    ] = "transformer"
    """File in `cotext/models`."""
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
    """Inside the feed-forward layers, on what comes out of their ReLU; base systems have none there."""
    attention_dropout: BelowOne = 0.0
    """On attention weights; above 0, attention on a CPU is several times slower."""
    pre_norm: bool = False
    """Layer norm before each sublayer, not after it."""
    initialisation: Literal["xavier", "fairseq", "normal"] = "fairseq"
    """Distribution of initial weights: Xavier's; that of the toolkit which the papers used, layer for layer;
    or a normal one of standard deviation 0.02, as BERT's."""
    positions: Literal["absolute", "reset", "shifted"] = "absolute"
    """From the start of the row, from the start of the sentence, or segment-shifted."""
    shift: Sentences | Literal["corpus", "sequence"] = "corpus"
    """Positions added per sentence if shifted; `corpus`: the mean sentence length of the training corpus in
    tokens, `sequence`: that of the source window."""
    segments: Literal["none", "learned", "sinusoidal"] = "none"
    """Embeddings of the sentence index, added at the input."""
    from_first: bool | None = None
    """Shifted positions and sinusoidal segments begin with the first sentence of a row, as published; if not,
    with the second. Not given: as published, but with the second in training that starts from a run without
    them (`train.init`), which knows first sentences as they are."""
    p_transformer: PTransformerConfig = PTransformerConfig()
    g_transformer: GTransformerConfig = GTransformerConfig()
    flat_transformer: FlatTransformerConfig = FlatTransformerConfig()
    docflat: DocFlatConfig = DocFlatConfig()
    batch_embedding: BatchEmbeddingConfig = BatchEmbeddingConfig()
    datapoints: DatapointsConfig = DatapointsConfig()
    mcn: MCNConfig = MCNConfig()
    casa: CasaConfig = CasaConfig()
