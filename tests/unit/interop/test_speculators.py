"""The speculators folder: what vLLM reads in it, the way back, and what is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)
from torch import Tensor

from blockdraft.checkpoint import DrafterCheckpoint
from blockdraft.drafter import DrafterConfig, MaskRule, RopeConfig
from blockdraft.errors import CheckpointError
from blockdraft.interop.compare import first_difference
from blockdraft.interop.speculators.read import read_speculators
from blockdraft.interop.speculators.write import for_speculators, write_speculators
from blockdraft.interop.target_facts import TargetFacts, TargetRows, read_rows, read_target

MakeDrafter = Callable[[DrafterConfig], DrafterCheckpoint]
Json = dict[str, object]


@pytest.fixture
def target(target_folder: Path) -> TargetFacts:
    return read_target(str(target_folder))


@pytest.fixture
def rows(target: TargetFacts) -> TargetRows:
    return read_rows(target)


@pytest.fixture
def reduced(make_drafter: MakeDrafter, full_config: DrafterConfig) -> DrafterCheckpoint:
    return make_drafter(replace(full_config, draft_vocab_size=9))


@pytest.fixture
def folder(
    tmp_path: Path, reduced: DrafterCheckpoint, target: TargetFacts, rows: TargetRows
) -> Path:
    write_speculators(tmp_path, for_speculators(reduced, target), target, rows, "owner/target")
    return tmp_path


def _config(folder: Path) -> Json:
    return cast("Json", json.loads((folder / "config.json").read_text()))


def _edit(folder: Path, **changes: object) -> None:
    (folder / "config.json").write_text(json.dumps(_config(folder) | changes))


def _edit_layer(folder: Path, **changes: object) -> None:
    layer = cast("Json", _config(folder)["transformer_layer_config"])
    _edit(folder, transformer_layer_config=layer | changes)


def _edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_ids_are_one_higher_and_d2t_are_offsets(
    folder: Path, reduced: DrafterCheckpoint, rows: TargetRows
) -> None:
    config = _config(folder)
    assert config["aux_hidden_state_layer_ids"] == [2, 4]
    assert config["draft_vocab_size"] == 9
    tensors = load_file(folder / "model.safetensors")
    d2t = tensors["d2t"]
    ids = torch.arange(9) + d2t
    assert torch.equal(tensors["t2d"].nonzero().flatten(), ids)
    assert torch.equal(tensors["lm_head.weight"], rows.head[ids])
    assert torch.equal(tensors["embed_tokens.weight"], rows.embedding)
    body = tensors.keys() - {"d2t", "t2d", "lm_head.weight", "embed_tokens.weight"}
    assert body == reduced.state.keys()


def test_vllm_finds_what_it_asks_for(folder: Path) -> None:
    """The keys that `SpeculatorsConfig.validate_speculators_config` of vLLM 0.32 reads."""
    config = _config(folder)
    spec = cast("Json", config["speculators_config"])
    methods = cast("list[Json]", spec["proposal_methods"])
    assert methods[0]["speculative_tokens"] == 4
    assert cast("Json", spec["verifier"])["name_or_path"] == "owner/target"
    assert config["speculators_model_type"] == "dflash"
    layer = cast("Json", config["transformer_layer_config"])
    assert layer["model_type"] == "qwen3" and layer["vocab_size"] == 40


@pytest.mark.parametrize(
    ("kind", "is_causal", "non_causal"),
    [
        ("full_attention", None, True),  # PR 56692: false would make these layers causal too
        ("full_attention", False, True),
        ("full_attention", True, False),
        ("sliding_attention", None, False),
        ("sliding_attention", False, True),
        ("sliding_attention", True, False),
    ],
)
def test_causality_is_written_as_vllm_reads_it(
    kind: str,
    is_causal: bool | None,
    non_causal: bool,
    config: DrafterConfig,
    make_drafter: MakeDrafter,
    target: TargetFacts,
    rows: TargetRows,
    tmp_path: Path,
) -> None:
    window = 4 if kind == "sliding_attention" else None
    shape = replace(config, layer_types=(kind, kind), sliding_window=window, is_causal=is_causal)  # pyright: ignore[reportArgumentType]: parametrized text
    made = for_speculators(make_drafter(shape), target)
    write_speculators(tmp_path, made, target, rows, "owner/target")
    written = _config(tmp_path)
    assert written["sliding_window_non_causal"] is non_causal
    assert cast("Json", written["transformer_layer_config"]).get("is_causal") is is_causal
    assert first_difference(made, read_speculators(tmp_path, "there", rows=rows).checkpoint) is None


@pytest.mark.parametrize(
    "rope",
    [
        RopeConfig(theta=1e6),
        RopeConfig(rope_type="linear", factor=2.0),
        RopeConfig(rope_type="yarn", factor=4.0, original_max_position_embeddings=64),
    ],
)
def test_rope_comes_back(
    rope: RopeConfig,
    full_config: DrafterConfig,
    make_drafter: MakeDrafter,
    target: TargetFacts,
    rows: TargetRows,
    tmp_path: Path,
) -> None:
    made = for_speculators(make_drafter(replace(full_config, rope=rope)), target)
    write_speculators(tmp_path, made, target, rows, "owner/target")
    assert first_difference(made, read_speculators(tmp_path, "there", rows=rows).checkpoint) is None


def test_a_file_of_few_keys_has_the_defaults_of_qwen3(
    folder: Path, rows: TargetRows, reduced: DrafterCheckpoint
) -> None:
    """`transformer_layer_config` may be a difference to transformers' Qwen3Config."""
    layer = cast("Json", _config(folder)["transformer_layer_config"])
    for key in ("rms_norm_eps", "rope_theta", "rope_parameters", "use_cache"):
        del layer[key]
    _edit(folder, transformer_layer_config=layer)
    found = read_speculators(folder, "there", rows=rows).checkpoint.config
    assert found == replace(reduced.config, rope=RopeConfig(theta=10_000.0))


