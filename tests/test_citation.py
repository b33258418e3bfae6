"""The citation names this version, and every paper whose systems are here."""

from pathlib import Path

import yaml

import cotext
from cotext.models.describe import PAPERS

ROOT = Path(__file__).resolve().parents[1]


def test_the_citation() -> None:
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (content["cff-version"], content["type"]) == ("1.2.0", "software")
    assert content["version"] == cotext.__version__
    assert content["authors"] == [{"name": "Cotext developers"}]
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").split()[:2] == ["Apache", "License"]
    assert content["license"] == "Apache-2.0"
    for reference in content["references"]:
        folder = reference["notes"].removeprefix("recipes ").removesuffix("/")
        author = reference["authors"][0]["family-names"]
        assert PAPERS[folder].startswith(f"{author} et al. {reference['year']}, ")
        assert PAPERS[folder].endswith(reference["title"])
    assert len(content["references"]) == 5
