"""Export of a run as a run folder: with a model card, for publication, or in int8.

An import remains an import. Published folders contain no local paths: of the run that training started from
and of the data, only names are kept.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any, Final

from torch import Tensor

from cotext.config.recipe import Config
from cotext.data.shortlist import SHORTLIST
from cotext.interchange.model_card import CardFacts, model_card, read_scores
from cotext.models.checkpoint import LoadedModel, load_run, save_model
from cotext.models.precision import int8_weights
from cotext.models.run_folder import IMPORT, noted_data, noted_import, write_config
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.integrity import new_or_same, sealed

CARD: Final = "README.md"
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
    """Write a run as a folder for publication. `new_or_same` handles an existing `out`.

    `licence`: licence of the model, in the notation of the hub (apache-2.0, cc-by-4.0 ...). If it is empty,
    the licence of the import is used if it is in this notation. `scores`: JSON files of `cotext evaluate` and
    `cotext contrastive`, in addition to the files in the run folder. `recipe`: name of the recipe; if it is
    empty, the recipe of the paper's table row is used.

    Raises:
        CotextError: the run needs another run, a file has no scores, or `out` cannot be written; also the
            errors of `load_run`.
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
    own = [path for path in sorted(run.glob("*.json")) if path.name not in _OTHERS]
    figures = [figure for path in own for figure in read_scores(path, required=False)]
    figures += [figure for path in scores for figure in read_scores(path)]
    imported = noted_import(run)
    if imported and _LICENCE.fullmatch(str(imported.get("licence"))):
        licence = licence or str(imported["licence"])
    facts = CardFacts(
        name=out.resolve().name,
        config=published_config(loaded.config),
        recipe=recipe or loaded.config.paper,
        signature=loaded.signature,
        parameters=loaded.parameters,
        pieces=loaded.tokenizer.pieces,
        data=published_data(run),
        imported=imported,
        start_imported=noted_import(Path(init)) if (init := loaded.config.train.init) else {},
        licence=licence,
        figures=tuple(dict.fromkeys(figures)),
    )
    with new_or_same(out) as temporary:
        weights = loaded.with_states("cotext export").state_dict()
        _write_run(temporary, run, loaded, facts.config, weights)
        write_data(temporary, facts.data)
        (temporary / CARD).write_text(model_card(facts), encoding="utf-8")


def export_int8(run: Path, out: Path, update: int | None = None) -> None:
    """Write a run folder with large matrices in int8, and decode.precision = int8.

    `new_or_same` handles an existing `out`. The int8 run has a quarter of the size and cannot be trained. Its
    translations and scores equal, bit for bit, the results of the run with decode.precision = int8.
    """
    loaded = load_run(run, update)
    decode = loaded.config.decode.model_copy(update={"precision": "int8"})
    weights = int8_weights(loaded.with_states("cotext export"))
    with new_or_same(out) as temporary:
        _write_run(temporary, run, loaded, loaded.config.model_copy(update={"decode": decode}), weights)
        write_data(temporary, noted_data(run))


def _write_run(
    folder: Path, run: Path, loaded: LoadedModel, config: Config, weights: dict[str, Tensor]
) -> None:
    """Write a run folder with one model, the shortlist of `run` and the description of its import."""
    loaded.tokenizer.save(folder / "tokenizer")
    write_config(folder, config)
    save_model(folder / "model.safetensors", weights, config, loaded.tokenizer.fingerprint, loaded.updates)
    if (run / SHORTLIST).is_file():
        copyfile(run / SHORTLIST, folder / SHORTLIST)
    if imported := noted_import(run):
        (folder / IMPORT).write_text(f"{sealed(imported)}\n", encoding="utf-8")


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
