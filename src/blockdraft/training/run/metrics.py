"""What a run measures, as JSON lines on disk, and on request in TensorBoard or Weights & Biases.

It measures nothing itself and draws nothing (`curves.py`). One record a line:

    {"step": 120, "kind": "train", "loss": 3.1, "lr": 0.0006, "accuracy_by_position": [0.5, 0.3]}
"""

import importlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from blockdraft.errors import ConfigError

METRICS_FILE = "metrics.jsonl"

MetricValue = float | Sequence[float]
"""A number, or one for each position of a block; not finite ones are written as null."""


class MetricSink(Protocol):
    """Somewhere records go."""

    def write(self, step: int, kind: str, values: Mapping[str, MetricValue]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Sinks besides the JSON lines: TensorBoard event files, a Weights & Biases project."""

    tensorboard: bool = False
    wandb_project: str | None = None

    def __post_init__(self) -> None:
        if self.wandb_project is not None and not self.wandb_project:
            raise ConfigError("wandb_project is empty, expected a name, or leave it out")


class Metrics:
    """Every record to several sinks."""

    def __init__(self, sinks: Sequence[MetricSink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, step: int, kind: str, values: Mapping[str, MetricValue]) -> None:
        """Note `values`, measured after `step` steps; `kind` groups records ("train", "eval")."""
        for sink in self._sinks:
            sink.write(step, kind, values)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()


def open_metrics(
    folder: Path,
    config: MetricsConfig,
    *,
    resumed_step: int | None = None,
    settings: Mapping[str, object] | None = None,
) -> Metrics:
    """The sinks of a run in `folder`: a new run's, or one's that goes on after `resumed_step`.

    Raises ConfigError when an asked for sink is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sinks: list[MetricSink] = []
    if config.tensorboard:
        sinks.append(TensorBoardSink(folder / "tensorboard", resumed_step))
    if config.wandb_project is not None:
        sinks.append(WandbSink(config.wandb_project, folder, settings or {}))
    sinks.insert(0, JsonLines(folder / METRICS_FILE, resumed_step))
    return Metrics(sinks)


class JsonLines:
    """Appends to `path`, each record on disk's side of the process at once.

    A resumed run first cuts off all that came after `resumed_step`, and a half-written last line,
    so that no step occurs twice. What none of it is left of (another run's, or a file that is not
    ours) is moved aside, under the next free number.
    """

    def __init__(self, path: Path, resumed_step: int | None = None) -> None:
        _cut(path, resumed_step)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, step: int, kind: str, values: Mapping[str, MetricValue]) -> None:
        record = {"step": step, "kind": kind, **{n: _plain(v) for n, v in values.items()}}
        self._file.write(json.dumps(record, allow_nan=False) + "\n")

    def close(self) -> None:
        self._file.close()


class TensorBoardSink:
    """Scalars "kind/name", "kind/name/position" for one of several."""

    def __init__(self, folder: Path, resumed_step: int | None = None) -> None:
        module = _optional("torch.utils.tensorboard", "pip install 'blockdraft[train]'")
        make = cast("_MakeWriter", module.SummaryWriter)
        purge = None if resumed_step is None else resumed_step + 1
        self._writer = make(log_dir=str(folder), purge_step=purge)

    def write(self, step: int, kind: str, values: Mapping[str, MetricValue]) -> None:
        for name, value in _scalars(kind, values):
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """The same scalars as a Weights & Biases run; a resumed run goes on in the same one."""

    def __init__(self, project: str, folder: Path, settings: Mapping[str, object]) -> None:
        wandb = cast("_Wandb", _optional("wandb", "pip install wandb"))
        self._run = wandb.init(
            project=project,
            id=folder.resolve().name,
            resume="allow",
            dir=str(folder),
            config=dict(settings),
        )

    def write(self, step: int, kind: str, values: Mapping[str, MetricValue]) -> None:
        self._run.log(dict(_scalars(kind, values)), step=step)

    def close(self) -> None:
        self._run.finish()


def read_metrics(path: Path) -> list[dict[str, object]]:
    """All whole records of a file; a half-written last line is left out."""
    records: list[dict[str, object]] = []
    for line in path.read_bytes().splitlines(keepends=True):
        record = _parse(line)
        if record is None:
            break
        records.append(record)
    return records


class _Writer(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class _MakeWriter(Protocol):
    def __call__(self, *, log_dir: str, purge_step: int | None) -> _Writer: ...


class _WandbRun(Protocol):
    def log(self, data: Mapping[str, float], *, step: int) -> None: ...
    def finish(self) -> None: ...


class _Wandb(Protocol):
    def init(
        self, *, project: str, id: str, resume: str, dir: str, config: Mapping[str, object]
    ) -> _WandbRun: ...


def _optional(module: str, command: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{module} can't be imported ({error}); {command}, or ask without it"
        ) from error


def _cut(path: Path, resumed_step: int | None) -> None:
    if not path.exists():
        return
    keep = 0
    if resumed_step is not None:
        for line in path.read_bytes().splitlines(keepends=True):
            record = _parse(line)
            if record is None or cast(int, record["step"]) > resumed_step:
                break
            keep += len(line)
    if keep == 0 and path.stat().st_size > 0:
        _move_aside(path)
        return
    with path.open("r+b") as file:
        file.truncate(keep)


def _move_aside(path: Path) -> None:
    free = next(n for n in count(1) if not path.with_suffix(f".{n}{path.suffix}").exists())
    path.rename(path.with_suffix(f".{free}{path.suffix}"))


def _parse(line: bytes) -> dict[str, object] | None:
    """The record of a whole line; None for a damaged one."""
    try:
        record: object = json.loads(line)
    except ValueError:
        return None
    if not line.endswith(b"\n") or not isinstance(record, dict):
        return None
    fields = cast(dict[str, object], record)
    return fields if isinstance(fields.get("step"), int) else None


def _scalars(kind: str, values: Mapping[str, MetricValue]) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in values.items():
        if isinstance(value, Sequence):
            found += [(f"{kind}/{name}/{idx + 1}", one) for idx, one in enumerate(value)]
        else:
            found.append((f"{kind}/{name}", value))
    return found


def _plain(value: MetricValue) -> float | list[float | None] | None:
    if isinstance(value, Sequence):
        return [one if math.isfinite(one) else None for one in value]
    return value if math.isfinite(value) else None
