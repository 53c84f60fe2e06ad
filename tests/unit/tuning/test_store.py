"""Runs are kept line by line; what is not theirs is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from blockdraft.errors import ConfigError
from blockdraft.tuning.observed import Observed
from blockdraft.tuning.replay import ReplayRequest
from blockdraft.tuning.samples import StepSample
from blockdraft.tuning.store import RunStore, check_folder

RUN = Observed(
    seconds=1.5,
    latency_seconds=0.7,
    requests=(ReplayRequest(5, 4, 8), ReplayRequest(6, 8, 8)),
    steps=(2, 3),
    drafted=(5, 5),
    accepted=(4, 1),
    digests=("a", "b"),
    samples=(StepSample(1, 5, 0, 0, 1, 0, 0.02), StepSample(2, 0, 6, 2, 3, 13, 0.03)),
)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "out", {"dtype": "float32"})
    store.add("off@1", RUN)
    store.add_table("passes", '{"format": 1}')
    again = RunStore(tmp_path / "out", {"dtype": "float32"})
    assert again.get("off@1") == RUN
    assert again.get_table("passes") == '{"format": 1}'
    assert again.get("off@2") is None
    assert again.num_kept == 2


def test_a_torn_last_line_is_measured_again(tmp_path: Path) -> None:
    RunStore(tmp_path, {}).add("off@1", RUN)
    path = tmp_path / "runs.jsonl"
    path.write_text(path.read_text() + '{"name": "off@2", "ru')
    again = RunStore(tmp_path, {})
    assert again.get("off@1") == RUN
    assert again.num_kept == 1
    again.add("off@2", RUN)
    assert RunStore(tmp_path, {}).get("off@2") == RUN


def test_other_conditions_are_refused(tmp_path: Path) -> None:
    RunStore(tmp_path, {"dtype": "float32", "threads": 1})
    with pytest.raises(ConfigError, match=r"other conditions \(threads changed\)"):
        RunStore(tmp_path, {"dtype": "float32", "threads": 2})


def test_a_folder_is_checked_without_a_trace(tmp_path: Path) -> None:
    new = tmp_path / "a" / "b"
    check_folder(new, {"seed": 0})
    assert list(tmp_path.iterdir()) == []
    RunStore(new, {"dtype": "float32", "seed": 0}).add("off@1", RUN)
    path = new / "runs.jsonl"
    path.write_text(path.read_text() + '{"name": "off@2", "ru')
    before = path.read_bytes()
    check_folder(new, {"seed": 0})
    with pytest.raises(ConfigError, match=r"other conditions \(seed changed\)"):
        check_folder(new, {"seed": 1})
    assert path.read_bytes() == before


def test_a_folder_that_can_hold_no_runs_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for folder in (file, file / "below"):
        with pytest.raises(ConfigError, match=f"--out {folder}: {file} is no folder"):
            check_folder(folder, {})
    (tmp_path / "runs.jsonl").write_text("no JSON\n")
    with pytest.raises(ConfigError, match="measure into a new --out"):
        check_folder(tmp_path, {})


@pytest.mark.parametrize("line", ["[]", "no JSON", '{"name": 1, "run": 2}', '{"run": 2}'])
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    RunStore(tmp_path, {})
    path = tmp_path / "runs.jsonl"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ConfigError, match="measure into a new --out"):
        RunStore(tmp_path, {})


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 0.0},
        {"seconds": "1"},
        {"steps": [1]},
        {"drafted": [-1]},
        {"requests": [[1, 2]]},
        {"samples": [[1, 2, 3]]},
        {"samples": [[1, 1, 2, 3, 4, 5, -0.1]]},
        {"more": 1},
    ],
)
def test_a_damaged_run_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    store = RunStore(tmp_path, {})
    line = {"name": "off@1", "run": {**RUN.as_json(), **change}}
    path = tmp_path / "runs.jsonl"
    path.write_text(path.read_text() + json.dumps(line) + "\n")
    with pytest.raises(ConfigError, match="measure into a new --out"):
        RunStore(tmp_path, {}).get("off@1")
    assert store.get("off@1") is None


def test_without_a_folder_runs_live_in_memory() -> None:
    store = RunStore(None, {})
    store.add("off@1", replace(RUN, samples=()))
    kept = store.get("off@1")
    assert kept is not None
    assert kept.tokens == 12
    assert kept.tokens_per_second == pytest.approx(8.0)


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can't use --out"):
        RunStore(tmp_path / "file" / "out", {})
