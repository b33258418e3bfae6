"""Groups of consecutive windows of a document, whose rows see each other in batch-level models.

    decode.group_windows = 3     window   0 1 2 | 3 4 5 | 6
                              group      0   |   1   | 2

Groups never overlap, and the output of a group depends on that group alone: several of them, of one document
too, may share a batch. To the model every group is a document of its own, so its rows carry its ordinal in
place of that of the document.
"""

from collections.abc import Sequence
from dataclasses import replace

from cotext.data.batch import Instance, Source, SpecialSymbols
from cotext.data.collate import extra_rows, source_batch
from cotext.translation.document_state import OpenDocument


def group_of(number: int, windows: int, group_windows: int) -> range:
    """The windows that a window of a document sees, itself included."""
    first = number - number % group_windows
    return range(first, min(first + group_windows, windows))


def source_of(
    windows: Sequence[tuple[OpenDocument, int]], group_windows: int, symbols: SpecialSymbols
) -> Source:
    """The source of windows to be searched, given by number, with the others of their groups as extra rows.

    Of a group, one window is searched or all are.
    """
    here = set(windows)
    ordinals: dict[tuple[OpenDocument, int], int] = {}
    rows: list[Instance] = []
    others: list[Instance] = []
    for opened, number in windows:
        group = group_of(number, len(opened.windows), group_windows)
        ordinal = ordinals.setdefault((opened, group.start), len(ordinals))
        rows.append(replace(opened.instance(number), document=ordinal))
        for n in group:
            if (opened, n) not in here:
                # As in training, the target of later windows is hidden.
                others.append(replace(opened.instance(n, target=n < number), document=ordinal))
    source = source_batch(rows, symbols)
    return replace(source, extra_rows=extra_rows(others, symbols)) if others else source
