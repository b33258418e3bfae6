"""CTranslate2 as an engine: systems that `cotext export --to ctranslate2` has written.

The package is optional; what runs is compiled, on a CPU or a GPU, in the precision that was exported.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from cotext.data.tokenizer import load_tokenizer
from cotext.models.checkpoint import LoadedModel
from cotext.models.engine_folder import CTRANSLATE2, INSTALL, EngineDescription, read_engine
from cotext.models.interface import Engine, EngineHypothesis, EngineRules
from cotext.runtime.devices import choose_threads
from cotext.runtime.errors import CotextError
from cotext.search.beam_search import length_divisor

MODEL: Final = "model.bin"  # the engine's file with the weights


def load_engine(folder: Path, device: torch.device, threads: int | None = None) -> LoadedModel:
    """Load the system of an engine folder; `threads` not given: as its configuration says.

    Raises:
        CotextError: a damaged or foreign folder, CTranslate2 is not installed or does not take it.
    """
    described = read_engine(folder)
    tokenizer = load_tokenizer(folder / "tokenizer")
    if tokenizer.fingerprint != described.fingerprint:
        raise CotextError(
            f"{folder}: was exported with another tokenizer than the one in it; export it again"
        )
    config = described.config
    chosen = threads or choose_threads(config.model.dimension, config.train.threads)
    model = CTranslate2Engine(folder, described, device, chosen)
    return LoadedModel(model, config, tokenizer, described.updates)


class CTranslate2Engine(Engine):
    """A plain Transformer in CTranslate2, whose tokens are named by their ids.

    `translator` is the engine's own object. `patience`: a beam search ends with so many times `beam`
    finished hypotheses; ours goes on while another can be better.
    """

    patience = 1.0

    def __init__(
        self, folder: Path, described: EngineDescription, device: torch.device, threads: int
    ) -> None:
        if described.engine != CTRANSLATE2:
            raise CotextError(
                f"{folder}: is of an engine that this version does not know: {described.engine}"
            )
        if find_spec("ctranslate2") is None:
            raise CotextError(f"{folder}: needs CTranslate2: {INSTALL}")
        import ctranslate2

        self.positions, self.parameters = described.positions, described.parameters
        self._names = _Names()
        self.name = f"engine:ctranslate2-{ctranslate2.__version__}|quantization:{described.quantization}"
        try:
            self.translator: Any = ctranslate2.Translator(
                str(folder),
                device=device.type,
                device_index=device.index or 0,
                intra_threads=threads,
            )
        except (RuntimeError, ValueError) as error:
            raise CotextError(f"{folder}: CTranslate2 does not take it: {error}") from None

    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        rules: EngineRules,
        beam: int,
        length_penalty: float,
    ) -> list[list[EngineHypothesis]]:
        """See `Engine.search`."""
        end = str(rules.end)
        results = self.translator.translate_batch(
            self._named(sources),
            self._named(prefixes),
            beam_size=beam,
            num_hypotheses=beam,
            patience=self.patience,
            length_penalty=length_penalty,
            max_input_length=0,
            max_decoding_length=rules.most,
            min_decoding_length=rules.least,
            suppress_sequences=[[str(i)] for i in rules.never] or None,
            end_token=end,
            return_end_token=True,
            return_scores=True,
        )
        found = []
        for result, prefix in zip(results, prefixes, strict=True):
            hypotheses = []
            for tokens, score in zip(result.hypotheses, result.scores, strict=True):
                divisor = length_divisor(len(tokens), length_penalty, "power")  # CTranslate2's own form
                hypotheses.append(_hypothesis(tokens[len(prefix) :], end, score * divisor))
            found.append(hypotheses)
        return found

    def score(self, sources: Sequence[Sequence[int]], labels: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Engine.score`."""
        named = self._named(sources), self._named(labels)
        results = self.translator.score_batch(*named, max_input_length=0)
        return [list(result.log_probs) for result in results]

    def _named(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        return [list(map(self._names.__getitem__, row)) for row in rows]


class _Names(dict[int, str]):
    """The names of tokens, each made once: rows repeat most of them, and of what was written before all."""

    def __missing__(self, token: int) -> str:
        return self.setdefault(token, str(token))


def _hypothesis(tokens: Sequence[str], end: str, log_probability: float) -> EngineHypothesis:
    ended = bool(tokens) and tokens[-1] == end
    written = tokens[:-1] if ended else tokens
    return EngineHypothesis(tuple(map(int, written)), log_probability, ended)
