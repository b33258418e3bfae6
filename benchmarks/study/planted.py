"""Faults planted in real translations, and how many of them an audit finds.

python -m benchmarks.study.planted plant FOLDER SPLIT TARGET OUT [--kinds lost,order] [--count 100]
    [--first 0 --documents 60]
cotext audit OUT/output.txt --source OUT/source.txt --json > OUT/audit.json
cotext audit OUT/reference.txt --source OUT/original.txt --json > OUT/reference.json
python -m benchmarks.study.planted score OUT ...

FOLDER has SPLIT.en.xz and SPLIT.TARGET.xz, a sentence per line and an empty line between documents. With
`--documents`, so many documents of 8 to 120 sentences are read, from `--first` on. Their order is random and
always the same, so that other numbers are other documents. `plant` writes OUT/source.txt and OUT/output.txt
with faults, OUT/original.txt and OUT/reference.txt without, and OUT/truth.json. It imports nothing of the
package.

Faults are in documents of eight sentences or more, in sentences of four words or more (eight characters of
Chinese) on both sides, at least four sentences apart. The original of a copied sentence has no fault, and
neither has the place to which a sentence moves. A finding is right if one of its kind was planted in that
sentence or a neighbour of it; every other finding is wrong, except for those that the reference has too
("known"), which are counted there. Intervals are of 95 % (Wilson 1927).

Unused so far are, of train: mix-ende from 1,415 on, mix-enru 640, mix-enzh 510, dialogue-ende 335,
dialogue-enru and dialogue-enzh 275, techdocs-enzh 150; of maruf: europarl test 220 and dev 60, ted dev 44.
"""

import argparse
import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

MECHANICAL: Final = ("lost", "added", "order", "untranslated", "copied", "language", "tag")
APART: Final = 4
LONG_DOCUMENT: Final = 8
LONGEST_DOCUMENT: Final = 120  # sentences of a document that `--documents` chooses
TAGS: Final = (
    "{name}",
    "{0}",
    "%s",
    "%(count)d",
    "<b>{}</b>",
    '<a href="x">{}</a>',
    "https://example.org/help",
    "$USER$",
)
QUOTES: Final = '["“”„«»「」『』]'
NAMES: Final = ("Petersen", "Hartwell", "Okonkwo", "Lindqvist", "Marchetti")
INFORMAL: Final = {"Sie": "du", "Ihnen": "dir", "Ihr": "dein", "Ihre": "deine", "Ihren": "deinen",
                   "Ihrem": "deinem",
                   "Ihrer": "deiner"}  # fmt: skip
# English terms with their German translations; in its place, the next one of the list is planted.
TERMS: Final = {"window": "Fenster", "document": "Dokument", "package": "Paket", "file": "Datei",
                "error": "Fehler", "user": "Benutzer", "list": "Liste", "text": "Text",
                "function": "Funktion", "option": "Option",
                "value": "Wert", "cell": "Zelle"}  # fmt: skip
PRONOUNS: Final = {"Er": "Sie", "er": "sie"}


@dataclass(frozen=True)
class Planted:
    """A fault: its kind, and the source sentence, from 1 over the whole text, in or behind which it is."""

    kind: str
    sentence: int


@dataclass
class Document:
    """The sides of a document; each output line remembers nothing of its origin."""

    first: int
    source: list[str]
    output: list[list[str]]  # the lines that stand in the place of each source sentence


class UnfitError(Exception):
    """A fault that this sentence cannot have."""


