"""Weight-only quantization to 8 and 4 bits, with wide kernels that read the very same values.

A narrow pass reads the small integers; a wide one is faster in the model's dtype. So that plain
decoding and verification stay one model, both must multiply by equal weights: the values are
chosen such that the model's dtype holds them exactly.

    int8   w = scale[out] * q, |q| <= 127: q itself fits into bfloat16 (8 bits); the scale is
           applied to the product, in both kernels
    int4   w = scale[out, group] * q, -8 <= q <= 7: a scale rounded to 5 significant bits times q
           (at most 3) fits into bfloat16's 8
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from blockdraft.native.linear import (
    PACKED,
    PLAIN,
    Kernel,
    Linear,
    MakeKernel,
    can_pack,
    packed_kernel,
    plain_kernel,
)

Quantize = Literal["int8", "int4"]

INT8 = "int8"
"""`aten::_weight_int8pack_mm`."""

INT4 = "int4"
"""`aten::_weight_int4pack_mm_for_cpu`, groups of `GROUP` inputs."""

GROUP = 32
_SCALE_BITS = 5


def quantized_linear(
    weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None, bits: Quantize
) -> Linear:
    """A product with a quantized copy of `weight`, by every kernel that exists for it here."""
    return (_int8 if bits == "int8" else _int4)(weight, bias)


def int8_values(
    weight: Float[Tensor, "out in"],
) -> tuple[Int[Tensor, "out in"], Float[Tensor, " out"]]:
    """Integers and a scale for each output: weight ~ scale * integers, rounded to nearest."""
    scale = weight.float().abs().amax(1).clamp_min(1e-12) / 127
    scale = scale.to(weight.dtype)
    integers = (weight.float() / scale.float()[:, None]).round().clamp(-127, 127)
    return integers.to(torch.int8), scale


def int4_values(
    weight: Float[Tensor, "out in"],
) -> tuple[Int[Tensor, "out in"], Float[Tensor, "out groups"]]:
    """Integers in [-8, 7] and a scale for each group of inputs, of few significant bits."""
    grouped = weight.float().view(weight.shape[0], -1, GROUP)
    extreme = grouped.gather(-1, grouped.abs().argmax(-1, keepdim=True))[..., 0]
    # The largest magnitude becomes -8, so the scale has the opposite sign of it.
    scale = few_bits(-extreme / 8)
    safe = torch.where(scale == 0, torch.ones_like(scale), scale)
    integers = (grouped / safe[..., None]).round().clamp(-8, 7)
    return integers.flatten(1).to(torch.int8), scale


def few_bits(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """`values` rounded to `_SCALE_BITS` significant bits."""
    mantissa, exponent = torch.frexp(values)
    steps = 2**_SCALE_BITS
    return torch.ldexp((mantissa * steps).round() / steps, exponent)


def _int8(weight: Tensor, bias: Tensor | None) -> Linear:
    integers, scale = int8_values(weight)

    def narrow() -> Kernel:
        return _finish(lambda x: torch.ops.aten._weight_int8pack_mm(x, integers, scale), None, bias)

    def wide(make: Callable[[Tensor, None], Kernel]) -> MakeKernel:
        def laid_out() -> Kernel:
            exact = make(integers.to(weight.dtype), None)
            return _finish(lambda x: exact(x, None), scale, bias)

        return laid_out

    makers: dict[str, MakeKernel] = {PLAIN: wide(plain_kernel)}
    if can_pack(weight):
        makers[PACKED] = wide(packed_kernel)
    if weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16):
        makers[INT8] = narrow
    num_bytes = integers.numel() + scale.numel() * scale.element_size()
    return Linear(weight.shape[1], weight.shape[0], makers, num_bytes)


def _int4(weight: Tensor, bias: Tensor | None) -> Linear:
    num_out, num_in = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -num_in % GROUP))
    integers, scale = int4_values(padded)
    dtype = weight.dtype

    def exact() -> Tensor:
        values = integers.float().view(num_out, -1, GROUP) * scale[..., None]
        return values.flatten(1)[:, :num_in].to(dtype)

    def narrow() -> Kernel:
        packed: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(integers.int() + 8, 1)
        scales_and_zeros = torch.stack((scale, torch.zeros_like(scale)), dim=-1)
        scales_and_zeros = scales_and_zeros.transpose(0, 1).contiguous().to(dtype)
        return _finish(
            lambda x: torch.ops.aten._weight_int4pack_mm_for_cpu(
                x, packed, GROUP, scales_and_zeros
            ),
            None,
            bias,
        )

    makers: dict[str, MakeKernel] = {PLAIN: lambda: plain_kernel(exact(), bias)}
    if can_pack(weight):
        makers[PACKED] = lambda: packed_kernel(exact(), bias)
    fits = num_in % GROUP == 0 and num_out % 16 == 0
    if weight.device.type == "cpu" and dtype in (torch.float32, torch.bfloat16) and fits:
        makers[INT4] = narrow
    num_bytes = integers.numel() // 2 + scale.numel() * 2 * weight.element_size()
    return Linear(num_in, num_out, makers, num_bytes)


def _finish(
    product: Callable[[Tensor], Tensor], scale: Tensor | None, bias: Tensor | None
) -> Kernel:
    """A kernel that applies scale, bias and residual to a bare product."""

    def multiply(x: Tensor, residual: Tensor | None) -> Tensor:
        y = product(x)
        if scale is not None:
            y = y * scale
        if bias is not None:
            y = y + bias
        return y if residual is None else residual + y

    return multiply
