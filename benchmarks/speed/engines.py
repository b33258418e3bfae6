"""Translation with an engine beside CTranslate2 called by hand on the same batches.

    python -m benchmarks.speed.engines RUN FILE [--quantization int8] [--beam 4] [--clock cpu|wall]

The run is exported, and the documents of the file are translated with the engine, as `cotext translate`
does: text in, text out, every sentence there. By hand, the same batches of token ids, cut beforehand, go
through the engine once, and nothing is made of what comes out: no text, no scores, no sentence that is
missing. Both in turn, so that ratios are those of one round.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.speed.harness import apply, parser, table
from cotext.data.documents import Document
from cotext.data.formats import read_documents
from cotext.interchange.ctranslate2 import QUANTIZATIONS, export_engine
from cotext.models.interface import EngineHypothesis, EngineRules
from cotext.runtime.timing import in_turn, spread
from cotext.search.engine import CTranslate2Engine
from cotext.translation.open import OpenedRun, open_run


@dataclass(slots=True)
class Recorder:
    """Notes the batches that an engine is asked to search first, with nothing forbidden."""

    engine: CTranslate2Engine
    batches: list[dict[str, Any]] = field(default_factory=list)
    searched_again: int = 0

    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        rules: EngineRules,
        beam: int,
        length_penalty: float,
    ) -> list[list[EngineHypothesis]]:
        if rules.never or rules.least:
            self.searched_again += len(sources)
        else:
            self.batches.append(
                {
                    "source": [[str(i) for i in row] for row in sources],
                    "target_prefix": [[str(i) for i in row] for row in prefixes],
                    "beam_size": beam,
                    "length_penalty": length_penalty,
                    "max_decoding_length": rules.most,
                    "max_input_length": 0,
                    "end_token": str(rules.end),
                }
            )
        return CTranslate2Engine.search(self.engine, sources, prefixes, rules, beam, length_penalty)


def recorded(opened: OpenedRun, documents: Sequence[Document]) -> Recorder:
    """What the engine of a run is asked while it translates documents."""
    engine = opened.loaded.model
    assert isinstance(engine, CTranslate2Engine)
    recorder = Recorder(engine)
    engine.search = recorder.search  # type: ignore[method-assign]
    list(opened.translator.translate(documents))
    del engine.search
    return recorder


def main() -> None:
    options_of = parser(__doc__, rounds=7)
    options_of.add_argument("run", type=Path)
    options_of.add_argument("file", type=Path)
    options_of.add_argument("--quantization", choices=QUANTIZATIONS, default="int8")
    options_of.add_argument("--beam", type=int)
    options_of.add_argument("--documents", type=int, default=50)
    options = options_of.parse_args()
    decode = {} if options.beam is None else {"beam": options.beam}
    documents = list(islice(read_documents(options.file), options.documents))
    with tempfile.TemporaryDirectory() as folder:
        export_engine(options.run, Path(folder) / "engine", options.quantization)
        opened = open_run(Path(folder) / "engine", "cpu", decode)
        clock = apply(options)
        recorder = recorded(opened, documents)
        by_hand: Any = recorder.engine.translator

        def translated() -> None:
            list(opened.translator.translate(documents))

        def called() -> None:
            for batch in recorder.batches:
                by_hand.translate_batch(**batch)

        ways = {"CTranslate2 by hand": called, "cotext translate": translated}
        times = in_turn(ways, options.rounds, clock)
    sentences = sum(map(len, documents))
    print(
        f"{len(documents)} documents, {sentences} sentences, {len(recorder.batches)} batches, "
        f"{recorder.searched_again} rows searched again"
    )
    print(opened.signature)
    first = "CTranslate2 by hand"
    rows = [(name, times.rate(name, "{:.0f}", sentences), spread(times.ratios(first, name))) for name in ways]
    table(("", "sentences a second", "speed, by hand = 1"), rows)


if __name__ == "__main__":
    main()