def read(path: Path) -> list[list[str]]:
    """The documents of a file."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [block.split("\n") for block in file.read().strip("\n").split("\n\n")]


def is_long(text: str) -> bool:
    """Whether a sentence has enough words to be told from others."""
    letters = sum(map(str.isalpha, text))
    return letters >= len(text) / 2 and (
        len(text.split()) >= 4 or len(re.findall("[\u4e00-\u9fff]", text)) >= 8
    )


class Planter:
    """Plants faults in the documents of a corpus, at random."""

    def __init__(self, folder: Path, split: str, target: str, seed: int, chosen: slice | None) -> None:
        self.random = random.Random(seed)
        sides = read(folder / f"{split}.en.xz"), read(folder / f"{split}.{target}.xz")
        pairs = list(zip(*sides, strict=True))
        if chosen:
            pairs = [pair for pair in pairs if LONG_DOCUMENT <= len(pair[0]) <= LONGEST_DOCUMENT]
            random.Random(0).shuffle(pairs)
            pairs = pairs[chosen]
        self.documents, first = [], 1
        for one, other in pairs:
            assert len(one) == len(other)
            self.documents.append(Document(first, list(one), [[line] for line in other]))
            first += len(one)
        self.original = [list(document.source) for document in self.documents]
        self.reference = [[lines[0] for lines in document.output] for document in self.documents]
        self.pool = [line for lines in self.reference for line in lines if is_long(line)]
        self.foreign = [
            line
            for name, code in (("mix-ende", "de"), ("mix-enru", "ru"), ("mix-enzh", "zh"), ("mix-ende", "en"))
            if code != target
            for lines in read(folder.parent / name / f"dev.{code}.xz")
            for line in lines
            if is_long(line)
        ]
        self.sites = [
            (n, i)
            for n, document in enumerate(self.documents)
            if len(document.source) >= LONG_DOCUMENT
            for i in range(2, len(document.source) - 2)
        ]
        self.random.shuffle(self.sites)
        self.taken: dict[int, list[int]] = {}
        self.planted: list[Planted] = []
        self.drifting: set[int] = set()  # documents with a drift

    def plant(self, kind: str, count: int) -> None:
        """Plant so many faults of a kind, or as many as there is room for."""
        change: Callable[[Document, int], None] = getattr(self, f"_{kind}")
        left = []
        while self.sites and count:
            n, i = self.sites.pop()
            document = self.documents[n]
            span = range(i - 1, i + 7) if kind == "order" else range(i - 1, i + 2)
            if kind == "drift" and n in self.drifting:
                continue  # a second one would make the drift less of an exception
            if any(abs(i - other) < APART or other in span for other in self.taken.get(n, [])):
                continue
            if not (is_long(document.source[i]) and is_long(document.output[i][0])):
                continue
            try:
                change(document, i)
            except UnfitError:
                left.append((n, i))
                continue
            self.taken.setdefault(n, []).append(i)
            self.drifting |= {n} if kind == "drift" else set()
            self.planted.append(Planted(kind, document.first + i))
            count -= 1
        self.sites += left
        self.random.shuffle(self.sites)

    def _lost(self, document: Document, i: int) -> None:
        document.output[i] = []

    def _added(self, document: Document, i: int) -> None:
        own = {line for lines in document.output for line in lines}
        document.output[i].append(
            self.random.choice([line for line in self.random.sample(self.pool, 20) if line not in own])
        )

    def _order(self, document: Document, i: int) -> None:
        to = i + self.random.choice([1, 1, 2, 3, 4])
        if to >= len(document.output) - 1 or any(
            len(lines) != 1 or not is_long(lines[0]) for lines in document.output[i : to + 1]
        ):
            raise UnfitError
        if len({lines[0] for lines in document.output[i : to + 1]}) < to + 1 - i:
            raise UnfitError
        document.output.insert(to, document.output.pop(i))
        self.taken.setdefault(self.documents.index(document), []).append(to)

    def _untranslated(self, document: Document, i: int) -> None:
        if document.output[i][0].casefold() == document.source[i].casefold():
            raise UnfitError
        document.output[i] = [document.source[i]]

    def _copied(self, document: Document, i: int) -> None:
        taken = self.taken.setdefault(self.documents.index(document), [])
        others = [
            k
            for k, lines in enumerate(document.output)
            if abs(k - i) > 1 and k not in taken and is_long(lines[0]) and lines[0] != document.output[i][0]
        ]
        if not others:
            raise UnfitError
        k = self.random.choice(others)
        document.output[i] = list(document.output[k])
        taken.append(k)  # a copy whose original has a fault would be the translation itself, moved

    def _language(self, document: Document, i: int) -> None:
        document.output[i] = [self.random.choice(self.foreign)]

    def _tag(self, document: Document, i: int) -> None:
        tag = self.random.choice(TAGS)
        here, other = i, i + 1  # the second one keeps it, so that tags alone are no fault
        if not document.output[other] or "{" in document.source[i] + document.source[other]:
            raise UnfitError
        for at, faulty in ((here, True), (other, False)):
            document.source[at] = self._tagged(document.source[at], tag)
            written = self._broken(tag) if faulty else tag
            document.output[at] = [self._tagged(document.output[at][0], written)]

    def _broken(self, tag: str) -> str:
        how = self.random.choice(("lost", "changed", "twice"))
        if how == "lost":
            return "{}" if tag.endswith(">") else ""
        if how == "twice":
            return f"{tag} {tag}" if not tag.endswith(">") else tag.replace("</", "<")
        changed = {
            "{name}": "{Name_}",
            "{0}": "{1}",
            "%s": "%d",
            "%(count)d": "%(anzahl)d",
            "$USER$": "$NUTZER$",
        }
        return changed.get(tag, tag.replace("</b>", "</i>").replace("</a>", "</x>").replace("/help", ""))

    def _tagged(self, text: str, tag: str) -> str:
        words = text.split(" ")
        at = self.random.randrange(len(words))
        words[at] = tag.replace("{}", words[at]) if "{}" in tag else f"{words[at]} {tag}".strip()
        return " ".join(words)

    def _number(self, document: Document, i: int) -> None:
        """A number of three digits or more that both sides have becomes another in the output."""
        both = [
            n
            for n in re.findall(r"(?<![\w.,])\d{3,}(?![\w.,])", document.source[i])
            if n in document.output[i][0]
        ]
        if not both:
            raise UnfitError
        number = self.random.choice(both)
        other = number[:-1] + str((int(number[-1]) + 1 + self.random.randrange(8)) % 10)
        document.output[i] = [document.output[i][0].replace(number, other)]

    def _name(self, document: Document, i: int) -> None:
        """A name that both sides have, and other sentences as well, becomes another name, or is misspelt."""
        words = re.findall(r"(?<=[a-z,] )[A-Z][a-z]{3,}\b", document.source[i])
        both = [w for w in words if re.search(rf"\b{w}\b", document.output[i][0])]
        if not both:
            raise UnfitError
        name = self.random.choice(both)
        other = self.random.choice([self.random.choice(NAMES), name[:2] + name[3] + name[2] + name[4:]])
        if other == name:
            raise UnfitError
        document.output[i] = [re.sub(rf"\b{name}\b", other, document.output[i][0])]

    def _quote(self, document: Document, i: int) -> None:
        """All quotation marks of the output are lost."""
        text = document.output[i][0]
        if min(len(re.findall(QUOTES, side)) for side in (document.source[i], text)) < 2:
            raise UnfitError
        document.output[i] = [re.sub(QUOTES, "", text)]

    def _term(self, document: Document, i: int) -> None:
        """In German: a term of the list becomes another."""
        text = document.output[i][0]
        both = [
            t
            for t in TERMS
            if re.search(rf"\b{t}\b", document.source[i]) and re.search(rf"\b{TERMS[t]}\b", text)
        ]
        if not both:
            raise UnfitError
        term, others = self.random.choice(both), list(TERMS.values())
        other = others[(others.index(TERMS[term]) + 1) % len(others)]
        if other in text:
            raise UnfitError
        document.output[i] = [text.replace(TERMS[term], other)]

    def _drift(self, document: Document, i: int) -> None:
        """In German: an address or a pronoun changes; in any language, a word for a repeated source word."""
        text = document.output[i][0]
        table = (
            INFORMAL
            if re.search(r"(?<=\w )(Sie|Ihnen)\b", text) and "you" in document.source[i].casefold()
            else {}
        )
        if not table and re.match(r"He\b", document.source[i]) and re.match(r"He\b", document.source[i - 1]):
            table = PRONOUNS
        changed = re.sub(r"\w+", lambda found: table.get(found[0], found[0]), text)
        if changed == text:
            raise UnfitError
        document.output[i] = [changed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    planting, scoring = commands.add_parser("plant"), commands.add_parser("score")
    planting.add_argument("folder", type=Path)
    planting.add_argument("split")
    planting.add_argument("target")
    planting.add_argument("out", type=Path)
    planting.add_argument("--kinds", default=",".join(MECHANICAL))
    planting.add_argument("--count", type=int, default=100)
    planting.add_argument("--seed", type=int, default=1)
    planting.add_argument("--first", type=int, default=0)
    planting.add_argument("--documents", type=int)
    scoring.add_argument("out", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "score":
        score(given.out)
        return
    chosen = slice(given.first, given.first + given.documents) if given.documents else None
    planter = Planter(given.folder, given.split, given.target, given.seed, chosen)
    for kind in given.kinds.split(","):
        planter.plant(kind, given.count)
    given.out.mkdir(parents=True, exist_ok=True)
    sides = {
        "source": [document.source for document in planter.documents],
        "original": planter.original,
        "reference": planter.reference,
        "output": [[line for lines in document.output for line in lines] for document in planter.documents],
    }
    for name, documents in sides.items():
        text = "\n\n".join("\n".join(lines) for lines in documents)
        (given.out / f"{name}.txt").write_text(f"{text}\n", encoding="utf-8")
    terms = "".join(f"{term}\t{translation}\n" for term, translation in TERMS.items())
    (given.out / "terms.tsv").write_text(terms, encoding="utf-8")
    truth = {
        "sentences": sum(len(d.source) for d in planter.documents),
        "planted": [asdict(p) for p in planter.planted],
    }
    (given.out / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
    print(truth["sentences"], dict(Counter(each.kind for each in planter.planted)))


def share(part: int, whole: int) -> str:
    """A percentage and its interval."""
    if not whole:
        return "-"
    z, p = 1.96, part / whole
    centre, half = p + z * z / (2 * whole), z * (p * (1 - p) / whole + (z / (2 * whole)) ** 2) ** 0.5
    low, high = ((centre + sign * half) / (1 + z * z / whole) for sign in (-1, 1))
    return f"{100 * p:.1f} ({100 * low:.1f}-{100 * high:.1f})"


def score(folders: list[Path]) -> None:
    """Print recall and precision by kind, of all folders together, and what is found in the references."""
    counts: dict[str, Counter[str]] = {}
    sentences = 0
    for folder in folders:
        truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        sentences += truth["sentences"]
        before = json.loads((folder / "reference.json").read_text(encoding="utf-8"))["findings"]
        known = {(each["kind"], each["source"], each["output"]) for each in before}
        found = json.loads((folder / "audit.json").read_text(encoding="utf-8"))["findings"]
        kinds = {each["kind"] for each in truth["planted"]}
        for kind in {*kinds, *(each["kind"] for each in (*before, *found))}:
            true = [each["sentence"] for each in truth["planted"] if each["kind"] == kind]
            told = [each for each in found if each["kind"] == kind]
            told = list({(each["sentence"], each["output_sentence"]): each for each in told}.values())
            near = 5 if kind == "order" else 1
            hits = [s for s in true if any(abs(s - each["sentence"]) <= near for each in told)]
            wrong = [each for each in told if not any(abs(s - each["sentence"]) <= near for s in true)]
            old = [each for each in wrong if (kind, each["source"], each["output"]) in known]
            counts.setdefault(kind, Counter()).update(
                planted=len(true), found=len(hits),
                told=len(told), wrong=len(wrong), old=len(old),
                alarms=len({(e["sentence"], e["output_sentence"]) for e in before if e["kind"] == kind}),
            )  # fmt: skip
    titles = "planted", "found", "recall", "findings", "wrong", "known", "precision", "references", "in 1,000"
    print(f"{'kind':13}" + "".join(f"{title:>20}" for title in titles))
    for kind, each in sorted(counts.items()):
        judged = each["told"] - each["old"]
        recall = share(each["found"], each["planted"])
        precision = share(each["told"] - each["wrong"], judged)
        figures = each["planted"], each["found"], recall, each["told"], each["wrong"], each["old"], precision
        print(
            f"{kind:13}"
            + "".join(
                f"{f:>20}" for f in (*figures, each["alarms"], f"{1000 * each['alarms'] / sentences:.2f}")
            )
        )


if __name__ == "__main__":
    main()
