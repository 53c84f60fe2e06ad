"""Makes the documents of `sample_bench.py` importable; pages without their costly plots."""

import sys
from html import escape
from pathlib import Path

import pytest

from blockdraft.bench.report import page
from blockdraft.bench.report.chart import Chart

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages hold the titles of their plots instead of the plots, which take seconds to draw."""
    monkeypatch.setattr(page, "draw_svg", stand_in)


def stand_in(chart: Chart) -> str:
    return f'<svg class="chart"><text>{escape(chart.title)}</text></svg>'
