"""Kinds of values that configuration keys take, and the closed section that they stand in."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# Every number has a largest value, far beyond what is of use: a file from elsewhere must not be able to ask
# for memory without end. Those that decide how much is allocated have one of their own.
LARGEST = 10**9

Fraction = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
# Strict, or `true` would count as 1. Floats are not: YAML reads 1e-3 as a string.
Count = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST, strict=True)]
Sentences = Annotated[int, Field(ge=0, le=10_000, strict=True)]
Symbols = Annotated[int, Field(gt=0, le=100_000, strict=True)]
Width = Annotated[int, Field(gt=0, le=65_536, strict=True)]
Layers = Annotated[int, Field(gt=0, le=256, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**32, strict=True)]


class Closed(BaseModel):
    """A configuration section: unknown keys are errors, values are checked, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
