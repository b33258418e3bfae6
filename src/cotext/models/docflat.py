"""DocFlat (Wu et al. 2023): rows of a document that see each other's current sentences.

A row is a sentence in its local context; the batch holds the rows of a document side by side. Before the
first block, the embeddings of all current sentences attend to each other as one sequence, and a gate lets
through what is of use. Context sentences pass as they are, and everything above is the baseline:

    source -> embedding -> flat-batch attention, gate -> encoder blocks ---> keys and values
    target -> embedding -> flat-batch attention, gate -> decoder blocks <--'     (causal on the target)

On the target a token sees its own row up to itself, and rows whose current sentences end where its own begin.
Rows of different documents do not meet; in the paper they do (`cross_document`, in training: a document alone
decides its translation). Rows may also be seen without being answered for (`ExtraRows`): at the level of
embeddings nothing of them is needed but their tokens.

Shapes: B entries, R rows, S source tokens, T target tokens, P tokens that lead, M tokens beside the rows,
D model.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cotext.data.batch import Source
from cotext.layers.blocks import DecoderBlock, EncoderBlock, SentenceEmbedding, Size, Stack
from cotext.layers.flat_batch import (
    ActiveGroups,
    ExtraKeys,
    FlatBatchAttention,
    FlatContext,
    Gate,
    PrefixedCache,
    RowOrder,
    Sequences,
    is_current,
)
from cotext.layers.masks import causal
from cotext.layers.multi_head import CrossAttention, SelfAttention
from cotext.layers.positions import ranks
from cotext.layers.stacks import decode_rows, encode_rows
from cotext.layers.state import DecoderState
from cotext.models.interface import TranslationModel


@dataclass(slots=True, kw_only=True)
class DocFlatState(DecoderState):
    """What flat-batch attention knows of the target: the last of the caches is its own.

    `beside` are the current target tokens of rows that are seen and complete: extra rows, then rows that
    have ended. Where no two entries meet, they lead the cache (`lead` says which do), and nothing else is to
    be done; where some do, `live` says who sees what of whom.
    """

    rows: RowOrder  # [B]
    current: Tensor  # [B, 2]
    beside: ExtraKeys
    embed: Callable[[Tensor, Tensor, Tensor, RowOrder], ExtraKeys]  # tokens, sentence, current, rows
    keys_values: Callable[[Tensor], tuple[Tensor, Tensor]]  # of [M, D]
    meets: bool = False
    lead: Tensor | None = None  # [B, P]
    live: ActiveGroups | None = None

    def open(self, places: int) -> None:
        """Allocate caches for `places` tokens a row, padding included, one row per entry."""
        DecoderState.open(self, places)
        entries = len(self.rows.group)
        self.meets = len(torch.unique(self.rows.group)) < entries
        like = self.cross[0][0]
        keys = values = like.new_empty(entries, like.size(1), 0, like.size(3))
        if not self.meets:
            # Entry i is all there is of its group.
            entry_M, token_M = self.rows.follows(self.beside.standing).nonzero(as_tuple=True)
            if len(token_M):
                laid = Sequences(entry_M, self.beside.standing.begin[token_M], entries)
                keys, values = (
                    laid.slots.unpack(x[token_M].flatten(1)).view(entries, -1, *x.shape[1:]).transpose(1, 2)
                    for x in self.keys_values(self.beside.hidden)
                )
                self.lead = laid.real_GL
        self.caches.append(PrefixedCache(keys.to(like.dtype), values.to(like.dtype), places))

    def finish(self, entries: Tensor, tokens: Tensor, sentence: Tensor) -> None:
        """Keep what ended rows have written, for those that go on: decoder inputs [E, T], -1 on padding."""
        if self.meets:
            ended = self.embed(tokens, sentence, self.current[entries], self.rows.take(entries))
            hidden = torch.cat((self.beside.hidden, ended.hidden))
            self.beside = ExtraKeys(hidden, self.beside.standing.join(ended.standing))

    def select(self, entries: Tensor, beam: int) -> None:
        """Keep the given entries [B'] with all `beam` rows of each."""
        DecoderState.select(self, entries, beam)
        self.rows = self.rows.take(entries)
        self.current = self.current.index_select(0, entries)
        self.lead = None if self.lead is None else self.lead.index_select(0, entries)
        self.live = None

    def groups(self) -> ActiveGroups:
        """Who meets whom, made once for as long as no row ends."""
        if self.live is None:
            # What ended in documents that are done is nobody's concern.
            needed = torch.isin(self.beside.standing.group, self.rows.group).nonzero().flatten()
            self.beside = ExtraKeys(self.beside.hidden[needed], self.beside.standing.take(needed))
            ended = self.keys_values(self.beside.hidden)
            self.live = ActiveGroups(self.rows, ended, self.beside.standing)
        return self.live

    def own(self, sentence: Tensor) -> Tensor:
        """Which current tokens of its own past each decoder input sees: [R, T] -> [B, 1, W * T, places]."""
        assert self.place_sentence is not None
        _, tokens = sentence.shape
        reach = self.reach(tokens, sentence.device)
        entries = len(self.current)
        keys = torch.cat((self.place_sentence[:, : self.used], sentence.view(entries, -1)), dim=1)
        mask = is_current(keys, self.current)[:, None, None]
        if reach.mask is not None:
            mask = mask & reach.mask
        elif reach.causal:
            mask = mask & causal(tokens, reach.places, mask.device)
        return mask.expand(-1, -1, self.beam * tokens, -1)


class DocFlat(TranslationModel):
    """Encoder and decoder over one shared embedding; flat-batch attention on either side can be left out.

    With both left out it is the baseline. `gate`: a share passes (C in the paper), all or nothing from
    `threshold` on (D), or everything is added (I).
    """

    sees_other_rows = True

    def __init__(
        self,
        size: Size,
        embedding: SentenceEmbedding,
        source: bool = True,
        target: bool = True,
        gate: Gate = "continuous",
        threshold: float = 0.5,
        cross_document: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.cross_document = cross_document
        self.encoder = Stack(
            EncoderBlock(size, SelfAttention(*size.attention)) for _ in range(size.encoder_layers)
        )
        self.decoder = Stack(
            DecoderBlock(size, SelfAttention(*size.attention), CrossAttention(*size.attention))
            for _ in range(size.decoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(size.dimension) if size.pre_norm else nn.Identity()

        def context() -> FlatContext:
            return FlatContext(FlatBatchAttention(*size.attention), size.dimension, gate, threshold)

        self.source_context = context() if source else None
        self.target_context = context() if target else None

    @property
    def output_weight(self) -> Tensor:
        """The output layer, shared with the embedding: [V, D]."""
        return self.embedding.weight

    def encode(self, source: Source) -> DecoderState:
        """Read the source and project it for the cross-attention of every decoder block."""
        sentence, rows, extra_rows = source.sentence, self._standing(source), source.extra_rows
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        x_BSD = self.embedding(source.tokens, sentence, t, ranks(sentence), 0)
        if self.source_context is not None:
            beside = None
            if extra_rows is not None:
                other = extra_rows.source
                beside = self._embed(
                    other.tokens, other.sentence, other.sentence, other.current, self._standing(other)
                )
            x_BSD = self.source_context(x_BSD, is_current(sentence, source.current), rows, beside)
        cross, mask = encode_rows(self.encoder, self.encoder_norm, x_BSD, sentence, self.decoder)
        if self.target_context is None:
            return DecoderState(cross=cross, cross_mask=mask)
        beside = ExtraKeys(x_BSD.new_empty(0, x_BSD.size(2)), rows.take(rows.group.new_empty(0)))
        if extra_rows is not None:
            target = extra_rows.target_input, extra_rows.input_sentence
            beside = self._embed_input(*target, extra_rows.source.current, self._standing(extra_rows.source))
        return DocFlatState(
            cross=cross,
            cross_mask=mask,
            rows=rows,
            current=source.current,
            beside=beside,
            embed=self._embed_input,
            keys_values=self.target_context.attention.keys_values,
        )

    def decode(self, tokens: Tensor, sentence: Tensor, state: DecoderState) -> Tensor:
        """Decoder inputs and their sentences [R, T] -> hidden states [R, T, D]; see `AutoregressiveModel`."""
        t, rank = state.places(sentence)
        told = self.embedding.input_sentence(sentence, state.sentence)
        x_RTD = self.embedding(tokens, told, t, rank, 0)
        if isinstance(state, DocFlatState) and self.target_context is not None:
            if state.caches:
                x_RTD = self._step(self.target_context, x_RTD, sentence, state)
            else:
                current_RT = is_current(sentence, state.current)
                x_RTD = self.target_context(x_RTD, current_RT, state.rows, state.beside, causal=True)
        return decode_rows(self.decoder, self.decoder_norm, x_RTD, sentence, rank, state)

    def _step(self, context: FlatContext, x_RTD: Tensor, sentence: Tensor, state: DocFlatState) -> Tensor:
        """The next tokens of rows that are being written: [R, T, D] -> [R, T, D]."""
        entries, tokens = len(state.current), sentence.size(1)
        h = x_RTD.reshape(entries, -1, x_RTD.size(-1))
        q, k, v = context.attention.project(h)
        cache, own = state.caches[-1], state.own(sentence)
        cache.write(k, v, state.used)
        k, v = cache.read(own.size(3))
        if state.meets:
            by_beam = own.reshape(entries, state.beam, tokens, -1)
            seen = state.groups().attend(context.attention, q, k, v, by_beam)
        else:
            if state.lead is not None:
                lead = state.lead[:, None, None].expand(-1, -1, own.size(2), -1)
                own = torch.cat((lead, own), dim=3)
            seen = context.attention.mix(q, k, v, own)
        current = is_current(sentence.view(entries, -1), state.current)
        return torch.where(current[:, :, None], context.combine(h, seen), h).view_as(x_RTD)

    def _standing(self, source: Source) -> RowOrder:
        crosses = self.cross_document and self.training
        return RowOrder.of(source.document, source.first_sentence, source.current, crosses)

    def _embed_input(self, tokens: Tensor, sentence: Tensor, current: Tensor, rows: RowOrder) -> ExtraKeys:
        """`_embed` of complete decoder inputs."""
        told = self.embedding.input_sentence(sentence, None)
        return self._embed(tokens, sentence, told, current, rows)

    def _embed(
        self, tokens: Tensor, sentence: Tensor, told: Tensor, current: Tensor, rows: RowOrder
    ) -> ExtraKeys:
        """The current tokens alone of complete rows [R, T], and where each stands.

        `told` [R, T] is the sentence that the embedding of each is given.
        """
        t = torch.arange(sentence.size(1), device=sentence.device).expand_as(sentence)
        chosen = is_current(sentence, current)
        row_M, at_M = chosen.nonzero(as_tuple=True)
        hidden = self.embedding.weight.new_empty(0, self.embedding.weight.size(1))
        if len(row_M):
            hidden = self.embedding(*(x[row_M, at_M][None] for x in (tokens, told, t, ranks(sentence))), 0)[0]
        return ExtraKeys(hidden, rows.take(row_M))
