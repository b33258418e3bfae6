"""Value types of keys of YAML files that users write, and the base class of their sections."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

# Every number has a maximum far beyond useful values, so that a downloaded file cannot request unlimited
# memory. Types of keys that determine allocations have a smaller maximum.
LARGEST = 10**9

Fraction = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
# Integers are strict, because `true` would otherwise count as 1. Floats cannot be strict, because YAML reads
# 1e-3 as a string; `Closed` rejects `true`.
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

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth(cls, value: Any, info: Any) -> Any:
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation is float:
            raise ValueError("input should be a number")
        return value
