"""The metrics file over stops and resumes, and the optional sinks."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from blockdraft.errors import ConfigError
from blockdraft.training.run.metrics import (
    METRICS_FILE,
    JsonLines,
    MetricsConfig,
    open_metrics,
    read_metrics,
)


def steps_of(path: Path) -> list[object]:
    return [record["step"] for record in read_metrics(path)]


def test_records_are_on_disk_at_once_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    sink = JsonLines(path)
    sink.write(1, "train", {"loss": 2.5, "accuracy_by_position": (0.5, float("nan"))})
    sink.write(2, "train", {"loss": float("inf")})
    assert read_metrics(path) == [
        {"step": 1, "kind": "train", "loss": 2.5, "accuracy_by_position": [0.5, None]},
        {"step": 2, "kind": "train", "loss": None},
    ]
    sink.close()


def test_no_step_occurs_twice_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    sink = JsonLines(path)
    for step in range(1, 8):
        sink.write(step, "train", {"loss": 1.0})
    sink.close()
    with path.open("a") as file:
        file.write('{"step": 8, "kind": "tr')  # killed while writing
    assert steps_of(path) == [1, 2, 3, 4, 5, 6, 7]
    resumed = JsonLines(path, resumed_step=5)
    for step in range(6, 10):
        resumed.write(step, "train", {"loss": 1.0})
    resumed.close()
    assert steps_of(path) == list(range(1, 10))


def test_a_half_line_is_cut_also_when_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    path.write_text('{"step": 1, "kind": "train"}\n{"step": 2')
    resumed = JsonLines(path, resumed_step=2)
    resumed.write(2, "train", {})
    resumed.close()
    assert steps_of(path) == [1, 2]


def test_a_new_run_starts_with_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / METRICS_FILE
    for n, text in enumerate(('{"step": 1, "kind": "train"}\n', "not ours\n"), start=1):
        path.write_text(text)
        JsonLines(path).close()
        assert path.read_text() == ""
        assert (tmp_path / f"metrics.{n}.jsonl").read_text() == text, "nothing is lost"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard's own imports
def test_tensorboard_gets_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    metrics = open_metrics(tmp_path, MetricsConfig(tensorboard=True), resumed_step=0)
    metrics.write(1, "train", {"loss": 2.0, "accuracy_by_position": [0.5, 0.25]})
    metrics.close()
    events = list((tmp_path / "tensorboard").iterdir())
    assert len(events) == 1
    content = events[0].read_bytes()
    for tag in (b"train/loss", b"train/accuracy_by_position/1", b"train/accuracy_by_position/2"):
        assert tag in content
    assert steps_of(tmp_path / METRICS_FILE) == [1]


@pytest.mark.parametrize(
    ("config", "module"),
    [
        (MetricsConfig(wandb_project="drafts"), "wandb"),
        (MetricsConfig(tensorboard=True), "torch.utils.tensorboard"),
    ],
)
def test_a_missing_sink_is_told_in_one_line(
    config: MetricsConfig, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"^{module} can't be imported .* pip install .*$"):
        open_metrics(tmp_path, config)


class RecordedRun:
    """Stands for Weights & Biases, which needs an account and a network."""

    def __init__(self) -> None:
        self.asked: dict[str, object] = {}
        self.logged: list[tuple[int, dict[str, float]]] = []

    def init(self, **settings: object) -> "RecordedRun":
        self.asked = settings
        return self

    def log(self, data: Mapping[str, float], *, step: int) -> None:
        self.logged.append((step, dict(data)))

    def finish(self) -> None:
        self.logged.append((-1, {}))


def test_wandb_gets_the_same_scalars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = RecordedRun()
    module = ModuleType("wandb")
    monkeypatch.setattr(module, "init", recorded.init, raising=False)
    monkeypatch.setitem(sys.modules, "wandb", module)
    config = MetricsConfig(wandb_project="drafts")
    metrics = open_metrics(tmp_path / "run7", config, settings={"lr": 1.0})
    metrics.write(3, "eval", {"tau": 2.0, "accuracy_by_position": [0.5]})
    metrics.close()
    assert recorded.asked["project"] == "drafts" and recorded.asked["id"] == "run7"
    assert recorded.asked["config"] == {"lr": 1.0}
    assert recorded.logged == [(3, {"eval/tau": 2.0, "eval/accuracy_by_position/1": 0.5}), (-1, {})]


def test_an_empty_project_is_refused() -> None:
    with pytest.raises(ConfigError, match="wandb_project is empty"):
        MetricsConfig(wandb_project="")
