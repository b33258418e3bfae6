"""Building views, mixtures and special symbols from the section `view` of a configuration."""

from dataclasses import replace

from cotext.config.recipe import CutConfig, ViewConfig
from cotext.data.batch import SpecialSymbols
from cotext.data.tokenizer import Tokenizer
from cotext.data.views import CumulativeView, DocumentView, Limit, Mixture, View, WindowView
from cotext.runtime import CotextError


def has_separators(view: ViewConfig) -> bool:
    return has_multi_sentence_rows(view) and view.separators in ("plain", "indexed")


def has_multi_sentence_rows(view: ViewConfig) -> bool:
    """Return whether a row can have more than one sentence."""
    return any(cut.kind != "sentence" for cut in (view, *view.mixed_with))


def has_multi_sentence_targets(view: ViewConfig) -> bool:
    """Return whether the target side of a row can have more than one sentence."""
    return any(
        cut.kind == "document" or (cut.kind == "window" and cut.target_context > 0)
        for cut in (view, *view.mixed_with)
    )


def further_symbols(view: ViewConfig) -> int:
    """Return the number of symbols that a recipe appends to the vocabulary.

    The first indexed separator is the plain separator, and is not counted.

    Raises CotextError if the number is still `corpus`.
    """
    if view.separators == "indexed":
        return view.indexed_separators - 1
    if view.separators != "numbered":
        return 0
    if view.numbers == "corpus":
        raise CotextError(
            "view.numbers = corpus is not a number yet; set the number of sentences of the longest document, "
            "as `cotext train` does"
        )
    return view.numbers


def special_symbols(tokenizer: Tokenizer, view: ViewConfig) -> SpecialSymbols:
    """Return the special symbols of the tokenizer and, after them, the symbols that the recipe appends.

    Raises CotextError if a separate source vocabulary already uses the ids of appended symbols.
    """
    first, count = tokenizer.vocabulary_size, further_symbols(view)
    if count and tokenizer.source_vocabulary_size > first:
        raise CotextError(
            f"view.separators = {view.separators}: this tokenizer has a vocabulary for each side, and no "
            "room for additional symbols; choose plain or bracket"
        )
    further = tuple(range(first, first + count))
    bracket = view.bracketed
    return SpecialSymbols(
        pad=tokenizer.pad,
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        separators=(tokenizer.eos,) if bracket else (tokenizer.sep, *further),
        bracket=bracket,
        numbers=further if bracket else (),
        source_begins=view.open_source is not False,
        source_prefix=tokenizer.source_prefix,
        target_prefix=tokenizer.target_prefix,
    )


def build_view(config: ViewConfig) -> View:
    """Return the view for validation and translation; raise CotextError for keys of other kinds of views."""
    return _build_cut(config, config)


def build_mixture(config: ViewConfig) -> Mixture:
    """Return the training mixture: the view, weight 1, and `view.mixed_with`. Errors: see `build_view`."""
    further = ((_build_cut(cut, config), cut.weight) for cut in config.mixed_with)
    return Mixture(((build_view(config), 1.0), *further))


def _build_cut(cut: CutConfig, config: ViewConfig) -> View:
    takes = {"sentence": (), "window": ("before", "after", "target_before")}.get(cut.kind, ("parts",))
    for key in ("before", "after", "target_before", "parts"):
        if key not in takes and getattr(cut, key) != CutConfig.model_fields[key].default:
            raise CotextError(f"view.kind = {cut.kind} does not support view.{key}")
    kinds = {part.kind for part in (config, *config.mixed_with)}
    if config.max_sentences and kinds.isdisjoint({"document", "cumulative"}):
        raise CotextError(f"view.kind = {cut.kind} does not support view.max_sentences")
    opens_source = config.bracketed and config.open_source is not False
    limit = Limit(config.max_tokens, 1 + opens_source)
    if cut.kind == "sentence":
        return WindowView(0)
    if cut.kind == "window":
        return WindowView(cut.before, cut.after, limit, cut.target_before)
    limit = replace(limit, max_sentences=config.max_sentences or None)
    if cut.kind == "document":
        return DocumentView(limit, cut.parts)
    return CumulativeView(limit, cut.parts)