def test_what_the_library_writes_besides_is_harmless(
    folder: Path, rows: TargetRows, reduced: DrafterCheckpoint
) -> None:
    """Fields of `DFlashSpeculatorConfig` and of transformers that say nothing here."""
    _edit(folder, projector_type="dflash", shift_label=False, auf=False, gru_hidden_dim=1024)
    _edit(folder, emb_dim=256, return_dict=True, transformers_version="5.0.0", auto_map={"a": "b"})
    found = read_speculators(folder, "there", rows=rows).checkpoint
    assert first_difference(reduced, found) is None


def test_windows_that_are_qwen3_defaults_are_left_out_of_files(
    folder: Path, rows: TargetRows
) -> None:
    layer = cast("Json", _config(folder)["transformer_layer_config"])
    del layer["sliding_window"]
    layer |= {"layer_types": ["sliding_attention"] * 2, "use_sliding_window": True}
    _edit(folder, transformer_layer_config=layer, sliding_window_non_causal=False)
    found = read_speculators(folder, "there", rows=rows).checkpoint.config
    assert found.mask_rule(0) == MaskRule(causal=True, window=4096)


def test_verifier_tensors_are_ignored(folder: Path, rows: TargetRows) -> None:
    _edit_tensors(folder, lambda t: t.update({"verifier_norm.weight": torch.ones(16)}))
    read_speculators(folder, "there", rows=rows)


def test_without_the_target_its_rows_stay_a_head(folder: Path, reduced: DrafterCheckpoint) -> None:
    read = read_speculators(folder, "there")
    assert read.checkpoint.lm_head is not None
    assert any("not compared" in note for note in read.notes)
    known = read_speculators(folder, "there", head_is_targets=True).checkpoint
    assert first_difference(reduced, known) is None


def test_a_mask_row_of_its_own_becomes_a_mask_embedding(folder: Path, rows: TargetRows) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["embed_tokens.weight"][3] += 1

    _edit_tensors(folder, change)
    found = read_speculators(folder, "there", rows=rows).checkpoint.mask_embedding
    assert found is not None and torch.equal(found, rows.embedding[3] + 1)


def test_an_own_head_is_kept(folder: Path, rows: TargetRows) -> None:
    _edit_tensors(folder, lambda t: t["lm_head.weight"].add_(1))
    read = read_speculators(folder, "there", rows=rows)
    assert read.checkpoint.lm_head is not None
    assert any("is kept" in note for note in read.notes)


def test_a_map_that_reduces_nothing_is_dropped(
    full_config: DrafterConfig,
    make_drafter: MakeDrafter,
    target: TargetFacts,
    rows: TargetRows,
    tmp_path: Path,
) -> None:
    made = make_drafter(full_config)
    write_speculators(tmp_path, made, target, rows, "owner/target")
    _edit_tensors(tmp_path, lambda t: t.update({"d2t": torch.zeros(40, dtype=torch.long)}))
    assert first_difference(made, read_speculators(tmp_path, "x", rows=rows).checkpoint) is None


Break = Callable[[Path], object]


