"""Value types of configuration keys, and the base class of sections."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Every number has a maximum far beyond useful values, so that a downloaded file cannot request unlimited
# memory. Types of keys that determine allocations have a smaller one.
LARGEST = 10**9

Fraction = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
# Strict, because `true` would otherwise count as 1. Floats are not strict: YAML reads 1e-3 as a string.
Count = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST, strict=True)]
Sentences = Annotated[int, Field(ge=0, le=10_000, strict=True)]
Symbols = Annotated[int, Field(gt=0, le=100_000, strict=True)]
Width = Annotated[int, Field(gt=0, le=65_536, strict=True)]
Layers = Annotated[int, Field(gt=0, le=256, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class Closed(BaseModel):
    """A configuration section: immutable, with checked values; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
