"""Export of a run as a folder that can be published: safetensors, configuration, tokenizer and a model card.

The folder is a run itself, and an import stays one. Paths of this machine stay here: of the run that training
began with and of the data, the names are left.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any, Final

from cotext.config.recipe import Config
from cotext.data.shortlist import SHORTLIST
from cotext.interchange.model_card import CardFacts, model_card, read_scores
from cotext.models.checkpoint import LoadedModel, load_run, save_model
from cotext.models.run_folder import IMPORT, noted_data, noted_import, write_config
from cotext.runtime.errors import CotextError, shown
from cotext.runtime.integrity import new_or_same, sealed

CARD: Final = "README.md"
# Files of a run that are no figures.
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
    """Write a run as a folder to be published; see `new_or_same`.

    `licence`: of the model, as the hub writes it (apache-2.0, cc-by-4.0 ...); empty: that of the import where
    the run is one that has a licence in these words, else not recorded. `scores`:
    JSON files of `cotext evaluate` and `cotext contrastive`, beside those in the run folder. `recipe`: the
    name of the recipe; not given: that of the paper's row.

    Raises:
        CotextError: as `load_run`, a run that needs another one, a file that holds no scores, `out` cannot be
            written.
    """
    if licence and not _LICENCE.fullmatch(licence):
        raise CotextError(
            f"--licence {shown(licence)}: write it as the hub does: apache-2.0, cc-by-4.0, mit ..."
        )
    loaded = load_run(run, update)
    if first := loaded.config.decode.first_pass:
        raise CotextError(
            f"{run}: decode.first_pass = {first}: it translates with another run, and what is published "
            "stands for itself; publish a run without"
        )
    own = [path for path in sorted(run.glob("*.json")) if path.name not in _OTHERS]
    figures = [found for path in own for found in read_scores(path, required=False)]
    figures += [found for path in scores for found in read_scores(path)]
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
        write_run(temporary, loaded, imported)
        write_data(temporary, facts.data)
        copy_shortlist(run, temporary)
        (temporary / CARD).write_text(model_card(facts), encoding="utf-8")


def write_run(folder: Path, loaded: LoadedModel, imported: Mapping[str, Any]) -> None:
    """Write a run folder with one model, without paths of this machine; `imported`: as `noted_import`."""
    config = published_config(loaded.config)
    loaded.tokenizer.save(folder / "tokenizer")
    write_config(folder, config)
    weights = loaded.with_states("cotext export").state_dict()
    fingerprint = loaded.tokenizer.fingerprint
    save_model(folder / "model.safetensors", weights, config, fingerprint, loaded.updates)
    if imported:
        (folder / IMPORT).write_text(f"{sealed(imported)}\n", encoding="utf-8")


def write_data(folder: Path, noted: Mapping[str, Any]) -> None:
    """Write into a folder what is noted of the training data, if anything is."""
    if noted:
        (folder / "data.json").write_text(f"{sealed(noted)}\n", encoding="utf-8")


def copy_shortlist(run: Path, folder: Path) -> None:
    """Copy the shortlist of a run, if it has one, for which its configuration may ask."""
    if (run / SHORTLIST).is_file():
        copyfile(run / SHORTLIST, folder / SHORTLIST)


def published_config(config: Config) -> Config:
    """The configuration without paths of this machine."""
    init = Path(config.train.init).name if config.train.init else ""
    return config.model_copy(update={"train": config.train.model_copy(update={"init": init})})


def published_data(run: Path) -> dict[str, Any]:
    """What is noted of the training data, its folder by name; nothing where nothing is."""
    noted = noted_data(run)
    return {**noted, "folder": Path(noted["folder"]).name} if noted else {}
