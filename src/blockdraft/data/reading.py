"""Rows of a file or data set, one after the other, with the numbers that people find them by.

What a row means is decided in `shapes.py`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

from blockdraft.data.hub import read_hub
from blockdraft.data.messages import RefusedRow
from blockdraft.data.parquet import read_parquet
from blockdraft.data.shapes import ParsedRow, parse_row
from blockdraft.data.sources import PromptSource
from blockdraft.errors import ConfigError


class RawRow(NamedTuple):
    """A row as it is stored. `number` counts from 1: lines of a file of lines, else rows."""

    number: int
    value: object


class BrokenRow(NamedTuple):
    """A line that holds no JSON; `detail` says why."""

    number: int
    detail: str


def read_rows(source: PromptSource) -> Iterator[RawRow | BrokenRow]:
    """All rows of `source`, read as they are asked for.

    Raises ConfigError for a file or data set that can't be read as a whole.
    """
    if source.kind == "jsonl":
        yield from read_lines(source.path)
        return
    if source.kind == "json":
        values = iter(_read_list(source.path))
    elif source.kind == "parquet":
        values = read_parquet(source.path)
    else:
        values = read_hub(source.name)
    for number, value in enumerate(values, start=1):
        yield RawRow(number, value)


def read_lines(path: Path) -> Iterator[RawRow | BrokenRow]:
    """The lines of a JSON-lines file that are not blank.

    A line ends at a line feed only: U+2028 and its like may stand inside of a text.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if text.strip():
                    yield _parse_line(number, text)
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from error


def parse(row: RawRow | BrokenRow, source: PromptSource) -> ParsedRow:
    """What a row says; RefusedRow for one that is broken or can't be used."""
    if isinstance(row, BrokenRow):
        raise RefusedRow("broken_line", row.detail)
    return parse_row(row.value, key=source.key)


def name_row(source: PromptSource, number: int) -> str:
    """How an error names a row."""
    noun = "line" if source.kind == "jsonl" else "row"
    return f"{source.name}, {noun} {number}"


def _parse_line(number: int, line: bytes) -> RawRow | BrokenRow:
    try:
        value: object = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return BrokenRow(number, f"not UTF-8 ({error.reason})")
    except ValueError as error:
        return BrokenRow(number, f"not JSON ({error})")
    except RecursionError:
        return BrokenRow(number, "nested too deeply")
    return RawRow(number, value)


def _read_list(path: Path) -> list[object]:
    try:
        value: object = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} is not JSON ({error}): correct it, or name it .jsonl where each line is a row"
        ) from error
    if not isinstance(value, list):
        raise ConfigError(f"{path} holds no list of rows: write [row, row, ..], or one row a line")
    return cast("list[object]", value)
