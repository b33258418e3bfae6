"""Imports of random models that transformers made: ids, logits, scores and translations are transformers'."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

import cotext
from cotext.data.batch import Instance, source_batch
from cotext.data.documents import Languages
from cotext.data.tokenizer import ImportedTokenizer
from cotext.data.views import Window
from cotext.interchange import importing
from cotext.interchange.foreign import ABSENT, ForeignModel
from cotext.interchange.importing import Imported, import_model, open_foreign
from cotext.models.build_views import special_symbols
from cotext.models.checkpoint import LoadedModel, load_run
from cotext.models.run_folder import IMPORT
from cotext.runtime import CotextError
from cotext.runtime.files import unsealed
from cotext.search.beam_search import search
from cotext.search.constraints import SearchRequest, SearchSymbols
from cotext.search.hypotheses import Hypothesis, SearchOptions
from tests.command_line import succeed
from tests.loops import loop_over
from tests.pretrained_folders import ENGLISH, GERMAN, sentences
from tests.pretrained_models import FOLDERS, LANGUAGES, marian_model

transformers = pytest.importorskip("transformers")
TEXTS = sentences(ENGLISH, 6, 7)
LIMIT = 16
Get = Callable[[str], tuple[Path, Path, Imported]]


@pytest.fixture(scope="session")
def imports(tmp_path_factory: pytest.TempPathFactory) -> Get:
    """Folder, run and account of every kind of model, each made once."""
    made: dict[str, tuple[Path, Path, Imported]] = {}

    def get(name: str) -> tuple[Path, Path, Imported]:
        if name not in made:
            top = tmp_path_factory.mktemp("import")
            folder, run = FOLDERS[name](top / "there"), top / "run"
            account = import_model(folder, run, Languages(*LANGUAGES.get(name, ("", ""))), "cc-by-4.0")
            made[name] = folder, run, account
        return made[name]

    return get


def theirs(folder: Path) -> tuple[Any, Any]:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def opened(name: str, folder: Path) -> ForeignModel:
    return open_foreign(folder, Languages(*LANGUAGES.get(name, ("", ""))))


def source_rows(foreign: ForeignModel) -> tuple[int, ...]:
    part = foreign.parts.get("embedding.source_weight")
    return foreign.symbol_rows if part is None or part.rows is None else part.rows


@loop_over("name", FOLDERS)
def test_the_self_test_finds_the_same_model(name: str, imports: Get) -> None:
    _, run, account = imports(name)
    tested = account.self_test
    assert not tested.skipped
    assert tested.equal_ids == tested.sentences
    # A table of sinusoids in half precision is read as it is there, and made anew here.
    assert tested.largest_difference < (1e-3 if name == "half precision" else 1e-5) < 1 < tested.largest_logit
    note = unsealed((run / IMPORT).read_text())
    assert note["self_test"] == asdict(tested)
    assert (note["class"], note["licence"]) == (account.kind, "cc-by-4.0")
    assert {"config.json", "tokenizer_config.json"} <= note["files"].keys()
    assert all(len(file["sha256"]) == 64 for file in note["files"].values())


def rows_of(foreign: ForeignModel, text: str) -> Tensor:
    """A source row as transformers reads it."""
    own = foreign.tokenizer
    return torch.tensor([[source_rows(foreign)[i] for i in (*own.source_prefix, *own.encode(text), own.eos)]])


def begun(foreign: ForeignModel) -> list[int]:
    own, rows = foreign.tokenizer, foreign.symbol_rows
    return [rows[own.bos], *(rows[i] for i in own.target_prefix)]


@loop_over("name", FOLDERS)
@torch.no_grad()
def test_scores_of_sentences_are_theirs(name: str, imports: Get) -> None:
    folder, run, _ = imports(name)
    foreign, (model, _) = opened(name, folder), theirs(folder)
    own, rows = foreign.tokenizer, foreign.symbol_rows
    targets = sentences(GERMAN, len(TEXTS), 8)
    for text, target, score in zip(TEXTS, targets, cotext.load(run).score(TEXTS, targets), strict=True):
        labels = [rows[i] for i in (*own.encode(target, "target"), own.eos)]
        start = begun(foreign)
        inputs = torch.tensor([[*start, *labels[:-1]]])
        log_p = model(input_ids=rows_of(foreign, text), decoder_input_ids=inputs).logits[0].log_softmax(dim=1)
        expected = log_p[len(start) - 1 :].gather(1, torch.tensor(labels)[:, None]).sum()
        assert score == pytest.approx(float(expected), abs=0.02 if name == "half precision" else 1e-4)


def searched(loaded: LoadedModel, beam: int) -> list[Hypothesis]:
    """What is written for each text, at most LIMIT tokens."""
    own = loaded.tokenizer
    symbols = special_symbols(own, loaded.config.view)
    one = Window(range(1), range(1), range(1))
    rows = source_batch([Instance(i, one, [own.encode(text)], [[]]) for i, text in enumerate(TEXTS)], symbols)
    asked = [SearchRequest([], 0, (LIMIT,)) for _ in TEXTS]
    search_symbols = SearchSymbols(symbols, own.unk, unused=own.unwritten)
    # Without a penalty, what ends soon wins, before the limit, which the others have other rules for.
    return search(loaded.left_to_right("a test"), rows, asked, search_symbols, SearchOptions(beam, 0.0))


@loop_over("name", FOLDERS)
@torch.no_grad()
def test_translations_are_theirs(name: str, imports: Get) -> None:
    """Greedy ones token by token; of a beam, those that end before the limit, with their scores."""
    folder, run, _ = imports(name)
    foreign, (model, _), loaded = opened(name, folder), theirs(folder), load_run(run)
    own, rows = foreign.tokenizer, foreign.symbol_rows
    end, by_row = rows[own.eos], {row: i for i, row in enumerate(rows[: own.pieces])}
    never = {rows[i] for i in (own.unk, *own.unwritten, own.pad, own.bos)} - {-1, end}
    start = begun(foreign)
    settings = {"max_new_tokens": LIMIT - 1, "suppress_tokens": sorted(never), "begin_suppress_tokens": [end]}
    settings |= {"forced_eos_token_id": None, "forced_bos_token_id": None, "early_stopping": "never"}
    settings |= {"return_dict_in_generate": True, "output_scores": True, "length_penalty": 0.0}
    equal = 0
    for beam in (1, 4):
        for text, found in zip(TEXTS, searched(loaded, beam), strict=True):
            given = {"input_ids": rows_of(foreign, text), "decoder_input_ids": torch.tensor([start])}
            written = model.generate(**given, num_beams=beam, **settings)
            new = written.sequences[0].tolist()[len(start) :]
            labels = [by_row[row] for row in (new[: new.index(end)] if end in new else new)]
            if beam == 1:
                assert found.tokens[: len(labels)] == labels
            elif end in new:
                score, near = float(written.sequences_scores[0]), 0.02 if name == "half precision" else 1e-4
                # Theirs ends hypotheses among the best alone, so that now and then it misses a better one.
                assert found.log_probability > score - near
                if found.tokens == labels:
                    equal += 1
                    assert found.log_probability == pytest.approx(score, abs=near)
    assert equal >= 3


def test_a_run_of_an_import_is_a_run(imports: Get, tmp_path: Path) -> None:
    _, run, account = imports("tags")
    assert {path.name for path in run.iterdir()} == {"config.yaml", "tokenizer", "model.safetensors", IMPORT}
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["activation"] == "swish"
    assert (config["decode"]["beam"], config["decode"]["length_penalty"]) == (4, 1.0)
    (tmp_path / "a.en").write_text("".join(f"{text}\n" for text in TEXTS[:2]))
    out = tmp_path / "a.de"
    succeed("translate", run, tmp_path / "a.en", "--out", out)
    assert len(out.read_text().splitlines()) == 2
    assert "swish" not in account.system
    told = succeed("info", run).out
    assert f"{account.parameters:,}" in told
    assert "imported from MarianMTModel, " in told


def test_languages_that_were_not_chosen_are_told(tmp_path: Path) -> None:
    folder = FOLDERS["nllb"](tmp_path / "there")
    told = succeed("import", folder, "--out", tmp_path / "runs" / "nllb").out
    assert "(deu_Latn, eng_Latn, zho_Hans, zho_Hant), and no language was chosen" in told
    german = ("--target-language", "deu_Latn", "--json")
    found = json.loads(succeed("import", folder, "--out", tmp_path / "again", *german).out)
    assert (found["kind"], found["languages"]) == ("M2M100ForConditionalGeneration", [])
    assert found["self_test"]["equal_ids"] == found["self_test"]["sentences"] > 0


@pytest.mark.parametrize("name", ["swish", "two vocabularies", "nllb"])
def test_what_the_other_never_writes_has_no_probability(name: str, imports: Get) -> None:
    folder, run, _ = imports(name)
    loaded, foreign = load_run(run), opened(name, folder)
    own = loaded.tokenizer
    assert isinstance(own, ImportedTokenizer)
    bias = loaded.model.output_bias
    assert bias is not None
    assert (bias <= ABSENT).nonzero().flatten().tolist() == [own.bos, own.sep]
    weight = loaded.model.output_weight
    assert torch.equal(weight[own.sep], weight[own.eos])
    weights = load_file(folder / "model.safetensors")
    matrix = weights.get("model.decoder.embed_tokens.weight", weights.get("model.shared.weight"))
    assert matrix is not None
    assert torch.equal(weight, matrix[list(foreign.symbol_rows)])


def test_without_transformers_the_import_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = marian_model(tmp_path / "there")
    monkeypatch.setattr(importing, "find_spec", lambda name: None)
    account = import_model(folder, tmp_path / "run", Languages())
    assert "self-test: none: transformers is not installed" in account.render()
    assert load_run(tmp_path / "run").signature


def test_another_model_than_theirs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a setting had been misread: here, the wavelengths of positions."""
    folder = marian_model(tmp_path / "there")
    make = importing.make_config
    monkeypatch.setattr(
        importing, "make_config", lambda model, *rest: make({**model, "wavelengths": "half_minus_one"}, *rest)
    )
    with pytest.raises(CotextError, match="the self-test failed, nothing was written"):
        import_model(folder, tmp_path / "run", Languages())
    assert not (tmp_path / "run").exists()
