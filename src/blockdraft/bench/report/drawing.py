"""A `Chart` to inline SVG with matplotlib, in colors that the page's style sheet decides.

It needs matplotlib, which is imported with the first picture. The same chart gives the same text.
"""

import importlib
import io
import re
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, cast

from blockdraft.bench.report.chart import Chart, Series
from blockdraft.errors import ConfigError

HEADROOM = 1.08
"""Above the highest point, as a factor."""
INK, GRID = "#010203", "#040506"
LANES = tuple(f"#0a0b{number:02x}" for number in range(8))
"""Stand-ins that no picture uses for itself; `_themed` puts the style sheet's names in."""
SETTINGS: dict[str, object] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10.0,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": GRID,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "path.simplify": False,
}


def draw_svg(chart: Chart) -> str:
    """One <svg> element. Raises ConfigError when matplotlib is not installed."""
    try:
        library = cast("_Library", importlib.import_module("matplotlib"))
        make = cast("_MakeFigure", importlib.import_module("matplotlib.figure").Figure)
        backend = importlib.import_module("matplotlib.backends.backend_svg")
    except ImportError as error:
        raise ConfigError(
            f"matplotlib can't be imported ({error}); pip install 'blockdraft[bench]'"
        ) from error
    text = io.StringIO()
    with warnings.catch_warnings(), library.rc_context(SETTINGS | {"svg.hashsalt": chart.name}):
        # A name of a data set may hold letters that its font for measuring lacks; browsers have
        # them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = make(figsize=(chart.width, chart.height), layout="constrained")
        cast("_MakeCanvas", backend.FigureCanvasSVG)(figure)
        axes = figure.add_subplot(1, 1, 1)
        for series in chart.series:
            _draw_series(axes, series)
        _draw_marks(axes, chart)
        _finish_axes(axes, chart)
        figure.savefig(
            text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return _themed(text.getvalue(), chart)


def _draw_series(axes: "_Axes", series: Series) -> None:
    color = LANES[series.look.color] if series.kind != "thread" else GRID
    if series.kind == "bars":
        axes.bar(series.x, series.y, width=series.bar_width, color=color)
        return
    if series.x_ranges or series.y_ranges:
        axes.errorbar(
            series.x,
            series.y,
            xerr=_errors(series.x, series.x_ranges),
            yerr=_errors(series.y, series.y_ranges),
            fmt="none",
            ecolor=color,
            elinewidth=1.3,
            capsize=2.5,
            alpha=0.75,
        )
    is_stairs = series.kind == "stairs"
    axes.plot(
        series.x,
        series.y,
        color=color,
        drawstyle="steps-post" if is_stairs else "default",
        marker="" if is_stairs else series.look.marker,
        markersize=5.0,
        linewidth=1.8,
        linestyle="none" if series.kind == "points" else "--" if series.look.is_dashed else "-",
    )
    for x, y, label in zip(series.x, series.y, series.labels, strict=False):
        # Plain decoding's line runs below the others': its words do too.
        aside = (-9.0, -10.0) if series.look.is_dashed else (5.0, 4.0)
        axes.annotate(
            label, (x, y), xytext=aside, textcoords="offset points", color=color, fontsize=8.5
        )


def _errors(
    values: Sequence[float], ranges: Sequence[tuple[float, float]]
) -> tuple[list[float], list[float]] | None:
    """Distances down and up, never negative."""
    if not ranges:
        return None
    pairs = list(zip(values, ranges, strict=True))
    return (
        [max(0.0, value - low) for value, (low, _) in pairs],
        [max(0.0, high - value) for value, (_, high) in pairs],
    )


def _draw_marks(axes: "_Axes", chart: Chart) -> None:
    for at, label in chart.across:
        axes.axhline(at, color=INK, linewidth=1.0, linestyle=":")
        axes.annotate(
            label,
            (1.0, at),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 3),
            textcoords="offset points",
            color=INK,
            fontsize=8.5,
            ha="right",
        )
    for at, label in chart.upright:
        axes.axvline(at, color=INK, linewidth=1.0, linestyle=":")
        axes.annotate(
            label,
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -1),
            textcoords="offset points",
            color=INK,
            fontsize=8.5,
            va="top",
        )
    for x, y in chart.rings:
        axes.scatter([x], [y], s=70, facecolors="none", edgecolors=INK, linewidths=1.3, zorder=5)


