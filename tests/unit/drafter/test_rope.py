"""Rotary embeddings against transformers' own functions."""

from dataclasses import asdict

import pytest
import torch
from transformers import Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from blockdraft.drafter import BlockDrafter, DrafterConfig, RopeConfig
from blockdraft.drafter.rope import inverse_frequencies, rotate, rotation

_YARN = RopeConfig(rope_type="yarn", factor=8.0, original_max_position_embeddings=64)

_ROPES = {
    "default": RopeConfig(theta=1e6),
    "linear": RopeConfig(rope_type="linear", factor=4.0),
    "llama3": RopeConfig(
        rope_type="llama3", theta=5e5, factor=8.0, original_max_position_embeddings=8192
    ),
    "llama3 bands": RopeConfig(
        rope_type="llama3",
        factor=32.0,
        low_freq_factor=2.0,
        high_freq_factor=8.0,
        original_max_position_embeddings=512,
    ),
    "yarn": _YARN,
    "yarn scale given": RopeConfig(
        rope_type="yarn",
        factor=8.0,
        attention_factor=0.7,
        beta_fast=16.0,
        beta_slow=2.0,
        original_max_position_embeddings=128,
    ),
    "yarn mscale": RopeConfig(
        rope_type="yarn",
        factor=64.0,
        mscale=1.0,
        mscale_all_dim=0.5,
        original_max_position_embeddings=4096,
    ),
    "yarn mscale equal": RopeConfig(
        rope_type="yarn",
        theta=5e4,
        factor=64.0,
        mscale=1.0,
        mscale_all_dim=1.0,
        original_max_position_embeddings=4096,
    ),
    "yarn not truncated": RopeConfig(
        rope_type="yarn",
        theta=1.5e5,
        factor=32.0,
        truncate=False,
        original_max_position_embeddings=4096,
    ),
    "yarn ramp of no width": RopeConfig(
        rope_type="yarn",
        factor=4.0,
        beta_fast=4.0,
        beta_slow=4.0,
        truncate=False,
        original_max_position_embeddings=2048,
    ),
    "yarn factor 1": RopeConfig(
        rope_type="yarn", factor=1.0, original_max_position_embeddings=4096
    ),
}


def _reference_config(rope: RopeConfig, head_dim: int) -> Qwen3Config:
    parameters = {name: value for name, value in asdict(rope).items() if value is not None}
    parameters["rope_theta"] = parameters.pop("theta")
    if rope.rope_type in ("default", "linear"):
        parameters = {name: parameters[name] for name in ("rope_type", "rope_theta", "factor")}
    if rope.rope_type != "llama3":
        parameters.pop("low_freq_factor", None)
        parameters.pop("high_freq_factor", None)
    else:
        for name in ("beta_fast", "beta_slow", "truncate"):
            parameters.pop(name)
    if rope.rope_type == "default":
        parameters.pop("factor")
    return Qwen3Config(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=32768,
        rope_parameters=parameters,
    )


@pytest.mark.parametrize("head_dim", [32, 64, 128])
@pytest.mark.parametrize("rope", _ROPES.values(), ids=_ROPES.keys())
def test_frequencies_and_rotation_equal_transformers(rope: RopeConfig, head_dim: int) -> None:
    reference_config = _reference_config(rope, head_dim)
    ours = inverse_frequencies(rope, head_dim)
    if rope.rope_type != "default":
        inverse, scale = ROPE_INIT_FUNCTIONS[rope.rope_type](reference_config)
        torch.testing.assert_close(ours.inverse, inverse, rtol=1e-6, atol=0)
        assert ours.scale == pytest.approx(scale, rel=1e-12)
    reference = Qwen3RotaryEmbedding(reference_config)
    positions = torch.tensor([[0, 1, 63, 64, 1000], [5, 6, 7, 8, 32000]])
    states = torch.randn(2, 3, 5, head_dim)
    by = rotation(ours, positions, torch.float32)
    cos, sin = reference(states, positions)
    torch.testing.assert_close(by.cos, cos, rtol=0, atol=3e-3)  # fp32 angles of 32,000 rad
    torch.testing.assert_close(by.cos[:, :4], cos[:, :4], rtol=0, atol=2e-4)
    torch.testing.assert_close(by.sin[:, :4], sin[:, :4], rtol=0, atol=2e-4)
    half = head_dim // 2
    pairs = torch.complex(states[..., :half], states[..., half:])
    turned = pairs * torch.complex(by.cos, by.sin)[:, None, :, :half]
    torch.testing.assert_close(rotate(states, by), torch.cat((turned.real, turned.imag), -1))


def test_rotation_depends_on_relative_position_only() -> None:
    frequencies = inverse_frequencies(RopeConfig(), 16)
    query, key = torch.randn(2, 1, 1, 1, 16).double()

    def score(query_position: int, key_position: int) -> float:
        turned = [
            rotate(states, rotation(frequencies, torch.tensor([[position]]), torch.float64))
            for states, position in ((query, query_position), (key, key_position))
        ]
        return float((turned[0] * turned[1]).sum())

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-4)


def test_casting_the_model_keeps_frequencies_in_fp32(
    config: DrafterConfig, model: BlockDrafter
) -> None:
    """Only cosines and sines are cast: angles in bf16 would be off by whole radians."""
    cache = model.to(torch.bfloat16).new_cache()
    model.extend(cache, torch.randn(1, 200, 32, dtype=torch.bfloat16))
    model.to(torch.float32)
    fresh = BlockDrafter(config).requires_grad_(False)
    fresh.load_state_dict(model.state_dict())
    embeddings = torch.randn(1, 3, 16)
    outputs = [m.hidden(embeddings, m.new_cache()) for m in (model, fresh)]
    assert torch.equal(outputs[0], outputs[1])
    assert not any("freq" in name for name in model.state_dict())
