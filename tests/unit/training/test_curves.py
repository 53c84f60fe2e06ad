"""The picture: its lines from records, and that it is a whole PNG."""

from pathlib import Path

import pytest

from blockdraft.training.run.curves import CURVES_FILE, PANELS, Panel, draw_curves, lines_of
from blockdraft.training.run.metrics import METRICS_FILE, JsonLines


def test_lines_are_split_by_kind_field_and_position() -> None:
    panel = Panel(title="t", names=("loss", "accuracy_by_position"))
    records: list[dict[str, object]] = [
        {"step": 1, "kind": "train", "loss": 3.0},
        {"step": 2, "kind": "train", "loss": None},
        {"step": 2, "kind": "eval", "loss": 2.5, "accuracy_by_position": [0.5, None]},
        {"step": 3, "kind": "train", "loss": 2, "accuracy_by_position": [0.6, 0.2]},
    ]
    lines = {line.label: (line.steps, line.values) for line in lines_of(records, panel)}
    assert lines == {
        "train loss": ((1, 3), (3.0, 2.0)),
        "eval loss": ((2,), (2.5,)),
        "eval accuracy_by_position 1": ((2,), (0.5,)),
        "train accuracy_by_position 1": ((3,), (0.6,)),
        "train accuracy_by_position 2": ((3,), (0.2,)),
    }


def test_nothing_is_drawn_from_nothing(tmp_path: Path) -> None:
    assert draw_curves(tmp_path) is None
    JsonLines(tmp_path / METRICS_FILE).close()
    assert draw_curves(tmp_path) is None


def test_draws_every_panel_into_one_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    metrics = JsonLines(tmp_path / METRICS_FILE)
    for step in range(40):
        names = [name for panel in PANELS for name in panel.names]
        metrics.write(step, "train", {n: [1.0, 2.0] if "by" in n else 1.0 for n in names})
    metrics.close()
    path = draw_curves(tmp_path)
    assert path is not None and path.name == CURVES_FILE
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert draw_curves(tmp_path) == path
    assert sorted(p.name for p in tmp_path.iterdir()) == [CURVES_FILE, METRICS_FILE]
