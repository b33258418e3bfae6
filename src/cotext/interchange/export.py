"""Export of a run: as a run folder with a model card, for publication; in int8; or to CTranslate2.

The export of an imported run keeps `import.json`. Published folders contain no local paths, only the names
of the data and of the run that training started from. Model cards contain only recorded facts.
"""

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
import yaml
from torch import Tensor, nn

from cotext.config.parts import code_files
from cotext.config.recipe import Config
from cotext.data.documents import Languages
from cotext.data.shortlist import SHORTLIST
from cotext.interchange.importing import layer_parts, mbart_parts
from cotext.interchange.model_names import CARD
from cotext.layers.kernels.int8 import is_exact, onednn
from cotext.models.build_views import special_symbols
from cotext.models.checkpoint import LoadedModel, int8_weights, load_run, save_model
from cotext.models.describe import describe_cut, describe_length_penalty, describe_model
from cotext.models.run_folder import (
    CTRANSLATE2,
    IMPORT,
    INSTALL,
    EngineDescription,
    copy_records,
    describe_file,
    model_file,
    noted_data,
    noted_import,
    read_sealed,
    write_config,
    write_description,
)
from cotext.runtime import CotextError, read_json, shown
from cotext.runtime.files import new_folder, sealed

# JSON files of a run that contain no scores.
_OTHERS: Final = frozenset({"data.json", "init.json", "seeds.json", IMPORT})
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")


def export_hub(
    run: Path,
    out: Path,
    *,
    licence: str = "",
    scores: Sequence[Path] = (),
    recipe: str = "",
    update: int | None = None,
) -> None:
    """Write a run as a folder for publication.

    `licence`: licence of the model, in the notation of the hub (apache-2.0, cc-by-4.0 ...). If it is empty,
    the licence of the import is used if it is in this notation. `scores`: JSON files of `cotext evaluate` and
    `cotext contrastive`. Without `update`, such files in the run folder are used, too. `recipe`: name of the
    recipe; if it is empty, the paper and its table row are given instead.

    Raises CotextError: the run needs another run; a file has no scores; `out` is not empty or not writable.
    Also the errors of `load_run`.
    """
    if licence and not _LICENCE.fullmatch(licence):
        raise CotextError(
            f"--licence {shown(licence)}: write it as the hub does: apache-2.0, cc-by-4.0, mit ..."
        )
    loaded = load_run(run, update)
    for key in ("first_pass", "language_model"):
        if other := getattr(loaded.config.decode, key):
            raise CotextError(
                f"{run}: decode.{key} = {other}: it translates with another run, but a published run "
                f"must be complete; publish a run without decode.{key}"
            )
    own = [path for path in sorted(run.glob("*.json")) if path.name not in _OTHERS and update is None]
    figures = [figure for path in own for figure in read_scores(path, required=False)]
    figures += [figure for path in scores for figure in read_scores(path)]
    imported = noted_import(run)
    if imported and _LICENCE.fullmatch(str(imported.get("licence"))):
        licence = licence or str(imported["licence"])
    facts = CardFacts(
        name=out.resolve().name,
        loaded=loaded,
        recipe=recipe or loaded.config.paper,
        data=published_data(run),
        imported=imported,
        # The path in the configuration may be relative to another folder.
        start=read_sealed(run / "init.json").get("run") or loaded.config.train.init,
        licence=licence,
        figures=tuple(dict.fromkeys(figures)),
    )
    with new_folder(out) as temporary:
        weights = loaded.with_states("cotext export").state_dict()
        _write_run(temporary, loaded, published_config(loaded.config), weights)
        copy_records(run, temporary, (IMPORT, SHORTLIST))  # other records contain local paths
        write_data(temporary, facts.data)
        (temporary / CARD).write_text(model_card(facts), encoding="utf-8")


def export_int8(run: Path, out: Path, update: int | None = None) -> None:
    """Write a run folder with large matrices in int8, and decode.precision = int8.

    It has about a quarter of the size of the run. Its training cannot be resumed, but `train --init` can
    start from it. Its translations and scores equal, bit for bit, those of the run with decode.precision =
    int8. Raises CotextError if `out` is not empty.
    """
    loaded = load_run(run, update)
    decode = loaded.config.decode.model_copy(update={"precision": "int8"})
    weights = int8_weights(loaded.with_states("cotext export"))
    with new_folder(out) as temporary:
        _write_run(temporary, loaded, loaded.config.model_copy(update={"decode": decode}), weights)
        copy_records(run, temporary)