def _finish_axes(axes: "_Axes", chart: Chart) -> None:
    if chart.title:
        axes.set_title(chart.title, loc="left")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    if chart.x_is_log:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    if chart.x_ticks:
        axes.set_xticks([t.at for t in chart.x_ticks], labels=[t.label for t in chart.x_ticks])
    if chart.y_ticks:
        axes.set_yticks([t.at for t in chart.y_ticks], labels=[t.label for t in chart.y_ticks])
        axes.set_ylim(max(t.at for t in chart.y_ticks) + 0.6, -0.6)
    elif chart.y_from_zero:
        axes.set_ylim(0.0, chart.y_most or HEADROOM * _highest(chart))
    if chart.x_from_zero:
        axes.set_xlim(0.0, None)
    axes.grid(axis="x" if chart.y_ticks else "y", color=GRID, alpha=0.35, linewidth=0.7)
    axes.set_axisbelow(True)


def _highest(chart: Chart) -> float:
    """The top of all points, their bars and the marks; 1 where that is 0."""
    tops = [value for series in chart.series for value in series.y]
    tops += [high for series in chart.series for _, high in series.y_ranges]
    tops += [mark.at for mark in chart.across]
    return max(tops, default=0.0) or 1.0


def _themed(text: str, chart: Chart) -> str:
    """Only the <svg> element, with the page's colors and font, small."""
    text = text[text.index("<svg") :]
    # Its <style> would hold for the whole page; ids of groups would not be unique there.
    text = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL
    )
    text = re.sub(r"<g id=\"[^\"]*\"", "<g", text)
    text = re.sub(r"font-family: [^;\"]*; ", "", text)
    text = re.sub(r" transform=\"rotate\(-0 [^\"]*\"", "", text)
    text = re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", text)
    for stand_in, name in [(INK, "ink"), (GRID, "axis"), *zip(LANES, _lane_names(), strict=True)]:
        text = text.replace(stand_in, f"var(--{name})")
    width, height = 72 * chart.width, 72 * chart.height
    head = f'<svg class="chart" viewBox="0 0 {width:g} {height:g}" aria-hidden="true">'
    text = re.sub(r"<svg[^>]*>", head, text, count=1)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


def _lane_names() -> list[str]:
    return [f"lane-{number}" for number in range(len(LANES))]


class _Axes(Protocol):
    def plot(
        self,
        x: Sequence[float],
        y: Sequence[float],
        *,
        color: str,
        marker: str,
        markersize: float,
        linewidth: float,
        linestyle: str,
        drawstyle: str,
    ) -> object: ...
    def errorbar(
        self,
        x: Sequence[float],
        y: Sequence[float],
        *,
        xerr: tuple[list[float], list[float]] | None,
        yerr: tuple[list[float], list[float]] | None,
        fmt: str,
        ecolor: str,
        elinewidth: float,
        capsize: float,
        alpha: float,
    ) -> object: ...
    def bar(
        self, x: Sequence[float], height: Sequence[float], *, width: float, color: str
    ) -> object: ...
    def scatter(
        self,
        x: Sequence[float],
        y: Sequence[float],
        *,
        s: float,
        facecolors: str,
        edgecolors: str,
        linewidths: float,
        zorder: int,
    ) -> object: ...
    def axhline(self, y: float, *, color: str, linewidth: float, linestyle: str) -> object: ...
    def axvline(self, x: float, *, color: str, linewidth: float, linestyle: str) -> object: ...
    def annotate(
        self,
        text: str,
        xy: tuple[float, float],
        *,
        xycoords: tuple[str, str] | str = ...,
        xytext: tuple[float, float],
        textcoords: str,
        color: str,
        fontsize: float,
        ha: str = ...,
        va: str = ...,
    ) -> object: ...
    def set_title(self, label: str, *, loc: str) -> object: ...
    def set_xlabel(self, label: str) -> object: ...
    def set_ylabel(self, label: str) -> object: ...
    def set_xscale(self, value: str, *, base: float) -> object: ...
    def minorticks_off(self) -> object: ...
    def set_xticks(self, ticks: list[float], *, labels: list[str]) -> object: ...
    def set_yticks(self, ticks: list[float], *, labels: list[str]) -> object: ...
    def set_xlim(self, left: float, right: float | None) -> object: ...
    def set_ylim(self, bottom: float, top: float | None) -> object: ...
    def grid(self, *, axis: str, color: str, alpha: float, linewidth: float) -> object: ...
    def set_axisbelow(self, b: bool) -> object: ...


class _Figure(Protocol):
    def add_subplot(self, rows: int, columns: int, number: int) -> _Axes: ...
    def savefig(
        self, file: io.StringIO, *, format: str, metadata: dict[str, str | None]
    ) -> object: ...


class _MakeFigure(Protocol):
    def __call__(self, *, figsize: tuple[float, float], layout: str) -> _Figure: ...


class _MakeCanvas(Protocol):
    def __call__(self, figure: _Figure) -> object: ...


class _Library(Protocol):
    def rc_context(self, rc: dict[str, object]) -> AbstractContextManager[object]: ...
