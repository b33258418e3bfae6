"""Elements of strings in any order that a projection may give: every element once, the file well-formed."""

import random

import pytest

from cotext.files import po, xliff
from cotext.files.blocks import FileFormat, Job
from tests.files import test_po, test_xliff
from tests.files.faking import assert_well_formed, shuffled

FILES: dict[str, tuple[FileFormat, str]] = {
    "po": (po.FORMAT.for_job(Job(entries="all")), test_po.CATALOGUE),
    "xliff 1.2": (xliff.FORMAT.for_job(Job(entries="all")), test_xliff.FIRST),
    "xliff 2.1": (xliff.FORMAT.for_job(Job(entries="all")), test_xliff.SECOND),
}


@pytest.mark.parametrize("name", FILES)
def test_any_order_of_elements(name: str) -> None:
    format, content = FILES[name]
    draw = random.Random(1)
    opened = format.open(content.encode(), "file")
    assert_well_formed(opened)
    for _ in range(20):
        documents = [
            [shuffled(block, draw) if block.translate else block for block in blocks]
            for blocks in opened.contents.documents
        ]
        again = format.open(opened.written(documents), "written")
        assert_well_formed(again)
        assert list(map(len, again.contents.documents)) == list(map(len, documents))
