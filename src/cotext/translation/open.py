"""Opened runs and engines: loaded once, then used for translation, scoring and analysis.

Also the constraints of a user on translations (glossary terms, words to keep, a translation memory), and
signatures in reports: `key:value|key:value`. `cotext.models` makes the part for the model,
`DecodingPlan.signature` the part for decoding.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cotext.config.recipe import Config, DecodeConfig, parse_config
from cotext.data.documents import Languages, primary_language, same_language
from cotext.data.shortlist import SHORTLIST, Shortlist, identity_of, named
from cotext.data.tokenizer import Tokenizer
from cotext.models.build_views import special_symbols
from cotext.models.checkpoint import LoadedModel, in_precision, load_run
from cotext.models.interface import Engine, Model
from cotext.models.language_model import WithLanguageModel
from cotext.models.run_folder import is_engine, model_file, noted_data
from cotext.runtime import CotextError, naming, nearest_known, shown
from cotext.runtime.devices import choose_device, choose_threads, slow_precision
from cotext.runtime.files import checksum
from cotext.search.engine import MODEL, load_engine
from cotext.translation.requests import TermOptions
from cotext.translation.terms.terms import Glossary, TermGuide, TranslationMemory, read_words
from cotext.translation.translator import DocumentTranslator


@dataclass(frozen=True, slots=True)
class Terminology:
    """A glossary, words to leave untranslated, and a translation memory.

    A translation memory can be used only for files such as DOCX or HTML, not for corpora.
    """

    glossary: Glossary | None = None
    keep: tuple[str, ...] = ()
    memory: TranslationMemory | None = None

    @property
    def of_terms(self) -> bool:
        return bool(self.glossary or self.keep)

    @property
    def phrases(self) -> str:
        """The source terms and words to leave untranslated, one per line, in lower case."""
        terms = self.glossary.terms if self.glossary else ()
        return "\n".join((*(term.source for term in terms), *self.keep)).casefold()

    @property
    def settings(self) -> str:
        """A hash that identifies these constraints; empty if there are none."""
        has_any = self.of_terms or self.memory is not None
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16] if has_any else ""

    def check(self, translator: DocumentTranslator) -> None:
        """Raise CotextError if there are terms and the system does not support terms."""
        if self.of_terms:
            translator.require_terms()

    def guide(
        self,
        translator: DocumentTranslator,
        documents: Sequence[Sequence[str]],
        copied: Sequence[Sequence[Sequence[str]]] | None = None,
    ) -> TermGuide | None:
        """Return the constraints for documents (lists of sentences); None if there are none.

        Also return None if the system does not support them.
        """
        # Copied texts, such as placeholders, are constraints even without a glossary.
        has_any = self.of_terms or any(texts for document in copied or () for texts in document)
        if not has_any or not translator.supports_terms:
            return None
        return TermGuide(documents, self.glossary, keep=self.keep, copied=copied)


def read_terminology(languages: Languages, request: TermOptions) -> Terminology:
    """Read the files of a request; raise CotextError for a file that cannot be read."""
    glossary, keep, memory = request.glossary, request.keep, request.memory
    return Terminology(
        Glossary.read(glossary, languages.source, languages.target) if glossary is not None else None,
        read_words(keep) if keep is not None else (),
        TranslationMemory.read(memory, languages) if memory is not None else None,
    )


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A loaded run or engine: model, device and decoding settings.

    `weights`: the model file. `translator` translates and scores documents. `first_pass`: the run that makes
    the first translation in two-pass decoding, if there is one. `language_model`: the run that corrects the
    scores of a sentence model, if there is one.
    """

    folder: Path
    weights: Path
    loaded: LoadedModel
    translator: DocumentTranslator
    first_pass: "OpenedRun | None" = None
    language_model: "OpenedRun | None" = None

    def further_runs(self) -> dict[str, "OpenedRun"]:
        """Return the other runs that translation needs, by their keys in the section `decode`."""
        runs = {"first_pass": self.first_pass, "language_model": self.language_model}
        return {name: run for name, run in runs.items() if run is not None}

    @property
    def config(self) -> Config:
        """The configuration, with overridden decoding settings."""
        return self.translator.config

    @property
    def languages(self) -> Languages:
        """The languages of the decoding settings, else those of the run."""
        decode, own = self.config.decode, self.loaded.languages
        chosen = decode.source_language or own.source, decode.target_language or own.target
        return Languages(*map(primary_language, chosen))

    @property
    def signature(self) -> str:
        return f"{self.loaded.signature}|{self.translator.signature}"

    @property
    def controlled(self) -> bool:
        """Whether the run learned from the controlled corpus or data distilled from it (`data.json`)."""
        return bool(noted_data(self.folder).get("controlled", False))

    @property
    def slow(self) -> str:
        """A warning if the precision of the model is slow on its device; otherwise empty."""
        is_bfloat16 = self.loaded.precision == "bfloat16"
        return slow_precision("decode.precision = bfloat16", self.translator.device) if is_bfloat16 else ""

    def with_decode(self, decode: dict[str, Any]) -> "OpenedRun":
        """Return the same model with other decoding settings; raise the same errors as `open_run`."""
        return _open(self.folder, self.weights, self.loaded, self.translator.device, decode)

    def listing(self) -> "OpenedRun":
        """Return this run with nbest = beam; raise CotextError if its model or search has no n-best lists."""
        return self.with_engine(None, nbest=self.config.decode.beam)

    def require_no_lists(self, what: str) -> None:
        """Raise CotextError if the run writes n-best lists; `what`: an input that cannot have them."""
        if (nbest := self.config.decode.nbest) > 1:
            raise CotextError(
                f"{what}: decode.nbest = {nbest}: n-best lists can be written only for corpora with one "
                "sentence per line, and not with --on; add --set nbest=1"
            )

    def with_engine(self, engine: Engine | None, **decode: Any) -> "OpenedRun":
        """Return the same model, searched by an engine (None: by PyTorch), with other search settings."""
        # The engine is recorded, because a job is resumed only with the same one.
        decode["engine"] = "torch" if engine is None else "ctranslate2"
        config, own = _with_decode(self.config, decode), self.translator
        translator = DocumentTranslator(
            *(own.model, config, self.loaded.tokenizer, own.device, own.first_pass, own.plan.name),
            shortlist=own.shortlist,
            engine=engine,
        )
        return replace(self, translator=translator)


