"""Tables that fit a terminal of 80 columns, and the consoles that show them.

Where no terminal is, lines may be longer: nothing has to fit.
"""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH_ELSEWHERE = 240


def open_console(*, stderr: bool) -> Console:
    """A console that prints text as it is: no highlighting, no markup, no emoji names."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_ELSEWHERE
    return console


def new_table(title: str, first: str, figures: Sequence[str]) -> Table:
    """An empty table with one column of names and right-aligned columns of `figures`."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column(first)
    for heading in figures:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