BROKEN: dict[str, tuple[Break, str]] = {
    "another algorithm": (lambda f: _edit(f, speculators_model_type="dflash2"), "another kind"),
    "another inner algorithm": (
        lambda f: _edit(f, speculators_config={"algorithm": "eagle3"}),
        "another kind",
    ),
    "the anchor predicts": (lambda f: _edit(f, sample_from_anchor=True), "slot 0 predicts"),
    "shifted labels": (lambda f: _edit(f, shift_label=True), "slot 0 predicts"),
    "a Domino head": (lambda f: _edit(f, projector_type="domino"), "another kind"),
    "no layer ids": (lambda f: _edit(f, aux_hidden_state_layer_ids=None), "tapped layers"),
    "id 0": (lambda f: _edit(f, aux_hidden_state_layer_ids=[0, 2]), "below 1"),
    "the last layer": (lambda f: _edit(f, aux_hidden_state_layer_ids=[2, 6]), "can't be tapped"),
    "no block size": (lambda f: _edit(f, block_size=None), "block_size"),
    "no mask token": (lambda f: _edit(f, mask_token_id=None), "mask_token_id"),
    "an unknown key": (lambda f: _edit(f, magic=3), "unknown key 'magic'"),
    "an unknown layer key": (lambda f: _edit_layer(f, magic=3), "unknown key 'magic'"),
    "no map": (lambda f: _edit_tensors(f, lambda t: t.pop("d2t")), "no tensor d2t"),
    "a map outside": (lambda f: _edit_tensors(f, lambda t: t["d2t"].add_(40)), "d2t maps"),
    "another embedding": (
        lambda f: _edit_tensors(f, lambda t: t["embed_tokens.weight"].add_(1)),
        "differs from the target's in 40 rows",
    ),
    "a narrower embedding": (
        lambda f: _edit_tensors(f, lambda t: t.update({"embed_tokens.weight": torch.ones(8, 16)})),
        "the target that it was made for",
    ),
    "a missing tensor": (lambda f: _edit_tensors(f, lambda t: t.pop("fc.weight")), "fc.weight"),
    "an unknown tensor": (
        lambda f: _edit_tensors(f, lambda t: t.update({"mask_hidden": torch.ones(16)})),
        "unexpected tensor mask_hidden",
    ),
    "not finite": (lambda f: _edit_tensors(f, lambda t: t["fc.weight"].fill_(torch.nan)), "finite"),
    "a mask of another token": (
        lambda f: torch.save({"embedding": torch.ones(16), "mask_token_id": 4}, _mask(f)),
        "mask token 4",
    ),
    "a mask for each position": (
        lambda f: torch.save({"embedding": torch.ones(5, 16), "mask_token_id": 3}, _mask(f)),
        "holds [5, 16], expected one tensor [16]",
    ),
    "a damaged mask": (lambda f: _mask(f).write_bytes(b"no"), "damaged"),
}


def _mask(folder: Path) -> Path:
    return folder / "mask_embedding.pt"


@pytest.mark.parametrize("name", BROKEN)
def test_what_can_not_be_read_is_refused(name: str, folder: Path, rows: TargetRows) -> None:
    damage, named = BROKEN[name]
    damage(folder)
    with pytest.raises(CheckpointError) as caught:
        read_speculators(folder, "there", rows=rows, num_target_layers=6)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 4}, "56692"),
        ({"input_embedding_scale": 2.0}, "input_embedding_scale"),
        ({"output_multiplier": 2.0}, "output_multiplier"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    ],
)
def test_what_can_not_be_said_is_refused(
    changes: Json,
    named: str,
    full_config: DrafterConfig,
    make_drafter: MakeDrafter,
    target: TargetFacts,
) -> None:
    made = make_drafter(replace(full_config, **changes))  # pyright: ignore[reportArgumentType]: parametrized
    with pytest.raises(CheckpointError, match=named):
        for_speculators(made, target)


def test_a_target_that_scales_its_embedding_is_refused(
    reduced: DrafterCheckpoint, target: TargetFacts
) -> None:
    with pytest.raises(CheckpointError, match="unscaled"):
        for_speculators(reduced, replace(target, model_type="gemma3_text"))


def test_a_whole_vocabulary_in_another_order_is_refused(
    full_config: DrafterConfig, make_drafter: MakeDrafter, target: TargetFacts
) -> None:
    made = make_drafter(replace(full_config, draft_vocab_size=40))
    assert for_speculators(made, target).config.draft_vocab_size is None
    swapped = torch.zeros(40, dtype=torch.long)
    swapped[0], swapped[1] = 1, -1
    with pytest.raises(CheckpointError, match="another order"):
        for_speculators(replace(made, d2t=swapped), target)
