"""The choice of kernels as a pure function of seconds, and its measuring on a made-up clock."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.native.linear import PLAIN, Kernel, KernelPlan, Linear, dense_linear, only
from blockdraft.native.tuning import (
    MEASURED_ROWS,
    MOST_PADDING,
    WORTH_PADDING,
    WORTH_SWITCHING,
    choose_plan,
    faster_dtype,
    measure_plan,
)

SECONDS = st.floats(0.001, 10.0)


def test_a_plan_beyond_its_tables() -> None:
    plan = KernelPlan(("a", "a", "b"), (0, 4, 4))
    assert [plan.kernel(n) for n in (1, 2, 3, 99)] == ["a", "b", "b", "b"]
    assert [plan.pad(n) for n in (1, 2, 3, 99)] == [4, 4, 3, 99]
    assert plan.used == ("a", "b")
    assert only("a").pad(5) == 5 and only("a").used == ("a",)


def test_packed_rows_that_cost_less_than_one_are_padded_to() -> None:
    """The measured figures of a machine with matrix units: 16 rows cost less than one."""
    rows = (1, 8, 16, 32)
    plan = choose_plan(rows, {"plain": [17, 17, 17, 20], "packed": [16, 10.5, 11, 14]})
    assert plan.used == ("packed",)
    assert [plan.pad(n) for n in (1, 5, 8, 9, 16, 17, 32, 33)] == [8, 5, 8, 9, 16, 17, 32, 33]


def test_narrow_integers_and_wide_values_share_the_work() -> None:
    rows = (1, 8, 16, 32)
    plan = choose_plan(rows, {"packed": [16, 10.5, 11, 14], "int4": [4.5, 14, 27, 50]})
    assert [plan.kernel(n) for n in (1, 2, 8, 32, 100)] == ["int4", "packed", *["packed"] * 3]
    assert plan.pad(1) == 1
    assert plan.used == ("int4", "packed")


@given(
    num_rows=st.integers(1, len(MEASURED_ROWS)),
    data=st.data(),
    names=st.lists(st.sampled_from("abcd"), min_size=1, unique=True),
)
def test_a_plan_never_chooses_what_measured_slower(
    num_rows: int, data: st.DataObject, names: list[str]
) -> None:
    rows = MEASURED_ROWS[:num_rows]
    seconds = {
        name: data.draw(st.lists(SECONDS, min_size=num_rows, max_size=num_rows)) for name in names
    }
    plan = choose_plan(rows, seconds)
    assert set(plan.used) <= set(names)

    def cost(n: int) -> float:
        """Of n rows when padded to the next measured number."""
        at = next(i for i, measured in enumerate(rows) if measured >= n)
        return seconds[plan.kernel(n)][at]

    for n in range(1, rows[-1] + 1):
        at = next(i for i, measured in enumerate(rows) if measured >= n)
        assert cost(n) <= min(s[at] for s in seconds.values()) / WORTH_SWITCHING * (1 + 1e-9)
        padded = plan.pad(n)
        assert padded == n or (padded in rows and padded >= n)
        assert padded == n or cost(padded) < WORTH_PADDING * cost(n)
        assert padded <= max(MOST_PADDING * n, 8)
    assert plan.pad(rows[-1] + 1) == rows[-1] + 1


class FakeTime:
    """A clock that kernels advance themselves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.read = 0

    def __call__(self) -> float:
        self.read += 1
        return self.now

    def kernel(self, seconds: Callable[[int], float]) -> Callable[[], Kernel]:
        def multiply(x: Tensor, residual: Tensor | None) -> Tensor:
            self.now += seconds(x.shape[0])
            return x

        return lambda: multiply

    def linear(self, **seconds: Callable[[int], float]) -> Linear:
        makers = {name: self.kernel(of_rows) for name, of_rows in seconds.items()}
        return Linear(4, 4, makers, 64)


def test_measuring_finds_the_faster_kernel_for_each_number_of_rows() -> None:
    time = FakeTime()
    linears = [
        time.linear(narrow=lambda rows: 1.0 * rows, wide=lambda rows: 8.0 + rows / 10)
        for _ in range(3)
    ]
    plan = measure_plan(linears, torch.float32, time, on_cpu=True)
    assert [plan.kernel(n) for n in (1, 4, 16, 64, 500)] == ["narrow", "narrow", *["wide"] * 3]


def test_a_kernel_that_some_layer_lacks_does_not_compete() -> None:
    time = FakeTime()
    linears = [
        time.linear(fast=lambda rows: 1.0, slow=lambda rows: 9.0),
        time.linear(slow=lambda rows: 9.0),
    ]
    assert measure_plan(linears, torch.float32, time, on_cpu=True).used == ("slow",)


def test_where_there_is_one_kernel_nothing_is_measured() -> None:
    time = FakeTime()
    linear = dense_linear(torch.zeros(4, 4, dtype=torch.float64), None)
    assert measure_plan([linear], torch.float64, time, on_cpu=True) == only(PLAIN)
    single = time.linear(only=lambda rows: 1.0)
    assert measure_plan([single], torch.bfloat16, time, on_cpu=False) == only("only")
    assert time.read == 0


def test_layouts_that_are_not_used_are_forgotten() -> None:
    linear = dense_linear(torch.eye(4), None)
    linear.prepare(only(PLAIN))
    assert linear.kernels == ()
    with pytest.raises(AssertionError, match="prepare"):
        dense_linear(torch.eye(4), None)(torch.ones(1, 4))


def test_the_faster_dtype_is_one_of_two() -> None:
    weights = [torch.ones(32, 32), torch.ones(64, 32)]
    time = FakeTime()
    assert faster_dtype(weights, time) in (torch.float32, torch.bfloat16)
    assert time.read > 0
