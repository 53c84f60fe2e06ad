"""Rotary embedding as llama.cpp takes it: metadata keys, and factors for each frequency.

It refuses what llama.cpp can't be told; formulas: `drafter/rope.py`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from blockdraft.drafter.config import RopeConfig
from blockdraft.drafter.rope import inverse_frequencies
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.gguf.file import GgufFile, Metadata, f32, text, u32

FACTORS_NAME = "rope_freqs.weight"

_SCALING_TYPES = ("none", "linear", "yarn")
_DEFAULTS = RopeConfig()


class GgufRope(NamedTuple):
    """`factors` divide the frequencies one by one, float32; None when the keys say it all."""

    metadata: Metadata
    factors: Float[Tensor, " freqs"] | None


def render_rope(rope: RopeConfig, head_dim: int, architecture: str, where: str) -> GgufRope:
    """The keys (and factors) of `rope`; ConfigError for a scaling that llama.cpp has no key for."""
    prefix = f"{architecture}.rope"
    metadata: Metadata = {
        f"{prefix}.dimension_count": u32(head_dim),
        f"{prefix}.freq_base": f32(rope.theta),
    }
    factors: Tensor | None = None
    if rope.rope_type == "linear":
        metadata[f"{prefix}.scaling.type"] = text("linear")
        metadata[f"{prefix}.scaling.factor"] = f32(rope.factor)
    elif rope.rope_type == "yarn":
        metadata |= _yarn(rope, head_dim, prefix, where)
    elif rope.rope_type == "llama3":
        plain = inverse_frequencies(RopeConfig(theta=rope.theta), head_dim)
        factors = plain.inverse / inverse_frequencies(rope, head_dim).inverse
    return GgufRope(metadata, factors)


def parse_rope(file: GgufFile) -> RopeConfig:
    """The rotary embedding that the keys of a file describe; factors must be read with our own
    record of the configuration, since they don't say how they were made.

    Raises CheckpointError for keys that make no sense or ask for something else.
    """
    prefix = f"{file.architecture}.rope"
    theta = shortest(optional_number(file, f"{prefix}.freq_base", 10_000.0))
    factor = shortest(optional_number(file, f"{prefix}.scaling.factor", 1.0))
    found = file.metadata.get(f"{prefix}.scaling.type")
    scaling = "linear" if found is None else found.value
    if scaling not in _SCALING_TYPES:
        raise CheckpointError(
            f"{file.path}: rope scaling {scaling!r} is not one of {', '.join(_SCALING_TYPES)};"
            " a drafter with it can't be read"
        )
    if scaling == "yarn":
        if f"{prefix}.scaling.factor" not in file.metadata:
            raise CheckpointError(
                f"{file.path}: rope scaling is yarn without a {prefix}.scaling.factor, so it can't"
                " be computed; convert the drafter again from its own checkpoint"
            )
        original = optional_number(file, f"{prefix}.scaling.original_context_length", 0.0)
        temperature = optional_number(file, f"{prefix}.scaling.attn_factor", 1.0)
        default = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
        return RopeConfig(
            rope_type="yarn",
            theta=theta,
            factor=factor,
            original_max_position_embeddings=int(original) or None,
            attention_factor=None if temperature == 1 else shortest(temperature * default),
        )
    if scaling == "none" or factor == 1:
        return RopeConfig(theta=theta)
    return RopeConfig(rope_type="linear", theta=theta, factor=factor)


def optional_number(file: GgufFile, key: str, default: float) -> float:
    """A number of the metadata; CheckpointError for something else under that key."""
    found = file.metadata.get(key)
    if found is None:
        return default
    value = found.value
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise CheckpointError(f"{file.path}: key {key} is {value!r}, expected a number: fetch it again")


def shortest(value: float) -> float:
    """The decimal number that people wrote before it was stored in float32: 1e-06, not 1.0000000e-6
    with float32's rounding spelled out.
    """
    single = torch.tensor(value, dtype=torch.float32)
    for digits in range(1, 10):
        rounded = float(f"{value:.{digits}g}")
        if bool(torch.tensor(rounded, dtype=torch.float32) == single):
            return rounded
    return value


def _yarn(rope: RopeConfig, head_dim: int, prefix: str, where: str) -> Metadata:
    defaults = (_DEFAULTS.beta_fast, _DEFAULTS.beta_slow, True)
    if (rope.beta_fast, rope.beta_slow, rope.truncate) != defaults:
        raise ConfigError(
            f"{where}: YaRN with beta_fast {rope.beta_fast}, beta_slow {rope.beta_slow}, truncate"
            f" {rope.truncate} can't be written as GGUF: llama.cpp computes it with 32, 1 and true"
            " whatever the file says; use --format hf"
        )
    original_len = rope.original_max_position_embeddings
    assert original_len is not None  # RopeConfig has checked it
    metadata: Metadata = {
        f"{prefix}.scaling.type": text("yarn"),
        f"{prefix}.scaling.factor": f32(rope.factor),
        f"{prefix}.scaling.original_context_length": u32(original_len),
    }
    # llama.cpp's own temperature is 0.1 ln(factor) + 1; the key multiplies it.
    own = 0.1 * math.log(rope.factor) + 1.0
    temperature = inverse_frequencies(rope, head_dim).scale / own
    if not math.isclose(temperature, 1.0, rel_tol=1e-7):
        metadata[f"{prefix}.scaling.attn_factor"] = f32(temperature)
    return metadata
