"""Recipes, sizes and overrides become one closed configuration, or one clear message."""

import re
import runpy
from pathlib import Path

from cotext.config.model import TopConfig
from cotext.config.recipe import Config, TrainConfig, differences, dump_config, load_config
from cotext.config.sizes import SIZES
from cotext.models.build import build_model
from cotext.models.build_views import build_view, further_symbols, special_symbols
from cotext.models.describe import describe_cut, describe_model
from tests.loops import loop_over
from tests.refusals import must_raise
from tests.tiny import WordTokenizer

RECIPE = "focused-concatenation/s4to4-shift-cd"


def write(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_sizes_lie_over_recipes_and_overrides_over_both(tmp_path: Path) -> None:
    recipe = write(tmp_path, "model: {dimension: 64, heads: 2}\ntrain: {seed: 5}")
    config = load_config(recipe, "tiny", ["model.heads=8", "train.max_updates=7"])
    assert config.model.dimension == SIZES["tiny"]["model"]["dimension"]
    assert (config.model.heads, config.train.max_updates, config.train.seed) == (8, 7, 5)
    assert config.train.learning_rate == SIZES["tiny"]["train"]["learning_rate"]
    assert load_config(recipe).model.dimension == 64
    assert SIZES["tiny"]["model"]["heads"] == 4  # overrides leave the table alone


def test_an_empty_recipe_is_the_default_and_any_is_the_same_from_a_file(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "")) == Config()
    empty = write(tmp_path, "# nothing\n")
    assert load_config(empty, "base", ["loss.label_smoothing=0.2"]).loss.label_smoothing == 0.2
    shipped = load_config(RECIPE)
    assert load_config(write(tmp_path, dump_config(shipped))) == shipped


@loop_over(
    ("override", "message"),
    [
        ("model.encodr.score=alibi", "'model.encodr'; the nearest known one is 'model.encoder'"),
        ("encoder.score=alibi", "unknown key 'encoder'; the nearest known one is 'model.encoder'"),
        ("nothing.like=it", "unknown key 'nothing': docs/recipes.md lists all keys"),
        ("beam=3", "unknown key 'beam'; the nearest known one is 'decode.beam'"),
        ("model.heads=0", "model.heads = 0: input should be greater than 0"),
        ("train.max_updates=1e3", "train.max_updates = '1e3': input should be a valid integer"),
        ("train.learning_rate=true", "train.learning_rate = True: input should be a number"),
        ("train.learning_rate=.nan", "train.learning_rate = nan: input should be a finite number"),
        ("train.adam_betas=[0.9, 1.0]", "train.adam_betas.1 = 1.0: input should be less than 1"),
        ("train.best_by=chrf", "'chrf': input should be 'loss', 'objective', 'undiscounted' or 'bleu'"),
        ("model.shift=banana", "model.shift = 'banana': input should be 'corpus' or 'sequence'"),
        ("view=", "view = None"),
        ("train.seed", "'train.seed' is not an override: write key.path=value"),
        ("=3", "'=3' is not an override"),
        ("train.seed=[1", "the value is not valid YAML"),
        ("paper.title=x", "'paper.title=x': paper is a value, not a section"),
    ],
)  # fmt: skip
def test_wrong_overrides(override: str, message: str) -> None:
    must_raise(re.escape(message), load_config, RECIPE, None, [override])


