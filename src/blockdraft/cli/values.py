"""The text of one command-line value to its Python value, for argparse's `type`.

It checks form only; ranges are checked by the part that owns the setting.
"""

import json
import os
import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Literal

BatchInvariant = int | Literal["auto", "off"]
Width = int | Literal["auto", "off"]

UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
BINARY_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def id_list(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas, spaces allowed: "12,7,99"."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is not a list of whole numbers separated by commas, like 12,7,99"
        ) from None


def new_folder(text: str) -> Path:
    """The name of a folder to be made."""
    if not text.strip():
        raise ArgumentTypeError("the name is empty; give the folder to write")
    return Path(text)


def count(text: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def thread_count(text: str) -> int:
    """A whole number of threads that this machine can start without choking on it."""
    cores = os.cpu_count() or 1
    most = max(64, 4 * cores)
    threads = count(text)
    if threads > most:
        raise ArgumentTypeError(
            f"{text!r} threads on {cores} cores would only wait for each other; give at most {most}"
        )
    return threads


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


def fixed_width(text: str) -> str:
    """A number of tokens as the width it is another name of: "8" is "fixed:8"."""
    return f"fixed:{count(text)}"


def width_list(text: str) -> tuple[Width, ...]:
    """Widths separated by commas: numbers, "auto" and "off"."""
    widths: list[Width] = []
    for part in text.split(","):
        word = part.strip()
        if word in ("auto", "off"):
            widths.append("auto" if word == "auto" else "off")
            continue
        try:
            widths.append(int(word))
        except ValueError:
            raise ArgumentTypeError(
                f"{text!r} is not a list of whole numbers separated by commas, like 2,4,8 (auto "
                "and off may be among them)"
            ) from None
    return tuple(widths)


def byte_count(text: str) -> int:
    """An amount of memory: a number with a unit, decimal (MB, GB) or binary (MiB, GiB)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)(i?)b?", text.strip().lower(), re.ASCII)
    units = UNITS if match is None or not match[3] else BINARY_UNITS
    if match is None or match[2] not in units or (num_bytes := float(match[1])) <= 0:
        raise ArgumentTypeError(f"{text!r} is not an amount of memory, like 500MB, 2GB or 1GiB")
    return max(1, int(num_bytes * units[match[2]]))
