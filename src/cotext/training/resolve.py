"""The settings of a run that depend on its data, or on the run that it starts from."""

from pathlib import Path

from cotext.config.recipe import Config
from cotext.data.languages import Languages, check_pair
from cotext.runtime.errors import CotextError
from cotext.training.prepared_data import PreparedData
from cotext.training.start_settings import settle_by_start, written_config

REQUIRED = "required"  # `train.init` of a recipe that cannot start from fresh weights


def resolve(config: Config, data: PreparedData) -> Config:
    """Replace what depends on the corpus: languages, shift `corpus`, and numbers that no sentence has.

    Raises:
        CotextError: the configuration tells other languages than the data.
    """
    view, model = config.view, config.model
    configured = Languages.parse(config.languages)
    check_pair(data.languages, configured, "the configuration (languages)", f"{data.folder} is")
    if model.positions == "shifted" and model.shift == "corpus":
        model = model.model_copy(update={"shift": data.mean_sentence_tokens})
    if view.separators == "numbered":
        most = data.most_sentences()
        numbers = most if view.numbers == "corpus" else min(view.numbers, most)
        view = view.model_copy(update={"numbers": numbers})
    languages = config.languages or str(data.languages)
    return config.model_copy(update={"view": view, "model": model, "languages": languages})


def settle(config: Config, data: PreparedData, run: Path, recipe: str) -> Config:
    """Settle all that depends on the data, on the run to start from, and on what is in the run folder.

    Raises:
        CotextError: as `resolve`, `settle_start` and `settle_by_start`.
    """
    return settle_by_start(settle_start(resolve(config, data), run, recipe), run)


def settle_start(config: Config, run: Path, recipe: str) -> Config:
    """Settle `train.init`: to go on with a run that is there already, it need not be given again.

    Raises:
        CotextError: the recipe needs a run to start from, and none is named.
    """
    init, path = config.train.init, run / "config.yaml"
    if path.is_file():
        before = written_config(path).train.init
        if init in ("", REQUIRED) or (before and Path(init).resolve() == Path(before).resolve()):
            init = before
    if init == REQUIRED:
        raise CotextError(f"{recipe} starts from a trained model: give --init RUN")
    return config.model_copy(update={"train": config.train.model_copy(update={"init": init})})