def open_run(
    run: Path,
    device: str | None = None,
    decode: dict[str, Any] | None = None,
    update: int | None = None,
    threads: int | None = None,
    converts: bool = False,
) -> OpenedRun:
    """Load a run or an engine, and its first-pass run, if any; `decode` overrides its decoding settings.

    `update`: the checkpoint to load; None: the final model. `threads`: number of CPU threads; None:
    `train.threads`, or chosen for the model size. `converts`: the caller handles `decode.engine`. Otherwise,
    runs are searched by PyTorch, as in all commands that report values.

    Raises CotextError if the run or device does not exist, or a decoding key is unknown; or if `decode` has
    engine = ctranslate2, but `converts` is False.
    """
    if not converts and (decode or {}).get("engine") == "ctranslate2" and not is_engine(run):
        raise CotextError(
            "decode.engine = ctranslate2: this command computes its results with PyTorch; remove the "
            "setting, or export the run (--to ctranslate2) and pass the engine instead"
        )
    chosen = choose_device(device)
    loaded, weights = _load(run, chosen, update, threads)
    config = loaded.config
    torch.set_num_threads(threads or choose_threads(config.model.dimension, config.train.threads))
    return _open(run, weights, loaded, chosen, decode or {})


def _load(
    run: Path, device: torch.device, update: int | None = None, threads: int | None = None
) -> tuple[LoadedModel, Path]:
    """Load the model of a run or engine to a device; return it and the file with its weights."""
    if not is_engine(run):
        loaded = load_run(run, update)
        return replace(loaded, model=loaded.with_states(str(run)).to(device)), model_file(run, update)
    if update is not None:
        raise CotextError(f"{run}: is an engine, which has no checkpoints; remove the checkpoint option")
    return load_engine(run, device, threads), run / MODEL


