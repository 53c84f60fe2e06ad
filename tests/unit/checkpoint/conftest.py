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
