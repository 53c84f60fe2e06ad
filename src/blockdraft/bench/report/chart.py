"""What a plot shows, as values: series, axes and marks. `drawing.py` draws them.

It knows nothing of benches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
NUM_COLORS = 8
"""Color 0 is that of plain decoding; page/style.css has all of them for both themes."""
LONGEST_LABEL = 22


class Look(NamedTuple):
    """How one lane is drawn, in every plot: a color and a marker, for those who see no colors."""

    color: int
    marker: str

    @property
    def is_dashed(self) -> bool:
        return self.color == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one thing. `x_ranges` and `y_ranges` are bars around the points, if any.

    "stairs" go from a point to the right, then up, without markers.
    """

    look: Look
    x: Sequence[float]
    y: Sequence[float]
    x_ranges: Sequence[tuple[float, float]] = ()
    y_ranges: Sequence[tuple[float, float]] = ()
    labels: Sequence[str] = ()
    kind: Literal["line", "points", "bars", "thread", "stairs"] = "line"
    bar_width: float = 0.8


class Tick(NamedTuple):
    at: float
    label: str


class Mark(NamedTuple):
    """A line across the plot at `at`, with a word beside it."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One pair of axes. `name` is unique in its page; labels say the unit."""

    name: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    title: str = ""
    x_ticks: Sequence[Tick] = ()
    y_ticks: Sequence[Tick] = ()
    x_is_log: bool = False
    x_from_zero: bool = False
    y_from_zero: bool = True
    y_most: float | None = None
    across: Sequence[Mark] = ()
    upright: Sequence[Mark] = ()
    rings: Sequence[tuple[float, float]] = ()
    width: float = 4.7
    height: float = 2.7
    """Inches of 72 units; the page scales both."""


def look_of(idx: int, *, is_plain: bool) -> Look:
    """The look of the lane with this number among those that are not plain."""
    if is_plain:
        return Look(0, "o")
    return Look(1 + idx % (NUM_COLORS - 1), MARKERS[idx % len(MARKERS)])


def short_label(text: str) -> str:
    """A name from data, fit for an axis: printable, and not too long."""
    clean = "".join(char if char.isprintable() else " " for char in text).strip()
    return clean if len(clean) <= LONGEST_LABEL else clean[: LONGEST_LABEL - 2] + ".."
