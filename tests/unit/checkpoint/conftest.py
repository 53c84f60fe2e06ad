"""A small checkpoint folder to load, and to damage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from blockdraft.checkpoint import DrafterCheckpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.drafter import DrafterConfig

MakeCheckpoint = Callable[[DrafterConfig], DrafterCheckpoint]


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


@pytest.fixture
def make_checkpoint() -> MakeCheckpoint:
    """Random weights of every tensor that the configuration asks for."""

    def make(config: DrafterConfig) -> DrafterCheckpoint:
        state = {name: torch.randn(shape) for name, shape in expected_shapes(config).items()}
        return DrafterCheckpoint(config=config, state=state, source="memory")

    return make


@pytest.fixture
def golden_folder(tmp_path: Path, data_dir: Path) -> Path:
    """A copy of a recorded checkpoint (3 taps of hidden size 64, vocabulary 320, 3 layers)."""
    folder = tmp_path / "drafter"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        source = data_dir / "golden" / "v1_sliding_mixed" / name
        shutil.copyfile(source, folder / name)
    return folder
