"""Change settings of a trained run that have no weights, such as its context range.

python -m benchmarks.experiments.changed RUN OUT [key.path=value ...]
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from cotext.config.recipe import dump_config, load_config
from cotext.models.build import build_model
from cotext.models.checkpoint import load_run, save_model
from cotext.runtime import CotextError
from cotext.runtime.files import replacing


def change_run(run: Path, out: Path, overrides: Sequence[str]) -> None:
    """Write a new run folder with the weights of a run; weights that the changed model lacks are left out."""
    loaded = load_run(run)
    config = load_config(str(run / "config.yaml"), None, overrides)
    model = build_model(config, loaded.tokenizer.vocabulary_size)
    missing = model.load_state_dict(loaded.model.state_dict(), strict=False).missing_keys
    if missing:
        raise CotextError(f"{run}: has no weights for {missing[0]}, which {' '.join(overrides)} needs")
    out.mkdir(parents=True, exist_ok=True)
    loaded.tokenizer.save(out / "tokenizer")
    with replacing(out / "config.yaml") as temporary:
        temporary.write_text(dump_config(config), encoding="utf-8")
    fingerprint = loaded.tokenizer.fingerprint
    save_model(out / "model.safetensors", model.state_dict(), config, fingerprint, loaded.updates)


if __name__ == "__main__":
    change_run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
