"""`Section`: one part of the page below the answers, and the look that each lane keeps in all.

It draws nothing; `page.py` puts sections into HTML.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from blockdraft.bench.report.chart import Chart, Look, Tick, look_of
from blockdraft.bench.report.document import BenchDocument, Load

PANEL_WIDTH = 3.6
"""Of plots that stand three in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells are texts. The first column is names, the others are figures."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """`reading` says in a sentence what the plots show; `legend` names what is drawn."""

    key: str
    title: str
    reading: str
    charts: tuple[Chart, ...] = ()
    legend: tuple[tuple[str, Look], ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()


def looks_of(document: BenchDocument) -> Mapping[str, Look]:
    """Of each lane, by its place in the document, whatever a plot shows of them."""
    looks: dict[str, Look] = {}
    number = 0
    for lane in document.lanes:
        looks[lane.name] = look_of(number, is_plain=lane.is_plain)
        number += not lane.is_plain
    return looks


def legend_of(names: Sequence[str], looks: Mapping[str, Look]) -> tuple[tuple[str, Look], ...]:
    return tuple((name, look) for name, look in looks.items() if name in names)


def dodged(amount: float, idx: int, total: int) -> float:
    """Moves a point on a logarithmic axis a little aside, so that bars of lanes don't overlap."""
    return amount * 2 ** (0.06 * (idx - (total - 1) / 2))


def load_ticks(loads: Sequence[Load]) -> tuple[Tick, ...]:
    return tuple(Tick(load.amount, f"{load.amount:g}") for load in loads)


def kind_of_loads(document: BenchDocument) -> tuple[str, tuple[Load, ...]]:
    """The axis label of loads and those that share it: concurrency, or else rates."""
    closed = tuple(load for load in document.loads if load.concurrency is not None)
    if closed:
        return "concurrency (requests at once)", closed
    return "requests a second", document.loads


def told(value: float | None, digits: int = 2, unit: str = "") -> str:
    return "n/a" if value is None else f"{value:.{digits}f}{unit}"


def told_range(ends: Sequence[float] | None, digits: int = 2) -> str:
    return "" if ends is None else f"{ends[0]:.{digits}f} to {ends[1]:.{digits}f}"


def told_ms(seconds: float | None) -> str:
    return "n/a" if seconds is None else f"{1000 * seconds:.1f}"
