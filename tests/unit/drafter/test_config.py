"""The drafter's configuration: what it refuses, and which layer sees what."""

from dataclasses import replace

import pytest

from blockdraft.drafter import DrafterConfig, MaskRule, RopeConfig
from blockdraft.errors import ConfigError


@pytest.mark.parametrize(
    ("is_causal", "expected"),
    [
        (None, (MaskRule(True, 4), MaskRule(False, None))),
        (True, (MaskRule(True, 4), MaskRule(True, None))),
        (False, (MaskRule(False, 4), MaskRule(False, None))),
    ],
)
def test_layer_type_decides_causality_unless_overridden(
    config: DrafterConfig, is_causal: bool | None, expected: tuple[MaskRule, MaskRule]
) -> None:
    config = replace(config, is_causal=is_causal)
    assert (config.mask_rule(0), config.mask_rule(1)) == expected


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps"),
        ({"head_dim": 7}, "head_dim"),
        ({"num_kv_heads": 3}, "num_kv_heads"),
        ({"block_size": 1}, "block_size"),
        ({"block_size": 257}, "block_size is 257, expected at most the position limit 256"),
        ({"mask_token_id": 40}, "mask_token_id is 40, expected inside the vocabulary of 40"),
        ({"mask_token_id": -1}, "mask_token_id"),
        ({"taps": ()}, "taps"),
        ({"taps": (1, 1)}, "without repetition"),
        ({"taps": (-1, 2)}, "zero-based"),
        ({"taps": (1, 5)}, "the last layer of a 6-layer target"),
        ({"taps": (1, 9)}, "taps"),
        ({"layer_types": ("full_attention",)}, "layer_types"),
        ({"sliding_window": None}, "sliding_window"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"draft_vocab_size": 41}, "draft_vocab_size"),
        ({"final_logit_softcapping": -1.0}, "final_logit_softcapping"),
    ],
)
def test_refuses_bad_values(config: DrafterConfig, changes: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError) as raised:
        replace(config, **changes)  # pyright: ignore[reportArgumentType]: one table for all fields
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"theta": 1.0}, "theta"),
        ({"factor": 0.5}, "factor"),
        ({"beta_fast": 0.0}, "beta_fast"),
        ({"rope_type": "yarn"}, "original_max_position_embeddings"),
        (
            {
                "rope_type": "llama3",
                "original_max_position_embeddings": 64,
                "low_freq_factor": 4.0,
            },
            "low_freq_factor",
        ),
    ],
)
def test_refuses_bad_rope_values(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        RopeConfig(**changes)  # pyright: ignore[reportArgumentType]: one table for all fields


def test_yarn_extends_the_position_limit(config: DrafterConfig) -> None:
    yarn = RopeConfig(rope_type="yarn", factor=4.0, original_max_position_embeddings=100)
    assert config.position_limit == 256
    assert replace(config, rope=yarn).position_limit == 400
    assert replace(config, rope=yarn, max_position_embeddings=500).position_limit == 500
