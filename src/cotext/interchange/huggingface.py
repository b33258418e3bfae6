"""Export of a run for Hugging Face: as a MarianMT, M2M-100 or mBART model, where it is one.

The reverse of `marian` and `fairseq`, by the same tables: rows of the vocabulary take their places again.

    theirs      piece rows    </s>    <pad>                  behind them
    own         pieces        eos     Marian: bos, else pad  sep and further separators, where rows have them

Where `bos` differs from `eos` by now, a model of fairseq starts from `<s>`. MarianMT has one number of
padding for both sides: where theirs has two, or none (Marian's own files), the row is put at one place. Any
other run is written as it is, with a README that says what stands in the way.
"""

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from cotext.data.build import further_symbols
from cotext.data.tokenizer import M2M100_LANGUAGES, SPECIAL_SYMBOLS, ImportedTokenizer
from cotext.interchange import bart
from cotext.interchange.ctranslate2 import further_parts, obstacles
from cotext.interchange.fairseq import FIRST_POSITION, VOCABULARY, mbart_parts
from cotext.interchange.hub import write_run
from cotext.models.checkpoint import LoadedModel, load_run
from cotext.models.describe import describe_length_penalty
from cotext.models.run_folder import noted_import
from cotext.runtime.integrity import new_or_same
from cotext.runtime.reading import read_json

MAX_VOCABULARY_BYTES: Final = 1 << 26
END, PADDING, BEGIN = "</s>", "<pad>", "<s>"
README: Final = "README.md"
PLAIN: Final = {"positions": "absolute", "target_positions": None}
# What the classes have no other value of.
FAMILIES: Final[Mapping[str, Mapping[str, Any]]] = {
    "marian": {
        "pre_norm": False,
        "position_encoding": "sinusoidal",
        "wavelengths": "half",
        "first_position": 0,
        "embedding_norm": False,
    },
    "m2m_100": {
        "pre_norm": True,
        "position_encoding": "sinusoidal",
        "wavelengths": "half_minus_one",
        "first_position": FIRST_POSITION,
        "embedding_norm": False,
        "separate_embeddings": False,
    },
    "mbart": {
        "pre_norm": True,
        "position_encoding": "learned",
        "first_position": FIRST_POSITION,
        "embedding_norm": True,
        "separate_embeddings": False,
    },
}
CLASSES: Final = {
    "marian": "MarianMTModel",
    "m2m_100": "M2M100ForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
}
ACTIVATIONS: Final = {"relu": "relu", "swish": "swish", "gelu": "gelu"}


def export_huggingface(run: Path, out: Path, update: int | None = None) -> list[str]:
    """Write a run as a folder for Hugging Face; see `new_or_same`.

    Returns what stands in the way of a model of its classes; nothing where the folder is one.

    Raises:
        CotextError: as `load_run`, `out` cannot be written.
    """
    loaded = load_run(run, update)
    family, found = _family(loaded)
    with new_or_same(out, SafetensorError) as temporary:
        if found:
            write_run(temporary, loaded, noted_import(run))
            (temporary / README).write_text(readme_of_run(out.resolve().name, found), encoding="utf-8")
        else:
            temporary.mkdir()
            _Writer(loaded, family, temporary, run / "tokenizer").write()
    return found


def _family(loaded: LoadedModel) -> tuple[str, list[str]]:
    """The kind of model that a run is, or is closest to, and what stands in the way of it."""
    config, tokenizer = loaded.config, loaded.tokenizer
    if not isinstance(tokenizer, ImportedTokenizer):
        return "", [f"a tokenizer of the kind {tokenizer.kind}, not of a model of these classes"]
    learned = config.model.position_encoding == "learned"
    family = "marian" if tokenizer.kind == "marian" else "mbart" if learned else "m2m_100"
    found = [*obstacles(config), *further_parts(loaded)]
    for key, wanted in {**PLAIN, **FAMILIES[family]}.items():
        if (value := getattr(config.model, key)) != wanted:
            found.append(f"model.{key} = {value}")
    if config.model.activation not in ACTIVATIONS:
        found.append(f"model.activation = {config.model.activation}")
    if family == "m2m_100" and _has_bias(loaded):
        found.append("model.output_bias = true, which is not zero")
    return family, list(dict.fromkeys(found))


