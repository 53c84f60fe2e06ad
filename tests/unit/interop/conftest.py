"""A target folder of two tensors, and small random drafters for it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import (
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)

from blockdraft.checkpoint import DrafterCheckpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.drafter import DrafterConfig

MakeDrafter = Callable[[DrafterConfig], DrafterCheckpoint]

TARGET_CONFIG: dict[str, object] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 16,
    "num_hidden_layers": 6,
    "vocab_size": 40,
    "tie_word_embeddings": False,
}


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an export reads of a target with hidden size 16, 6 layers and 40 tokens."""
    folder = tmp_path_factory.mktemp("target") / "owner"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TARGET_CONFIG))
    generator = torch.Generator().manual_seed(7)
    tensors = {
        "model.embed_tokens.weight": torch.randn(40, 16, generator=generator),
        "lm_head.weight": torch.randn(40, 16, generator=generator),
    }
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture
def full_config(config: DrafterConfig) -> DrafterConfig:
    """The shared configuration with full attention only, which all formats can say."""
    return replace(config, layer_types=("full_attention",) * 2, sliding_window=None)


@pytest.fixture
def make_drafter() -> MakeDrafter:
    """Random weights, and an ascending draft vocabulary where the configuration has one."""

    def make(config: DrafterConfig) -> DrafterCheckpoint:
        state = {name: torch.randn(shape) for name, shape in expected_shapes(config).items()}
        drafted = config.draft_vocab_size
        d2t = None
        if drafted is not None:
            ids = torch.randperm(config.vocab_size)[:drafted].sort().values
            d2t = ids - torch.arange(drafted)
        return DrafterCheckpoint(config=config, state=state, source="memory", d2t=d2t)

    return make