def test_problems_are_told_at_once_and_unreadable_files(tmp_path: Path) -> None:
    told = must_raise("", load_config, RECIPE, None, ["model.heads=0", "train.sed=1"])
    assert len(told.splitlines()) == 2
    for name, content in (("absent.yaml", None), ("binary.yaml", b"\xff\xfe")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        must_raise(rf"{name}: cannot be read", load_config, str(tmp_path / name))
    (tmp_path / "folder.yaml").mkdir()
    must_raise("cannot be read", load_config, str(tmp_path / "folder.yaml"))


@loop_over(
    ("text", "message"),
    [
        ("model: [", "not valid YAML"),
        ("- a\n- b", "expected a mapping"),
        ("model: 5", "mine.yaml: model = 5"),
        ("1: 2", "mine.yaml: 1 = 1: keys should be strings"),
        ("colour: red", "mine.yaml: unknown key 'colour'"),
    ],
)
@loop_over("size", [None, "tiny"])
def test_wrong_files(tmp_path: Path, text: str, message: str, size: str | None) -> None:
    must_raise(message, load_config, write(tmp_path, text), size)


def test_unknown_recipes_and_sizes() -> None:
    must_raise(r"no recipe 's4to4': did you mean focused-concatenation/s4to4", load_config, "s4to4")
    must_raise("did you mean focused-concatenation/s4to4-cd", load_config, "focussed-concatenation/s4to4-cd")
    must_raise("did you mean han/target", load_config, "han/targt")
    both = "mean focused-concatenation/s4to4-shift-cd or opus/s4to4-shift-cd"
    must_raise(both, load_config, "s4to4-shift-cd")
    for name in ("qqqq", "nope"):
        must_raise("`cotext systems` lists them all", load_config, name)
    must_raise("unknown size 'huge': choose one of tiny, small, ted, base", load_config, RECIPE, "huge")


def test_what_cannot_be_built() -> None:
    config = load_config(RECIPE, None, ["model.heads=7", "model.shift=1"])
    must_raise("model.dimension = 512 is not divisible by model.heads = 7", build_model, config, 100)
    must_raise("model.shift = corpus is not a number yet", build_model, load_config(RECIPE), 100)
    must_raise("view.numbers = corpus is not a number", build_model, load_config("docflat/docflat-c"), 100)


def test_a_view_names_its_limit_of_sentences() -> None:
    """In the list of systems and in signatures, where it is set."""

    def told(*overrides: str) -> list[str]:
        view = load_config("mr/sr-doc2doc", None, overrides).view
        return [describe_cut(cut, view.max_sentences) for cut in (view, *view.mixed_with)]

    assert told() == ["document"]
    assert told("view.max_sentences=20") == ["document-20s"]
    mixed = "view.mixed_with=[{kind: cumulative, parts: 2}, {kind: window, before: 2}, {kind: sentence}]"
    cuts = ["document-3s", "cumulative-3s/2", "window-2+1+0", "sentence"]
    assert told(mixed, "view.max_sentences=3") == cuts
    assert told(mixed, "view.max_sentences=0")[:2] == ["document", "cumulative/2"]


def test_differences() -> None:
    one = load_config(RECIPE)
    other = load_config(RECIPE, None, ["train.max_tokens=1", "decode.beam=2", "paper=other"])
    assert [d[0] for d in differences(one, other)] == ["paper", "train.max_tokens", "decode.beam"]
    assert list(differences(one, other))[1:] == [("train.max_tokens", 16_000, 1), ("decode.beam", 4, 2)]
    assert not list(differences(one, one))


def test_the_reference_covers_every_key() -> None:
    maker = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "make_recipes.py"))
    entries = {key: (kind, default) for key, kind, default, *_ in maker["reference"]()}
    assert entries["train.adam_betas"] == ("float, float", (0.9, 0.98))
    assert entries["model.shift"] == ("int | corpus | sequence, at most 10,000", "corpus")
    assert {key.split(".")[1] for key in entries if key.startswith("train.")} == set(TrainConfig.model_fields)
    for key, (_, default) in entries.items():
        value: object = Config().model_dump()
        for part in key.split("."):
            value = value[part]  # type: ignore[index]
        assert value == default


def test_sizes_are_laid_over_subsections() -> None:
    """A size changes one key of a subsection and leaves what else stands there; so does a stack."""
    overrides = [
        "model.cross={score: absolute}",
        "model.encoder.top.layers=2",
        "model.attention={others: gated}",
    ]
    config = load_config("g-transformer/randinit", "tiny", overrides)
    assert config.model.stack("encoder").top == TopConfig(layers=2, span="row", mix="gated")
    assert config.model.attention.top.layers == 1
    assert (config.model.attention.span, config.model.attention.top.mix) == ("sentence", "gated")
    assert (config.model.stack("cross").score, config.model.stack("cross").span) == ("absolute", "sentence")
    assert load_config("g-transformer/randinit").model.attention.top.layers == 2


@loop_over(
    ("overrides", "message"),
    [
        (["positions=reset"], "model.positions = reset: the positions that every layer adds are absolute"),
        (["target_positions=shifted"], "shifted requires model.positions = shifted"),
        (["encoder.span=memory"], "model.encoder.span = memory: the encoder supports only row, sentence"),
        (["decoder.span=memory"], "with the span memory in the decoder; choose transformer_xl"),
        (["decoder.score=segment_distance"], "model.decoder.score = segment_distance: there is no kernel"),
        (["encoder.top={layers: 7}"], "model.encoder.top.layers = 7, but this stack has 6 layers"),
        (["document_layer=segment_gate", "document.target=true"], "works only in the encoder"),
        (
            ["document_layer=segment_gate", "encoder.top={layers: 1, span: current}"],
            "keeps only the current ones; choose one of the two",
        ),
        (["attention.score=content", "decoder.span=nodes"], "requires model.writes = non_autoregressive"),
        (
            ["attention.score=content", "attention.top={layers: 1, span: nodes}"],
            "model.attention.top.span = nodes: no kernel decodes with it step by step",
        ),
        (
            ["encoder.top={layers: 1, span: current}", "cross.span=sentence"],
            "model.cross.span = sentence: where cross-attention reads only current sentences",
        ),
        (["document_layer=hierarchical", "document.source=false"], "neither model.document.source nor"),
        (["document.sentences=0"], "model.document.sentences = 0"),
        (
            [
                "attention.score=content",
                "encoder={span: sentence, top: {layers: 1, span: current, mix: gated}}",
            ],
            "span sentence in the encoder: from the first layer with the span current on",
        ),
        (["writes=non_autoregressive"], "requires loss.name = glancing"),
        (
            ["attention.score=content", "positions=none", "position_encoding=learned"],
            "choose absolute, reset or shifted on both sides",
        ),
        (
            ["position_encoding=learned", "learned_positions=7", "first_position=7"],
            "there are 7 learned positions",
        ),
    ],
)
def test_slots_that_do_not_go_together(overrides: list[str], message: str) -> None:

    def build() -> None:
        build_model(load_config("p-transformer/doc", None, [f"model.{each}" for each in overrides]), 100)

    must_raise(re.escape(message), build)


