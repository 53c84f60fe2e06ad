"""Captured and restored runs, and settings that may not change."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.training.optim.ema import Ema
from blockdraft.training.optim.optimizers import OptimizerConfig, build_optimizers
from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.run.state import (
    Progress,
    Snapshot,
    TrainedParts,
    capture,
    check_settings,
    parse_progress,
    restore,
    share,
)

START = Progress(step=3, epoch=1, position=2, counts={"tokens": 12.0})


def parts(seed: int = 0, *, hidden: int = 6, ema: bool = True) -> TrainedParts:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))
    return TrainedParts(
        model=model,
        optimizers=build_optimizers(model, OptimizerConfig()),
        ema=Ema(model, 0.9) if ema else None,
        ranks=Ranks(),
        generators={"anchors": torch.Generator().manual_seed(seed)},
    )


def train(run: TrainedParts, steps: int) -> list[float]:
    """Steps on inputs drawn from both random sources, so that a lost state shows."""
    losses: list[float] = []
    for _ in range(steps):
        run.optimizers.zero_grad()
        inputs = torch.randn(5, 4) + torch.randn(5, 4, generator=run.generators["anchors"])
        loss = run.model(inputs).square().sum()
        loss.backward()
        run.optimizers.step()
        if run.ema is not None:
            run.ema.update()
        losses.append(float(loss.detach()))
    return losses


def test_a_restored_run_goes_on_bit_for_bit() -> None:
    run = parts()
    train(run, 3)
    snapshot = capture(run, START, {})
    expected = train(run, 4)
    other = parts(seed=9)
    restore(other, snapshot)
    assert train(other, 4) == expected
    ends = [capture(one, START, {}) for one in (run, other)]
    for name in ("model", "optimizers", "ema", "rng"):
        left, right = getattr(ends[0], name), getattr(ends[1], name)
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)


def test_a_snapshot_does_not_change_with_the_run() -> None:
    run = parts()
    snapshot = capture(run, START, {})
    before = {name: tensor.clone() for name, tensor in snapshot.model.items()}
    train(run, 2)
    assert all(torch.equal(tensor, before[name]) for name, tensor in snapshot.model.items())
    assert snapshot.optimizers["adamw.step"] == 0


def test_at_another_number_of_ranks_the_random_states_stay() -> None:
    snapshot = replace(capture(parts(), START, {}), world_size=2)
    other = parts(seed=5)
    state = torch.get_rng_state()
    restore(other, snapshot)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_average_that_is_no_longer_wanted_is_left_out() -> None:
    other = parts(ema=False)
    restore(other, capture(parts(), START, {}))
    assert capture(other, START, {}).ema is None


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (lambda: capture(parts(hidden=7), START, {}), r"0.bias of the checkpoint is \[7\]"),
        (lambda: capture(parts(ema=False), START, {}), "has no averaged weights"),
        (lambda: replace(capture(parts(), START, {}), optimizers={}), "names differ"),
        (lambda: _without_generator(), "no random state anchors"),
    ],
)
def test_another_runs_snapshot_is_refused(saved: Callable[[], Snapshot], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        restore(parts(), saved())


def _without_generator() -> Snapshot:
    snapshot = capture(parts(), START, {})
    return replace(snapshot, rng={"torch.0": snapshot.rng["torch.0"]})


def test_alone_sharing_is_loading() -> None:
    snapshot = capture(parts(), START, {})
    assert share(lambda: snapshot, Ranks()) is snapshot
    assert share(lambda: None, Ranks()) is None

    def fail() -> Snapshot | None:
        raise CheckpointError("all damaged")

    with pytest.raises(CheckpointError, match="all damaged"):
        share(fail, Ranks())


def test_changed_settings_are_all_named() -> None:
    saved = {"optimizer": {"lr": 0.1, "betas": [0.9, 0.95]}, "data": {"seed": 1}, "gone": 1}
    now = {"optimizer": {"lr": 0.2, "betas": (0.9, 0.95)}, "data": {"seed": 2}}
    with pytest.raises(ConfigError) as caught:
        check_settings(saved, now)
    text = str(caught.value)
    assert (
        "data.seed (was 1, now 2), gone (was 1, now None), optimizer.lr (was 0.1, now 0.2)" in text
    )
    check_settings(saved, now, free=frozenset({"optimizer", "data.seed", "gone"}))
    with pytest.raises(ConfigError, match="optimizer"):
        check_settings(saved, now, free=frozenset({"opt", "data", "gone"}))


def test_progress_is_read_strictly() -> None:
    raw = {"step": 3, "epoch": 1, "position": 2, "counts": {"tokens": 12.0}}
    assert parse_progress(raw) == START
    with pytest.raises(KeyError):
        parse_progress({**raw, "more": 1})
    with pytest.raises(KeyError):
        parse_progress({"step": 3})