def _has_bias(loaded: LoadedModel) -> bool:
    """Whether the output layer has a bias on what the class predicts."""
    bias = loaded.with_states("cotext export").output_bias
    if bias is None:
        return False
    predicted = [*range(loaded.tokenizer.pieces), loaded.tokenizer.eos, *_separators(loaded)]
    return bool(bias[predicted].any())


def _separators(loaded: LoadedModel) -> list[int]:
    """The symbols between sentences that the rows of a run have."""
    tokenizer, view = loaded.tokenizer, loaded.config.view
    if view.kind == "sentence":
        return []
    first = tokenizer.vocabulary_size
    return [tokenizer.sep, *range(first, first + further_symbols(view))]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Where the own symbols of one side stand: names of rows, and the own id of each; -1: zeros."""

    names: Sequence[str]
    ids: Tensor

    def index(self, name: str) -> int:
        """The row of a symbol."""
        return self.names.index(name)

    def moved(self, name: str, place: int) -> "_Rows":
        """The same with a symbol in another row, the others in their order."""
        order = [i for i in range(len(self.names)) if i != self.index(name)]
        order.insert(place, self.index(name))
        return _Rows([self.names[i] for i in order], self.ids[order])

    def placed(self, own: Tensor) -> Tensor:
        """Rows of an own matrix or bias in their places: [V, ...] -> [rows, ...]."""
        picked = own.detach()[self.ids.clamp(min=0)].clone()
        picked[self.ids < 0] = 0
        return picked


class _Writer:
    """The folder of a model of one of the classes."""

    def __init__(self, loaded: LoadedModel, family: str, folder: Path, tokenizer: Path) -> None:
        assert isinstance(loaded.tokenizer, ImportedTokenizer)
        self.loaded, self.family, self.folder = loaded, family, folder
        self.tokenizer: ImportedTokenizer = loaded.tokenizer
        self.files = {name: (tokenizer / name) for name in self.tokenizer.files}
        self.weights = loaded.with_states("cotext export").state_dict()
        self.start = self._start()
        self.target = self._rows(self._vocabulary(target=True), self.tokenizer.rows, source=False)
        self.source = self.target
        if loaded.config.model.separate_embeddings:
            rows = self.tokenizer.source_rows
            self.source = self._rows(self._vocabulary(target=False), rows, source=True)
            if family == "marian":
                place = min(rows.index(PADDING) for rows in (self.source, self.target))
                self.source, self.target = (rows.moved(PADDING, place) for rows in (self.source, self.target))

    def write(self) -> None:
        """All files."""
        weights = self.folder / "model.safetensors"
        save_file(self._tensors(), weights, {"format": "pt"})
        weights.chmod(self.folder.stat().st_mode & 0o666)  # save_file lets nobody else read
        self._json("config.json", self._config())
        self._json("generation_config.json", self._generation())
        self._write_tokenizer()
        (self.folder / README).write_text(self._readme(), encoding="utf-8")

    def _json(self, name: str, content: Any) -> None:
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (self.folder / name).write_text(f"{text}\n", encoding="utf-8")

    def _start(self) -> str:
        """The name of the symbol with which the decoder starts."""
        if self.family == "marian":
            return PADDING
        weight = self.weights["embedding.weight"]
        same = bool(torch.equal(weight[self.tokenizer.bos], weight[self.tokenizer.eos]))
        return END if same else BEGIN

    def _vocabulary(self, target: bool) -> list[str]:
        """Names of rows, as the run has them."""
        name = "pieces.json" if self.tokenizer.kind == "fairseq" else "vocab.json"
        if target and "target_vocab.json" in self.files:
            name = "target_vocab.json"
        rows = read_json(self.files[name], MAX_VOCABULARY_BYTES)
        return sorted(rows, key=lambda piece: int(rows[piece]))

    def _rows(self, names: list[str], pieces: Sequence[int], source: bool) -> _Rows:
        """The rows of one side."""
        own = self.tokenizer
        if self.family == "marian" and PADDING not in names:
            names = [*names, PADDING]
        ids = torch.full((len(names),), -1)
        for i, row in enumerate(pieces):
            # Behind the special symbols, where the source has more pieces than the target.
            ids[row] = i if i < own.pieces else i + SPECIAL_SYMBOLS
        ids[names.index(END)] = own.eos
        if PADDING in names:
            ids[names.index(PADDING)] = own.bos if self.start == PADDING and not source else own.pad
        if self.start == BEGIN:
            ids[names.index(BEGIN)] = own.bos
        further = _separators(self.loaded)
        ids = torch.cat((ids, torch.tensor(further, dtype=ids.dtype)))
        return _Rows([*names, *_separator_names(len(further), names)], ids)

    def _tensors(self) -> dict[str, Tensor]:
        config, weights = self.loaded.config.model, self.weights
        parts = bart.layer_parts(config.encoder_layers, config.decoder_layers, config.pre_norm)
        if self.family == "mbart":
            parts |= mbart_parts()
        found: dict[str, Tensor] = {}
        for own, part in parts.items():
            pieces = weights[own].chunk(len(part.names))
            found |= {name: piece.clone() for name, piece in zip(part.names, pieces, strict=True)}
        encoder, decoder, _ = bart.TIED
        if config.separate_embeddings:
            found[encoder] = self.source.placed(weights["embedding.source_weight"])
            found[decoder] = self.target.placed(weights["embedding.weight"])
        else:
            found[bart.SHARED] = self.target.placed(weights["embedding.weight"])
        if self.family != "m2m_100":
            bias = weights.get("output_bias", torch.zeros(len(weights["embedding.weight"])))
            found[bart.BIAS] = self._bias(bias)[None]
        return found

    def _bias(self, own: Tensor) -> Tensor:
        bias = self.target.placed(own)
        # Where a row stands for `bos` in the input, the output has that of padding.
        bias[self.target.index(self.start)] = own[self._output_of_start()]
        return bias

    def _output_of_start(self) -> int:
        return {PADDING: self.tokenizer.pad, END: self.tokenizer.eos}.get(self.start, self.tokenizer.bos)

    def _config(self) -> dict[str, Any]:
        model = self.loaded.config.model
        common = {
            "architectures": [CLASSES[self.family]],
            "model_type": self.family,
            "is_encoder_decoder": True,
            "d_model": model.dimension,
            "num_hidden_layers": model.encoder_layers,
            "activation_function": ACTIVATIONS[model.activation],
            "dropout": model.dropout,
            "attention_dropout": model.attention_dropout,
            "activation_dropout": model.activation_dropout,
            "scale_embedding": True,
            "tie_word_embeddings": True,
            "vocab_size": len(self.source.names),
            "max_position_embeddings": self._positions(),
            "dtype": "float32",
            **self._symbols(),
        }
        for side, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
            common |= {
                f"{side}_layers": layers,
                f"{side}_attention_heads": model.heads,
                f"{side}_ffn_dim": model.feed_forward,
            }
        if self.family == "marian":
            common |= {
                "decoder_vocab_size": len(self.target.names),
                "share_encoder_decoder_embeddings": not model.separate_embeddings,
                "static_position_embeddings": True,
                "normalize_before": False,
                "normalize_embedding": False,
                "add_final_layer_norm": False,
            }
        return common

    def _positions(self) -> int:
        model, view = self.loaded.config.model, self.loaded.config.view
        if self.family == "mbart":
            return model.learned_positions - FIRST_POSITION
        return max(512, 2 * view.max_tokens)  # of sinusoids, which do not lie in the file

    def _symbols(self) -> dict[str, Any]:
        start = self.target.index(self.start)
        symbols = {"eos_token_id": self.target.index(END), "decoder_start_token_id": start}
        if PADDING in self.target.names:
            symbols["pad_token_id"] = self.target.index(PADDING)
        if BEGIN in self.target.names:
            symbols["bos_token_id"] = self.target.index(BEGIN)
        return symbols

    def _generation(self) -> dict[str, Any]:
        decode = self.loaded.config.decode
        found = {
            **self._symbols(),
            "num_beams": decode.beam,
            "max_length": self._positions(),
        }
        if decode.length_penalty_form == "power":  # transformers has no other
            found["length_penalty"] = decode.length_penalty
        if self.start != END:  # which only begins
            found["bad_words_ids"] = [[self.target.index(self.start)]]
        if self.tokenizer.target_prefix:
            found["forced_bos_token_id"] = self.tokenizer.rows[self.tokenizer.target_prefix[0]]
        return found

    def _write_tokenizer(self) -> None:
        for name, path in self.files.items():
            if name.endswith((".spm", ".model")):
                (self.folder / name).write_bytes(path.read_bytes())
        languages = self.loaded.languages
        if self.family == "marian":
            self._write_vocabulary("vocab.json", self.source, target=False)
            if "target_vocab.json" in self.files:
                self._write_vocabulary("target_vocab.json", self.target, target=True)
            settings: dict[str, Any] = {
                "tokenizer_class": "MarianTokenizer",
                "separate_vocabs": "target_vocab.json" in self.files,
                "source_lang": languages.source,
                "target_lang": languages.target,
            }
        else:
            settings = self._fairseq_settings()
        self._json("tokenizer_config.json", {**settings, "model_max_length": self._positions()})

    def _write_vocabulary(self, name: str, rows: _Rows, target: bool) -> None:
        """The names of rows; where these are the run's, its own file."""
        if list(rows.names) != self._vocabulary(target):
            self._json(name, _numbered(rows.names))
        else:
            (self.folder / name).write_bytes(self.files[name].read_bytes())

    def _fairseq_settings(self) -> dict[str, Any]:
        names = {
            code: self.target.names[self.tokenizer.rows[i]] for code, i in self.tokenizer.languages.items()
        }
        chosen = self.tokenizer.chosen
        settings: dict[str, Any] = {"src_lang": chosen.source or None, "tgt_lang": chosen.target or None}
        if tuple(names.values()) == M2M100_LANGUAGES:
            pieces = self.target.names[: self.target.index(M2M100_LANGUAGES[0])]
            self._json(VOCABULARY, _numbered(pieces))
            return {"tokenizer_class": "M2M100Tokenizer", "language_codes": "m2m100", **settings}
        kind = "MBart50Tokenizer" if self.family == "mbart" else "NllbTokenizer"
        rows = {str(self.target.index(name)): {"content": name, "special": True} for name in names.values()}
        settings |= {side: names[code] for side, code in settings.items() if code}
        return {"tokenizer_class": kind, "added_tokens_decoder": rows, **settings}

    def _readme(self) -> str:
        view, decode = self.loaded.config.view, self.loaded.config.decode
        count = 0 if view.kind == "sentence" else len(_separators(self.loaded))
        first = len(self.target.names) - count
        separators = {self.target.names[row]: row for row in range(first, first + count)}
        kind, signature = CLASSES[self.family], self.loaded.signature
        penalty = "" if decode.length_penalty_form == "power" else describe_length_penalty(decode)
        return readme_of_class(kind, signature, view.max_tokens, separators, penalty)


