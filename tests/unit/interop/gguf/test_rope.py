"""Rotary keys: what llama.cpp computes from them is what this package computes."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from blockdraft.drafter.config import RopeConfig
from blockdraft.drafter.rope import inverse_frequencies
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.gguf.file import GgufFile, Metadata, text
from blockdraft.interop.gguf.rope import parse_rope, render_rope, shortest

LLAMA3 = RopeConfig(
    rope_type="llama3",
    theta=500_000.0,
    factor=8.0,
    original_max_position_embeddings=8192,
)
YARN = RopeConfig(rope_type="yarn", theta=1e6, factor=4.0, original_max_position_embeddings=32768)


def opened(metadata: Metadata) -> GgufFile:
    return GgufFile(path=Path("m.gguf"), architecture="dflash", metadata=metadata, tensors={})


@pytest.mark.parametrize(
    "rope",
    [
        RopeConfig(),
        RopeConfig(theta=123456.789),
        RopeConfig(rope_type="linear", theta=1e6, factor=2.5),
        YARN,
        replace(YARN, attention_factor=1.25),
    ],
)
def test_keys_say_it_all(rope: RopeConfig) -> None:
    rendered = render_rope(rope, 64, "dflash", "here")
    assert rendered.factors is None
    parsed = parse_rope(opened(rendered.metadata))
    if rope.attention_factor is not None:
        assert parsed.attention_factor == pytest.approx(rope.attention_factor, rel=1e-6)
        parsed = replace(parsed, attention_factor=rope.attention_factor)
    assert parsed.theta == pytest.approx(rope.theta, rel=1e-7)
    assert replace(parsed, theta=rope.theta) == rope


def test_factors_divide_the_plain_frequencies() -> None:
    factors = render_rope(LLAMA3, 64, "llama", "here").factors
    assert factors is not None and factors.dtype == torch.float32
    plain = inverse_frequencies(RopeConfig(theta=LLAMA3.theta), 64).inverse
    torch.testing.assert_close(plain / factors, inverse_frequencies(LLAMA3, 64).inverse)
    assert float(factors[0]) == 1 and float(factors[-1]) == pytest.approx(8)


@given(st.floats(1.01, 64), st.floats(0.1, 3))
def test_llama_cpp_arrives_at_our_temperature(factor: float, attention_factor: float) -> None:
    rope = replace(YARN, factor=factor, attention_factor=attention_factor)
    key = "dflash.rope.scaling.attn_factor"
    found = render_rope(rope, 64, "dflash", "here").metadata.get(key)
    multiplier = 1.0 if found is None else found.value
    assert isinstance(multiplier, float)
    # ggml multiplies its own 1 + 0.1 ln(factor) by the key's value (llama-context.cpp).
    assert (1 + 0.1 * math.log(factor)) * multiplier == pytest.approx(attention_factor, rel=1e-6)


@pytest.mark.parametrize(
    "rope",
    [replace(YARN, beta_fast=16.0), replace(YARN, beta_slow=2.0), replace(YARN, truncate=False)],
)
def test_yarn_settings_that_llama_cpp_ignores_are_refused(rope: RopeConfig) -> None:
    with pytest.raises(ConfigError, match=r"here: YaRN with beta_fast .* use --format hf"):
        render_rope(rope, 64, "dflash", "here")


def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(CheckpointError, match="rope scaling 'longrope' is not one of"):
        parse_rope(opened({"dflash.rope.scaling.type": text("longrope")}))


def test_yarn_without_a_factor_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"yarn without a dflash\.rope\.scaling\.factor"):
        parse_rope(opened({"dflash.rope.scaling.type": text("yarn")}))


@given(st.floats(1e-30, 1e30))
def test_the_shortest_decimal_rounds_to_the_same_float32(value: float) -> None:
    single = float(torch.tensor(value, dtype=torch.float32))
    assert float(torch.tensor(shortest(single), dtype=torch.float32)) == single


@pytest.mark.parametrize("value", [1e-6, 1e-5, 10_000.0, 500_000.0, 0.1, 5e6])
def test_numbers_that_people_write_come_back(value: float) -> None:
    assert shortest(float(torch.tensor(value, dtype=torch.float32))) == value
