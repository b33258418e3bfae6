"""From a configuration to parts that work: the one place that knows every view, model and loss by name.

A new system is one model file, one recipe and one line in a table here.
"""

from collections.abc import Callable

from cotext.config.model import ModelConfig
from cotext.config.recipe import Config
from cotext.data.build import build_mixture, check_align, further_symbols, is_bracketed
from cotext.data.tokenizer import SPECIAL_SYMBOLS
from cotext.layers.blocks import SentenceEmbedding, Size
from cotext.layers.initialisation import initialise
from cotext.models.abd import Datapoints
from cotext.models.casa import Casa, Switches
from cotext.models.docflat import DocFlat
from cotext.models.flat_transformer import FlatTransformer
from cotext.models.g_transformer import GTransformer
from cotext.models.interface import Model
from cotext.models.mbe import BatchEmbedding
from cotext.models.mcn import MCN
from cotext.models.p_transformer import PTransformer
from cotext.models.transformer import Transformer
from cotext.runtime.errors import CotextError


def _size(config: ModelConfig) -> Size:
    return Size(
        dimension=config.dimension,
        feed_forward=config.feed_forward,
        heads=config.heads,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.activation_dropout,
        pre_norm=config.pre_norm,
    )


def _embedding(config: ModelConfig, vocabulary: int, sentences: int, bracketed: bool) -> SentenceEmbedding:
    return SentenceEmbedding(
        vocabulary,
        config.dimension,
        config.dropout,
        positions=config.positions,
        segments=config.segments,
        # Segments of Flat-Transformer are the current and the context, not sentences.
        max_segments=2 if config.name == "flat_transformer" else sentences,
        bracketed=bracketed,
        from_first=config.from_first is not False,
    )


def build_transformer(config: ModelConfig, embedding: SentenceEmbedding) -> Transformer:
    """The Transformer of `models/transformer.py`."""
    shift = config.shift if config.positions == "shifted" else 0
    if shift == "corpus":
        raise CotextError("model.shift = corpus must be resolved to a number before a model is built")
    return Transformer(_size(config), embedding, shift)


def build_p_transformer(config: ModelConfig, embedding: SentenceEmbedding) -> PTransformer:
    """The P-Transformer of `models/p_transformer.py`."""
    return PTransformer(_size(config), embedding, **config.p_transformer.model_dump())


def build_g_transformer(config: ModelConfig, embedding: SentenceEmbedding) -> GTransformer:
    """The G-Transformer of `models/g_transformer.py`.

    Raises:
        CotextError: more global layers than layers.
    """
    layers = config.g_transformer.global_layers
    if layers > min(config.encoder_layers, config.decoder_layers):
        raise CotextError(
            f"model.g_transformer.global_layers = {layers}, but the encoder has {config.encoder_layers} "
            f"layers and the decoder {config.decoder_layers}; ask for fewer"
        )
    return GTransformer(_size(config), embedding, layers)


def build_flat_transformer(config: ModelConfig, embedding: SentenceEmbedding) -> FlatTransformer:
    """The Flat-Transformer of `models/flat_transformer.py`.

    Raises:
        CotextError: more layers of the current sentence than the encoder has.
    """
    layers = config.flat_transformer.current_layers
    if layers > config.encoder_layers:
        raise CotextError(
            f"model.flat_transformer.current_layers = {layers}, but the encoder has {config.encoder_layers} "
            "layers; ask for fewer"
        )
    return FlatTransformer(_size(config), embedding, layers)


def build_docflat(config: ModelConfig, embedding: SentenceEmbedding) -> DocFlat:
    """The DocFlat of `models/docflat.py`."""
    return DocFlat(_size(config), embedding, **config.docflat.model_dump())


def build_batch_embedding(config: ModelConfig, embedding: SentenceEmbedding) -> BatchEmbedding:
    """The mini-batch embedding of `models/batch_embedding.py`."""
    return BatchEmbedding(_size(config), embedding, **config.batch_embedding.model_dump())


def build_datapoints(config: ModelConfig, embedding: SentenceEmbedding) -> Datapoints:
    """The attention between datapoints of `models/datapoints.py`."""
    return Datapoints(_size(config), embedding, **config.datapoints.model_dump())


def build_mcn(config: ModelConfig, embedding: SentenceEmbedding) -> MCN:
    """The MCN of `models/mcn.py`."""
    return MCN(_size(config), embedding, **config.mcn.model_dump())


