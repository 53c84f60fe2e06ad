"""The small drafter configuration that tests of several packages share."""

import pytest

from blockdraft.drafter import DrafterConfig


@pytest.fixture
def config() -> DrafterConfig:
    return DrafterConfig(
        hidden_size=16,
        intermediate_size=24,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        rms_norm_eps=1e-6,
        vocab_size=40,
        block_size=5,
        mask_token_id=3,
        taps=(1, 3),
        num_target_layers=6,
        layer_types=("sliding_attention", "full_attention"),
        sliding_window=4,
        max_position_embeddings=256,
    )
