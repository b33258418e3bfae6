"""Tokenizers without the pieces that a corpus does not need: a smaller embedding, and a smaller output layer.

Text becomes the pieces of the whole tokenizer, and where all of them are kept, nothing changes but their ids.
A piece that is not kept is cut into the longest kept ones that spell it, a character without a piece into
bytes where there are any. Pieces of one character are kept, so that whatever could be encoded still can.

    whole       ▁the 7   ▁cat 9   ▁cats 12   s 15          kept: 7, 9, 15, as 0, 1, 2
    ▁the ▁cats  7 12                                            0 1 2
"""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from cotext.data.tokenizer.imported import WORD_BOUNDARY, ImportedTokenizer
from cotext.data.tokenizer.protocol import FORMAT_VERSION, SPECIAL_SYMBOLS, Side, Tokenizer, fingerprint_of
from cotext.data.tokenizer.sentencepiece import SentencePieceTokenizer
from cotext.runtime.errors import CotextError
from cotext.runtime.files import replacing
from cotext.runtime.reading import parse_json, read_json

KEPT = "kept.json"

Whole = SentencePieceTokenizer | ImportedTokenizer


class TrimmedTokenizer:
    """Some pieces of another tokenizer, in its order; `kept` are their ids there."""

    kind = "trimmed"

    def __init__(self, whole: Whole, kept: Sequence[int]) -> None:
        """Take the whole tokenizer and the ids to keep, ascending.

        Raises:
            CotextError: ids that are no pieces of it, or lack what every text may need.
        """
        names = whole.names
        inside = all(0 <= a < b for a, b in pairwise(kept)) and bool(kept)
        if not (inside and kept[-1] < whole.pieces and set(needed(whole)) <= set(kept)):
            raise CotextError("not pieces of this tokenizer, or not all of those that every text needs")
        self.whole, self.kept = whole, tuple(kept)
        self.pieces = len(kept)
        self.pad, self.bos, self.eos, self.sep = range(self.pieces, self.pieces + SPECIAL_SYMBOLS)
        self.vocabulary_size = self.source_vocabulary_size = self.pieces + SPECIAL_SYMBOLS
        self.separate_vocabularies = False
        self.fingerprint = fingerprint_of(self.kind, self._kept_file() + whole.fingerprint.encode())
        self._id = np.full(whole.pieces, -1, dtype=np.int64)
        self._id[list(kept)] = np.arange(self.pieces)
        self._names = names
        self._by_name = {names[i]: new for new, i in enumerate(kept)}
        self._longest = max(len(name) for name in self._by_name)
        self._spelled: dict[int, list[int]] = {}
        self.unk = int(self._id[whole.unk])
        self.source_prefix, self.target_prefix = (
            tuple(self._id[list(prefix)].tolist()) for prefix in (whole.source_prefix, whole.target_prefix)
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that hold it, beside tokenizer.json."""
        return (*self.whole.files, KEPT)

    @property
    def unwritten(self) -> tuple[int, ...]:
        """The pieces that no output may hold, in rising order."""
        return self._those_kept(self.whole.unwritten)

    @property
    def rows(self) -> list[int]:
        """The ids in the whole tokenizer of all ids here, special symbols too."""
        return [*self.kept, *range(self.whole.pieces, self.whole.vocabulary_size)]

    def with_threads(self, num_threads: int) -> Self:
        """Return the same tokenizer with so many threads for `encode_batch`; the ids stay the same."""
        return type(self)(self.whole.with_threads(num_threads), self.kept)

    def encode(self, sentence: str, side: Side = "source") -> list[int]:
        """Return the piece ids of a sentence, without special symbols."""
        return self.encode_batch([sentence], side)[0]

    def encode_batch(self, sentences: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Encode many sentences at once."""
        return [
            [new for i in found for new in self._of(i)] for found in self.whole.encode_batch(sentences, side)
        ]

    def decode(self, ids: Sequence[int], side: Side = "target") -> str:
        """Return the text as one line, white space folded; special symbols show nothing."""
        return self.whole.decode([self.kept[int(i)] for i in ids if int(i) < self.pieces], side)

    def blank(self) -> list[int]:
        """Return the pieces that show nothing wherever they stand, in rising order."""
        return list(self._those_kept(self.whole.blank()))

    def whole_ids(self, ids: Iterable[int]) -> list[int]:
        """Ids of a text in the whole tokenizer."""
        return [self.kept[int(i)] for i in ids]

    def save(self, folder: Path) -> None:
        """Write tokenizer.json, the files of the whole tokenizer and kept.json into the folder."""
        self.whole.save(folder)
        described = self.description(read_json(folder / "tokenizer.json"))
        for name, content in (
            (KEPT, self._kept_file()),
            ("tokenizer.json", json.dumps(described, indent=2, ensure_ascii=False).encode()),
        ):
            with replacing(folder / name) as temporary:
                temporary.write_bytes(content)

    @classmethod
    def stored(cls, whole: Tokenizer, content: bytes, where: str) -> Self:
        """The tokenizer of what `save` wrote into kept.json; raises CotextError where that is damaged."""
        kept = parse_json(content.decode(errors="replace"), where)
        if not isinstance(kept, list) or not all(type(i) is int for i in kept):
            raise CotextError(f"{where}: damaged: holds no list of piece ids")
        return cls(_trimmable(whole), kept)

    def description(self, of_whole: dict[str, Any]) -> dict[str, Any]:
        """The content of tokenizer.json, given that of the whole tokenizer."""
        return {
            "version": FORMAT_VERSION,
            "kind": self.kind,
            "model": list(self.files),
            "fingerprint": self.fingerprint,
            "pieces": self.pieces,
            "special": {"pad": self.pad, "bos": self.bos, "eos": self.eos, "sep": self.sep},
            "whole": of_whole,
        }

    def _kept_file(self) -> bytes:
        return json.dumps(list(self.kept)).encode()

    def _those_kept(self, ids: Iterable[int]) -> tuple[int, ...]:
        found = self._id[list(ids)].tolist()
        return tuple(i for i in found if i >= 0)

    def _of(self, whole_id: int) -> list[int]:
        """The ids here of a piece: itself, or those that spell it."""
        if self._id[whole_id] >= 0:
            return [int(self._id[whole_id])]
        if whole_id not in self._spelled:
            self._spelled[whole_id] = self._spell(self._names[whole_id])
        return self._spelled[whole_id]

    def _spell(self, name: str) -> list[int]:
        ids, at = [], 0
        while at < len(name):
            ends = range(min(len(name), at + self._longest), at, -1)
            end = next((end for end in ends if name[at:end] in self._by_name), None)
            if end is None:
                end = at + 1
                parts = [f"<0x{byte:02X}>" for byte in name[at].encode()]
                known = all(part in self._by_name for part in parts)
                ids += [self._by_name[part] for part in parts] if known else [self.unk]
            else:
                ids.append(self._by_name[name[at:end]])
            at = end
        return ids


def trimmed(whole: Tokenizer, seen: Iterable[int]) -> TrimmedTokenizer:
    """A tokenizer of the pieces that were seen in a corpus, and of those that every text may need.

    Raises:
        CotextError: a tokenizer that cannot be trimmed.
    """
    whole = _trimmable(whole)
    return TrimmedTokenizer(whole, sorted({*seen, *needed(whole)}))


def whole_of(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer that another was trimmed from, or itself."""
    return tokenizer.whole if isinstance(tokenizer, TrimmedTokenizer) else tokenizer


def _trimmable(whole: Tokenizer) -> Whole:
    if not isinstance(whole, Whole):
        raise CotextError(
            f"--trim-vocabulary: the pieces of a tokenizer of the kind {whole.kind} cannot be trimmed"
        )
    if whole.separate_vocabularies:
        raise CotextError(
            "--trim-vocabulary: this tokenizer has separate vocabularies for source and target, which cannot "
            "be trimmed yet; leave it out"
        )
    return whole


def needed(whole: Whole) -> list[int]:
    """Pieces that are kept whatever the corpus holds: single characters, bytes, unknown, symbols of rows."""
    return sorted(
        {
            whole.unk,
            *whole.source_prefix,
            *whole.target_prefix,
            *(i for i, name in enumerate(whole.names) if _spells_all(name)),
        }
        - (set(whole.unwritten) - {*whole.source_prefix, *whole.target_prefix, whole.unk})
    )


def _spells_all(name: str) -> bool:
    is_byte = len(name) == 6 and name.startswith("<0x") and name.endswith(">")
    return is_byte or len(name.removeprefix(WORD_BOUNDARY)) <= 1
