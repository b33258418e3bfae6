"""Decoding plans: all decisions about decoding that are made and checked once, before the first batch.

A plan is made from a configuration, a tokenizer and a model. It defines the windows to search and score, the
symbols and functions to use, and which windows must be decoded before others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from cotext.config.recipe import Config, DecodeConfig
from cotext.data.batch import Batch, Source, SpecialSymbols
from cotext.data.tokenizer import Tokenizer, chosen_languages
from cotext.data.views import SentenceBySentence, View
from cotext.models.build_views import build_view, special_symbols
from cotext.models.checks import check_align, keeps_current
from cotext.models.describe import describe_cut, describe_length_penalty, describe_model
from cotext.models.interface import Engine, Model, NonAutoregressiveModel, PathKind
from cotext.models.language_model import WithLanguageModel
from cotext.models.likelihood import (
    ForcedPass,
    autoregressive_pass,
    label_nll,
    non_autoregressive_nll,
    parallel_pass,
    path_token_nll,
    sentence_sums,
)
from cotext.runtime import CotextError
from cotext.search.beam_search import search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.engine import engine_label_nll, search_engine
from cotext.search.hypotheses import Hypothesis, SearchOptions
from cotext.search.non_autoregressive import search_frames

Search = Callable[[Any, Source, Sequence[SearchRequest], SearchSymbols, SearchOptions], list[Hypothesis]]


@dataclass(frozen=True, slots=True)
class ModelKind:
    """Search and scoring functions of autoregressive models, non-autoregressive models, or engines.

    `token_nll` returns the negative log-likelihood of every label given the previous labels; None if the
    model has no probabilities of single tokens. `forced_pass` runs the model on a batch with a given target.
    It is None for engines, which do not expose their states. It is also None for a model combined with a
    language model, which reads other rows. `path`: see `NonAutoregressiveModel`; None for autoregressive
    models.
    """

    search: Search
    token_nll: Callable[[Any, Batch], Tensor] | None
    forced_pass: Callable[[Any, Batch], ForcedPass] | None
    path: PathKind | None

    def sentence_nll(self, model: Any, batch: Batch) -> Tensor:
        """Return negative log-likelihoods of the current sentences of a batch, row after row, in float64."""
        if self.path is not None:
            return non_autoregressive_nll(model, batch)
        assert self.token_nll is not None
        return sentence_sums(batch, self.token_nll(model, batch))


def kind_of(model: Model | Engine) -> ModelKind:
    """Return the functions for a model by its type; other code should use them, not check the type."""
    if isinstance(model, Engine):
        return ModelKind(search_engine, engine_label_nll, None, None)
    if isinstance(model, NonAutoregressiveModel):
        token_nll = path_token_nll if model.path == "sentences" else None
        return ModelKind(search_frames, token_nll, parallel_pass, model.path)
    if isinstance(model, WithLanguageModel):
        return ModelKind(search, label_nll, None, None)
    return ModelKind(search, label_nll, autoregressive_pass, None)


@dataclass(frozen=True, slots=True)
class DecodingPlan:
    """The settings, views and functions with which a system translates and scores documents.

    `config`: the configuration of the run, with `view.before` replaced by `decode.before` if given. `view`
    divides documents into windows for scoring, as in training. `searched_view` divides them for search; it
    differs from `view` if the sentences of a chunk are searched one by one. `group_windows`: number of
    consecutive windows that attend to each other; 1 if the model has no such attention. `sequential_windows`:
    number of consecutive windows that are decoded one after another; 1 if a group is decoded at once.
    `first_pass`: the plan of the system that makes the first translation in two-pass decoding. `name`: the
    name of this plan in signatures, if it is a first pass. `languages`: the language pair chosen for a
    multilingual tokenizer, or empty. `language_model`: the name in signatures of a language model that
    corrects scores, or empty.
    """

    config: Config
    kind: ModelKind
    sees_other_rows: bool
    view: View
    searched_view: View
    symbols: SpecialSymbols
    search_symbols: SearchSymbols
    options: SearchOptions
    group_windows: int
    sequential_windows: int
    first_pass: "DecodingPlan | None" = None
    name: str = "unnamed"
    languages: str = ""
    language_model: str = ""

    @classmethod
    def of(
        cls,
        config: Config,
        tokenizer: Tokenizer,
        model: Model | Engine,
        first_pass: "DecodingPlan | None" = None,
        name: str = "unnamed",
    ) -> "DecodingPlan":
        """Make a plan; raise CotextError for settings that cannot be combined or are not supported."""
        config = _with_context(config)
        decode, kind = config.decode, kind_of(model)
        view, symbols = build_view(config.view), special_symbols(tokenizer, config.view)
        # Without attention between rows, every window is a separate group.
        group_windows = decode.group_windows if model.sees_other_rows else 1
        check_align(decode.align, symbols.bracket)
        _check(config, model, kind, symbols)
        return cls(
            config=config,
            kind=kind,
            sees_other_rows=model.sees_other_rows,
            view=view,
            searched_view=_searched_view(config, kind, symbols, view),
            symbols=symbols,
            search_symbols=SearchSymbols(
                symbols,
                tokenizer.unk,
                blank=tuple(tokenizer.blank()),
                # With brackets, `sep` is not used, so it must not be written.
                unused=(*((tokenizer.sep,) if symbols.bracket else ()), *tokenizer.unwritten),
            ),
            options=SearchOptions(
                decode.beam,
                decode.length_penalty,
                decode.align,
                decode.nbest,
                decode.scores,
                decode.length_penalty_form,
                decode.sampling,
            ),
            group_windows=group_windows,
            sequential_windows=group_windows if decode.schedule == "sequential" else 1,
            first_pass=first_pass,
            name=name,
            languages=chosen_languages(tokenizer),
            language_model=model.name if isinstance(model, WithLanguageModel) else "",
        )

    @property
    def decode(self) -> DecodeConfig:
        return self.config.decode

    @property
    def translations_as_context(self) -> bool:
        """Whether finished translations are the target context of other windows."""
        view = self.config.view
        has_context = view.kind == "window" and view.before > 0 and view.target_before != 0
        return has_context and self.decode.target_context == "prefix"

    @property
    def searches_groups(self) -> bool:
        """Whether windows that attend to each other are searched together, in one batch."""
        return self.sequential_windows < self.group_windows

    @property
    def signature(self) -> str:
        view, decode = self.config.view, self.decode
        languages = [f"languages:{self.languages}"] if self.languages else []
        size = "" if view.kind == "sentence" else f"-{view.max_tokens}"
        parts = [*languages, f"view:{describe_cut(view, view.max_sentences)}{size}"]
        if view.kind != "sentence":
            parts.append(f"separators:{view.separators}")
        parts += [f"align:{decode.align}", f"beam:{decode.beam}"]
        # Beam search per sentence and per document give different results.
        if self.searched_view is not self.view:
            parts.append(f"beam_per:{decode.beam_per}")
        # Non-autoregressive output depends on the kind of path, not on the length penalty.
        path = self.kind.path
        parts.append(f"lp:{describe_length_penalty(decode)}" if path is None else f"path:{path}")
        if decode.sampling is not None:
            settings = (f"{name}={value}" for name, value in decode.sampling)
            parts.append(f"sampling:{','.join(settings)}")
        parts.append(f"limit:{decode.max_ratio:g}x+{decode.max_extra}")
        if view.kind == "window" and view.target_before != 0:
            parts.append(f"target:{decode.target_context}")
        if self.sees_other_rows:
            parts += [f"schedule:{decode.schedule}", f"group_windows:{decode.group_windows}"]
        if self.language_model:
            parts.append(f"language_model:{self.language_model}")
        if decode.shortlist:
            parts.append(f"shortlist:{decode.shortlist}")
        if self.first_pass is not None:
            first = self.first_pass
            parts.append(f"first_pass:{first.name}({first.signature.replace('|', ',')})")
        return "|".join(parts)

    def rank_score(self, log_probability: float, labels: int) -> float:
        """Return the score of a sentence in search; `labels` counts its tokens and the closing symbol."""
        return log_probability / self.options.divisor(max(labels, 1))

    def check_passes(self) -> None:
        """Check that the schedule and the first pass can be combined; scoring does not need this check.

        Raises CotextError if the system is a language model, or needs a first pass that is missing or not
        loaded; or if the first pass has no effect, or itself has a first pass.
        """
        decode, first = self.decode, self.first_pass
        if not self.config.model.reads_source:
            raise CotextError(
                "this run is a language model, which does not read the source; translate with a sentence "
                "model, and give this run as decode.language_model"
            )
        if first is None:
            if decode.first_pass:
                raise CotextError(
                    f"decode.first_pass = {decode.first_pass}: the first-pass run is not loaded; load this "
                    'run with cotext.load, which loads both, or set decode.first_pass to ""'
                )
            if self.group_windows > self.sequential_windows and self.translations_as_context:
                raise CotextError(
                    "decode.schedule = simultaneous needs a first pass, which translates the target context: "
                    "all windows of a group are decoded together. Set decode.first_pass to a run, or choose "
                    "decode.schedule = sequential"
                )
            return
        if not self.translations_as_context:
            raise CotextError(
                f"decode.first_pass = {decode.first_pass}: has no effect, because this system "
                f"({self.signature}) does not use translations as target context; remove decode.first_pass"
            )
        if first.first_pass is not None or first.decode.first_pass:
            raise CotextError(
                f"decode.first_pass = {decode.first_pass}: this run itself uses a first pass "
                f"({first.decode.first_pass}), but at most two passes are supported; choose a run without "
                "decode.first_pass"
            )
        first.check_passes()

    def require_token_probabilities(self) -> None:
        """Raise CotextError if the system has no probabilities of single tokens.

        An example is a non-autoregressive model with one CTC path for the whole sequence.
        """
        if self.kind.token_nll is None:
            raise CotextError(
                f"{describe_model(self.config.model)} computes one likelihood for the whole sequence, not "
                "for tokens; use an autoregressive system, or a non-autoregressive one with "
                "model.nat.path = sentences, such as casa/casa"
            )


def _check(config: Config, model: Model | Engine, kind: ModelKind, symbols: SpecialSymbols) -> None:
    """Raise CotextError for decoding settings that a model or an engine does not support."""
    decode, described = config.decode, describe_model(config.model)
    system = "an engine" if kind.path is None else described
    lists, most_source = f"decode.nbest = {decode.nbest}", f"max_source_tokens = {decode.max_source_tokens}"
    problems = {
        f"{lists}: n-best lists need constrained search; choose decode.align = constrained": (
            decode.nbest > 1 and decode.align == "free"
        ),
        f"{lists}: {described} is non-autoregressive and has no beam; remove decode.nbest": (
            decode.nbest > 1 and kind.path is not None
        ),
        f"decode.sampling: {system} cannot draw tokens; choose an autoregressive run, or remove it": (
            decode.sampling is not None and kind.search is not search
        ),
        f"decode.language_model = {decode.language_model}: this run is not loaded; load the sentence model "
        "with cotext.load, which loads both, or remove the setting": (
            bool(decode.language_model) and not isinstance(model, WithLanguageModel)
        ),
    }
    if isinstance(model, Engine):
        most = model.positions - symbols.per_source_sentence
        problems |= {
            f"decode.shortlist = {decode.shortlist}: engines do not support a shortlist; remove the "
            "setting": decode.shortlist > 0,
            "decode.align = free: engines return exactly the requested sentences; remove the setting": (
                decode.align == "free"
            ),
            "decode.engine = torch: this is an engine of CTranslate2; use the run from which it was made": (
                decode.engine == "torch"
            ),
            "decode.scores = false: engines always compute scores; remove the setting": not decode.scores,
            f"decode.{most_source}: the engine supports at most {most} tokens; set it to at most {most}, or "
            "export a run with a larger decode.max_source_tokens": decode.max_source_tokens > most,
        }
    for problem, exists in problems.items():
        if exists:
            raise CotextError(problem)


def _with_context(config: Config) -> Config:
    """Return the configuration with `decode.before` context sentences.

    Raises CotextError if the system does not translate windows.
    """
    before, view = config.decode.before, config.view
    if before is None:
        return config
    if view.kind != "window":
        raise CotextError(
            f"decode.before = {before}: this system does not translate windows (view.kind = {view.kind}); "
            "remove decode.before"
        )
    return config.model_copy(update={"view": view.model_copy(update={"before": before})})


def _searched_view(config: Config, kind: ModelKind, symbols: SpecialSymbols, view: View) -> View:
    """Return the view for decoding (scoring uses the training view); raise CotextError if unsupported."""
    if config.decode.beam_per != "sentence" or config.view.kind != "document":
        return view
    if kind.path is not None:
        raise CotextError(
            f"decode.beam_per = sentence: {describe_model(config.model)} is non-autoregressive and "
            "has no search per sentence; remove decode.beam_per"
        )
    if not symbols.bracket:
        raise CotextError(
            "decode.beam_per = sentence needs view.separators = bracket: with "
            f"{config.view.separators} separators, the last sentence of a document ends with a different "
            "symbol than the other sentences; choose decode.beam_per = document"
        )
    model = config.model
    segments = model.segments, model.target_segments
    if keeps_current(model) or "current" in segments or model.batch_context != "none":
        raise CotextError(
            "decode.beam_per = sentence: in training, this system reads all sentences of a document as "
            "current ones, and not one at a time; choose decode.beam_per = document"
        )
    return SentenceBySentence(view)
