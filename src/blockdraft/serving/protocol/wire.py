"""`Wire`: the base of all request models - strict types, no unknown fields, finite numbers.

It defines no field.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Wire(BaseModel):
    """A JSON object as clients send it: "5" is no number, 1 is no truth value, null = not said."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, frozen=True, protected_namespaces=()
    )


MAX_STOP_STRINGS = 64
MAX_LISTED_IDS = 4096
MAX_COUNT = 2**31 - 1

StopText = Annotated[str, Field(min_length=1, max_length=1024)]
TokenId = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
JsonObject = dict[str, object]
