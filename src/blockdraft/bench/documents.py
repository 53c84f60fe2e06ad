"""Typed reads of the JSON that an endpoint sends: a field is there in its type, or it is None.

It knows no field's meaning.
"""

import json
import math
from collections.abc import Mapping
from typing import cast

Document = Mapping[str, object]
MOST = 2**53
"""No engine counts further; larger numbers would overflow what is computed from them."""


def parse_object(text: str) -> Document | None:
    """The JSON object that a text holds; None where it holds something else."""
    try:
        return as_object(json.loads(text))
    except (ValueError, RecursionError):
        return None


def as_object(value: object) -> Document | None:
    return cast(Document, value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object]:
    """A list as it is; anything else counts as an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def object_in(document: Document | None, name: str) -> Document | None:
    return None if document is None else as_object(document.get(name))


def count_in(document: Document | None, name: str) -> int | None:
    """A whole number from 0 to `MOST`, also where it is written as 3.0."""
    value = number_in(document, name)
    return int(value) if value is not None and 0 <= value <= MOST and value == int(value) else None


def number_in(document: Document | None, name: str) -> float | None:
    """A finite number."""
    value = None if document is None else document.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def text_in(document: Document | None, name: str) -> str | None:
    value = None if document is None else document.get(name)
    return value if isinstance(value, str) else None


def counts_in(document: Document | None, name: str) -> tuple[int, ...] | None:
    """A list of whole numbers of at least 0, not empty."""
    values = as_list(None if document is None else document.get(name))
    whole = [value for value in values if type(value) is int and 0 <= value <= MOST]
    return tuple(whole) if whole and len(whole) == len(values) else None
