"""Every configuration key in words: what docs/recipes.md is made from."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cotext.config.fields import LARGEST
from cotext.config.parts import names_of
from cotext.config.recipe import Config, keys


def reference() -> Iterator[tuple[str, str, Any, str]]:
    """Every key with the type it takes, its default and what it does: the recipe reference."""
    properties: dict[Any, Any] = {}
    for key, default in keys(Config):
        *sections, last = key.split(".")
        model: Any = Config
        for section in sections:
            model = model.model_fields[section].annotation
        field = model.model_fields[last]
        if model not in properties:
            properties[model] = model.model_json_schema()["properties"]
        schema = properties[model][last]
        limits = [part["maximum"] for part in (schema, *schema.get("anyOf", ())) if "maximum" in part]
        most = min(limits, default=LARGEST)
        limit = f", at most {most:,}" if most < LARGEST else ""
        names = next(filter(None, map(names_of, field.metadata)), ())
        kind = " | ".join((*names, "FILE.py:CLASS")) if names else _type_name(field.annotation)
        yield key, kind + limit, default, " ".join((field.description or "").split())


def recipe_schema() -> dict[str, Any]:
    """JSON Schema of a recipe file, in which every key may be left out."""
    schema = Config.model_json_schema()
    schema["title"] = "A recipe of Cotext"
    schema["properties"]["extends"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "Recipes, shipped or in files, whose keys this one takes over.",
    }
    return schema


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(str(value) for value in get_args(kind))
    if get_origin(kind) is Annotated:
        names = next(filter(None, map(names_of, get_args(kind)[1:])), ())
        if names:
            return " | ".join((*names, "FILE.py:CLASS"))
        return _type_name(get_args(kind)[0])
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        return f"list of {_type_name(get_args(kind)[0])}"
    if get_origin(kind) is tuple:
        return ", ".join(_type_name(part) for part in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(_type_name(part) for part in get_args(kind))
    return str(kind.__name__ if isinstance(kind, type) else kind)
