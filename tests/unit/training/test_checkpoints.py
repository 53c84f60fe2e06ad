"""Snapshots on disk: round trip, damage of every kind, replacement and pruning."""

import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.state import Progress, Snapshot


def snapshot(step: int, value: float = 0.0) -> Snapshot:
    return Snapshot(
        progress=Progress(step=step, epoch=0, position=step, counts={"seconds": 0.1}),
        settings={"optimizer": {"lr": 0.1}},
        world_size=2,
        model={"fc.weight": torch.full((2, 3), value)},
        optimizers={"adamw.step": torch.tensor(float(step))},
        ema=None,
        rng={"torch.0": torch.arange(4, dtype=torch.uint8)},
    )


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "run", keep_last=2, keep_best=1)


def test_comes_back_as_it_was(checkpoints: Checkpoints) -> None:
    saved = snapshot(1000, 1.5)
    folder = checkpoints.save(saved)
    assert folder.name == "step-00001000"
    loaded = checkpoints.load(1000)
    assert loaded.progress == saved.progress and loaded.settings == saved.settings
    assert loaded.world_size == 2 and loaded.ema is None
    for name in ("model", "optimizers", "rng"):
        left, right = getattr(saved, name), getattr(loaded, name)
        assert left.keys() == right.keys()
        assert all(left[key].equal(right[key]) for key in left)


def test_a_run_without_folders_has_no_latest(checkpoints: Checkpoints) -> None:
    assert checkpoints.load_latest() is None
    assert checkpoints.best() is None


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 1)


def flip_one_bit(folder: Path) -> None:
    path = folder / "optimizers.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def lose_a_file(folder: Path) -> None:
    (folder / "rng.safetensors").unlink()


def lose_the_checksums(folder: Path) -> None:
    (folder / "checksums.json").unlink()


def break_the_checksums(folder: Path) -> None:
    (folder / "checksums.json").write_text("[")


def add_a_file(folder: Path) -> None:
    (folder / "ema.safetensors").write_bytes(b"")


def lose_everything(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        cut_short,
        flip_one_bit,
        lose_a_file,
        lose_the_checksums,
        break_the_checksums,
        add_a_file,
        lose_everything,
    ],
)
def test_a_damaged_newest_one_is_skipped_with_a_warning(
    checkpoints: Checkpoints,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    checkpoints.save(snapshot(10))
    damage(checkpoints.save(snapshot(20)))
    with caplog.at_level(logging.WARNING, "blockdraft"):
        latest = checkpoints.load_latest()
    assert latest is not None and latest.progress.step == 10
    assert "step-00000020 is damaged" in caplog.text and "remove" not in caplog.text
    aside = next(checkpoints.folder_of(10).parent.glob("damaged-step-00000020-*"))
    assert f"it is kept aside as {aside}" in caplog.text
    with pytest.raises(CheckpointError, match="step-00000020 is damaged"):
        checkpoints.load(20)


def test_when_all_are_damaged_nothing_is_started_silently(checkpoints: Checkpoints) -> None:
    for step in (10, 20):
        lose_a_file(checkpoints.save(snapshot(step)))
    with pytest.raises(CheckpointError, match="none of its 2 checkpoints is good"):
        checkpoints.load_latest()


def test_another_format_is_refused(checkpoints: Checkpoints) -> None:
    folder = checkpoints.save(snapshot(10))
    state = json.loads((folder / "state.json").read_text())
    text = json.dumps({**state, "format": 2})
    (folder / "state.json").write_text(text)
    sums = json.loads((folder / "checksums.json").read_text())
    sums["state.json"] = hashlib.sha256(text.encode()).hexdigest()
    (folder / "checksums.json").write_text(json.dumps(sums))
    with pytest.raises(CheckpointError, match="format 2, expected 1"):
        checkpoints.load(10)


def test_the_same_step_again_replaces_it(checkpoints: Checkpoints) -> None:
    lose_a_file(checkpoints.save(snapshot(10, 1.0)))
    checkpoints.save(snapshot(10, 2.0))
    assert checkpoints.load(10).model["fc.weight"].eq(2.0).all()


def test_keeps_the_newest_and_the_best(checkpoints: Checkpoints) -> None:
    scores = {10: 2.0, 20: 3.5, 30: 3.0, 40: 2.5, 50: 1.0}
    for step, score in scores.items():
        checkpoints.save(snapshot(step))
        checkpoints.set_score(step, score)
    assert checkpoints.steps() == [20, 40, 50]
    assert checkpoints.best() == 20
    assert list(checkpoints.scores()) == [20, 40, 50]
    assert checkpoints.load(20).progress.step == 20


def test_what_was_evaluated_without_a_score_is_no_best_one(checkpoints: Checkpoints) -> None:
    for step in (10, 20):
        checkpoints.save(snapshot(step))
    assert not checkpoints.is_evaluated(20)
    checkpoints.set_score(10, 1.5)
    checkpoints.set_score(20, None)
    assert checkpoints.is_evaluated(10) and checkpoints.is_evaluated(20)
    assert checkpoints.scores() == {10: 1.5}
    (checkpoints.folder_of(10) / "score.json").write_text("{")
    assert not checkpoints.is_evaluated(10)


def test_a_glance_at_the_newest_needs_nothing_else_of_it(checkpoints: Checkpoints) -> None:
    assert checkpoints.peek() is None
    for step in (10, 20):
        checkpoints.save(snapshot(step))
    (checkpoints.folder_of(20) / "model.safetensors").unlink()
    found = checkpoints.peek()
    assert found is not None and found[0] == 20 and found[1] == snapshot(20).settings
    (checkpoints.folder_of(20) / "state.json").write_text("{")
    assert checkpoints.peek() is None, "loading will say what is wrong"


def test_one_that_was_never_scored_is_never_the_best(checkpoints: Checkpoints) -> None:
    for step in (10, 20, 30):
        checkpoints.save(snapshot(step))
    assert checkpoints.best() is None and checkpoints.steps() == [20, 30]
    (checkpoints.folder_of(20) / "score.json").write_text('{"score": NaN}')
    assert checkpoints.best() is None


def test_leftovers_of_killed_processes_are_no_checkpoints(checkpoints: Checkpoints) -> None:
    folder = checkpoints.save(snapshot(10))
    for name in (".unfinished-abc", ".removed-step-00000005-1"):
        folder.with_name(name).mkdir()
        (folder.with_name(name) / "model.safetensors").write_bytes(b"half")
    assert checkpoints.steps() == [10]
    checkpoints.clear_leftovers()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_failed_save_leaves_nothing(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.save(snapshot(10))

    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"disk full.*make room"):
        checkpoints.save(snapshot(20))
    monkeypatch.undo()
    assert [p.name for p in checkpoints.folder_of(10).parent.iterdir()] == ["step-00000010"]


def test_at_least_one_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep_last is 0"):
        Checkpoints(tmp_path, keep_last=0)
