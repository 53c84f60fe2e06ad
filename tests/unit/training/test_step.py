"""Sums of a step, block inputs, and where gradients go."""

from pathlib import Path

import pytest
import torch
from packed import two_documents
from tiny_runs import config_of, prepared, save_pair

from blockdraft.target import HFTarget
from blockdraft.testing import tiny_target
from blockdraft.training.batches.packing import PackedRow, make_batch
from blockdraft.training.forward import BlockForward
from blockdraft.training.objective import Scores
from blockdraft.training.run.setup import Training
from blockdraft.training.run.step import BlockInputs, StepParts, StepSums


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return save_pair(tmp_path_factory.mktemp("pair"), count=12)


def scores(loss: float, weight: float, hits: list[list[bool]]) -> Scores:
    return Scores(
        torch.tensor(loss), torch.tensor(weight), torch.tensor(hits), torch.ones(2, 2).bool()
    )


def test_sums_add_up_and_means_are_over_all_slots() -> None:
    """T06: pooled, not a mean of means."""
    batch = two_documents()
    first = StepSums.of(scores(6.0, 3.0, [[True, True], [True, False]]), batch, 10.0)
    second = StepSums.of(scores(1.0, 1.0, [[True, False], [False, False]]), batch, 5.0)
    total = first + second
    assert total.loss == 7 / 4 and total.weight == 4
    assert total.accuracy_by_position == [3 / 4, 1 / 4]
    assert (total.num_slots, total.flops) == (8, 15.0)
    assert (total.num_tokens, total.num_anchors) == (2 * batch.num_tokens, 2 * batch.num_anchors)


def test_a_step_in_which_nothing_can_be_learned_has_no_loss() -> None:
    """All labels outside of a reduced vocabulary: not a NaN in the metrics."""
    sums = StepSums.of(scores(0.0, 0.0, [[False, False]] * 2), two_documents(), 1.0)
    assert (sums.loss, sums.weight) == (0.0, 0.0)


def test_blocks_are_the_anchor_and_masks() -> None:
    target = tiny_target()
    made = BlockInputs(target, 7)(torch.tensor([5, 9]), 4)
    expected = target.embed(torch.tensor([[5, 7, 7, 7], [9, 7, 7, 7]]))
    assert torch.equal(made, expected)


def parts_of(training: Training) -> StepParts:
    shape = training.drafter.config
    return StepParts(
        BlockForward(training.drafter),
        shape,
        training.source,
        BlockInputs(training.target, shape.mask_token_id),
        training.objective,
        "float32",
        torch.device("cpu"),
    )


@pytest.mark.parametrize("loss", ["ce", "kl", "tv", "lk"])
def test_gradient_reaches_all_of_the_drafter_and_nothing_of_the_target(
    pair: tuple[Path, Path], loss: str
) -> None:
    config = config_of(pair, f"loss.name={loss}")
    training = prepared(config)
    assert isinstance(training.target, HFTarget)
    target = training.target.layer_tensors()
    before = {name: tensor.clone() for name, tensor in target.items()}
    assert before
    parts = parts_of(training)
    batch = make_batch(PackedRow(0, (0, 1, 2)), training.data.train, config.anchors, 4, seed=0)
    sums = parts.train(batch)
    assert sums.loss > 0 and sums.num_anchors == batch.num_anchors
    for name, parameter in training.drafter.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    assert all(torch.equal(target[name], tensor) for name, tensor in before.items())
    assert all(tensor.grad is None for tensor in target.values() if tensor.requires_grad)


def test_the_gradient_of_a_step_does_not_depend_on_packing(pair: tuple[Path, Path]) -> None:
    """Packed or one answer at a time: the same sum of losses and of gradients (float32)."""
    config = config_of(pair)
    found: list[tuple[float, list[torch.Tensor]]] = []
    for rows in ([(0, 1, 2, 3)], [(0,), (1, 2), (3,)]):
        training = prepared(config)
        parts = parts_of(training)
        total = 0.0
        for members in rows:
            batch = make_batch(
                PackedRow(0, members), training.data.train, config.anchors, 4, seed=0
            )
            total += float(parts.train(batch).values[0])
        gradients = [p.grad for p in training.drafter.parameters() if p.grad is not None]
        found.append((total, gradients))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)