def build_casa(config: ModelConfig, embedding: SentenceEmbedding) -> Casa:
    """The CASA of `models/casa.py`, GLAT and GLAT+CTC.

    Raises:
        CotextError: switches that need to know the sentence of a place, where nothing tells it.
    """
    switches = Switches(**config.casa.model_dump())
    if switches.path == "length" and (
        switches.local or switches.context_layers or switches.soft_copy == "sentences"
    ):
        raise CotextError(
            "model.casa.path = length: which place belongs to which sentence is not known; it takes "
            "model.casa.local = false, context_layers = 0 and soft_copy = row"
        )
    # Brackets append no symbols, so that those of every tokenizer are the last; padding is the first of them.
    blank = embedding.weight.size(0) - SPECIAL_SYMBOLS
    return Casa(_size(config), embedding, blank, switches)


MODELS: dict[str, Callable[[ModelConfig, SentenceEmbedding], Model]] = {
    "transformer": build_transformer,
    "p_transformer": build_p_transformer,
    "g_transformer": build_g_transformer,
    "flat_transformer": build_flat_transformer,
    "docflat": build_docflat,
    "batch_embedding": build_batch_embedding,
    "datapoints": build_datapoints,
    "mcn": build_mcn,
    "casa": build_casa,
}


def build_model(config: Config, vocabulary: int) -> Model:
    """The model of a configuration, with fresh weights from torch's global generator.

    `vocabulary` counts the subwords and the special symbols of every recipe (`Tokenizer.vocabulary_size`);
    those of this recipe's separators come on top.

    Raises:
        CotextError: the dimension is not divisible by the number of heads.
    """
    model = config.model
    if model.dimension % model.heads:
        raise CotextError(
            f"model.dimension = {model.dimension} is not divisible by model.heads = {model.heads}"
        )
    # What search would refuse too, but only at the first validation.
    check_align(config.decode.align, is_bracketed(config.view))
    _check_training(config)
    _check_parallel(config)
    if model.positions == "shifted" and model.name != "transformer":
        raise CotextError(f"model.positions = shifted is for model.name = transformer, not {model.name}")
    if model.positions == "reset" and model.name == "p_transformer":
        raise CotextError(
            "model.positions = reset: the positions that p_transformer tells again are absolute"
        )
    symbols = vocabulary + further_symbols(config.view)
    sentences = max(view.sentences for view, _ in build_mixture(config.view).parts)
    embedding = _embedding(model, symbols, sentences, is_bracketed(config.view))
    built = MODELS[model.name](model, embedding)
    initialise(built, model.initialisation)
    return built


def _check_training(config: Config) -> None:
    """Refuse orders and contexts of training that its view cannot have.

    Which models they go with is free: whether other rows are seen, and whether those are of the same
    document, is what the paper's table 5 varies (Wu et al. 2023).
    """
    view, train = config.view, config.train
    if train.order == "documents" and view.mixed_with:
        raise CotextError(
            "train.order = documents: the windows of several views have no common order; leave out "
            "view.mixed_with, or choose train.order = shuffled"
        )
    # Elsewhere context would be what the row translates too, or nothing.
    if train.context == "foreign" and (view.kind != "window" or view.mixed_with):
        raise CotextError(
            "train.context = foreign replaces the sentences around the current one: it takes view.kind = "
            "window, without view.mixed_with"
        )


def _check_parallel(config: Config) -> None:
    """Refuse losses and views that do not go with how the model writes: left to right, or all at once."""
    view, parallel = config.view, config.model.name == "casa"
    if parallel != (config.loss.name == "glancing"):
        needed = "glancing" if parallel else "cross_entropy"
        raise CotextError(
            f"loss.name = {config.loss.name}: model.name = {config.model.name} takes loss.name = {needed}"
        )
    if not parallel:
        return
    if view.separators != "bracket":
        raise CotextError(
            f"view.separators = {view.separators}: casa knows sentences by their first and last tokens; "
            "choose bracket"
        )
    if unfit := {cut.kind for cut in (view, *view.mixed_with)} - {"sentence", "document"}:
        raise CotextError(
            f"view.kind = {unfit.pop()}: casa writes every sentence of its row at once; choose document or "
            "sentence"
        )
