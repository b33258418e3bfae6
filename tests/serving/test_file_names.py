"""The names of files: of clients, who may call them anything, and of results."""

from cotext.serving.state import attachment, clean_name, result_name, suffix_of
from tests.loops import loop_over

HOSTILE = [
    "../../etc/passwd", "..\\..\\boot.ini", "C:\\Users\\me\\letter.docx", "/absolute", "", ".", "..", "...",
    "a\0b.txt", "a\r\nSet-Cookie: x=1.txt", 'a"; filename="b.exe', "<script>alert(1)</script>.html",
    "\u202etxt.exe", "a" * 5000 + ".docx", "ä" * 300 + ".odt", "a." + "b" * 300, "\ud800.txt", " . ",
    "a\u2028b.txt", ".htaccess", "con", "-rf", "~", "$(rm)", "%2e%2e%2f", "a/b\\c", "x.tar.gz", ".docx",
    "файл.txt", "😀" * 100,
]  # fmt: skip


@loop_over("name", HOSTILE)
def test_a_hostile_name_is_a_name_like_any_other(name: str) -> None:
    clean, result = clean_name(name), result_name(clean_name(name), "en", "de")
    assert (clean_name(clean), clean != result) == (clean, True)
    for found in (clean, result):
        assert found.strip(" .")
        assert not set(found) & set('/\\<>:"|?*\0\r\n\u2028\u202e')
        assert len(found.encode()) <= 255
        header = attachment(found)
        assert header.isascii()
        assert header.isprintable()
        assert header.count('"') == 2
    assert set(suffix_of(clean)) <= set(".abcdefghijklmnopqrstuvwxyz0123456789")


@loop_over(
    ("name", "result"),
    [
        ("Brief.docx", "Brief.de.docx"),
        ("letter.en.docx", "letter.de.docx"),
        ("letter", "letter.de"),
        ("My letter (2).TXT", "My letter (2).de.TXT"),
        (".en.txt", "en.de.txt"),
        ("a.en", "a.de.en"),
        ("Kapitel 1. Der Anfang einer langen Geschichte", "Kapitel 1. Der Anfang einer langen Geschichte.de"),
    ],
)
def test_results_are_called_after_their_files(name: str, result: str) -> None:
    assert result_name(clean_name(name), "en", "de") == result


def test_attachments_by_rfc_6266() -> None:
    assert attachment("a b.txt") == "attachment; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt"
    assert attachment("Grüße.docx") == (
        "attachment; filename=\"Gruße.docx\"; filename*=UTF-8''Gr%C3%BC%C3%9Fe.docx".replace("ß", "")
    )
    assert attachment("北京") == "attachment; filename=\"file\"; filename*=UTF-8''%E5%8C%97%E4%BA%AC"
    assert attachment("100%.txt") == "attachment; filename=\"100_.txt\"; filename*=UTF-8''100%25.txt"
