"""Quantized weights: every kernel multiplies by the very same values, at every number of rows."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.decoding import NoDrafter, SamplingParams, collect, decode
from blockdraft.native import NativeOptions, NativeTarget
from blockdraft.native.config import read_native_config
from blockdraft.native.linear import Linear, dense_linear, only
from blockdraft.native.model import NativeModel
from blockdraft.native.quantized import (
    GROUP,
    INT4,
    Quantize,
    few_bits,
    int4_values,
    int8_values,
    quantized_linear,
)
from blockdraft.native.segments import Segment
from blockdraft.native.weights import take_weights
from blockdraft.testing import OracleDrafter, TinySize, tiny_model

DTYPES = (torch.float32, torch.bfloat16)
BITS: tuple[Quantize, ...] = ("int8", "int4")


def weight_of(num_out: int, num_in: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_out, num_in, generator=generator).to(dtype)


def exact_values(weight: Tensor, bits: Quantize) -> Tensor:
    """What the quantized weight stands for, in float64."""
    if bits == "int8":
        integers, scale = int8_values(weight)
        return integers.double() * scale.double()[:, None]
    padded = torch.nn.functional.pad(weight, (0, -weight.shape[1] % GROUP))
    integers, scale = int4_values(padded)
    values = integers.double() * scale.double().repeat_interleave(GROUP, 1)
    return values[:, : weight.shape[1]]


def relative_error(got: Tensor, want: Tensor) -> float:
    """Largest difference in units of the root mean square."""
    return float((got.double() - want).abs().max() / want.square().mean().sqrt())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_every_kernel_gives_the_same_product_at_every_row_count(
    bits: Quantize, dtype: torch.dtype, with_bias: bool
) -> None:
    weight = weight_of(48, 96, dtype)
    bias = torch.linspace(-2, 2, 48).to(dtype) if with_bias else None
    values = exact_values(weight, bits)
    linear = quantized_linear(weight, bias, bits)
    assert set(linear.kernels) >= {"plain", bits}
    x = weight_of(40, 96, dtype, seed=1)
    residual = weight_of(40, 48, dtype, seed=2)
    want = x.double() @ values.T + (0 if bias is None else bias.double())
    # A bfloat16 result is rounded two or three times, each by at most 2**-9 of it; results reach
    # four times their root mean square.
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    for name in linear.kernels:
        linear.prepare(only(name), final=False)
        for rows in range(1, 41):
            assert relative_error(linear(x[:rows]), want[:rows]) < tolerance, (name, rows)
            added = linear(x[:rows], residual[:rows])
            assert relative_error(added, want[:rows] + residual[:rows].double()) < tolerance


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", BITS)
def test_quantized_values_are_held_exactly_and_are_near(bits: Quantize, dtype: torch.dtype) -> None:
    """The wide kernels read the model's dtype, so it must hold each value exactly."""
    weight = weight_of(40, 128, dtype)
    values = exact_values(weight, bits)
    if bits == "int8":
        integers, scale = int8_values(weight)
        assert torch.equal(integers.to(dtype).double(), integers.double())
        assert int(integers.abs().max()) <= 127
        limit = 0.51 * scale.double()[:, None] + 0.01 * weight.double().abs()
    else:
        integers, scale = int4_values(weight)
        assert torch.equal(values.to(dtype).double(), values)
        assert int(integers.min()) >= -8 and int(integers.max()) <= 7
        # Half a step; a whole one at the other end, since 8 doesn't exist.
        limit = 1.3 * scale.double().abs().repeat_interleave(GROUP, 1)
    assert bool(((values - weight.double()).abs() <= limit).all())


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False))
def test_few_bits_is_near_and_times_any_small_integer_exact(value: float) -> None:
    rounded = few_bits(torch.tensor([value]))
    if not bool(rounded.isfinite()):
        # Rounding up the very largest number overflows; weights are nowhere near.
        assert abs(value) > 3e38
        return
    assert abs(float(rounded) - value) <= 2.0**-5 * abs(value)
    if 1e-30 < abs(value) < 1e30:
        products = rounded.double() * torch.arange(-8, 8)
        assert torch.equal(products.to(torch.bfloat16).double(), products)


