"""The learning rate's course: its corners, its bounds and its independence of how it is asked."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.errors import ConfigError
from blockdraft.training.optim.schedule import ScheduleConfig, lr_factor

Kind = Literal["cosine", "wsd", "constant"]


def test_warm_up_is_linear_and_never_zero() -> None:
    config = ScheduleConfig(kind="constant", total_steps=100, warmup_ratio=0.04)
    factors = [lr_factor(step, config) for step in range(6)]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_starts_at_one_passes_the_middle_and_ends_at_its_minimum() -> None:
    config = ScheduleConfig(kind="cosine", total_steps=101, warmup_ratio=0.0, min_ratio=0.1)
    assert lr_factor(0, config) == 1.0
    assert lr_factor(50, config) == pytest.approx(0.55)
    assert lr_factor(100, config) == pytest.approx(0.1)
    assert lr_factor(5000, config) == lr_factor(100, config)


def test_wsd_is_stable_and_then_decays_by_one_minus_square_root() -> None:
    config = ScheduleConfig(kind="wsd", total_steps=105, warmup_steps=2, decay_ratio=0.05)
    assert [lr_factor(step, config) for step in (2, 50, 100)] == [1.0, 1.0, 1.0]
    assert lr_factor(101, config) == pytest.approx(1 - 0.25**0.5)
    assert lr_factor(104, config) == 0.0


def test_wsd_can_decay_linearly() -> None:
    config = ScheduleConfig(
        kind="wsd", total_steps=105, warmup_steps=2, decay_ratio=0.05, decay="linear"
    )
    assert [lr_factor(step, config) for step in range(100, 105)] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_a_longer_wsd_run_has_the_same_course_until_the_shorter_ones_decay() -> None:
    short = ScheduleConfig(kind="wsd", total_steps=100, warmup_steps=5)
    long = ScheduleConfig(kind="wsd", total_steps=1000, warmup_steps=5)
    assert [lr_factor(s, short) for s in range(81)] == [lr_factor(s, long) for s in range(81)]


@given(
    kind=st.sampled_from(["cosine", "wsd", "constant"]),
    total=st.integers(1, 300),
    warmup=st.floats(0, 1),
    low=st.floats(0, 1),
    decay=st.floats(0, 1),
)
def test_rises_once_and_then_never_rises_again(
    kind: Kind, total: int, warmup: float, low: float, decay: float
) -> None:
    config = ScheduleConfig(
        kind=kind, total_steps=total, warmup_ratio=warmup, min_ratio=low, decay_ratio=decay
    )
    factors = [lr_factor(step, config) for step in range(total + 3)]
    assert all(0 <= factor <= 1 for factor in factors)
    top = config.num_warmup_steps
    assert factors[:top] == sorted(factors[:top])
    assert factors[top:] == sorted(factors[top:], reverse=True)
    if top < total - 1 and kind != "constant" and decay * total >= 2:
        assert factors[total - 1] == pytest.approx(low)


def test_refuses_what_makes_no_sense() -> None:
    with pytest.raises(ConfigError, match="total_steps is 0"):
        ScheduleConfig(total_steps=0)
    with pytest.raises(ConfigError, match=r"decay_ratio is 1\.5"):
        ScheduleConfig(total_steps=10, decay_ratio=1.5)
    with pytest.raises(ConfigError, match="warmup_steps is -1"):
        ScheduleConfig(total_steps=10, warmup_steps=-1)