def _separator_names(count: int, taken: Collection[str]) -> list[str]:
    """`<sep>`, `<sep1>`, `<sep2>` ..., without names that the vocabulary has already."""
    numbered = (f"<sep{k or ''}>" for k in itertools.count())
    return list(itertools.islice((name for name in numbered if name not in taken), count))


def _numbered(names: Sequence[str]) -> dict[str, int]:
    return {name: row for row, name in enumerate(names)}


def readme_of_class(
    kind: str, signature: str, max_tokens: int, separators: Mapping[str, int], length_penalty: str
) -> str:
    """Of a model of a class of Hugging Face.

    `separators`: names and rows of the symbols between the sentences of its rows, of at most `max_tokens`
    tokens; none where these are single sentences. `length_penalty`: that of the run, where
    transformers has none of its form.
    """
    lines = [f"A {kind}, exported from a run of Cotext.", "", f"signature: {signature}", ""]
    if separators:
        names = ", ".join(f"`{name}` (row {row})" for name, row in separators.items())
        lines.append(
            f"Its rows are documents or windows of up to {max_tokens} tokens, whose sentences are set apart "
            f"by {names}. The tokenizer does not put these; `cotext translate` does, and sees to it that as "
            "many sentences come out as went in."
        )
    else:
        lines.append("It translates single sentences.")
    if length_penalty:
        lines += [
            "",
            f"The run searches with the length penalty {length_penalty}. transformers has no penalty of this "
            "form, so generation_config.json gives none.",
        ]
    return "\n".join(lines) + "\n"


def readme_of_run(name: str, found: Sequence[str]) -> str:
    """Of a run that no class of Hugging Face expresses, because of the settings `found`."""
    listed = "\n".join(f"- {each}" for each in found)
    return f"""# {name}

A run of Cotext. It is no model of the classes of Hugging Face (MarianMT, M2M-100, mBART), because of:

{listed}

The weights are in `model.safetensors`, named as Cotext names them, with the whole configuration in the head
of the file and in `config.yaml`. It needs Cotext to run:

```python
import cotext
translator = cotext.load({json.dumps(name)})
print(translator.translate(["The first sentence.", "The second sentence."]))
```
"""