def _write_run(folder: Path, loaded: LoadedModel, config: Config, weights: dict[str, Tensor]) -> None:
    """Write a run folder with one model."""
    loaded.tokenizer.save(folder / "tokenizer")
    write_config(folder, config)
    save_model(folder / "model.safetensors", weights, config, loaded.tokenizer.fingerprint, loaded.updates)


def write_data(folder: Path, noted: Mapping[str, Any]) -> None:
    """Write the description of the training data into a folder, if there is one."""
    if noted:
        (folder / "data.json").write_text(f"{sealed(noted)}\n", encoding="utf-8")


def published_config(config: Config) -> Config:
    """Return the configuration without local paths."""
    init = Path(config.train.init).name if config.train.init else ""
    return config.model_copy(update={"train": config.train.model_copy(update={"init": init})})


def published_data(run: Path) -> dict[str, Any]:
    """Return the description of the training data, with only the name of its folder."""
    noted = noted_data(run)
    return {**noted, "folder": Path(noted["folder"]).name} if noted else {}


# --- Model cards: the README.md of a published run. Unknown facts are given as "not recorded".


NOT_RECORDED: Final = "not recorded"
SOURCES_UNKNOWN: Final = (
    f"Where the texts come from, their licences and how they were chosen: {NOT_RECORDED}."
)
MAX_CELL: Final = 300  # characters of a cell with untrusted text
MAX_CODE: Final = 1000  # characters of a signature
UNITS: Final = ("documents", "sentences", "source_tokens", "target_tokens")


@dataclass(frozen=True, slots=True)
class Figure:
    """A score, or an accuracy on a contrastive suite in per cent, with its signature.

    `metric`: name of the metric in the card's front matter. `what`: name of the output or of the examples.
    """

    metric: str
    title: str
    value: float
    what: str
    signature: str


@dataclass(frozen=True, slots=True)
class CardFacts:
    """Facts about a published run, empty if unknown. `imported`: import.json; `start`: the `--init` run."""

    name: str
    loaded: LoadedModel
    recipe: str
    data: Mapping[str, Any]
    imported: Mapping[str, Any]
    start: str
    licence: str
    figures: Sequence[Figure]


def read_scores(path: Path, required: bool = True) -> list[Figure]:
    """Read the scores in a file of `evaluate --json` or `contrastive --out`; `required`: raise if none."""
    figures: list[Figure] = []
    try:
        content = read_json(path)
        evaluated = content.get("format") == "cotext-evaluation"
        figures = list(_evaluation_figures(content) if evaluated else _contrastive_figures(content))
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    except CotextError:
        if required:
            raise
    if required and not figures:
        raise CotextError(
            f"{path}: contains no scores; pass output of `cotext evaluate --json` or `contrastive --out`"
        )
    return figures


def _evaluation_figures(content: Mapping[str, Any]) -> Iterator[Figure]:
    for system, entry in content["systems"].items():
        for protocol, score in entry["scores"].items():
            parts = protocol.lower().split("-")  # such as d-bleu-512
            names = (name for name in ("comet", "chrf", "ter", "bleu") if name in parts)
            title, value = _cell(score["title"]), float(score["value"])
            yield Figure(next(names, protocol), title, value, _cell(system), str(score["signature"]))


def _contrastive_figures(content: Mapping[str, Any]) -> Iterator[Figure]:
    for suite, report in content.items():
        if not isinstance(report, dict) or "overall" not in report:
            continue
        groups = {"all": report["overall"], **report["by_phenomenon"]}
        for name, accuracy in groups.items():
            what = f"{_cell(name)}, {int(accuracy['total']):,} examples"
            value = float(accuracy["accuracy_percent"])
            yield Figure("accuracy", _cell(suite), value, what, str(report["signature"]))


def _cell(text: Any) -> str:
    """Return untrusted text for a table: one line; characters that end a cell or make a link are escaped."""
    plain = " ".join(str(text).split())[:MAX_CELL]
    return "".join(f"\\{c}" if c in "|`<>[]" else c for c in plain)


def _code(text: Any) -> str:
    """Return untrusted text as code, such as a signature."""
    plain = " ".join(str(text).split())[:MAX_CODE].replace("`", "'")
    return "`" + plain.replace("|", "\\|") + "`"


