"""Descriptions of endpoints for tests, and a dictionary for the fake server."""

from pathlib import Path
from typing import Any

import yaml

KEY = "sk-not-to-be-seen-0123456789"
VARIABLE = "COTEXT_TEST_KEY"
WORDS = {
    "The cat sleeps.": "Die Katze schläft.",
    "It is tired.": "Sie ist müde.",
    "A dog barks.": "Ein Hund bellt.",
    "It is loud.": "Er ist laut.",
    "Nobody comes.": "Niemand kommt.",
}


def described(folder: Path, address: str = "http://127.0.0.1:9/v1", **settings: Any) -> Path:
    """Write the description of an endpoint; what is set to `...` is left out."""
    path = folder / "model.yaml"
    content = {"endpoint": address, "model": "fake", "source_language": "en", "target_language": "de"}
    content |= settings
    path.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not ...}))
    return path
