"""What keeps a run sound at its edges: lock, exported averages, what is held out, damage."""

from pathlib import Path

import pytest
import torch
from tiny_runs import config_of, prepared, run, save_pair

from blockdraft.errors import ConfigError
from blockdraft.training.run.lock import locked

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return save_pair(tmp_path_factory.mktemp("pair"), count=24)


def test_an_averaged_run_exports_its_averages(pair: Pair, tmp_path: Path) -> None:
    ran = run(config_of(pair, "run.ema=0.5", "run.steps=4"), tmp_path / "run")
    step, tensors = ran.trainer.best_weights()
    assert step in (2, 4)
    plain = ran.trainer.checkpoints.load(step).model
    assert tensors.keys() == {name.replace(".layer.", ".", 1) for name in plain}
    trained = {name.replace(".layer.", ".", 1): tensor for name, tensor in plain.items()}
    assert any(not torch.equal(tensors[name], trained[name]) for name in trained)


def test_held_out_conversations_may_not_be_trained_on(pair: Pair) -> None:
    with pytest.raises(ConfigError, match=r"'c0' is in data.heldout .* can't be held out"):
        prepared(config_of(pair, f"data.heldout={pair[1]}"))


def test_one_training_at_a_time_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    refusal = pytest.raises(ConfigError, match="another training is running")
    with locked(folder), refusal, locked(folder):
        pass
    assert not folder.exists(), "nothing was trained, nothing is left"
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(ConfigError, match="can't write to the run folder"),
        locked(tmp_path / "file"),
    ):
        pass


def test_damaged_checkpoints_are_set_aside(pair: Pair, tmp_path: Path) -> None:
    """A damaged newest one may not push good ones out, a damaged best one not end an export."""
    config = config_of(
        pair, "run.steps=6", "eval.simulate_every=2", "run.keep_last=1", "run.keep_best=3"
    )
    folder = tmp_path / "run"
    ran = run(config, folder)
    best = ran.trainer.checkpoints.best()
    assert best is not None
    weights = ran.trainer.checkpoints.folder_of(best) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    step, _ = ran.trainer.best_weights()
    assert step != best and not weights.exists()
    assert [path.name for path in folder.glob("damaged-*")]
    newest = ran.trainer.checkpoints.steps()[-1]
    state = ran.trainer.checkpoints.folder_of(newest) / "state.json"
    state.write_text("{")
    again = run(config, folder)
    assert again.result.step == 6 and 6 in again.trainer.checkpoints.steps()
