"""Rotary position embedding: frequencies with and without scaling, and the rotation itself.

It keeps no table over positions; cosines are computed for the positions asked for.
Formulas: RoPE (arXiv 2104.09864), YaRN (arXiv 2309.00071), Llama 3.1's frequency bands.

Shape legend: rows = tokens, dim = head_dim, freqs = head_dim / 2.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from blockdraft.drafter.config import RopeConfig


class Frequencies(NamedTuple):
    """Inverse frequencies in fp32 (radians per position) and the scale of cosines and sines."""

    inverse: Float[Tensor, " freqs"]
    scale: float


class Rotation(NamedTuple):
    """Cosines and sines of a set of positions, each [batch, rows, dim]."""

    cos: Float[Tensor, "batch rows dim"]
    sin: Float[Tensor, "batch rows dim"]


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Frequencies:
    """The frequencies that `rope` describes, computed in fp32 on the CPU."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
    base = 1.0 / (rope.theta**exponents)
    if rope.rope_type == "linear":
        return Frequencies(base / rope.factor, 1.0)
    if rope.rope_type == "llama3":
        return Frequencies(_llama3(base, rope), 1.0)
    if rope.rope_type == "yarn":
        return Frequencies(_yarn(base, rope, head_dim), _yarn_scale(rope))
    return Frequencies(base, 1.0)


def rotation(
    frequencies: Frequencies, positions: Int[Tensor, "batch rows"], dtype: torch.dtype
) -> Rotation:
    """Cosines and sines of absolute `positions`, computed in fp32 and cast to `dtype`."""
    angles = positions[..., None].float() * frequencies.inverse
    angles = torch.cat((angles, angles), dim=-1)
    cos = angles.cos() * frequencies.scale
    sin = angles.sin() * frequencies.scale
    return Rotation(cos.to(dtype), sin.to(dtype))


def rotate(
    states: Float[Tensor, "batch heads rows dim"], by: Rotation
) -> Float[Tensor, "batch heads rows dim"]:
    """Rotate each head's halves (GPT-NeoX layout) by the angle of its row's position."""
    first, second = states.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return states * by.cos.unsqueeze(1) + turned * by.sin.unsqueeze(1)


def _original_len(rope: RopeConfig) -> int:
    assert rope.original_max_position_embeddings is not None  # RopeConfig has checked it
    return rope.original_max_position_embeddings


def _llama3(base: Tensor, rope: RopeConfig) -> Tensor:
    """Long waves are slowed by `factor`, short ones kept, those between blended linearly."""
    original_len = _original_len(rope)
    turns = original_len * base / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return (1 - blend) * base / rope.factor + blend * base


def _yarn(base: Tensor, rope: RopeConfig, head_dim: int) -> Tensor:
    """Blend of slowed and original frequencies between two rotation counts (YaRN, eq. 22-23)."""
    original_len = _original_len(rope)

    def dimension_of(num_turns: float) -> float:
        ratio = original_len / (num_turns * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(rope.theta))

    low, high = dimension_of(rope.beta_fast), dimension_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # a ramp of no width would divide by zero
    ramp = (torch.arange(head_dim // 2, dtype=torch.float32, device="cpu") - low) / (high - low)
    slowed = ramp.clamp(0.0, 1.0)
    return (base / rope.factor) * slowed + base * (1 - slowed)


def _yarn_scale(rope: RopeConfig) -> float:
    """The factor on cosines and sines, which acts as an attention temperature."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return _log_scale(rope.factor, rope.mscale) / _log_scale(rope.factor, rope.mscale_all_dim)
    return _log_scale(rope.factor, 1.0)


def _log_scale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
