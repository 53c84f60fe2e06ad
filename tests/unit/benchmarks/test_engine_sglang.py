"""Tests of what SGLang's two modules are shown, with small ones of our own in a wheel."""

import sys
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine_sglang import BREAKS, Folder, accept, fused, sources, try_breaks
from sglang_parts import MODEL, UTILS, open_parts

UTILS_TEXT = """
from sglang.srt.layers.sampler import anything
from types import SimpleNamespace

def parse_dflash_draft_config(*, draft_hf_config):
    section = draft_hf_config.dflash_config
    if not isinstance(section["mask_token_id"], int):
        raise ValueError("mask_token_id must be an integer")
    ids = section["target_layer_ids"]
    return SimpleNamespace(
        block_size=section["block_size"],
        mask_token_id=section["mask_token_id"],
        resolve_target_layer_ids=lambda target_num_layers: ids,
    )
"""

MODEL_TEXT = """
import torch
from torch import nn
from sglang.srt.layers.linear import MergedColumnParallelLinear, RowParallelLinear
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.model_loader.weight_utils import default_weight_loader
from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config

assert AttentionType.DECODER is not None

class DFlashDraftModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attn = RadixAttention(1, layer_id=0)
        self.mlp = nn.Module()
        self.mlp.gate_up_proj = MergedColumnParallelLinear(2, [3] * 2, bias=False)
        self.fc = RowParallelLinear(4, 2, bias=False)

    def load_weights(self, weights):
        held = dict(self.named_parameters())
        for name, tensor in weights:
            for shard, part in enumerate(("gate_proj", "up_proj")):
                whole = held.get(name.replace(part, "gate_up_proj"))
                if part in name and whole is not None:
                    whole.weight_loader(whole, tensor, shard)
            if name in held:
                default_weight_loader(held[name], tensor)
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "sglang-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in ((UTILS, UTILS_TEXT), (MODEL, MODEL_TEXT)):
            archive.writestr(f"{name.replace('.', '/')}.py", text)
    return path


@pytest.fixture
def folder() -> Folder:
    section: dict[str, object] = {
        "block_size": 8,
        "mask_token_id": 3,
        "target_layer_ids": [1, 2],
    }
    tensors = {
        "mlp.gate_proj.weight": torch.arange(6.0).reshape(3, 2),
        "mlp.up_proj.weight": torch.arange(6.0, 12.0).reshape(3, 2),
        "fc.weight": torch.ones(2, 4),
    }
    config: dict[str, object] = {"model_type": "qwen3", "dflash_config": section}
    return Folder(config=config, tensors=tensors, target_layers=4)


def test_names_that_are_fused_there() -> None:
    assert sources("layers.0.self_attn.qkv_proj.weight") == tuple(
        f"layers.0.self_attn.{part}.weight" for part in ("q_proj", "k_proj", "v_proj")
    )
    assert sources("norm.weight") == ("norm.weight",)
    tensors = {"a.gate_proj.b": torch.zeros(1, 2), "a.up_proj.b": torch.ones(1, 2)}
    whole = fused("a.gate_up_proj.b", tensors)
    assert whole is not None
    assert whole.tolist() == [[0, 0], [1, 1]]
    assert fused("a.qkv_proj.b", tensors) is None


def test_export_is_accepted_bit_for_bit(wheel: Path, tmp_path: Path, folder: Folder) -> None:
    with open_parts(wheel, tmp_path / "parts") as parts:
        made = accept(parts, folder)
    assert made["equal"]
    assert (made["not_loaded"], made["ignored"], made["parameters"]) == ([], [], 2)
    assert (made["block_size"], made["target_layer_ids"]) == (8, [1, 2])
    assert not [name for name in sys.modules if name.startswith("sglang.")]


def test_what_is_missing_or_unknown_is_told(wheel: Path, tmp_path: Path, folder: Folder) -> None:
    tensors: dict[str, Tensor] = {**folder.tensors, "d2t": torch.zeros(4)}
    del tensors["mlp.up_proj.weight"]
    spoiled = Folder(config=folder.config, tensors=tensors, target_layers=4)
    with open_parts(wheel, tmp_path / "parts") as parts:
        made = accept(parts, spoiled)
    assert made["not_loaded"] == ["mlp.gate_up_proj.weight"]
    assert made["ignored"] == ["d2t"]
    assert not made["equal"]


def test_breaks_are_told_with_the_error_or_the_silence(
    wheel: Path, tmp_path: Path, folder: Folder
) -> None:
    tensors = {**folder.tensors, "layers.1.mlp.up_proj.weight": torch.zeros(1)}
    whole = Folder(config=folder.config, tensors=tensors, target_layers=4)
    with open_parts(wheel, tmp_path / "parts") as parts:
        said = {str(told["break"]): told for told in try_breaks(parts, whole)}
    assert len(said) == len(BREAKS)
    assert "must be an integer" in str(said["mask token as a string"]["error"])
    assert said["reduced vocabulary"]["accepted"]
    assert "d2t" in str(said["reduced vocabulary"]["ignored"])
    assert "d2t" not in folder.tensors
