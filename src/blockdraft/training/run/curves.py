"""A run's curves as one picture, drawn from its metrics file.

It reads records and writes one PNG; it holds no figure between calls and needs matplotlib.
"""

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from blockdraft.errors import ConfigError
from blockdraft.training.run.metrics import METRICS_FILE, read_metrics

CURVES_FILE = "curves.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture of the sheet: the fields that share its axes, whatever kind of record has them.

    A field that holds a list gives one line for each position.
    """

    title: str
    names: tuple[str, ...]


PANELS = (
    Panel(title="loss", names=("loss",)),
    Panel(title="tau", names=("tau",)),
    Panel(title="accuracy by position", names=("accuracy_by_position",)),
    Panel(title="learning rate", names=("lr",)),
    Panel(title="gradient norm", names=("gradient_norm",)),
    Panel(title="draft tokens per second", names=("slots_per_second",)),
)


@dataclass(frozen=True, slots=True)
class Line:
    """Points of one curve: `label`, and a value for each of `steps`."""

    label: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


def lines_of(records: Sequence[dict[str, object]], panel: Panel) -> list[Line]:
    """The curves of `panel`: one for each kind of record and field (and position) found."""
    points: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        step = cast(int, record["step"])
        for name in panel.names:
            value = record.get(name)
            label = f"{record.get('kind', '')} {name}"
            several = cast(list[object], value) if isinstance(value, list) else [value]
            for idx, one in enumerate(several):
                if isinstance(one, int | float):
                    key = f"{label} {idx + 1}" if isinstance(value, list) else label
                    points.setdefault(key, []).append((step, float(one)))
    return [
        Line(label, tuple(step for step, _ in line), tuple(value for _, value in line))
        for label, line in points.items()
    ]


def draw_curves(folder: Path) -> Path | None:
    """Draw the metrics of the run in `folder` into it; None when there is nothing to draw.

    The picture is replaced atomically. Raises ConfigError when matplotlib is not installed.
    """
    metrics = folder / METRICS_FILE
    records = read_metrics(metrics) if metrics.exists() else []
    drawn = [(panel, lines) for panel in PANELS if (lines := lines_of(records, panel))]
    if not drawn:
        return None
    rows = (len(drawn) + 1) // 2
    figure = _new_figure((12.0, 3.5 * rows))
    for idx, (panel, lines) in enumerate(drawn):
        axes = figure.add_subplot(rows, 2, idx + 1)
        for line in lines:
            marker = "." if len(line.steps) < 30 else ""
            axes.plot(line.steps, line.values, label=line.label, marker=marker, linewidth=1)
        axes.set_title(panel.title)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    path = folder / CURVES_FILE
    unfinished = folder / f".{CURVES_FILE}.unfinished"
    figure.savefig(unfinished, format="png", dpi=100, metadata={"Software": None})
    os.replace(unfinished, path)
    return path


class _Axes(Protocol):
    def plot(
        self,
        steps: Sequence[int],
        values: Sequence[float],
        *,
        label: str,
        marker: str,
        linewidth: float,
    ) -> object: ...
    def set_title(self, label: str) -> object: ...
    def set_xlabel(self, label: str) -> object: ...
    def grid(self, *, alpha: float) -> object: ...
    def legend(self, *, fontsize: str) -> object: ...


class _Figure(Protocol):
    def add_subplot(self, rows: int, columns: int, number: int) -> _Axes: ...
    def savefig(
        self, path: Path, *, format: str, dpi: int, metadata: dict[str, str | None]
    ) -> object: ...


class _MakeFigure(Protocol):
    def __call__(self, *, figsize: tuple[float, float], layout: str) -> _Figure: ...


class _MakeCanvas(Protocol):
    def __call__(self, figure: _Figure) -> object: ...


def _new_figure(size: tuple[float, float]) -> _Figure:
    """A figure with a canvas of its own: neither a display nor pyplot's global state."""
    try:
        make = cast(_MakeFigure, importlib.import_module("matplotlib.figure").Figure)
        agg = importlib.import_module("matplotlib.backends.backend_agg")
    except ImportError as error:
        raise ConfigError(
            f"matplotlib can't be imported ({error}); pip install 'blockdraft[train]'"
        ) from error
    figure = make(figsize=size, layout="constrained")
    cast(_MakeCanvas, agg.FigureCanvasAgg)(figure)
    return figure
