"""Runs as models of Hugging Face: equal logits there and back."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from command_line import succeed
from pretrained_folders import ENGLISH, m2m100_files, marian_files, sentences, spm, written
from pretrained_models import marian_model, marian_npz
from safetensors import SafetensorError
from tiny_runs import write_run
from torch import Tensor

import cotext as face
from cotext.config.recipe import dump_config, load_config, parse_config
from cotext.data.batch import Source
from cotext.data.tokenizer import MBART50_LANGUAGES, ImportedTokenizer, TokenizerSettings, train_tokenizer
from cotext.interchange.huggingface import export_huggingface
from cotext.interchange.importing import import_model
from cotext.interchange.language_pair import LanguagePair
from cotext.models.checkpoint import LoadedModel, load_run, save_model
from cotext.runtime.errors import CotextError

SIZES: dict[str, Any] = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}


@pytest.fixture(scope="module")
def transformers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


def random_folder(transformers: Any, folder: Path, kind: str) -> Path:
    """A folder of Hugging Face with a random model."""
    torch.manual_seed(0)
    if kind.startswith("marian"):
        files = marian_files((), separate=kind.endswith("separate"))
        for name in {"vocab.json", "target_vocab.json"} & files.keys():
            # One number of padding for both sides, as the class has it.
            names = [each for each in json.loads(files[name]) if each != "<pad>"]
            names.insert(2, "<pad>")
            files[name] = json.dumps({each: row for row, each in enumerate(names)}).encode()
        rows = len(json.loads(files["vocab.json"]))
        target = len(json.loads(files.get("target_vocab.json", files["vocab.json"])))
        config = transformers.MarianConfig(
            vocab_size=rows,
            decoder_vocab_size=target,
            share_encoder_decoder_embeddings=rows == target,
            pad_token_id=2,
            decoder_start_token_id=2,
            eos_token_id=0,
            activation_function="swish",
            scale_embedding=True,
            **SIZES,
        )
        model = transformers.MarianMTModel(config)
    elif kind == "m2m_100":
        files = m2m100_files()
        rows = len(json.loads(files["vocab.json"])) + 108
        config = transformers.M2M100Config(
            vocab_size=rows, decoder_start_token_id=2, scale_embedding=True, **SIZES
        )
        model = transformers.M2M100ForConditionalGeneration(config)
    else:
        files = {"sentencepiece.bpe.model": spm("both")}
        rows = len(json.loads(marian_files()["vocab.json"])) + 60
        config = transformers.MBartConfig(
            vocab_size=0, decoder_start_token_id=2, scale_embedding=True, max_position_embeddings=64, **SIZES
        )
        count = sentencepiece.SentencePieceProcessor(
            model_proto=files["sentencepiece.bpe.model"]
        ).get_piece_size()
        config.vocab_size = count + 1 + len(MBART50_LANGUAGES) + 1
        model = transformers.MBartForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        if kind != "m2m_100":
            model.final_logits_bias.normal_()
        if kind.startswith("marian"):
            model.get_decoder().embed_tokens.weight[2] = 0
    model.eval().save_pretrained(folder)
    written(folder, files)
    return folder


LANGUAGES = {"m2m_100": LanguagePair("en", "de"), "mbart": LanguagePair("en_XX", "de_DE")}
KINDS = ["marian", "marian-separate", "m2m_100", "mbart"]


@pytest.fixture(scope="module")
def folders(
    transformers: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, Path]]:
    """A folder of Hugging Face, and the run that is imported from it."""
    base = tmp_path_factory.mktemp("models")

    def pair(kind: str) -> tuple[Path, Path]:
        theirs, run = base / kind, base / f"{kind}-run"
        if not run.exists():
            import_model(random_folder(transformers, theirs, kind), run, LANGUAGES.get(kind, LanguagePair()))
        return theirs, run

    return pair


def logits(transformers: Any, folder: Path, source: Tensor, target: Tensor) -> Tensor:
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        found: Tensor = model(input_ids=source, decoder_input_ids=target).logits
    return found


def own_logits(loaded: LoadedModel, source: Tensor, target: Tensor) -> Tensor:
    model = loaded.left_to_right("test")
    zeros = torch.zeros_like(source)
    rows = torch.zeros(len(source), dtype=torch.long)
    with torch.inference_mode():
        state = model.encode(Source(source, zeros, torch.tensor([[0, 1]] * len(source)), rows, rows))
        hidden = model.decode(target, torch.zeros_like(target), state)
        found = hidden @ model.output_weight.T
    return found if model.output_bias is None else found + model.output_bias


def rows_of(loaded: LoadedModel, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Own ids of source and decoder input."""
    tokenizer = loaded.tokenizer
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(3, 40, (count, 7), generator=generator)
    target = torch.randint(3, 40, (count, 5), generator=generator)
    source[:, -1], target[:, 0] = tokenizer.eos, tokenizer.bos
    return source, target


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(
    transformers: Any, folders: Callable[[str], tuple[Path, Path]], tmp_path: Path, kind: str
) -> None:
    """export(import(x)) has the logits of x, and import(export(import(x))) is the same run."""
    theirs, run = folders(kind)
    out, again = tmp_path / "out", tmp_path / "again"
    assert export_huggingface(run, out) == []
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(4, 40, (3, 7), generator=generator)
    target = torch.randint(4, 40, (3, 5), generator=generator)
    config = json.loads((theirs / "config.json").read_text())
    source[:, -1], target[:, 0] = config["eos_token_id"], config["decoder_start_token_id"]
    expected = logits(transformers, theirs, source, target)
    assert torch.equal(logits(transformers, out, source, target), expected)
    import_model(out, again, LANGUAGES.get(kind, LanguagePair()))
    own, other = load_run(run), load_run(again)
    assert own.tokenizer.fingerprint == other.tokenizer.fingerprint
    weights, others = (each.with_states("test").state_dict() for each in (own, other))
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        assert torch.equal(weight, others[name]), name


