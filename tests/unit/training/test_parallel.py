"""The finished gradient of one rank, and the modes that make no sense."""

import pytest
import torch
from torch import nn

from blockdraft.errors import ConfigError
from blockdraft.training.ranks.distributed import Ranks
from blockdraft.training.ranks.parallel import Parallel, parallelize


def alone(model: nn.Module) -> Parallel:
    return parallelize(model, Ranks(), "ddp")


def test_sums_of_micro_batches_become_a_weighted_mean() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    inputs, weights = torch.randn(6, 4), torch.rand(6)
    parallel = alone(model)
    for part in (slice(0, 2), slice(2, 6)):
        with parallel.micro_batch(last=part.start > 0):
            (model(inputs[part]).square().mean(-1) * weights[part]).sum().backward()
    norm = parallel.finish_gradients(float(weights.sum()))
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    ((model(inputs).square().mean(-1) * weights).sum() / weights.sum()).backward()
    expected = [p.grad for p in model.parameters()]
    torch.testing.assert_close(found, expected)
    assert norm == pytest.approx(
        float(nn.utils.get_total_norm([g for g in expected if g is not None]))
    )


def test_clips_as_torch_does_and_returns_the_norm_before() -> None:
    torch.manual_seed(0)
    model, same = nn.Linear(4, 3), nn.Linear(4, 3)
    for one in (model, same):
        for parameter in one.parameters():
            parameter.grad = torch.arange(parameter.numel()).float().view_as(parameter)
    expected = nn.utils.clip_grad_norm_(same.parameters(), 0.7)
    assert alone(model).finish_gradients(1.0, max_norm=0.7) == pytest.approx(float(expected))
    for left, right in zip(model.parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad)


def test_short_gradients_are_left_alone_and_missing_ones_are_zero() -> None:
    model = nn.Linear(4, 3)
    model.weight.grad = torch.full((3, 4), 0.01)
    alone(model).finish_gradients(1.0, max_norm=1.0)
    assert model.weight.grad.eq(0.01).all()
    assert model.bias.grad is not None and model.bias.grad.eq(0).all()


def test_a_gradient_that_is_not_finite_shows_in_the_norm() -> None:
    model = nn.Linear(2, 1)
    model.weight.grad = torch.tensor([[1.0, float("nan")]])
    norm = alone(model).finish_gradients(1.0, max_norm=1.0)
    assert norm != norm


def test_several_processes_must_work_together() -> None:
    with pytest.raises(ConfigError, match="2 processes were started, but parallel is none"):
        parallelize(nn.Linear(2, 2), Ranks(rank=0, world_size=2), "none")
    with pytest.raises(ConfigError, match="Linear has no list of layers"):
        parallelize(nn.Linear(2, 2), Ranks(rank=0, world_size=2), "fsdp")
