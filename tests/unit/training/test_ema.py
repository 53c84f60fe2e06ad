"""The average against its recursion, and that swapping it in leaves no trace."""

import pytest
import torch
from torch import nn

from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.training.optim.ema import Ema


def model_at(value: float) -> nn.Linear:
    model = nn.Linear(3, 2)
    set_to(model, value)
    return model


def set_to(model: nn.Module, value: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)


def test_follows_the_recursion_with_its_warm_up() -> None:
    model = model_at(1.0)
    ema = Ema(model, decay=0.3)
    expected = 1.0
    for update in range(1, 12):
        set_to(model, float(update))
        ema.update()
        keep = min(0.3, (1 + update) / (10 + update))
        expected = keep * expected + (1 - keep) * update
    with ema.swapped_in():
        torch.testing.assert_close(model.weight, torch.full((2, 3), expected))
    assert model.weight.eq(11.0).all()


def test_swapping_in_and_out_is_exact_also_when_the_evaluation_fails() -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 4)
    ema = Ema(model, decay=0.9)
    with torch.no_grad():
        model.weight.normal_()
    ema.update()
    own = [p.detach().clone() for p in model.parameters()]
    average = {name: tensor.clone() for name, tensor in ema.state_dict().items()}
    with pytest.raises(RuntimeError, match="evaluation"), ema.swapped_in():
        assert torch.equal(model.weight, average["weight"])
        raise RuntimeError("evaluation")
    assert all(torch.equal(p, o) for p, o in zip(model.parameters(), own, strict=True))
    assert all(torch.equal(t, average[n]) for n, t in ema.state_dict().items())


def test_a_loaded_average_goes_on_exactly() -> None:
    model = model_at(1.0)
    first = Ema(model, decay=0.9)
    set_to(model, 2.0)
    first.update()
    second = Ema(model_at(7.0), decay=0.9)
    second.load_state_dict({n: t.clone() for n, t in first.state_dict().items()})
    assert all(torch.equal(t, first.state_dict()[n]) for n, t in second.state_dict().items())


def test_refuses_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match="ema decay is 1"):
        Ema(model_at(1.0), decay=1.0)
    with pytest.raises(CheckpointError, match=r"the averaged .* is \[\d, 3\], expected \[2, 3\]"):
        Ema(model_at(1.0), 0.9).load_state_dict(
            {
                **Ema(nn.Linear(3, 2), 0.9).state_dict(),
                "weight": torch.zeros(4, 3),
            }
        )


def test_frozen_parameters_are_not_averaged() -> None:
    model = model_at(1.0)
    model.bias.requires_grad_(False)
    assert set(Ema(model, 0.9).state_dict()) == {"updates", "weight"}
