"""Word links of the controlled corpus: every content word has one, whatever the frame."""

from itertools import product

from benchmarks.files.word_links import WordLinks, linked_documents, word_links
from cotext.data.controlled.discourse import _FRAMES, Draw, plan_document
from tests.loops import loop_over

DOCUMENTS = list(linked_documents("development", 40, 3))
SENTENCES = [
    (source, target, links)
    for document, of_document in DOCUMENTS
    for source, target, links in zip(document.source, document.target, of_document, strict=True)
]


def words(text: str, spans: tuple[tuple[int, int], ...]) -> list[str]:
    return [text[a:b] for a, b in spans]


def pairs(source: str, target: str, links: WordLinks, which: str = "sure") -> set[tuple[str, str]]:
    ours, theirs = words(source, links.source), words(target, links.target)
    return {(ours[i].lower(), theirs[j].lower()) for i, j in getattr(links, which)}


def test_every_content_word_of_every_frame_is_linked() -> None:
    frames, unlinked = set(), []
    for index in range(150):
        for sentence in plan_document(Draw("development", 7, index)).sentences:
            frames.add(sentence.frame)
            links = word_links(sentence)
            linked = {i for i, _ in links.possible}
            spans = [links.source[i] for i in links.content if i not in linked]
            unlinked += [(sentence.english(), sentence.english()[a:b]) for a, b in spans]
    assert frames == {frame for every, _ in _FRAMES.values() for frame in every}
    assert not unlinked


def test_every_target_word_is_linked() -> None:
    """Commas aside, which follow other rules in German."""
    bare = [
        (source, target, target[a:b])
        for source, target, links in SENTENCES
        for j, (a, b) in enumerate(links.target)
        if j not in {k for _, k in links.possible} and target[a:b] != ","
    ]
    assert not bare


def test_spans_are_the_words_of_the_texts_and_sure_links_are_possible() -> None:
    for source, target, links in SENTENCES:
        for text, spans in ((source, links.source), (target, links.target)):
            assert "".join("".join(words(text, spans)).split()) == "".join(text.split())
        assert links.sure <= links.possible
        assert links.possible <= set(product(range(len(links.source)), range(len(links.target))))


@loop_over(
    ("english", "german"),
    [("bought", "kaufte"), ("lamp", "lampe"), (".", "."), ("yesterday", "gestern")],
)
def test_words_that_are_linked_are_translations(english: str, german: str) -> None:
    found = set.union(*(pairs(*each) for each in SENTENCES))
    assert {g for e, g in found if e == english} == {german}


def test_no_link_crosses_to_another_word_of_the_lexicon() -> None:
    """A content word that occurs in many sentences is surely linked to few different words."""
    partners: dict[str, set[str]] = {}
    for source, target, links in SENTENCES:
        names = words(source, links.source)
        for e, g in pairs(source, target, links):
            if e in {names[i].lower() for i in links.content}:
                partners.setdefault(e, set()).add(g)
    assert max(map(len, partners.values())) <= 6, max(partners.items(), key=lambda each: len(each[1]))