def model_card(facts: CardFacts) -> str:
    """Return the card of a run: Markdown with YAML front matter."""
    config = facts.loaded.config
    languages = Languages.parse(config.languages)
    head: dict[str, Any] = {"language": [languages.source, languages.target]} if str(languages) else {}
    if facts.licence:
        head["license"] = facts.licence
    head |= {"library_name": "cotext", "pipeline_tag": "translation"}
    head["tags"] = ["translation", "document-level-translation", "cotext"]
    if metrics := list(dict.fromkeys(figure.metric for figure in facts.figures)):
        head["metrics"] = metrics
    pair = (
        f"from {languages.source} into {languages.target}" if str(languages) else "(languages not recorded)"
    )
    origin = "trained with Cotext"
    rows = f"It was trained on rows of up to {config.view.max_tokens} tokens a side. "
    if facts.imported:
        origin, rows = f"imported into Cotext from {_origin(facts.imported)}", ""
    runs, trust = "runs no code of this folder", ""
    if code := " and ".join(code_files(config.model.model_dump())):
        runs, trust = f"runs {code} with all your permissions: review it first", ", trust_code=True"
    return f"""---
{yaml.safe_dump(head, sort_keys=False)}---

# {facts.name}

A translation system {pair}, {origin}. It translates documents sentence by sentence, and returns as many \
sentences as it receives.

## How to load it

```python
import cotext
translator = cotext.load({json.dumps(facts.name)}{trust})
print(translator.translate(["The first sentence.", "The second sentence."]))
```

Run it next to this folder, or pass the repository (`owner/{facts.name}`) once it is on the hub. The
weights are safetensors, and loading {runs}.

## System

{_table(("", ""), _system(facts))}

## Training data

{_data(facts)}

## Scores

{_scores(facts)}

## Intended use and limits

For documents like those of the training data, in the languages named above.

- {rows}Sentences of more than {config.decode.max_source_tokens} tokens are refused.
- Translations can be wrong, and can omit or add words; wrong translations are not marked.
- Evaluation by people, and tests for harmful or biased output: {NOT_RECORDED}.
"""


def _system(facts: CardFacts) -> Iterator[tuple[str, str]]:
    config, model = facts.loaded.config, facts.loaded.config.model
    yield "recipe", _cell(facts.recipe) or NOT_RECORDED
    yield "model", describe_model(model)
    yield "view", describe_cut(config.view, config.view.max_sentences)
    yield "layers", f"{model.encoder_layers} encoder, {model.decoder_layers} decoder"
    yield "dimension", f"{model.dimension:,}, feed-forward {model.feed_forward:,}, {model.heads} heads"
    yield "parameters", f"{facts.loaded.parameters:,}"
    yield "subwords", f"{facts.loaded.tokenizer.pieces:,}"
    yield "started from", _start(facts)
    yield "decoding", f"beam {config.decode.beam}, length penalty {describe_length_penalty(config.decode)}"
    yield "licence", facts.licence or NOT_RECORDED
    yield "signature", _code(facts.loaded.signature)


def _start(facts: CardFacts) -> str:
    if facts.imported:
        return f"{_origin(facts.imported)}, not trained here"
    if not facts.start:
        return "random weights"
    start = Path(facts.start)
    if not (imported := noted_import(start)):
        return _cell(start.name)
    licence = _cell(imported.get("licence") or NOT_RECORDED)
    return f"{_cell(start.name)}, an import of {_origin(imported)} (licence {licence})"


def _origin(imported: Mapping[str, Any]) -> str:
    """Return the origin of an import: class, and the name of its folder."""
    return " ".join(_cell(imported[key]) for key in ("class", "folder") if imported.get(key))


def _data(facts: CardFacts) -> str:
    rows = []
    for split in ("train", "dev"):
        totals = facts.data.get(split)
        known = totals if isinstance(totals, Mapping) else {}
        counts = [f"{known[key]:,} {key.replace('_', ' ')}" for key in UNITS if type(known.get(key)) is int]
        rows.append((split, ", ".join(counts) or NOT_RECORDED))
    rows.append(("prepared as", _cell(facts.data.get("folder") or NOT_RECORDED)))
    checksums = facts.data.get("checksums", {})
    for name, digest in sorted(checksums.items()):
        is_choice = name == "choice of languages"
        rows.append((name if is_choice else f"SHA-256 of {_cell(name)}", _code(digest)))
    return f"{_table(('', ''), rows)}\n\n{SOURCES_UNKNOWN}"


def _scores(facts: CardFacts) -> str:
    if not facts.figures:
        return f"Test scores and contrastive accuracies: {NOT_RECORDED}."
    rows = [(f.title, f.what, f"{f.value:.2f}", _code(f.signature)) for f in facts.figures]
    return _table(("metric or suite", "of", "value", "signature"), rows)


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- Export of standard Transformers to CTranslate2, in float32 or quantized.
#
# CTranslate2 supports standard attention over the whole sequence and absolute positions. It has no segment
# embeddings. Other settings raise an error that names them. In the vocabularies of the export, tokens are
# represented by their ids. CTranslate2 is an optional package.


