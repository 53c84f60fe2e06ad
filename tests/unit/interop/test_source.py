"""Telling the formats apart, and what is recorded beside a drafter."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from blockdraft.builtin import builtin_drafter_path
from blockdraft.checkpoint import DrafterCheckpoint, load_checkpoint, save_checkpoint
from blockdraft.drafter import DrafterConfig
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.compare import first_difference
from blockdraft.interop.provenance import Conversion, carry_on, head_was_targets, read_provenance
from blockdraft.interop.source import KnownTarget, find, load_any
from blockdraft.interop.target_facts import read_rows, read_target

MakeDrafter = Callable[[DrafterConfig], DrafterCheckpoint]

CONVERSION = Conversion(
    to_format="speculators",
    outtype="f32",
    from_format="hf",
    source="mine",
    target="t",
    own_head=False,
    changes=(),
)


@pytest.fixture
def folder(make_drafter: MakeDrafter, config: DrafterConfig, tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "drafter", make_drafter(config))
    return tmp_path / "drafter"


def test_the_builtin_drafter_has_its_record_and_card() -> None:
    foreign = load_any("smollm2")
    path = builtin_drafter_path("smollm2")
    assert path is not None
    assert foreign.format == "hf" and foreign.source == "smollm2"
    assert first_difference(load_checkpoint(path), foreign.checkpoint) is None
    assert foreign.provenance is not None and "acceptance_length" in foreign.provenance
    assert foreign.card is not None and "GSM8K" in foreign.card


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ({"dflash_config": {}}, "hf"),
        ({"speculators_model_type": "eagle3"}, "speculators"),
        ({"transformer_layer_config": {}}, "speculators"),
        ({"markov_rank": 256}, "block7"),
        ({"architectures": ["Gemma4DSparkModel"]}, "block7"),
    ],
)
def test_formats_are_told_apart_by_the_config(
    raw: dict[str, object], found: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert find(tmp_path).format == found


def test_gguf_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    file = tmp_path / "drafter.gguf"
    file.write_bytes(b"GGUF\x03")
    assert find(file).format == "gguf"
    assert find(tmp_path).path == file  # an exported folder holds the target too
    file.write_bytes(b"no")
    with pytest.raises(CheckpointError, match="no GGUF file"):
        find(file)


def test_a_revision_belongs_to_the_hub(tmp_path: Path) -> None:
    file = tmp_path / "drafter.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="revision"):
        find(file, revision="main")
    with pytest.raises(ConfigError, match="--taps"):
        load_any(file, taps=(1,))


@pytest.mark.parametrize("nested", [True, False])
def test_taps_are_not_overridden(
    nested: bool, make_drafter: MakeDrafter, config: DrafterConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "drafter"
    save_checkpoint(folder, make_drafter(config))
    file = folder / "config.json"
    raw = cast("dict[str, dict[str, object]]", json.loads(file.read_text()))
    recorded = cast("list[int]", raw["dflash_config"].pop("target_layer_ids"))
    other = tuple(tap + 1 for tap in recorded)
    file.write_text(json.dumps(raw))
    # Of a drafter that says nothing any layers are taken, if there are as many.
    assert load_any(folder, taps=other).checkpoint.config.taps == other
    place = raw["dflash_config"] if nested else cast("dict[str, object]", raw)
    place["target_layer_ids"] = recorded
    file.write_text(json.dumps(raw))
    assert load_any(folder, taps=recorded).checkpoint.config.taps == tuple(recorded)
    given, named = (",".join(str(tap) for tap in taps) for taps in (other, recorded))
    with pytest.raises(ConfigError, match=f"--taps {given} are other layers than the {named} that"):
        load_any(folder, taps=other)


def test_taps_of_the_provenance_are_not_overridden_either(
    make_drafter: MakeDrafter, config: DrafterConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "drafter"
    save_checkpoint(folder, make_drafter(config))
    file = folder / "config.json"
    raw = cast("dict[str, dict[str, object]]", json.loads(file.read_text()))
    recorded = cast("list[int]", raw["dflash_config"].pop("target_layer_ids"))
    file.write_text(json.dumps(raw))
    (folder / "provenance.json").write_text(json.dumps({"drafter": {"taps": recorded}}))
    with pytest.raises(ConfigError, match=r"provenance\.json of .*drafter records"):
        load_any(folder, taps=tuple(tap + 1 for tap in recorded))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        find(tmp_path / "nowhere")


def test_the_depth_of_the_target_is_filled_in(
    make_drafter: MakeDrafter, config: DrafterConfig, tmp_path: Path
) -> None:
    shallow = replace(config, num_target_layers=None)
    save_checkpoint(tmp_path / "drafter", make_drafter(shallow))
    known = load_any(tmp_path / "drafter", target=KnownTarget(num_layers=6))
    assert known.checkpoint.config == config
    with pytest.raises(CheckpointError, match="can't be tapped"):
        load_any(tmp_path / "drafter", target=KnownTarget(num_layers=4))


def test_records_are_carried_on(make_drafter: MakeDrafter, config: DrafterConfig) -> None:
    made = replace(make_drafter(config), recorded_tau=2.5)
    first = carry_on({"training": {"seed": 1}}, made, CONVERSION)
    assert first["training"] == {"seed": 1} and first["acceptance_length"] == 2.5
    second = carry_on(first, made, replace(CONVERSION, to_format="hf", own_head=True))
    exports = second["exports"]
    assert isinstance(exports, list) and len(exports) == 2  # pyright: ignore[reportUnknownArgumentType]: JSON
    assert head_was_targets(first) and not head_was_targets(second)
    assert not head_was_targets(None) and not head_was_targets({"exports": "?"})


def test_a_damaged_record_is_said(folder: Path) -> None:
    assert read_provenance(folder, "there") is None
    (folder / "provenance.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"provenance.json"):
        load_any(folder)


def test_rows_of_a_target_tied_or_not(target_folder: Path, tmp_path: Path) -> None:
    """transformers stores one of two tied tensors, and not always the embedding."""
    import torch
    from safetensors.torch import (
        save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    )

    rows = read_rows(read_target(str(target_folder)))
    assert not torch.equal(rows.embedding, rows.head)
    (tmp_path / "config.json").write_text((target_folder / "config.json").read_text())
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        save_file({name: rows.head}, tmp_path / "model.safetensors")
        tied = read_rows(read_target(str(tmp_path)))
        assert torch.equal(tied.embedding, rows.head) and torch.equal(tied.head, rows.head)


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        (("norm.weight",), "neither"),
        (("a.lm_head.weight", "b.lm_head.weight"), "several"),
        (("lm_head.weight", "lm_head.bias"), "bias"),
        (("norm.embed_tokens.weight",), None),
    ],
)
def test_targets_without_plain_rows_are_refused(
    tensors: tuple[str, ...], named: str | None, target_folder: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import (
        save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    )

    (tmp_path / "config.json").write_text((target_folder / "config.json").read_text())
    save_file({name: torch.ones(40, 16) for name in tensors}, tmp_path / "model.safetensors")
    target = read_target(str(tmp_path))
    if named is None:
        read_rows(target)
        return
    with pytest.raises(CheckpointError, match=named):
        read_rows(target)
    save_file({"lm_head.weight": torch.ones(8, 16)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="fetch it again"):
        read_rows(target)


def test_a_drafter_is_no_target(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="not a target"):
        read_target(str(folder))
