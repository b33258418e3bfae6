"""The settings of a run that depend on its data, or on the run that it starts from."""

from pathlib import Path

from cotext.config.recipe import Config, parse_run_config
from cotext.data.languages import Languages, check_pair
from cotext.models.run_folder import describe_file, model_file
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_yaml, read_text
from cotext.training.prepared_data import PreparedData

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
        CotextError: as `resolve`, `settle_start` and `settle_first_sentence`.
    """
    return settle_first_sentence(settle_start(resolve(config, data), run, recipe), run)


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


def settle_first_sentence(config: Config, run: Path) -> Config:
    """Settle `model.from_first`: weights that know no shift and no segments keep first sentences as they are.

    Raises:
        CotextError: the run that training starts from cannot be read.
    """
    model, init, path = config.model, config.train.init, run / "config.yaml"
    if not init or model.from_first is not None:
        return config
    if path.is_file():
        from_first = written_config(path).model.from_first
    elif model.positions == "shifted" or model.segments == "sinusoidal":
        there = describe_file(model_file(Path(init))).config.model
        known = (there.positions, there.segments) == (model.positions, model.segments)
        from_first = there.from_first if known else False
    else:
        return config
    return config.model_copy(update={"model": model.model_copy(update={"from_first": from_first})})


def written_config(path: Path) -> Config:
    """The configuration in a run folder; raises CotextError as `parse_config`."""
    return parse_run_config(parse_yaml(read_text(path), str(path)), str(path))
