"""The document of a bench, version 2 (docs/measuring.md), and the folder that it is kept in.

It computes no figure of its own. Its shape changes only with `VERSION`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from blockdraft.bench.figure_documents import figure_document
from blockdraft.bench.figures import figures_of
from blockdraft.bench.groups import groups_of
from blockdraft.bench.level_documents import level_document
from blockdraft.bench.levels import LaneInfo, LevelResult
from blockdraft.bench.report.answers import answers_json
from blockdraft.bench.report.reading import FILE_NAME, SCHEMA, VERSION
from blockdraft.data.durable import write_json
from blockdraft.errors import ConfigError

Mode = Literal["in-process", "endpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that a bench did so far. `started` is seconds since 1970.

    The mappings are parts of the document as they are. `is_complete`: all planned levels are done.
    """

    mode: Mode
    preset: str | None
    started: float
    seconds: float
    conditions: Mapping[str, object]
    workload: Mapping[str, object]
    settings: Mapping[str, object]
    lanes: Sequence[LaneInfo]
    levels: Sequence[LevelResult]
    is_complete: bool
    costs: Mapping[str, object] | None = None
    quality: Sequence[Mapping[str, object]] = ()
    energy: Mapping[str, object] = field(
        default_factory=lambda: {"source": None, "reason": "not measured at an endpoint"}
    )
    stack: Sequence[Mapping[str, object]] | None = None


class ResultsFolder:
    """Keeps the document of a run, replaced whole each time, so that a part of it is never lost."""

    def __init__(self, folder: Path, *, resumes: bool = False) -> None:
        """Raises ConfigError for a folder with a result in it, or that can't be made.

        `resumes`: one with a result is what is wanted.
        """
        self.path = folder / FILE_NAME
        if self.path.exists() and not resumes:
            raise ConfigError(
                f"{self.path} is of an earlier run; give another --out, or move it (--resume goes "
                "on with one that was measured in process)"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"can't make --out {folder}: {error.strerror}") from error

    def write(self, document: Mapping[str, object]) -> None:
        """Raises ConfigError when the disk does not take it."""
        try:
            write_json(self.path, document)
        except OSError as error:
            raise ConfigError(f"can't write {self.path}: {error.strerror}") from error


def run_document(run: Run) -> dict[str, object]:
    """The whole document; figures and answers are of what is complete so far."""
    document: dict[str, object] = {
        "schema": SCHEMA,
        "version": VERSION,
        "complete": run.is_complete,
        "mode": run.mode,
        "preset": run.preset,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.started)),
        "seconds": run.seconds,
        "conditions": dict(run.conditions),
        "workload": dict(run.workload),
        "settings": dict(run.settings),
        "lanes": [lane_document(lane) for lane in run.lanes],
        "levels": [level_document(level) for level in run.levels],
        "figures": _figures(run),
        "costs": run.costs,
        "quality": [dict(entry) for entry in run.quality],
        "energy": dict(run.energy),
        "stack": None if run.stack is None else [dict(entry) for entry in run.stack],
    }
    return document | {"answers": answers_json(document)}


def lane_document(lane: LaneInfo) -> dict[str, object]:
    return {
        "name": lane.name,
        "kind": lane.kind,
        "drafter": lane.drafter,
        "width": lane.width,
        "block_size": lane.block_size,
        "note": lane.note,
    }


def _figures(run: Run) -> list[dict[str, object]]:
    """In the order of lanes, then of the arrivals as they were first measured."""
    plain_lane = next((lane.name for lane in run.lanes if lane.kind == "plain"), None)
    plain = [level for level in run.levels if level.lane == plain_lane]
    arrivals = dict.fromkeys(level.arrival for level in run.levels)
    found: list[dict[str, object]] = []
    for lane in run.lanes:
        for arrival in arrivals:
            own = [lv for lv in run.levels if lv.lane == lane.name and lv.arrival == arrival]
            if own:
                document = figure_document(figures_of(own, plain), groups_of(own, plain))
                found.append(document)
    return found
