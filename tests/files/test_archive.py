import io
import random
import struct
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotext.files import parts
from cotext.files.parts import Archive
from cotext.runtime import CotextError
from tests.files.faking import packed
from tests.hostile.mutations import mutate
from tests.loops import loop_over
from tests.refusals import must_raise


class Unseekable(io.BytesIO):
    """A pipe: what writes zip archives into it puts sizes behind the data."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise OSError

    def tell(self) -> int:
        raise OSError


def streamed(members: dict[str, bytes]) -> bytes:
    out = Unseekable()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            with file.open(name, "w", force_zip64=True) as member:
                member.write(content)
    return out.getvalue()


MEMBERS = {
    "mimetype": b"application/x",
    "a/b.xml": b"<a>some text, some text</a>",
    "grün.png": bytes(range(256)),
}


def described(content: bytes) -> list[tuple[object, ...]]:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        assert file.testzip() is None
        told = [(i.filename, i.compress_type, i.date_time, i.external_attr, i.comment) for i in file.filelist]
        return [*told, (file.comment,)]


def test_what_is_not_changed_stays() -> None:
    content = packed(MEMBERS, comment=b"end")
    opened = Archive(content, "x.zip")
    assert opened.names == list(MEMBERS)
    assert opened.written({}) is content
    assert opened.written({"a/b.xml": MEMBERS["a/b.xml"]}) is content
    content = packed(MEMBERS, "mimetype", b"end of all")
    changed = Archive(content, "x.zip").written({"grün.png": b"1", "mimetype": b"other"})
    assert described(changed) == described(content)
    assert changed[30 : 30 + len("mimetypeother")] == b"mimetypeother"


@pytest.mark.parametrize("make", [packed, streamed])
def test_a_changed_member_leaves_the_others_as_they_are(make) -> None:
    content = make(MEMBERS)
    changed = Archive(content, "x.zip").written({"a/b.xml": b"<a>other</a>"})
    assert described(changed) == described(content)
    again = Archive(changed, "y.zip")
    assert {name: again.read(name) for name in again.names} == {**MEMBERS, "a/b.xml": b"<a>other</a>"}


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.text("abcü/x", min_size=1, max_size=5).filter(lambda n: n[0] != "/"), st.binary(), min_size=1
    ),
    st.data(),
)
def test_any_members_any_changes(members: dict[str, bytes], data: st.DataObject) -> None:
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(members)), st.binary()))
    written = Archive(packed(members), "x.zip").written(changes)
    again = Archive(written, "x.zip")
    assert {name: again.read(name) for name in again.names} == {**members, **changes}


def with_names(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name in names:
            file.writestr(zipfile.ZipInfo(name), b"x")
    return out.getvalue()


@loop_over("name", ["/etc/passwd", "../up", "a/../../up", "..\\up", "C:\\up", "\\up"])
def test_names_that_leave_the_archive_are_refused(name: str) -> None:
    must_raise("leaves the archive", Archive, with_names("a", name), "x.zip")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_dangerous_archives_are_refused() -> None:
    must_raise("same name", Archive, with_names("a", "b", "a"), "x.zip")
    content = bytearray(with_names("a"))
    content[content.index(b"PK\1\2") + 8] |= 1
    must_raise("encrypted; save the file without a password", Archive, bytes(content), "x.zip")
    content = bytearray(packed({"bomb": bytes(64 << 20)}))
    must_raise("more than 300 times", Archive, bytes(content), "x.zip")
    for magic, at in ((b"PK\1\2", 24), (b"PK\3\4", 22)):
        struct.pack_into("<L", content, content.index(magic) + at, 1000)
    opened = Archive(bytes(content), "x.zip")
    must_raise("damaged", opened.read, "bomb")
    # One packed member that many directory entries name: a bomb without nesting.
    content = with_names("a", "b")
    first, second = content.index(b"PK\1\2"), content.rindex(b"PK\1\2")
    broken = bytearray(content)
    broken[second + 42 : second + 46] = broken[first + 42 : first + 46]
    must_raise("", Archive, bytes(broken), "x.zip")
    must_raise("does not begin with its first part", Archive, b"#!/bin/sh\n" + with_names("a"), "x.zip")
    must_raise("no part 'b'", Archive(with_names("a"), "x.zip").read, "b")


def test_limits_of_size_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed({"a": b"12345", "b": b"12345"})
    monkeypatch.setattr(parts, "MAX_MEMBER_BYTES", 4)
    message = r"x\.zip: part 'a' has 5 bytes unpacked, beyond the limit of 4"
    must_raise(message, Archive(content, "x.zip").read, "a")
    monkeypatch.setattr(parts, "MAX_TOTAL_BYTES", 9)
    must_raise("10 bytes unpacked", Archive, content, "x.zip")
    monkeypatch.setattr(parts, "MAX_MEMBERS", 1)
    must_raise("2 parts, beyond", Archive, content, "x.zip")


@pytest.mark.parametrize("make", [packed, streamed])
def test_damage_is_refused_or_read_right(make) -> None:
    content = make({name: 3 * member for name, member in MEMBERS.items()})
    draw = random.Random(3)
    for _ in range(400):
        damaged, _ = mutate(content, draw)
        try:
            opened = Archive(damaged, "x.zip")
            for name in opened.names:
                opened.read(name)
            Archive(opened.written(dict.fromkeys(opened.names[:1], b"new")), "y.zip")
        except CotextError:
            continue