def changed(run: Path, out: Path, **model: Any) -> LoadedModel:
    """A run as if trained further on windows: nothing is as it was, and separators are used."""
    loaded = load_run(run)
    content = loaded.config.model_dump(mode="json")
    content["view"] |= {"kind": "window", "before": 1}
    content["model"] |= model
    config = parse_config(content, "test")
    torch.manual_seed(1)
    weights = {
        name: weight + 0.1 * torch.randn_like(weight)
        for name, weight in loaded.with_states("test").state_dict().items()
        if name != "output_bias" or config.model.output_bias
    }
    loaded.tokenizer.save(out / "tokenizer")
    (out / "config.yaml").write_text(dump_config(config))
    save_model(out / "model.safetensors", weights, config, loaded.tokenizer.fingerprint, [9])
    return load_run(out)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_trained_further(
    transformers: Any, folders: Callable[[str], tuple[Path, Path]], tmp_path: Path, kind: str
) -> None:
    """All that is predicted has equal logits, separators too."""
    run = changed(folders(kind)[1], tmp_path / "run", output_bias=kind != "m2m_100")
    out = tmp_path / "out"
    assert export_huggingface(tmp_path / "run", out) == []
    config, tokenizer = json.loads((out / "config.json").read_text()), run.tokenizer
    assert isinstance(tokenizer, ImportedTokenizer)
    row = dict(enumerate(tokenizer.rows))
    row |= {tokenizer.eos: config["eos_token_id"], tokenizer.bos: config["decoder_start_token_id"]}
    row[tokenizer.sep] = config.get("decoder_vocab_size", config["vocab_size"]) - 1
    source_row = {**row, **dict(enumerate(tokenizer.source_rows)), tokenizer.sep: config["vocab_size"] - 1}
    source, target = rows_of(run, 3, 2)
    source[:, 3] = target[:, 2] = tokenizer.sep
    theirs = [
        torch.tensor([[there[i] for i in ids] for ids in side.tolist()])
        for side, there in ((source, source_row), (target, row))
    ]
    expected, found = own_logits(run, source, target), logits(transformers, out, *theirs)
    # What only heads a row stands in a row that is no piece any more.
    used = [i for i in row if row[i] != row[tokenizer.bos]]
    assert {tokenizer.eos, tokenizer.sep} < set(used)
    torch.testing.assert_close(found[..., [row[i] for i in used]], expected[..., used], atol=1e-5, rtol=0)
    assert f"`<sep>` (row {row[tokenizer.sep]})" in (out / "README.md").read_text()