def open_scorer(
    run: Path, device: str | None = None, decode: dict[str, Any] | None = None, update: int | None = None
) -> OpenedRun:
    """Load a run for scoring given translations, like `open_run` but without first pass and shortlist."""
    return open_run(run, device, {**(decode or {}), "first_pass": "", "shortlist": 0}, update)


def _open(
    folder: Path, weights: Path, loaded: LoadedModel, device: torch.device, decode: dict[str, Any]
) -> OpenedRun:
    config = _with_decode(loaded.config, decode)
    # Converted once, here: the model is shared by all translators of this run.
    loaded = in_precision(loaded, config.decode.precision, device)
    named = config.decode.first_pass
    first_pass = _open_first_pass(Path(named), device) if named else None
    before = None if first_pass is None else first_pass.translator
    shortlist = _shortlist(folder, loaded.tokenizer, config)
    model: Model | Engine = loaded.model
    language_model = None
    if named := config.decode.language_model:
        with naming(f"decode.language_model = {named}"):
            other, path = _load(Path(named), device)
        other = in_precision(other, config.decode.precision, device)
        name = f"{Path(named).resolve().name}-{checksum(path)[:8]}"
        writer = DocumentTranslator(other.model, other.config, other.tokenizer, device, name=name)
        language_model = OpenedRun(Path(named), path, other, writer)
        model, config = _combined(loaded, config, language_model)
    translator = DocumentTranslator(model, config, loaded.tokenizer, device, before, shortlist=shortlist)
    return OpenedRun(folder, weights, loaded, translator, first_pass, language_model)


def _shortlist(run: Path, tokenizer: Tokenizer, config: Config) -> Shortlist | None:
    """Load the shortlist of a run, if required; raise CotextError if there is none or it is damaged."""
    size, path = config.decode.shortlist, run / SHORTLIST
    if not size or is_engine(run):
        return None
    if not path.is_file():
        raise CotextError(
            f"decode.shortlist = {size}: {run} has no {SHORTLIST}; create it with `cotext "
            f"shortlist {run} --data DATA`, or remove decode.shortlist"
        )
    return Shortlist.load(path, tokenizer)


def _open_first_pass(run: Path, device: torch.device) -> OpenedRun:
    """Load the first-pass run with its own configuration."""
    with naming(f"decode.first_pass = {run}"):
        loaded, weights = _load(run, device)
    loaded = in_precision(loaded, loaded.config.decode.precision, device)
    # Only the best translation of a first pass is used.
    loaded = replace(loaded, config=_with_decode(loaded.config, {"nbest": 1}))
    shortlist = _shortlist(run, loaded.tokenizer, loaded.config)
    # The name identifies everything that affects translations, except decoding settings, which are in the
    # signature.
    precision = "" if loaded.precision == "float32" else loaded.precision
    parts = (run.resolve().name, checksum(weights)[:8], precision, named(shortlist))
    name = "-".join(filter(None, parts))
    translator = DocumentTranslator(
        loaded.model, loaded.config, loaded.tokenizer, device, name=name, shortlist=shortlist
    )
    return OpenedRun(run, weights, loaded, translator)