QUANTIZATIONS: Final = ("float32", "int8", "int8_float32", "int8_float16", "float16")
STEP: Final = 1024  # the number of positions is rounded up to a multiple of this
MOST_EXTRA: Final = 64  # maximum number of sentences for which `decode.max_extra` positions are reserved


def installed() -> bool:
    """Return whether CTranslate2 is installed."""
    return find_spec("ctranslate2") is not None


def has_exact_int8() -> bool:
    """Return whether int8 products of CTranslate2 are exact here: without VNNI, sums saturate."""
    return is_exact(onednn)


def obstacles(config: Config) -> Iterator[str]:
    """Yield the settings of a system that CTranslate2 does not support, as key = value."""
    model, view = config.model, config.view
    plain = {
        "writes": ("left_to_right",),
        "reads_source": (True,),
        "batch_context": ("none",),
        "context_encoder": ("none",),
        "document_layer": ("none",),
        "positions": ("absolute", "none"),
        "target_positions": (None, "absolute", "none"),
        "segments": ("none",),
        "target_segments": (None, "none"),
        "source_sentences": (None,),
    }
    for key, expressible in plain.items():
        if (value := getattr(model, key)) not in expressible:
            yield f"model.{key} = {value}"
    for name in ("encoder", "decoder", "cross"):
        stack = model.stack(name)
        section = "attention" if stack == model.attention else name
        if stack.score != "content":
            yield f"model.{section}.score = {stack.score}"
        if stack.others != "joint":
            yield f"model.{section}.others = {stack.others}"
        for span in sorted(stack.spans - {"row"}):
            which = "span" if span == stack.span else "top.span"
            yield f"model.{section}.{which} = {span}"
    if view.separators == "numbered" or (view.separators == "bracket" and view.kind != "sentence"):
        yield f"view.separators = {view.separators}"


def further_parts(config: Config, names: Iterable[str]) -> Iterator[str]:
    """Yield the names of parameters that a standard Transformer does not have."""
    model = config.model
    plain = {"embedding.weight", "embedding.source_weight", "output_bias", *mbart_parts()}
    plain |= layer_parts(model.encoder_layers, model.decoder_layers, model.pre_norm).keys()
    yield from sorted(set(names) - plain)


def export_engine(run: Path, out: Path, quantization: str = "float32", update: int | None = None) -> None:
    """Export a run as an engine folder; raise CotextError if that is impossible, or `out` is not empty."""
    if quantization not in QUANTIZATIONS:
        raise CotextError(f"--quantization {quantization}: choose one of {', '.join(QUANTIZATIONS)}")
    if not installed():
        raise CotextError(f"--to ctranslate2 needs CTranslate2: {INSTALL}")
    config = describe_file(model_file(run, update)).config
    if settings := list(dict.fromkeys(obstacles(config))):
        raise CotextError(
            f"{run}: CTranslate2 does not support {', '.join(settings)}; it supports only standard "
            "Transformers. Export another run, or use --to hub, which supports every system"
        )
    loaded = load_run(run, update)
    if names := list(further_parts(loaded.config, loaded.with_states("cotext export").state_dict())):
        raise CotextError(
            f"{run}: CTranslate2 does not support these parameters of the model: {', '.join(names[:3])}"
        )
    with new_folder(out) as temporary:
        write_engine(loaded, quantization, temporary, published_data(run))


def write_engine(loaded: LoadedModel, quantization: str, folder: Path, data: Mapping[str, Any]) -> None:
    """Write a new engine folder; `data` is the description of the training data, if there is one."""
    write_weights(loaded, quantization, folder)
    loaded.tokenizer.save(folder / "tokenizer")
    write_data(folder, data)
    description = EngineDescription(
        engine=CTRANSLATE2,
        version=version("ctranslate2"),
        quantization=quantization,
        config=_config(loaded.config),
        fingerprint=loaded.tokenizer.fingerprint,
        updates=loaded.updates,
        positions=positions_for(loaded.config),
        parameters=loaded.parameters,
    )
    write_description(folder, description)


def write_weights(loaded: LoadedModel, quantization: str, folder: Path) -> None:
    """Write only the files of the engine into a new folder."""
    spec = _spec(loaded)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir()
    spec.save(str(folder))


