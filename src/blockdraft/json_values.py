"""Parsed JSON as typed values: an object out of a file, objects and lists inside of it.

It names no file in its errors and knows no key of any format.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast


def read_object(path: Path) -> dict[str, object]:
    """The JSON object in a file. Raises OSError, and ValueError where it holds anything else."""
    try:
        value = cast("object", json.loads(path.read_text(encoding="utf-8")))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"it should hold a JSON object, not {type(value).__name__}")
    return cast("dict[str, object]", value)


def as_object(value: object) -> Mapping[str, object]:
    """`value` if it is a JSON object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[object]:
    """`value` if it is a JSON list, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def is_finite(value: float) -> bool:
    """Whether a number of any size is one that a float can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False
