"""Passes of fixed shapes against `NativeModel.forward`, and what happens without a compiler."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.native.config import read_native_config
from blockdraft.native.linear import PLAIN, dense_linear, only
from blockdraft.native.model import NativeModel
from blockdraft.native.segments import Segment
from blockdraft.native.static import MOST_WIDTH, StaticInputs, StaticOutputs, StaticPasses
from blockdraft.native.weights import take_weights
from blockdraft.testing import tiny_model
from blockdraft.testing.tiny import Family

TAPS = (0, 2)
Pass = Callable[[StaticInputs], StaticOutputs]


@cache
def model_of(family: Family) -> NativeModel:
    model = tiny_model(family)
    config = read_native_config(model.config)
    weights = take_weights(model.eval(), config, dense_linear)
    for linear in weights.linears:
        linear.prepare(only(PLAIN))
    return NativeModel(config, weights, only(PLAIN))


@pytest.mark.parametrize("family", ["qwen3", "mistral", "qwen2_sliding"])
@given(
    shapes=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 7)), min_size=1, max_size=5),
    gap=st.integers(0, 3),
)
def test_fixed_shapes_equal_the_plain_pass(
    family: Family, shapes: list[tuple[int, int]], gap: int
) -> None:
    """Logits, features and the pool's rows; rows of others hold NaN, as a faulty request's may."""
    model = model_of(family)
    bases = [gap + i * (40 + gap) for i in range(len(shapes))]
    plain = model.new_pool(bases[-1] + 41)
    plain.tensor.fill_(torch.nan)
    segments: list[Segment] = []
    for base, (context_len, num_rows) in zip(bases, shapes, strict=True):
        prompt = (torch.arange(context_len) * 5 + base) % 96
        model.forward(prompt, [Segment(base, 0, context_len)], plain, asked=[])
        segments.append(Segment(base, context_len, num_rows))
    ids = torch.arange(sum(segment.num_rows for segment in segments)) * 7 % 96
    fixed = model.new_pool(plain.num_rows)
    fixed.tensor.copy_(plain.tensor)
    passes = StaticPasses(model, fixed, TAPS, compiled=False, insists=True)
    got = passes.run(ids, segments)
    want = model.forward(ids, segments, plain, taps=TAPS)
    assert got is not None and got.features is not None and want.features is not None
    torch.testing.assert_close(got.logits, want.logits, atol=1e-9, rtol=0)
    torch.testing.assert_close(got.features, want.features, atol=1e-9, rtol=0)
    used = slice(0, plain.num_rows - 1)
    torch.testing.assert_close(
        fixed.tensor[:, :, :, used], plain.tensor[:, :, :, used], atol=1e-9, rtol=0, equal_nan=True
    )


def test_what_has_no_fixed_shape_is_left_to_the_plain_pass() -> None:
    model = model_of("qwen3")
    passes = StaticPasses(model, model.new_pool(100), (), compiled=False, insists=True)
    wide = Segment(0, 0, MOST_WIDTH + 1)
    assert passes.run(torch.zeros(wide.num_rows, dtype=torch.long), [wide]) is None
    tree = Segment(0, 0, 3, (-1, 0, 0))
    assert passes.run(torch.tensor([1, 2, 3]), [tree]) is None


def test_without_taps_there_are_no_features() -> None:
    model = model_of("qwen3")
    output = StaticPasses(model, model.new_pool(20), (), compiled=False, insists=True).run(
        torch.tensor([5, 6]), [Segment(3, 0, 2)]
    )
    assert output is not None and output.features is None


def test_a_compiler_that_fails_is_reported_once_and_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_compiler(run: Pass, *, dynamic: bool) -> Pass:
        def compiled(inputs: StaticInputs) -> StaticOutputs:
            raise RuntimeError("no C++ compiler\nand a long story")

        return compiled

    monkeypatch.setattr(torch, "compile", no_compiler)
    model = model_of("qwen3")
    pool = model.new_pool(600)
    passes = StaticPasses(model, pool, (), compiled=True, insists=True)
    for num_rows in (2, 3):
        output = passes.run(torch.arange(num_rows) + 5, [Segment(3, 0, num_rows)])
        want = model.forward(
            torch.arange(num_rows) + 5, [Segment(0, 0, num_rows)], model.new_pool(9)
        )
        assert output is not None
        torch.testing.assert_close(output.logits, want.logits, atol=1e-9, rtol=0)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["torch.compile failed (RuntimeError: no C++ compiler); going on without it"]


def test_a_compiled_pass_is_made_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    num_made: list[int] = []

    def compiler(run: Pass, *, dynamic: bool) -> Pass:
        num_made.append(1)
        return run

    monkeypatch.setattr(torch, "compile", compiler)
    model = model_of("qwen3")
    passes = StaticPasses(model, model.new_pool(300), (), compiled=True, insists=True)
    for context_len in (0, 1, 9, 30):
        passes.run(torch.tensor([5, 6]), [Segment(0, context_len, 2)])
    assert len(num_made) == 1
    passes.run(torch.tensor([5, 6, 7]), [Segment(0, 2, 3)])
    passes.run(torch.tensor([5, 6, 7, 8]), [Segment(0, 2, 2), Segment(40, 2, 2)])
    assert len(num_made) == 3


def test_without_a_compiler_a_cpu_takes_the_plain_pass() -> None:
    model = model_of("qwen3")
    passes = StaticPasses(model, model.new_pool(20), (), compiled=False)
    assert passes.run(torch.tensor([5, 6]), [Segment(3, 0, 2)]) is None


def test_compiled_passes_that_are_slower_are_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slow_compiler(run: Pass, *, dynamic: bool) -> Pass:
        def compiled(inputs: StaticInputs) -> StaticOutputs:
            for _ in range(20):
                run(inputs)
            return run(inputs)

        return compiled

    monkeypatch.setattr(torch, "compile", slow_compiler)
    model = model_of("qwen3")
    passes = StaticPasses(model, model.new_pool(20), (), compiled=True)
    for _ in range(2):
        assert passes.run(torch.tensor([5, 6]), [Segment(3, 0, 2)]) is None
    (message,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert message.startswith("compiled passes are slower here")
