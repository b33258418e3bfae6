"""Document systems that start from a sentence model: no jump, and nothing that never leaves its start."""

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cotext.config.recipe import Config, load_config
from cotext.data.batch import Batch, Instance, make_batch
from cotext.data.documents import Document
from cotext.data.sampling import ordered_batches
from cotext.data.store import TokenDocument
from cotext.data.tokenizer import Tokenizer
from cotext.data.views import View, Window, WindowView
from cotext.models import checkpoint as ckpt
from cotext.models.build import build_model
from cotext.models.build_views import build_view, special_symbols
from cotext.models.interface import NonAutoregressiveModel, TranslationModel
from cotext.models.run_folder import IMPORT, checkpoint_folder
from cotext.runtime import CotextError
from cotext.runtime.files import unsealed
from cotext.training.inputs import open_data, resolve, settle
from cotext.training.losses import CrossEntropy
from cotext.training.trainer import Trainer
from cotext.training.warm_start import start_from
from cotext.translation.translator import DocumentTranslator
from tests.tiny_runs import told_in_training, toy_documents, train_here, with_section, write_run

SIZE = ["dimension=16", "feed_forward=32", "heads=2", "encoder_layers=2", "decoder_layers=2", "dropout=0.0"]
TINY = [f"model.{setting}" for setting in SIZE]
QUIET = ["train.word_dropout=0", "train.threads=1"]
DESTRUCTIVE = [
    "train.max_updates=3",
    "train.validate_every=1",
    "train.learning_rate=5",
    "train.warmup_updates=0",
]
STRENGTH = 4
WINDOW_OF_ONE = Window(range(1), range(1), range(1))
# Published recipes, which an import makes neutral, and Cotext's own.
FAMILIES = [
    f"{paper}/{recipe}"
    for paper, recipes in {
        "opus": "sentence s4to4 s4to4-shift-cd p-transformer flat rotary g-transformer docflat-c mcn han",
        "focused-concatenation": "s4to4-lrn-cd s4to4-sin-cd",
        "p-transformer": "ctx doc",
        "g-transformer": "finetune",
        "docflat": "docflat-d docflat-i mbe abd abd-both doc2doc",
        "mcn": "final",
        "flat-transformer": "flat",
        "san": "encoder decoder",
        "lstm-trans": "four",
        "doct": "doct",
        "voita-2018": "previous",
        "modern": "alibi-shift",
        "mixtures": "mcn-p-transformer docflat-g-transformer",
    }.items()
    for recipe in recipes.split()
]


def sentence_run(run: Path, data: Path, pre_norm: bool) -> Path:
    """A sentence model that is sure of what it predicts, as if it had been imported."""
    norm = f"model.pre_norm={str(pre_norm).lower()}"
    config = load_config("focused-concatenation/base", None, [*TINY, norm, "languages=en-de"])
    tokenizer = open_data(data).tokenizer
    write_run(run, config, tokenizer)
    weights = load_file(run / "model.safetensors")
    strong = {name: STRENGTH * tensor if tensor.dim() > 1 else tensor for name, tensor in weights.items()}
    ckpt.save_model(run / "model.safetensors", strong, config, tokenizer.fingerprint, [1])
    (run / IMPORT).write_text("{}\n")
    return run


