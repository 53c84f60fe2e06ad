"""What people see of `blockdraft data prepare`: rows counted as they come, and a table at the end.

It decides nothing about rows.
"""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import cast

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from blockdraft.cli.console import say
from blockdraft.cli.tables import new_table, open_console

ROWS_PER_UPDATE = 1000
ROWS_PER_LINE = 100_000
MOST_WARNINGS = 5


@contextmanager
def counting_rows() -> Generator[Callable[[int], None], None, None]:
    """Gives the function that takes the number of rows so far: a live count, or a line now and then
    where no terminal is.
    """
    if not sys.stderr.isatty():
        yield _say_count
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("reading")

        def update(num_rows: int) -> None:
            if num_rows % ROWS_PER_UPDATE == 0:
                progress.update(task, description=f"{num_rows:,} rows read")

        yield update


def _say_count(num_rows: int) -> None:
    if num_rows % ROWS_PER_LINE == 0:
        say(f"{num_rows:,} rows read")


def show_report(document: Mapping[str, object], folder: str) -> None:
    """The manifest's counts as a table on stderr, then what deserves a look."""
    table = new_table("Prompts", "rows", ["count", "first at"])
    table.add_row("read", _figure(document["rows_read"]), "")
    for reason, entry in _entries(document["dropped"]):
        table.add_row(f"  left out: {reason}", _figure(entry["rows"]), _first_place(entry))
    for reason, entry in _entries(document["changed"]):
        table.add_row(f"  changed: {reason}", _figure(entry["rows"]), _first_place(entry))
    for name, entry in _entries(document["outputs"]):
        table.add_row(f"{folder}/{name}", _figure(entry["rows"]), "")
    open_console(stderr=True).print(table)
    licenses = cast("Mapping[str, int]", document["licenses"])
    say("licenses: " + ", ".join(f"{name} {count:,}" for name, count in licenses.items()))
    if not document["eval"]:
        say("no evaluation prompts were named (--eval), so none were kept out")
    for line in _bad_rows(document):
        say(line)


def _bad_rows(document: Mapping[str, object]) -> list[str]:
    """The first rows that were left out because something is wrong with them."""
    lines: list[str] = []
    for reason, entry in _entries(document["dropped"]):
        for example in cast("list[Mapping[str, object]]", entry["first"]):
            detail = example.get("detail")
            if detail is not None and not reason.endswith("_duplicate"):
                lines.append(f"{example['file']}, line {example['line']}: {reason}: {detail}")
    if len(lines) > MOST_WARNINGS:
        return [*lines[:MOST_WARNINGS], "more of them are in manifest.json"]
    return lines


def _entries(value: object) -> list[tuple[str, Mapping[str, object]]]:
    return list(cast("Mapping[str, Mapping[str, object]]", value).items())


def _first_place(entry: Mapping[str, object]) -> str:
    first = cast("list[Mapping[str, object]]", entry["first"])[0]
    return f"{first['file']}:{first['line']}"


def _figure(value: object) -> str:
    return f"{cast('int', value):,}"