def positions_for(config: Config) -> int:
    """Return the number of positions for the longest expected source and target sequences."""
    view, decode = config.view, config.decode
    symbols = 2 if view.bracketed else 1
    if view.kind == "sentence":
        sentences = 1
    elif view.kind == "window":
        sentences = view.before + 1 + view.after
    else:
        sentences = view.max_sentences or view.max_tokens // 2
    source = max(view.max_tokens, decode.max_source_tokens + symbols)
    target = int(decode.max_ratio * source) + min(sentences, MOST_EXTRA) * decode.max_extra
    return -(-max(source, target) // STEP) * STEP


def _config(config: Config) -> Config:
    """Return the published configuration in float32 without shortlist, for this engine.

    `first_pass = init` is replaced by the path of the run in `train.init`.
    """
    changed: dict[str, Any] = {"precision": "float32", "shortlist": 0, "engine": "auto"}
    if config.decode.first_pass == "init":
        changed["first_pass"] = config.train.init
    decode = config.decode.model_copy(update=changed)
    return published_config(config).model_copy(update={"decode": decode})


def _spec(loaded: LoadedModel) -> Any:
    """Convert the model to a CTranslate2 spec.

    Cotext and CTranslate2 fuse the same projections (QKV; KV in cross-attention), so weights are copied.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    activations = {
        "relu": Activation.RELU,
        "swish": Activation.SWISH,
        "gelu": Activation.GELU,
        "gelu_sigmoid": Activation.GELUSigmoid,
    }
    config = loaded.config.model
    model: Any = copy.deepcopy(loaded.model)  # the conversion changes weights in place
    encoder, decoder = model.encoder, model.decoder
    spec = TransformerSpec.from_config(
        (len(encoder), len(decoder)),
        config.heads,
        pre_norm=config.pre_norm,
        activation=activations[config.activation],
        layernorm_embedding=config.embedding_norm,
    )
    for side, blocks in ((spec.encoder, encoder), (spec.decoder, decoder)):
        for layer, block in zip(side.layer, blocks, strict=True):
            _put_block(layer, block)
    if config.pre_norm:
        _put_norm(spec.encoder.layer_norm, model.encoder_norm)
        _put_norm(spec.decoder.layer_norm, model.decoder_norm)
    _put_embeddings(spec, model, positions_for(loaded.config))
    # Tokens are represented by their ids in the vocabularies; CTranslate2 must not add symbols to sequences.
    spec.register_source_vocabulary([str(i) for i in range(len(spec.encoder.embeddings[0].weight))])
    spec.register_target_vocabulary([str(i) for i in range(len(spec.decoder.embeddings.weight))])
    symbols = special_symbols(loaded.tokenizer, loaded.config.view)
    spec.config.bos_token = spec.config.decoder_start_token = str(symbols.bos)
    spec.config.eos_token, spec.config.unk_token = str(symbols.eos), str(loaded.tokenizer.unk)
    spec.config.add_source_bos = spec.config.add_source_eos = False
    return spec


def _put(to: Any, module: nn.Module) -> None:
    to.weight, to.bias = (module.get_parameter(name).detach().numpy() for name in ("weight", "bias"))


def _put_norm(to: Any, norm: nn.Module) -> None:
    to.gamma, to.beta = (norm.get_parameter(name).detach().numpy() for name in ("weight", "bias"))


def _put_block(to: Any, block: Any) -> None:
    """Set the weights of an encoder block or of a decoder block; only the latter has cross-attention."""
    _put(to.self_attention.linear[0], block.attention.qkv)
    _put(to.self_attention.linear[1], block.attention.out)
    _put_norm(to.self_attention.layer_norm, block.after_attention.norm)
    if block.cross is not None:
        modules = block.cross.query, block.cross.key_value, block.cross.out
        for linear, module in zip(to.attention.linear, modules, strict=True):
            _put(linear, module)
        _put_norm(to.attention.layer_norm, block.after_cross.norm)
    _put(to.ffn.linear_0, block.feed_forward.widen)
    _put(to.ffn.linear_1, block.feed_forward.narrow)
    _put_norm(to.ffn.layer_norm, block.after_feed_forward.norm)


def _put_embeddings(spec: Any, model: Any, rows: int) -> None:
    """Set the embeddings of tokens and positions, which CTranslate2 scales and adds in the same way."""
    embedding = model.embedding
    spec.encoder.embeddings[0].weight = embedding.weight_of("source").detach().numpy()
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = model.output_weight.detach().numpy()
    if model.output_bias is not None:
        spec.decoder.projection.bias = model.output_bias.detach().numpy()
    for side, name in ((spec.encoder, "source"), (spec.decoder, "target")):
        encoded = embedding.encoding(name)(torch.arange(rows)[None])[0].detach().numpy()
        kind = getattr(embedding, name)
        side.position_encodings.encodings = encoded if kind.positions == "absolute" else 0 * encoded
        if (norm := getattr(embedding, f"{name}_norm")) is not None:
            _put_norm(side.layernorm_embedding, norm)
