"""DeepSpec folders: which are plain DFlash, and why the others can't be converted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)

from blockdraft.checkpoint import DrafterCheckpoint
from blockdraft.drafter import DrafterConfig
from blockdraft.errors import CheckpointError
from blockdraft.interop.block7 import is_block7, read_block7
from blockdraft.interop.compare import first_difference
from blockdraft.interop.hf.write import write_hf
from blockdraft.interop.target_facts import read_rows, read_target

MakeDrafter = Callable[[DrafterConfig], DrafterCheckpoint]
Json = dict[str, object]


@pytest.fixture
def made(make_drafter: MakeDrafter, full_config: DrafterConfig) -> DrafterCheckpoint:
    return make_drafter(full_config)


@pytest.fixture
def folder(tmp_path: Path, made: DrafterCheckpoint, target_folder: Path) -> Path:
    """Top-level keys, `model.` names, the target's embedding and head inside, a confidence head."""
    write_hf(tmp_path, made)
    raw = _config(tmp_path)
    raw |= cast("Json", raw.pop("dflash_config"))
    raw |= {
        "architectures": ["Qwen3DSparkModel"],
        "num_anchors": 512,
        "markov_rank": 0,
        "enable_confidence_head": True,
        "sample_from_anchor": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(raw))
    tensors = {f"model.{name}": tensor for name, tensor in made.state.items()}
    rows = read_rows(read_target(str(target_folder)))
    tensors |= {"model.embed_tokens.weight": rows.embedding, "lm_head.weight": rows.head}
    tensors["confidence_head.weight"] = torch.ones(1, 16)
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path


def _config(folder: Path) -> Json:
    return cast("Json", json.loads((folder / "config.json").read_text()))


def _edit(folder: Path, **changes: object) -> None:
    (folder / "config.json").write_text(json.dumps(_config(folder) | changes))


def test_a_masks_predict_layout_is_read(
    folder: Path, made: DrafterCheckpoint, target_folder: Path
) -> None:
    assert is_block7(_config(folder))
    rows = read_rows(read_target(str(target_folder)))
    read = read_block7(folder, "there", rows=rows)
    assert first_difference(made, read.checkpoint) is None
    assert any("confidence head" in note for note in read.notes)


def test_a_plain_folder_is_not_taken_for_one(made: DrafterCheckpoint, tmp_path: Path) -> None:
    write_hf(tmp_path, made)
    assert not is_block7(_config(tmp_path))


@pytest.mark.parametrize("value", [None, True])
def test_an_anchor_that_predicts_is_refused(folder: Path, value: bool | None) -> None:
    """Also without a Markov head: DeepSpec's own DFlash baselines have this layout."""
    _edit(folder, sample_from_anchor=value, block_size=7)
    with pytest.raises(CheckpointError, match=r"anchor-first .7 slots give 7 drafts"):
        read_block7(folder, "there")


def test_a_bonus_anchor_is_read(folder: Path) -> None:
    _edit(folder, sample_from_anchor=None, dspark_bonus_anchor=True)
    read_block7(folder, "there")


def test_a_markov_head_is_refused_by_key(folder: Path) -> None:
    _edit(folder, markov_rank=256)
    with pytest.raises(CheckpointError, match=r"Markov head .markov_rank 256"):
        read_block7(folder, "there")


@pytest.mark.parametrize("name", ["markov_head.markov_w1", "gate_proj.weight", "joint_proj.weight"])
def test_a_markov_head_is_refused_by_tensor(folder: Path, name: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {name: torch.ones(2, 2)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"Markov head .tensor"):
        read_block7(folder, "there")