def _combined(loaded: LoadedModel, config: Config, other: OpenedRun) -> tuple[WithLanguageModel, Config]:
    """Return a sentence model with a language model, and its configuration with the language model's view.

    Raises CotextError if the runs or the decoding settings do not fit together.
    """
    key, decode, view = f"decode.language_model = {other.folder}", config.decode, other.config.view
    model = loaded.left_to_right(key)
    symbols = special_symbols(loaded.tokenizer, view)
    pairs = loaded.languages, other.languages
    problems = {
        "is not a language model: train one with d-lm/lm": other.config.model.reads_source,
        "needs a run that translates single sentences (view.kind = sentence)": (
            config.view.kind != "sentence" or model.sees_other_rows or not config.model.reads_source
        ),
        "its view must be windows without later sentences (view.kind = window, view.after = 0)": (
            view.kind != "window" or view.after > 0
        ),
        "has another tokenizer; prepare its data with --tokenizer RUN (the sentence model)": (
            other.loaded.tokenizer.fingerprint != loaded.tokenizer.fingerprint
            or len(other.loaded.left_to_right(key).output_weight) != len(model.output_weight)
        ),
        f"is a model of {pairs[1].target}, but the sentence model translates {pairs[0]}": (
            all(map(str, pairs)) and not same_language(pairs[0].target, pairs[1].target)
        ),
        "multilingual tokenizers are not supported": bool(symbols.source_prefix or symbols.target_prefix),
        "needs decode.align = constrained": decode.align != "constrained",
        "needs decode.target_context = prefix": decode.target_context != "prefix",
        "needs decode.shortlist = 0": decode.shortlist > 0,
    }
    for problem, exists in problems.items():
        if exists:
            raise CotextError(f"{key}: {problem}")
    language_model = other.loaded.left_to_right(key)
    combined = WithLanguageModel(model, language_model, symbols, other.translator.plan.name)
    return combined.eval(), config.model_copy(update={"view": view})


def _with_decode(config: Config, decode: dict[str, Any]) -> Config:
    known = list(DecodeConfig.model_fields)
    for key in decode:
        if key not in known:
            raise CotextError(
                f"unknown decoding setting {shown(key)}{nearest_known(key, known)}; valid settings: "
                f"{', '.join(known)}"
            )
    content = config.model_dump()
    content["decode"] |= decode
    if content["decode"]["first_pass"] == "init":
        if not config.train.init:
            raise CotextError(
                "decode.first_pass = init: this run was not initialised from another run (train.init); set "
                "decode.first_pass to the path of a run"
            )
        content["decode"]["first_pass"] = config.train.init
    return parse_config(content, "decode settings")


# Entries that identify the model and its engine.
OF_MODEL = ("model", "updates", "engine", "quantization", "precision")
# Entries for decoding settings that change scores of given translations.
OF_SCORES = ("languages", "view", "path", "group_windows", "language_model")


def signature_entries(signature: str) -> dict[str, str]:
    """Return the values of a signature by key."""
    return {key: value for key, _, value in (part.partition(":") for part in signature.split("|"))}


def translation_entries(opened: OpenedRun) -> dict[str, str]:
    """Return the signature entries of translations: the model, and the decoding settings."""
    return {**_selected(opened.loaded.signature, OF_MODEL), **signature_entries(opened.translator.signature)}


def scoring_entries(opened: OpenedRun) -> dict[str, str]:
    """Return the signature entries of scores: the model, and the context that it uses."""
    model, context = opened.loaded.signature, opened.translator.signature
    return {**_selected(model, OF_MODEL), **_selected(context, OF_SCORES)}


def scoring_signature(opened: OpenedRun) -> str:
    """Return the signature of scores of given translations."""
    context = _selected(opened.translator.signature, OF_SCORES)
    entries = [f"{key}:{value}" for key, value in context.items()]
    return "|".join([opened.loaded.signature, *entries, "subwords:of-text", "unit:nats"])


def systems_of(opened: OpenedRun) -> dict[str, Any]:
    """Identify a run and its further runs, by checksums of their models and their configurations."""
    return {**_system(opened), **{name: _system(run) for name, run in opened.further_runs().items()}}


def _system(opened: OpenedRun) -> dict[str, Any]:
    engine = opened.translator.engine
    name = opened.loaded.engine if engine is None else engine.name
    return {
        **({"engine": name} if name else {}),
        "model": checksum(opened.weights),
        "tokenizer": opened.loaded.tokenizer.fingerprint,
        "config": opened.config.model_dump(mode="json"),
        **identity_of(opened.translator.shortlist),
    }


def _selected(signature: str, keys: Iterable[str]) -> dict[str, str]:
    entries = signature_entries(signature)
    return {key: entries[key] for key in keys if key in entries}
