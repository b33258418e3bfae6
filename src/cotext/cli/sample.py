"""Translate a page of software help with the installed English-German models."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Final

import typer

from cotext.evaluation.studies.context.page import marked
from cotext.interchange.model_names import known_models
from cotext.runtime.files import replacing
from cotext.runtime.html import table, whole_page

PACKAGE: Final = "cotext-model-en-de-software"
# The sentence model and the document model in the package.
MODELS: Final[Sequence[str]] = ("en-de-sentence", "en-de")
SHOWN: Final = 3  # sentences printed on the terminal


def translate_sample(out: Path) -> bool:
    """Translate the sample with each installed model, print its beginning and write `out/sample.html`.

    Return True if a model is installed; otherwise do nothing and return False.
    """
    known = known_models()
    names = [name for name in MODELS if name in known]
    if not names:
        return False
    from cotext.interchange.engine_cache import load

    source = resources.files("cotext.cli").joinpath("sample.en").read_text(encoding="utf-8").splitlines()
    typer.echo(f"A page of software help, translated by {' and '.join(names)}:\n")
    translations = {name: load(known[name].folder, "cpu").translate(source) for name in names}
    for number, sentence in enumerate(source[:SHOWN]):
        typer.echo(f"  {sentence}")
        for name in names:
            typer.echo(f"    {name + ':':16} {translations[name][number]}")
    page = out / "sample.html"
    with replacing(page) as temporary:
        temporary.write_text(_page(source, translations), encoding="utf-8")
    typer.echo(f"\nThe whole page, side by side: {page}\n")
    return True


def _page(source: Sequence[str], translations: Mapping[str, Sequence[str]]) -> str:
    """Return a page with one row per sentence; words that differ from the first model are marked."""
    first, *others = translations
    rows = [
        [str(number + 1), escape(sentence), escape(translations[first][number])]
        + [marked(translations[name][number], translations[first][number]) for name in others]
        for number, sentence in enumerate(source)
    ]
    caption = f"Marked: words that differ from {escape(first)}." if others else "One row per sentence."
    header = ("", "English", *map(escape, translations))
    title = "A page of software help in German"
    return whole_page(title, [f"<h1>{title}</h1>", table(caption, header, rows, left=len(header))])