@pytest.mark.parametrize("kind", ["npz", "npz, separate", "two paddings"])
def test_one_padding_for_both_sides(
    transformers: Any, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the class has no row for, or two, stands in one row of both sides."""
    separate, theirs = kind != "npz", tmp_path / "theirs"
    if kind == "two paddings":  # and more pieces of the target than of the source
        marian_model(theirs, separate=True)
    else:
        marian_npz(theirs, separate=separate)
    run, out = tmp_path / "run", tmp_path / "out"
    import_model(theirs, run, LanguagePair())
    assert export_huggingface(run, out) == []
    loaded, config = load_run(run), json.loads((out / "config.json").read_text())
    names = {"vocab.json", "target_vocab.json"} & {path.name for path in out.iterdir()}
    assert len(names) == 1 + separate
    for name in names:
        assert json.loads((out / name).read_text())["<pad>"] == config["pad_token_id"]
    capsys.readouterr()
    import_model(out, tmp_path / "again", LanguagePair())
    assert capsys.readouterr().err == ""  # transformers keeps its advice to itself
    note = json.loads((tmp_path / "again" / "import.json").read_text())
    assert note["self_test"]["skipped"] == ""
    assert note["self_test"]["equal_ids"] == note["self_test"]["sentences"]
    assert note["self_test"]["largest_logit"] < 50  # that of padding, which nobody predicts, is no measure
    again = load_run(tmp_path / "again")
    weights, others = (each.with_states("test").state_dict() for each in (loaded, again))
    for name, weight in weights.items():
        assert torch.equal(weight, others[name]), name


def test_separators_of_a_second_export(folders: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> None:
    """Names that the vocabulary has already are not given twice."""
    changed(folders("marian")[1], tmp_path / "first")
    export_huggingface(tmp_path / "first", tmp_path / "out")
    import_model(tmp_path / "out", tmp_path / "second", LanguagePair())
    changed(tmp_path / "second", tmp_path / "third")
    export_huggingface(tmp_path / "third", tmp_path / "out-2")
    names = json.loads((tmp_path / "out-2" / "vocab.json").read_text())
    assert sorted(names.values()) == list(range(len(names)))
    assert names["<sep1>"] == names["<sep>"] + 1 == len(names) - 1
    assert "`<sep1>` (row" in (tmp_path / "out-2" / "README.md").read_text()
    import_model(tmp_path / "out-2", tmp_path / "fourth", LanguagePair())


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers_of_the_folder(
    transformers: Any, folders: Callable[[str], tuple[Path, Path]], tmp_path: Path, kind: str
) -> None:
    _, run = folders(kind)
    succeed("export", run, "--to", "huggingface", "--out", tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        name = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["tokenizer_class"]
        theirs = getattr(transformers, name).from_pretrained(tmp_path / "out", local_files_only=True)
    own = load_run(run).tokenizer
    assert isinstance(own, ImportedTokenizer)
    for text in sentences(ENGLISH, 5, 3):
        ids = [*own.source_prefix, *own.encode(text)]
        rows = [own.source_rows[i if i < own.pieces else i - 4] for i in ids]
        assert theirs(text).input_ids == [*rows, theirs.eos_token_id]


def test_a_length_penalty_that_transformers_does_not_have(
    folders: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """It is left out, and README.md says so."""
    run = folders("marian")[1]
    export_huggingface(run, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text())["length_penalty"] == 1.0
    assert "length penalty" not in (tmp_path / "out" / "README.md").read_text()
    loaded = load_run(run)
    content = loaded.config.model_dump(mode="json")
    content["decode"] |= {"length_penalty": 0.6, "length_penalty_form": "gnmt"}
    write_run(tmp_path / "gnmt", parse_config(content, "test"), loaded.tokenizer)
    assert export_huggingface(tmp_path / "gnmt", tmp_path / "without") == []
    assert "length_penalty" not in json.loads((tmp_path / "without" / "generation_config.json").read_text())
    assert "length penalty gnmt-0.6." in (tmp_path / "without" / "README.md").read_text()


def test_storage_that_is_full(
    folders: Callable[[str], tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise SafetensorError("I/O error: no space left")

    monkeypatch.setattr("cotext.interchange.huggingface.save_file", refuse)
    with pytest.raises(CotextError, match="out: cannot be written: I/O error: no space left"):
        export_huggingface(folders("marian")[1], tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []


def test_what_is_no_such_model_says_why(tmp_path: Path, folders: Callable[[str], tuple[Path, Path]]) -> None:
    tokenizer = train_tokenizer(sentences(ENGLISH, 50, 1), TokenizerSettings(vocabulary=40, num_threads=1))
    tiny = ["model.dimension=16", "model.feed_forward=32", "model.heads=2", "train.threads=1"]
    run = write_run(tmp_path / "run", load_config("g-transformer/randinit", "tiny", tiny), tokenizer)
    done = succeed("export", run, "--to", "huggingface", "--out", tmp_path / "out")
    assert "for Cotext alone" in done.out
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "- a tokenizer of the kind sentencepiece" in readme
    own, other = (face.load(each, "cpu", beam=1, max_extra=2) for each in (run, tmp_path / "out"))
    assert own.translate(["the cat"]) == other.translate(["the cat"])
    changed(folders("m2m_100")[1], tmp_path / "biased")
    changed(folders("marian")[1], tmp_path / "shifted", positions="reset", activation="gelu_sigmoid")
    for name, problems in {
        "biased": ["model.output_bias = true, which is not zero"],
        "shifted": ["model.positions = reset", "model.activation = gelu_sigmoid"],
    }.items():
        found = export_huggingface(tmp_path / name, tmp_path / f"{name}-out")
        assert found == problems
        readme = (tmp_path / f"{name}-out" / "README.md").read_text()
        assert all(f"- {problem}\n" in readme for problem in problems)
