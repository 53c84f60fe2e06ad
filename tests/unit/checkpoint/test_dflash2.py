"""DFlash 2 checkpoints: keys, names, what is refused by name, and that a copy loses nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)
from torch import Tensor

from blockdraft.checkpoint import describe, load_checkpoint, render_text, save_checkpoint
from blockdraft.checkpoint.contents import expected_shapes
from blockdraft.checkpoint.format import parse_config, render_config
from blockdraft.drafter import BlockDrafter, DFlash2Config
from blockdraft.errors import CheckpointError

Json = dict[str, object]
Tensors = dict[str, Tensor]
EditConfig = Callable[[Json, Json], object]
EditTensors = Callable[[Tensors], object]
SECOND = DFlash2Config(conv_kernel_size=2, conv_group_size=16, selector_rank=24, selector_top_k=6)


@pytest.fixture
def folder(tmp_path: Path, data_dir: Path) -> Path:
    """A copy of the recorded DFlash 2 checkpoint."""
    folder = tmp_path / "drafter"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(data_dir / "golden" / "v2_conv_selector" / name, folder / name)
    return folder


def edit(folder: Path, how: EditConfig) -> None:
    """Change config.json: `how` gets the file's object and its `dflash_config`."""
    path = folder / "config.json"
    raw = cast(Json, json.loads(path.read_text()))
    how(raw, cast(Json, raw["dflash_config"]))
    path.write_text(json.dumps(raw))


def edit_tensors(folder: Path, how: EditTensors) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    how(tensors)
    save_file(tensors, path)


def drop(key: str) -> EditConfig:
    return lambda raw, nested: nested.pop(key)


def nest(**values: object) -> EditConfig:
    return lambda raw, nested: nested.update(values)


def top(**values: object) -> EditConfig:
    return lambda raw, nested: raw.update(values)


def without(name: str) -> EditTensors:
    return lambda tensors: tensors.pop(name)


def stored(name: str, *shape: int) -> EditTensors:
    return lambda tensors: tensors.update({name: torch.ones(shape)})


def refusal(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_recorded_checkpoint_is_read_whole(folder: Path) -> None:
    checkpoint = load_checkpoint(folder)
    assert checkpoint.config.dflash2 == SECOND
    assert checkpoint.config.is_causal is False
    own = BlockDrafter(checkpoint.config).state_dict()
    assert {name: tuple(t.shape) for name, t in own.items()} == expected_shapes(checkpoint.config)
    assert sorted(checkpoint.state) == sorted(load_file(folder / "model.safetensors"))


def test_keys_may_stand_at_the_top_level_and_be_null(folder: Path) -> None:
    def move(raw: Json, nested: Json) -> None:
        for key in ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"):
            raw[key] = nested.pop(key)

    edit(folder, move)
    assert load_checkpoint(folder).config.dflash2 == SECOND


def test_configuration_round_trip(folder: Path) -> None:
    config = load_checkpoint(folder).config
    rendered = render_config(config, "float32")
    assert rendered["architectures"] == ["DFlash2DraftModel"]
    assert parse_config(rendered, "config.json") == config


def test_a_copy_is_equal_and_a_copy_of_it_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    original = load_checkpoint(folder)
    save_checkpoint(tmp_path / "copy", original)
    copy = load_checkpoint(tmp_path / "copy")
    assert copy.config == original.config
    assert copy.state.keys() == original.state.keys()
    assert all(torch.equal(copy.state[name], original.state[name]) for name in copy.state)
    save_checkpoint(tmp_path / "again", copy)
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_codebooks_may_carry_weight_in_their_names(folder: Path) -> None:
    """Published files leave it out, copies made by other loaders have it."""
    bare = load_checkpoint(folder)
    names = [f"candidate_selector.{which}_codebook" for which in ("predecessor", "successor")]

    def rename(tensors: Tensors) -> None:
        for name in names:
            tensors[f"{name}.weight"] = tensors.pop(name)

    edit_tensors(folder, rename)
    renamed = load_checkpoint(folder)
    assert renamed.state.keys() == bare.state.keys()
    assert all(torch.equal(renamed.state[name], bare.state[name]) for name in names)
    edit_tensors(folder, lambda tensors: tensors.update({names[0]: torch.zeros(320, 24)}))
    assert f"{names[0]} is stored twice" in refusal(folder)


@pytest.mark.parametrize(
    ("how", "named"),
    [
        (drop("conv_group_size"), "conv_group_size' is missing"),
        (drop("selector_top_k"), "selector_top_k' is missing"),
        (nest(conv_kernel_size=0), "conv_kernel_size is 0"),
        (nest(conv_group_size=24), "conv_group_size is 24"),
        (nest(selector_rank="24"), "selector_rank' is '24'"),
        (nest(selector_top_k=321), "selector_top_k is 321"),
        (nest(selector_top_p=0.5), "unknown key"),
        (nest(conv_dilation=2), "unknown key"),
        (nest(sample_from_anchor=True), "sample_from_anchor"),
        (nest(draft_vocab_size=64), "draft_vocab_size is 64"),
        (top(architectures=["DFlashDraftModel"]), "keys of DFlash 2"),
        (top(architectures=["LiLiCorrDraftModel"]), "not supported"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(folder: Path, how: EditConfig, named: str) -> None:
    """A reduced draft vocabulary among it: the selector knows the whole vocabulary only."""
    edit(folder, how)
    assert named in refusal(folder)


@pytest.mark.parametrize(
    ("how", "named"),
    [
        (without("layers.1.mlp_conv.base_kernel"), "layers.1.mlp_conv.base_kernel"),
        (without("candidate_selector.successor_codebook"), "successor_codebook"),
        (stored("layers.0.attention_conv.base_kernel", 2, 3, 64), "has shape [2, 3, 64]"),
        (stored("mask_embedding", 64), "mask_embedding.pt only"),
        (stored("markov_head.markov_w1", 2), "neither a plain DFlash"),
        (stored("embed_tokens.weight", 320, 64), "target's embedding"),
    ],
)
def test_tensors_that_are_missing_or_too_many(folder: Path, how: EditTensors, named: str) -> None:
    edit_tensors(folder, how)
    assert named in refusal(folder)


def test_tensors_of_the_second_version_need_its_keys(folder: Path) -> None:
    def strip(raw: Json, nested: Json) -> None:
        raw["architectures"] = ["DFlashDraftModel"]
        for key in [key for key in nested if key.startswith(("conv_", "selector_"))]:
            del nested[key]

    edit(folder, strip)
    assert "it belongs to DFlash 2, of which config.json says nothing" in refusal(folder)


def test_a_learned_mask_row_is_read_beside_it(folder: Path) -> None:
    torch.save({"embedding": torch.ones(64), "mask_token_id": 7}, folder / "mask_embedding.pt")
    row = load_checkpoint(folder).mask_embedding
    assert row is not None and torch.equal(row, torch.ones(64))


def test_inspect_shows_it(folder: Path) -> None:
    summary = describe(load_checkpoint(folder))
    parts = summary.parameters
    assert (parts.convolutions, parts.selector) == (4 * (2 * 2 * 64 + 16 * 64), 24 * (64 + 2 * 320))
    own = (parts.fusion, parts.attention, parts.mlp, parts.norms)
    assert sum(own) + parts.convolutions + parts.selector == parts.total
    text = render_text(summary)
    assert (
        "version     DFlash 2: convolutions of 2 taps, groups of 16; selector over 6 candidates,"
        " rank 24" in text
    )
    document = summary.to_json()
    assert document["dflash2"] == {
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 24,
        "selector_top_k": 6,
    }
