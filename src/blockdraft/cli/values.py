"""The text of one command-line value to its Python value, for argparse's `type`.

It checks form only; ranges are checked by the part that owns the setting.
"""

import json
from argparse import ArgumentTypeError
from typing import Literal

BatchInvariant = int | Literal["auto", "off"]


def id_list(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas, spaces allowed: "12,7,99"."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is not a list of whole numbers separated by commas, like 12,7,99"
        ) from None


def count(text: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def bias(text: str) -> tuple[int, float]:
    """ID=VALUE, a token id and what is added to its logit."""
    token_id, _, value = text.partition("=")
    try:
        return int(token_id), float(value)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not ID=VALUE, like 12=-5") from None


def template_arg(text: str) -> tuple[str, object]:
    """KEY=VALUE; VALUE is read as JSON where it is JSON (false, 3, null), else it is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise ArgumentTypeError(f"{text!r} is not KEY=VALUE, like enable_thinking=false")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def batch_invariant(text: str) -> BatchInvariant:
    """A number of rows, "auto" (the drafter's block size) or "off"."""
    if text == "auto":
        return "auto"
    if text == "off":
        return "off"
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number of rows, auto or off") from None