@pytest.fixture(scope="module")
def pre_norm(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sentence_run(tmp_path_factory.mktemp("neutral") / "sent", data, pre_norm=True)


@pytest.fixture(scope="module")
def imported(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sentence_run(tmp_path_factory.mktemp("neutral") / "sent", data, pre_norm=False)


def started(
    recipe: str, data: Path, run: Path, folder: Path, *overrides: str
) -> tuple[Config, TranslationModel, list[str]]:
    """A model in double precision that has just started from a run, as its first update finds it.

    And the names of parameters that had nothing to start from.
    """
    prepared = open_data(data)
    dropped = [f"model.{kind}dropout=0" for kind in ("", "attention_", "activation_")]
    asked = load_config(recipe, None, [*QUIET, *dropped, f"train.init={run}", *overrides])
    config = settle(asked, prepared, folder, recipe)
    torch.manual_seed(3)
    model = build_model(config, prepared.tokenizer.vocabulary_size)
    new = start_from(run, model, config, prepared.tokenizer, asked).inheritance.new
    assert isinstance(model, TranslationModel)
    model.train().double()
    model.blend(config.train.blended(0), config.train.blend or ())
    return config, model, new


def sentence_model(run: Path, data: Path) -> tuple[Config, TranslationModel]:
    loaded = ckpt.load_run(run)
    model = loaded.left_to_right("this test")
    return loaded.config, model.train().double()


def documents(tokenizer: Tokenizer, single: bool = False) -> list[TokenDocument]:
    found = toy_documents(6, 7)
    pairs = [(d.source[:1], d.target[:1]) if single else (d.source, d.target) for d in found]
    return [
        TokenDocument(str(i), i, tokenizer.encode_batch(source), tokenizer.encode_batch(target))
        for i, (source, target) in enumerate(pairs)
    ]


def batches(config: Config, tokenizer: Tokenizer, view: View, single: bool = False) -> list[Batch]:
    symbols = special_symbols(tokenizer, config.view)
    return list(ordered_batches(documents(tokenizer, single), view, symbols, 2000, 500, group_windows=8))


def moved_in(updates: int, model: TranslationModel, given: list[Batch]) -> set[str]:
    """Names of the parameters that so many updates by gradient move."""
    moved: set[str] = set()
    for _ in range(updates):
        model.zero_grad()
        for batch in given:
            parts = CrossEntropy(0.1, 1.0)(model, batch)
            (parts.loss / parts.count).backward()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.grad is None:
                    continue
                # Two closed gates, one behind the other, have gradients that are rounding errors.
                real = parameter.grad.abs() > 1e-9
                if bool(real.any()):
                    moved.add(name)
                    parameter -= 1e-3 * parameter.grad.sign() * real  # as Adam at first
    return moved


@torch.no_grad()
def loss(model: TranslationModel, given: list[Batch]) -> float:
    """Mean negative log-likelihood per label."""
    parts = [CrossEntropy(0.0, 1.0)(model, batch) for batch in given]
    return float(sum(p.loss for p in parts)) / float(sum(p.count for p in parts))


# Every family from a run of one kind, and every third of them from one of the other.
FAMILIES_AND_RUNS = [
    *((recipe, "imported") for recipe in FAMILIES),
    *((recipe, "pre_norm") for recipe in FAMILIES[::3]),
]


@pytest.mark.parametrize(("recipe", "run"), FAMILIES_AND_RUNS)
def test_sentences_cost_what_they_cost_the_sentence_model(
    recipe: str, run: str, data: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """In rows of one sentence and in rows of several."""
    tokenizer, folder = open_data(data).tokenizer, request.getfixturevalue(run)
    config, model, _ = started(recipe, data, folder, tmp_path)
    there_config, there = sentence_model(folder, data)
    with torch.no_grad():
        expected = loss(there, batches(there_config, tokenizer, WindowView(0)))
        assert expected > 5  # far from a model that finds all words alike
        assert loss(model, batches(config, tokenizer, WindowView(0))) == pytest.approx(expected, rel=1e-9)
        # Rows of one sentence as the recipe's own view cuts them.
        alone = loss(there, batches(there_config, tokenizer, WindowView(0), single=True))
        single = loss(model, batches(config, tokenizer, build_view(config.view), single=True))
        assert single == pytest.approx(alone, rel=1e-9)
        of_sentences = losses_by_sentence(there, batches(there_config, tokenizer, WindowView(0)))
        rows = batches(config, tokenizer, build_view(config.view))
        found = losses_by_sentence(model, rows)
    several = sum(int((batch.source.sentence.max(dim=1).values > 0).sum()) for batch in rows)
    assert several or recipe == "opus/sentence"
    assert found.keys() == of_sentences.keys()
    for key, copies in found.items():
        for copy in copies:
            torch.testing.assert_close(copy, of_sentences[key][0], rtol=1e-9, atol=1e-9)


def losses_by_sentence(
    model: TranslationModel, given: list[Batch]
) -> dict[tuple[int, int], list[torch.Tensor]]:
    """Negative log-likelihoods of the words and the end of each sentence, once for every row that has it.

    By the number of its document and its own.
    """
    found: dict[tuple[int, int], list[torch.Tensor]] = {}
    for batch in given:
        source = batch.source
        hidden = model.decode(batch.target_input, batch.input_sentence, model.encode(source))
        scores = torch.nn.functional.linear(hidden, model.output_weight, model.loss_bias)
        cost = -scores.log_softmax(dim=2).gather(2, batch.target_label.clamp(min=0)[:, :, None])[:, :, 0]
        for row, sentences in enumerate(batch.label_sentence):
            for k in range(int(sentences.max()) + 1):
                key = int(source.document[row]), int(source.first_sentence[row]) + k
                if bool((sentences == k).any()):
                    found.setdefault(key, []).append(cost[row][sentences == k])
    return found


@pytest.mark.parametrize(("recipe", "beam"), list(zip(FAMILIES, itertools.cycle((1, 3)), strict=False)))
def test_search_writes_what_the_sentence_model_writes(
    recipe: str, beam: int, data: Path, imported: Path, tmp_path: Path
) -> None:
    tokenizer = open_data(data).tokenizer
    config, model, _ = started(recipe, data, imported, tmp_path)
    model.blend(0.0, config.train.blend or (), everywhere=True)
    there_config, there = sentence_model(imported, data)
    document = Document("1", toy_documents(6, 7)[0].source)
    decode = {"beam": beam, "max_ratio": 1.0, "max_extra": 4, "length_penalty": 0.6}
    written = []
    for each, settings in ((model, config), (there, there_config)):
        by_sentence = {"beam_per": "sentence"} if settings.view.kind == "document" else {}
        settings = with_section(settings, "decode", **decode, **by_sentence)
        translator = DocumentTranslator(each.eval(), settings, tokenizer, torch.device("cpu"))
        written.append([found.document.sentences for _, found in translator.translate([document])])
    assert written[0] == written[1]


def test_casa_encodes_sentences_as_the_sentence_model(data: Path, imported: Path, tmp_path: Path) -> None:
    tokenizer = open_data(data).tokenizer
    config = settle(load_config("opus/casa", None, [f"train.init={imported}"]), open_data(data), tmp_path, "")
    config = with_section(config, "model", dropout=0.0)
    casa = build_model(config, tokenizer.vocabulary_size)
    start_from(imported, casa, config, tokenizer)
    assert isinstance(casa, NonAutoregressiveModel)
    there_config, there = sentence_model(imported, data)
    seen: list[torch.Tensor] = []
    for model, settings in ((casa.double(), config), (there, there_config)):
        model.get_submodule("encoder_norm").register_forward_hook(lambda m, given, out: seen.append(out))
        for document in documents(tokenizer):
            pair = Instance(0, WINDOW_OF_ONE, document.source[:1], document.target[:1])
            model.encode(make_batch([pair], special_symbols(tokenizer, settings.view)).source)
    half = len(seen) // 2
    for own, expected in zip(seen[:half], seen[half:], strict=True):
        torch.testing.assert_close(own, expected.view_as(own), rtol=1e-9, atol=1e-9)


# Recipes with parameters that the sentence model lacks.
WITH_NEW_PARTS = [
    *(f"opus/{name}" for name in ("p-transformer", "flat", "g-transformer", "docflat-c", "mcn", "han")),
    "focused-concatenation/s4to4-lrn-cd",
    *("docflat/docflat-d", "docflat/docflat-i", "docflat/abd-both"),
]


@pytest.mark.parametrize("recipe", WITH_NEW_PARTS)
def test_what_is_new_moves_in_two_updates(recipe: str, data: Path, imported: Path, tmp_path: Path) -> None:
    """A gate at zero in front of zeros would never move."""
    tokenizer = open_data(data).tokenizer
    config, model, new = started(recipe, data, imported, tmp_path)
    assert new
    given = batches(config, tokenizer, build_view(config.view))
    moved = moved_in(2, model, given)
    assert set(new) <= moved


class TestSettings:
    """What is settled by the run that training starts from."""

    def settled(self, data: Path, run: Path, folder: Path, recipe: str, *overrides: str) -> Config:
        asked = load_config(recipe, None, [f"train.init={run}", *overrides])
        return settle(asked, open_data(data), folder, recipe)

    def test_an_import_brings_its_architecture(self, data: Path, imported: Path, tmp_path: Path) -> None:
        config = self.settled(data, imported, tmp_path, "g-transformer/finetune")
        assert (config.model.dimension, config.model.encoder_layers) == (16, 2)
        assert config.train.init_architecture == "run"
        assert config.model.neutral_start is True
        assert config.view.open_source is False
        assert config.train.blend is None
        kept = self.settled(
            data, imported, tmp_path, "g-transformer/finetune", "train.init_architecture=recipe"
        )
        assert kept.model.dimension == 512
        paper = self.settled(data, imported, tmp_path, "g-transformer/finetune", "model.neutral_start=false")
        assert paper.view.open_source is None
        casa = self.settled(data, imported, tmp_path, "opus/casa").model
        assert (casa.encoder_layers, casa.decoder_layers) == (2, 4)  # it starts from the encoder alone

    def test_another_run_does_not(self, data: Path, imported: Path, tmp_path: Path) -> None:
        run = tmp_path / "own"
        shutil.copytree(imported, run)
        (run / IMPORT).unlink()
        for recipe in ("g-transformer/finetune", "modern/rotary", "focused-concatenation/s4to4"):
            asked = load_config(recipe, None, [f"train.init={run}"])
            assert settle(asked, open_data(data), tmp_path, recipe) == resolve(asked, open_data(data))
        config = self.settled(data, run, tmp_path, "mcn/final", "train.init_architecture=run")
        assert (config.model.dimension, config.model.neutral_start) == (16, None)

    def test_what_is_blended_in(self, data: Path, imported: Path, tmp_path: Path) -> None:
        found = {
            recipe: self.settled(data, imported, tmp_path, recipe).train.blend
            for recipe in ("modern/rotary", "docflat/mbe", "mcn/final", "opus/han", "p-transformer/ctx")
        }
        assert found == {
            "modern/rotary": ("positions", "score"),
            "docflat/mbe": ("mean", "symbols"),
            "mcn/final": ("positions",),
            "opus/han": None,
            "p-transformer/ctx": None,
        }
        config = self.settled(data, imported, tmp_path, "modern/rotary", "train.warmup_updates=40")
        assert config.train.blend_updates == 40
        assert [config.train.blended(done) for done in (0, 10, 40, 100)] == [0, 0.25, 1, 1]
        none = self.settled(data, imported, tmp_path, "modern/rotary", "train.blend=[]")
        assert none.train.blended(0) == 1
        with pytest.raises(CotextError, match=r"train.blend = score: this is not new"):
            self.settled(data, imported, tmp_path, "opus/han", "train.blend=[score]")

    def test_a_run_that_goes_on_needs_no_start(self, data: Path, imported: Path, tmp_path: Path) -> None:
        init = tmp_path / "import"
        shutil.copytree(imported, init)
        settings = [*QUIET, "train.max_updates=2", "train.validate_every=1", "train.validate_bleu=false"]
        asked = load_config("modern/rotary", None, [*settings, f"train.init={init}"])
        train_here(asked, data, tmp_path / "run")
        written = ckpt.load_run(tmp_path / "run").config
        assert written.model.dimension == 16
        shutil.rmtree(init)
        further = asked.model_copy(update={"train": asked.train.model_copy(update={"max_updates": 3})})
        assert train_here(further, data, tmp_path / "run").update == 3

    def test_a_start_from_such_a_run_has_its_gates(self, data: Path, imported: Path, tmp_path: Path) -> None:
        settings = [*QUIET, "train.max_updates=1", "train.validate_every=1", "train.validate_bleu=false"]
        first = load_config("p-transformer/ctx", None, [*settings, f"train.init={imported}"])
        train_here(first, data, tmp_path / "first")
        config = self.settled(data, tmp_path / "first", tmp_path / "second", "p-transformer/ctx")
        assert (config.model.neutral_start, config.model.dimension) == (True, 16)
        assert config.train.blend is None
        _, _, new = started("p-transformer/ctx", data, tmp_path / "first", tmp_path / "second")
        assert new == []


def test_what_was_blended_in_is_told(data: Path, imported: Path, tmp_path: Path) -> None:
    settings = ["train.max_updates=4", "train.validate_every=1", "train.blend_updates=2", "train.log_every=1"]
    quiet = [*QUIET, *settings, "train.validate_bleu=false", f"train.init={imported}"]
    told = "\n".join(told_in_training(load_config("modern/rotary", None, quiet), data, tmp_path / "run"))
    assert "parts without neutral start: positions, score; blended in over 2 updates" in told
    assert "architecture of that run, not of the recipe: model.dimension = 16, not 512" in told
    account = unsealed((tmp_path / "run" / "init.json").read_text())
    assert account["blended"] == {"settings": ["positions", "score"], "updates": 2}
    loss = account["loss"]
    assert loss["sentences_here"] == pytest.approx(loss["sentences_there"], rel=1e-5)


@pytest.mark.parametrize("recipe", ["modern/rotary", "mcn/final", "docflat/mbe", "opus/s4to4"])
def test_the_start_is_kept_as_the_sentence_model_whatever_is_blended_in(
    recipe: str, data: Path, imported: Path, tmp_path: Path
) -> None:
    """Its development loss is that of the sentence model, and a run that learns nothing is that model."""
    settings = [*DESTRUCTIVE, "train.validate_bleu=false", f"train.init={imported}"]
    config = load_config(recipe, None, [*QUIET, *settings, "train.blend_updates=2"])
    messages = told_in_training(config, data, tmp_path / "run")
    assert any(f"than the start from {imported}; use that model" in message for message in messages)
    expected = unsealed((tmp_path / "run" / "init.json").read_text())["loss"]["sentences_there"]
    lines = map(unsealed, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    noted = {line["update"]: line["nll_current"] for line in lines if line["kind"] == "validation"}
    assert noted[0] == pytest.approx(expected, rel=1e-5)
    assert noted[1] > noted[0]
    tokenizer, costs = open_data(data).tokenizer, list[float]()
    for run in (imported, tmp_path / "run"):
        loaded = ckpt.load_run(run)
        given = batches(loaded.config, tokenizer, WindowView(0))
        costs.append(loss(loaded.left_to_right("this test"), given))
    assert loaded.updates == [0]
    costs.append(loss(started(recipe, data, tmp_path / "run", tmp_path / "next")[1], given))  # blends again
    assert costs[1:] == pytest.approx([costs[0]] * 2, rel=1e-5)


def test_training_stops_early_by_its_own_checkpoints_while_the_start_is_better(
    data: Path, imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = [1.0, 3.0, 2.5, 2.0, 2.2, 2.3, 1.9]

    def validate(trainer: Trainer, updates: Sequence[int]) -> dict[str, float]:
        return {"update": trainer.progress.update, "undiscounted": costs[updates[-1]]}

    monkeypatch.setattr(Trainer, "validate", validate)
    settings = ["train.max_updates=6", "train.validate_every=1", "train.patience=2", "train.blend_updates=3"]
    asked = [*QUIET, *settings, "train.validate_bleu=false", f"train.init={imported}"]
    for name, blend in (("blended", []), ("at once", ["train.blend=[]"])):
        config = load_config("modern/rotary", None, [*asked, *blend])
        progress = train_here(config, data, tmp_path / name)
        assert (progress.update, progress.best, progress.best_update) == (5, -1.0, 0)
        assert ckpt.load_run(tmp_path / name).updates == [0]
    config = load_config("modern/rotary", None, [*asked, "train.patience=1"])
    assert train_here(config, data, tmp_path / "one").update == 4
    # A mean that is better than the start is that of the best checkpoints of training, without the start.
    mean = lambda trainer, updates: validate(trainer, updates if len(updates) < 2 else [0])  # noqa: E731
    monkeypatch.setattr(Trainer, "validate", mean)
    train_here(load_config("modern/rotary", None, [*asked, "train.average=2"]), data, tmp_path / "mean")
    assert ckpt.load_run(tmp_path / "mean").updates == [2, 3]


def test_gates_open_in_training_at_a_rate_of_their_own(data: Path, imported: Path, tmp_path: Path) -> None:
    """The first update of Adam moves every gate by its learning rate."""
    settings = [
        "train.max_updates=1",
        "train.validate_every=1",
        "train.learning_rate=1e-3",
        "train.warmup_updates=0",
    ]
    asked = [*QUIET, *settings, "train.validate_bleu=false", "model.dropout=0", "train.average=1"]
    run = tmp_path / "run"
    train_here(load_config("opus/s4to4", None, [*asked, f"train.init={imported}"]), data, run)
    weights = load_file(checkpoint_folder(run, 1) / "model.safetensors")
    gates = torch.cat([tensor for name, tensor in weights.items() if name.endswith("span.gate")])
    torch.testing.assert_close(gates.abs(), torch.full_like(gates, 30e-3), rtol=1e-3, atol=0)
