"""The languages of an imported model: given, or as its tokenizer's configuration tells them."""

from dataclasses import dataclass

from cotext.data.languages import Languages, language_code
from cotext.runtime.errors import CotextError
from cotext.runtime.reading import parse_json


@dataclass(frozen=True, slots=True)
class LanguagePair:
    """Source and target language as they were given; empty where they were not."""

    source: str = ""
    target: str = ""

    @property
    def tag(self) -> str:
        """The target language as a tokenizer is asked for it."""
        return self.target

    def of_tokenizer(self, config: bytes | None) -> str:
        """The pair for a configuration, as in en-de; what is not given is as tokenizer_config.json tells."""
        told = _told(config)
        pair = [
            _code(given or there) for given, there in ((self.source, told.source), (self.target, told.target))
        ]
        return str(Languages(*pair))


def _told(config: bytes | None) -> Languages:
    try:
        content = parse_json((config or b"{}").decode(), "tokenizer_config.json")
    except (UnicodeDecodeError, CotextError):
        return Languages()
    if not isinstance(content, dict):
        return Languages()
    found = [content.get(f"{side}_lang") for side in ("source", "target")]
    return Languages(*(each if isinstance(each, str) else "" for each in found))


def _code(language: str) -> str:
    """A code of two or three letters, or nothing: `ROMANCE` is a group."""
    try:
        return language_code(language, "") if language else ""
    except CotextError:
        return ""
