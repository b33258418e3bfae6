"""Lines of several sentences given to `translate`: split by default, a line in, a line out."""

from dataclasses import fields
from pathlib import Path

from cotext.data.documents import Document, Languages
from cotext.data.formats import read_documents, write_documents
from cotext.data.splitting import Splitter
from cotext.translation.prose import Prose
from cotext.translation.translator import OF_SENTENCES, Translation
from tests.command_line import World, succeed

# The toy language has no capitals: these lines look like several sentences, and are cut as such.
PROSE = "The cat sees. A dog runs. The bird sings."
LONG = " ".join(["the cat"] * 30)


def written(folder: Path, *documents: tuple[str, ...], format: str = "text") -> Path:
    path = folder / "prose.txt"
    write_documents(path, (Document(f"d{i}", d) for i, d in enumerate(documents)), format)
    return path


def flat(text: str) -> str:
    return " ".join(text.split())


def test_lines_of_prose_are_counted_and_the_first_is_named(world: World, tmp_path: Path) -> None:
    source = written(tmp_path, ("the cat",), ("a dog", PROSE, "the bird. Sings it!"), (LONG,))
    command = ["translate", world.run, source, "--format", "text", "--no-split"]
    told = flat(succeed(*command, "--out", tmp_path / "out.txt").err)
    assert "2 of 5 lines seem to hold several sentences" in told
    assert f"the first is {source}:4." in told
    assert told.count("--no-split") == 1
    assert len((tmp_path / "out.txt").read_text().splitlines()) == len(source.read_text().splitlines())


def test_sentences_raise_no_warning(world: World, tmp_path: Path) -> None:
    told = succeed("translate", world.run, world.folder / "test.en", "--out", tmp_path / "out.de").err
    assert "split" not in told


def test_where_sentences_share_a_line_the_sentence_is_named(world: World, tmp_path: Path) -> None:
    source = written(tmp_path, ("the cat",), ("a dog", PROSE), format="jsonl")
    told = flat(succeed("translate", world.run, source, "--out", tmp_path / "out.jsonl").err)
    assert f"{source}:2 (document 'd1', sentence 2)" in told


def test_split_lines_are_translated_as_their_sentences_are(world: World, tmp_path: Path) -> None:
    """Exactly as they are on lines of their own, in the context of each other."""
    whole = written(tmp_path, ("the cat", PROSE, "a dog"), (LONG,), format="jsonl")
    out = tmp_path / "out.jsonl"
    outcome = succeed("translate", world.run, whole, "--out", out)
    assert "1 are split into 3 sentences" in flat(outcome.err)
    assert "4 sentences in 2 documents" in outcome.out
    apart = tmp_path / "apart.jsonl"
    sentences = ("the cat", "The cat sees.", "A dog runs.", "The bird sings.", "a dog")
    write_documents(apart, [Document("d0", sentences), Document("d1", (LONG,))], "jsonl")
    succeed("translate", world.run, apart, "--out", tmp_path / "expected.jsonl")
    found, expected = (
        [d.sentences for d in read_documents(tmp_path / name, side="target")]
        for name in ("out.jsonl", "expected.jsonl")
    )
    first, *inner, last = expected[0]
    assert found[0] == (first, " ".join(inner), last)
    assert found[1] == expected[1]


def test_a_line_has_the_flags_and_scores_of_its_sentences() -> None:
    assert [Prose(each, Languages()).settings for each in (None, Splitter(""))] == ["", "rules-2:any"]
    prose = Prose(Splitter(""), Languages("en", "zh"))
    document = Document("d", ("a", "Cat. Dog. Bird.", "b. C."))
    assert prose.split(document).sentences == ("a", "Cat.", "Dog.", "Bird.", "b. C.")
    pieces = ("一。", "二。", "", "三。", "")
    places = {"truncated": (0, 2), "long": (1, 3), "shed": (4,), "missing": (2, 4), "resegmented": (3,)}
    translation = Translation(
        Document("d", pieces), (1.0, 2.0, 3.0, 4.0, 5.0), **places, pieces=(False,), tokens=(1, 2, 3, 4, 5)
    )
    kept = {"document", "log_probabilities", "pieces", "tokens", "lists"}
    assert {f.name for f in fields(translation)} == kept | set(OF_SENTENCES)
    joined = prose.join(document, translation)
    assert joined.document == Document("d", ("一。", "二。三。", ""))
    assert joined.log_probabilities == (1.0, 9.0, 5.0)
    assert (joined.truncated, joined.long, joined.shed, joined.missing) == ((0, 1), (1,), (2,), (1, 2))
    assert joined.resegmented == (1,)
    assert joined.tokens == (1, 9, 5)
    assert joined.pieces == (False,)