def test_rows_and_groups_of_zeros_stay_zeros() -> None:
    weight = torch.zeros(16, 64)
    weight[3, 40] = 2.0
    x = torch.ones(3, 64)
    for bits in BITS:
        linear = quantized_linear(weight, None, bits)
        for name in linear.kernels:
            linear.prepare(only(name), final=False)
            torch.testing.assert_close(linear(x), x @ weight.T, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("num_out", "num_in"), [(33, 50), (16, 31), (7, 32)])
@pytest.mark.parametrize("bits", BITS)
def test_odd_sizes_take_the_kernels_that_fit(bits: Quantize, num_out: int, num_in: int) -> None:
    weight = weight_of(num_out, num_in, torch.float32)
    linear = quantized_linear(weight, None, bits)
    assert INT4 not in linear.kernels
    x = weight_of(5, num_in, torch.float32, seed=1)
    want = x.double() @ exact_values(weight, bits).T
    for name in linear.kernels:
        linear.prepare(only(name), final=False)
        assert relative_error(linear(x), want) < 1e-5


def quantized_model(bits: Quantize, dtype: torch.dtype, kernel: str) -> NativeModel:
    model = tiny_model("qwen3", dtype=dtype)
    config = read_native_config(model.config)
    make = partial(quantized_linear, bits=bits)
    weights = take_weights(model.eval(), config, make)
    for linear in weights.linears:
        linear.prepare(only(kernel))
    return NativeModel(config, weights, only(kernel))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", BITS)
def test_a_whole_model_has_the_same_logits_by_every_kernel(
    bits: Quantize, dtype: torch.dtype
) -> None:
    sample = quantized_linear(weight_of(32, 32, dtype), None, bits)
    models = [quantized_model(bits, dtype, name) for name in sample.kernels]
    # Not id 0: the embedding of a padding token is zero.
    ids = 1 + torch.arange(40) * 11 % 95
    # In bfloat16 three layers of roundings add up; one integer read wrongly moves logits by 1.
    tolerance = 1e-3 if dtype == torch.float32 else 0.3
    for rows in (1, 2, 5, 16, 17, 40):
        logits = [
            m.forward(ids[:rows], [Segment(0, 0, rows)], m.new_pool(40)).logits for m in models
        ]
        for other in logits[1:]:
            assert relative_error(other, logits[0].double()) < tolerance


@pytest.mark.parametrize("bits", BITS)
def test_plain_and_drafted_text_of_a_quantized_target_agree(bits: Quantize) -> None:
    """One row reads integers, several rows the wide values: the same model (fp32)."""
    target = NativeTarget(
        tiny_model("qwen3", dtype=torch.float32), options=NativeOptions(quantize=bits)
    )
    assert target.quantize == bits
    params = SamplingParams(max_new_tokens=60, ignore_eos=True)
    plain = collect((5, 6, 7), decode(target, NoDrafter(), (5, 6, 7), params))
    drafter = OracleDrafter(target, 9, num_right=5)
    drafted = collect((5, 6, 7), decode(target, drafter, (5, 6, 7), params))
    assert plain.token_ids == drafted.token_ids


def test_a_model_of_odd_sizes_falls_back_as_a_whole() -> None:
    """Its head has 97 rows, which the narrow int4 kernel can't take: no layer uses it then."""
    model = tiny_model("llama", dtype=torch.float32, size=TinySize(vocab_size=97, hidden_size=40))
    target = NativeTarget(model, options=NativeOptions(quantize="int4"))
    assert INT4 not in target.model.plan.used
    assert bool(target.open().prefill(torch.arange(9)).logits.isfinite().all())


def test_dense_products_agree_and_report_their_size() -> None:
    for dtype in DTYPES:
        weight = weight_of(24, 40, dtype)
        linear: Linear = dense_linear(weight, None)
        assert linear.num_bytes == 24 * 40 * dtype.itemsize
        x = weight_of(9, 40, dtype, seed=1)
        want = x.double() @ weight.double().T
        for name in linear.kernels:
            linear.prepare(only(name), final=False)
            assert relative_error(linear(x), want) < (1e-5 if dtype == torch.float32 else 0.05)
            assert torch.equal(linear.run(name, x), linear(x))