def test_vocabularies_of_either_side_and_segments_of_a_mixture() -> None:
    overrides = ["model.dimension=32", "model.separate_embeddings=true", "view.separators=plain"]
    config = load_config("p-transformer/doc", "tiny", overrides)
    shapes = {name: tuple(p.shape) for name, p in build_model(config, 100, 150).named_parameters()}
    assert (shapes["embedding.weight"], shapes["embedding.source_weight"]) == ((100, 32), (150, 32))
    same = build_model(config, 100).state_dict()["embedding.source_weight"]
    assert same.shape == (100, 32)
    indexed = load_config("p-transformer/doc", "tiny", [*overrides[:2], "view.separators=indexed"])
    must_raise(r"view\.separators = indexed: with separate vocabularies", build_model, indexed, 100, 150)
    shared = load_config("p-transformer/doc", "tiny", overrides[:1])
    must_raise(r"model\.separate_embeddings = false: .* choose true", build_model, shared, 100, 150)
    overrides = ["model.segments=learned", "view.mixed_with=[{kind: window, before: 3}]"]
    model = build_model(load_config("focused-concatenation/base", "tiny", overrides), 100)
    assert dict(model.named_parameters())["embedding.segment"].shape == (4, 128)


def test_the_name_of_a_model_tells_its_slots() -> None:
    def name(*overrides: str) -> str:
        return describe_model(load_config("p-transformer/doc", None, overrides).model)

    assert name() == "transformer(attention.score=positions)"
    told = "transformer(attention.score=positions,cross.score=content)"
    assert name("model.cross.score=content") == told
    told = name("model.decoder.score=content", "model.attention.score=content")
    assert told.endswith("(decoder.score=content)")
    assert describe_model(load_config("focused-concatenation/base").model) == "transformer"
    shifted = load_config("focused-concatenation/s4to4-shift-cd", None, ["model.shift=21"])
    assert describe_model(shifted.model) == "transformer(positions=shifted,shift=21)"
    assert describe_model(load_config("casa/casa").model).startswith("nat(attention.span=sentence,")


def test_symbols_of_separators() -> None:
    """Pieces 0 to 5, then pad, bos, eos, sep; what a recipe adds stands behind them."""
    tokenizer = WordTokenizer(["a", "b"])
    assert (tokenizer.bos, tokenizer.vocabulary_size) == (7, 10)

    def symbols(*overrides: str) -> tuple[tuple[int, ...], bool, tuple[int, ...], int]:
        view = load_config(RECIPE, None, overrides).view
        found = special_symbols(tokenizer, view)
        assert (found.pad, found.bos, found.eos) == (6, 7, 8)
        return found.separators, found.bracket, found.numbers, further_symbols(view)

    assert symbols() == ((9,), False, (), 0)
    assert symbols("view.separators=bracket") == ((8,), True, (), 0)
    assert symbols("view.separators=indexed", "view.indexed_separators=3") == ((9, 10, 11), False, (), 2)
    assert symbols("view.separators=numbered", "view.numbers=3") == ((8,), True, (10, 11, 12), 3)


def test_numbered_sentences_are_built_like_bracketed_ones() -> None:
    overrides = ["view.separators=numbered", "view.numbers=7", "model.shift=2"]
    config = load_config(RECIPE, "tiny", overrides)
    assert build_model(config, 100).output_weight.shape == (107, 128)
    bracketed = load_config(RECIPE, "tiny", ["view.separators=bracket", "model.shift=2"])
    assert build_view(config.view) == build_view(bracketed.view)
    free = load_config(RECIPE, "tiny", [*overrides, "decode.align=free"])
    must_raise(r"decode.align = free does not support view.separators", build_model, free, 100)


@loop_over(
    ("overrides", "message"),
    [
        (["train.order=documents", "view.mixed_with=[{kind: sentence}]"], "remove view.mixed_with"),
        (["train.context=foreign", "view.mixed_with=[{kind: sentence}]"], "without view.mixed_with"),
        (["train.context=foreign", "view.kind=document", "view.before=0"], "requires view.kind = window"),
        (["loss.foreign_weight=1", "train.context=foreign"], "and train.context = own"),
        (["loss.foreign_weight=1", "model.batch_context=flat"], "model.batch_context = none"),
        (["train.order=document"], "should be 'shuffled' or 'documents'"),
        (["train.init_parts=decoder"], "should be 'all' or 'encoder'"),
        (["view.max_sentences=-1"], "view.max_sentences = -1"),
    ],
)
def test_orders_and_contexts_that_a_view_cannot_have(overrides: list[str], message: str) -> None:
    given = ["model.shift=2", *overrides]
    must_raise(message, lambda: build_model(load_config(RECIPE, "tiny", given), 100))
