"""Losses and weights by hand, and against brute force."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.errors import ConfigError
from blockdraft.training.loss import (
    LossConfig,
    TargetProbs,
    dpace_weights,
    slot_losses,
    slot_weights,
)


def test_cross_entropy_by_hand() -> None:
    # Two anchors, two slots, three tokens; logits are logs of these probabilities.
    probs = torch.tensor(
        [[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], [[0.2, 0.2, 0.6], [0.3, 0.3, 0.4]]],
        dtype=torch.float64,
    )
    labels = torch.tensor([[0, 1], [0, -1]])
    found = slot_losses(probs.log(), labels, LossConfig())
    expected = torch.tensor([[math.log(2), -math.log(0.8)], [-math.log(0.2), 0.0]])
    torch.testing.assert_close(found.losses, expected.double())
    assert found.hits.tolist() == [[True, True], [False, False]]
    torch.testing.assert_close(found.probs, torch.tensor([[0.5, 0.8], [0.2, 0.0]]).double())


def test_decay_is_the_papers() -> None:
    scored = torch.ones(1, 7, dtype=torch.bool)
    weights = slot_weights(scored, torch.zeros(1, 7).double(), LossConfig(), 8)[0]
    for k in range(1, 8):
        assert weights[k - 1] == pytest.approx(math.exp(-(k - 1) / 4))
    assert LossConfig().gamma_for(16) == 7
    assert LossConfig().gamma_for(10) == 5
    assert LossConfig(gamma=3.0).gamma_for(16) == 3


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_dpace_equals_nested_loops(data: st.DataObject) -> None:
    slots, alpha = data.draw(st.integers(1, 6)), data.draw(st.sampled_from([0.0, 0.3, 0.5]))
    probs = data.draw(st.lists(st.floats(0, 1), min_size=slots, max_size=slots))
    scored = data.draw(st.lists(st.booleans(), min_size=slots, max_size=slots))
    found = dpace_weights(
        torch.tensor([scored]), torch.tensor([probs], dtype=torch.float64), alpha
    )[0]
    for j in range(slots):
        expected = 0.0
        for m in range(j, slots):
            if scored[m]:
                expected += math.prod(
                    (1 - alpha) * probs[i] + alpha for i in range(m + 1) if scored[i]
                )
        assert float(found[j]) == pytest.approx(expected if scored[j] else 0.0, abs=1e-12)


def soft_case() -> tuple[Tensor, TargetProbs]:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    target = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64).softmax(-1)
    return logits, TargetProbs(target)


def test_kl_and_total_variation_equal_their_definitions() -> None:
    logits, target = soft_case()
    labels = torch.zeros(2, 3, dtype=torch.long)
    draft = logits.softmax(-1)
    kl = slot_losses(logits, labels, LossConfig(name="kl"), target).losses
    torch.testing.assert_close(kl, (target.probs * (target.probs / draft).log()).sum(-1))
    tv = slot_losses(logits, labels, LossConfig(name="tv"), target).losses
    torch.testing.assert_close(tv, 0.5 * (target.probs - draft).abs().sum(-1))
    lk = slot_losses(logits, labels, LossConfig(name="lk", lk_eta=2.0), target).losses
    mix = torch.exp(-2.0 * (1 - tv))
    torch.testing.assert_close(lk, mix * kl + (1 - mix) * tv)


def test_soft_losses_are_zero_at_the_target() -> None:
    _, target = soft_case()
    labels = torch.zeros(2, 3, dtype=torch.long)
    for name in ("kl", "tv", "lk"):
        losses = slot_losses(target.probs.log(), labels, LossConfig(name=name), target).losses
        assert float(losses.abs().max()) < 1e-12


@pytest.mark.parametrize(
    "settings_of",
    [{"name": "mse"}, {"weighting": "linear"}, {"gamma": 0.0}, {"dpace_alpha": 1.0}],
)
def test_wrong_settings_are_named(settings_of: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        LossConfig(**settings_of)  # pyright: ignore[reportArgumentType]: wrong on purpose
