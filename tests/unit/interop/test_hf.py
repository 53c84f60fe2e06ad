"""The HF folder for other engines: no reduced vocabulary, both spots of the block size, masks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)

from blockdraft.checkpoint import DrafterCheckpoint, load_checkpoint
from blockdraft.drafter import DrafterConfig
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.cast import cast_checkpoint, chosen_dtype
from blockdraft.interop.compare import first_difference
from blockdraft.interop.hf.write import for_engines, write_hf

MakeDrafter = Callable[[DrafterConfig], DrafterCheckpoint]


def test_engines_get_the_whole_vocabulary(
    config: DrafterConfig, make_drafter: MakeDrafter, tmp_path: Path
) -> None:
    """SGLang ignores d2t silently, so that a reduced drafter would draft garbage there."""
    made = make_drafter(replace(config, draft_vocab_size=9))
    write_hf(tmp_path, for_engines(made))
    raw = cast("dict[str, object]", json.loads((tmp_path / "config.json").read_text()))
    assert raw["block_size"] == 5
    assert raw["dflash_config"] == {"block_size": 5, "mask_token_id": 3, "target_layer_ids": [1, 3]}
    assert load_file(tmp_path / "model.safetensors").keys() == made.state.keys()
    assert first_difference(for_engines(made), load_checkpoint(tmp_path)) is None


def test_a_kept_vocabulary_comes_back(
    config: DrafterConfig, make_drafter: MakeDrafter, tmp_path: Path
) -> None:
    made = make_drafter(replace(config, draft_vocab_size=9))
    write_hf(tmp_path, made)
    assert first_difference(made, load_checkpoint(tmp_path)) is None


def test_a_reduced_head_of_its_own_is_refused(
    config: DrafterConfig, make_drafter: MakeDrafter
) -> None:
    made = replace(
        make_drafter(replace(config, draft_vocab_size=9)),
        lm_head=torch.randn(9, config.hidden_size),
    )
    with pytest.raises(CheckpointError, match="head of its own over 9 ids"):
        for_engines(made)


def test_the_mask_embedding_is_in_the_form_of_all_engines(
    config: DrafterConfig, make_drafter: MakeDrafter, tmp_path: Path
) -> None:
    """SGLang and vLLM read the keys `embedding` and `mask_token_id`."""
    made = replace(make_drafter(config), mask_embedding=torch.randn(16), recorded_tau=2.5)
    write_hf(tmp_path, made)
    (tmp_path / "provenance.json").write_text('{"acceptance_length": 2.5}')
    entry = cast("dict[str, object]", torch.load(tmp_path / "mask_embedding.pt", weights_only=True))
    assert entry["mask_token_id"] == 3
    found = load_checkpoint(tmp_path)
    assert first_difference(made, found) is None
    assert found.recorded_tau == 2.5


def test_a_bare_mask_embedding_is_read_too(
    config: DrafterConfig, make_drafter: MakeDrafter, tmp_path: Path
) -> None:
    made = replace(make_drafter(config), mask_embedding=torch.randn(16))
    write_hf(tmp_path, made)
    torch.save(made.mask_embedding, tmp_path / "mask_embedding.pt")
    assert first_difference(made, load_checkpoint(tmp_path)) is None


def test_types(config: DrafterConfig, make_drafter: MakeDrafter) -> None:
    made = make_drafter(config)
    assert chosen_dtype(made, None) == torch.float32
    assert chosen_dtype(cast_checkpoint(made, torch.bfloat16), None) == torch.bfloat16
    assert chosen_dtype(cast_checkpoint(made, torch.float64), None) == torch.float32
    assert chosen_dtype(made, "f16") == torch.float16
    with pytest.raises(ConfigError, match="q8_0 is for --format gguf"):
        chosen_dtype(made, "q8_0")


def test_what_does_not_fit_into_the_type_is_refused(
    config: DrafterConfig, make_drafter: MakeDrafter
) -> None:
    made = make_drafter(config)
    made.state["fc.weight"][0, 0] = 1e6
    with pytest.raises(
        CheckpointError, match=r"fc.weight has values that are not finite in float16"
    ):
        cast_checkpoint(made, torch.float16)
