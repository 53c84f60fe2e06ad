"""GGUF drafters: metadata read back into the keys that the rules judge."""

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest

from blockdraft.check import Located, gather_pair, judge_pair
from blockdraft.check.gguf_facts import read_gguf
from blockdraft.check.locate import locate_drafter, locate_target
from blockdraft.errors import CheckpointError


def write_gguf(path: Path, layers: Sequence[int] | None, *, arch: str = "dflash") -> Path:
    """A drafter of one layer for the tiny target."""
    writer = gguf.GGUFWriter(path, arch)
    sizes = {
        "embedding_length": 128,
        "feed_forward_length": 64,
        "block_count": 1,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 32,
        "context_length": 512,
        "block_size": 4,
    }
    for name, size in sizes.items():
        writer.add_uint32(f"{arch}.{name}", size)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_uint32("tokenizer.ggml.mask_token_id", 259)
    writer.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(260)])
    if layers is not None:
        writer.add_array(f"{arch}.target_layers", list(layers))
    shapes = {
        "fc.weight": (128, 384),
        "enc.output_norm.weight": (128,),
        "output_norm.weight": (128,),
        "blk.0.attn_norm.weight": (128,),
        "blk.0.ffn_norm.weight": (128,),
        "blk.0.attn_q.weight": (128, 128),
        "blk.0.attn_k.weight": (64, 128),
        "blk.0.attn_v.weight": (64, 128),
        "blk.0.attn_output.weight": (128, 128),
        "blk.0.attn_q_norm.weight": (32,),
        "blk.0.attn_k_norm.weight": (32,),
        "blk.0.ffn_gate.weight": (64, 128),
        "blk.0.ffn_up.weight": (64, 128),
        "blk.0.ffn_down.weight": (128, 64),
    }
    for name, shape in shapes.items():
        writer.add_tensor(name, np.zeros(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def codes(good_folder: Path, drafter: Path) -> list[str]:
    pair = gather_pair(Located(good_folder / "target", "target"), Located(drafter, "drafter"))
    return [found.code for found in judge_pair(pair, ["llamacpp"])]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # One higher than ours: the input of the next layer.
        ((1, 2, 3), ["DFL065", "DFL068", "DFL069", "DFL409"]),
        ((2, 3, 4), ["DFL401", "DFL065", "DFL068", "DFL069", "DFL409"]),
        ((3, 4, 5), ["DFL025", "DFL401", "DFL065", "DFL068", "DFL069", "DFL409"]),
        ((1, 2), ["DFL028", "DFL065", "DFL068", "DFL069", "DFL409"]),
        (None, ["DFL022", "DFL065", "DFL068", "DFL069", "DFL409"]),
    ],
)
def test_layers_of_a_gguf_drafter(
    good_folder: Path, tmp_path: Path, layers: Sequence[int] | None, expected: list[str]
) -> None:
    assert codes(good_folder, write_gguf(tmp_path / "d.gguf", layers)) == expected


def test_model_given_as_drafter_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "t.gguf", (1,), arch="qwen3")
    with pytest.raises(CheckpointError, match="architecture qwen3, expected dflash"):
        read_gguf(path, drafter=True)


@pytest.mark.parametrize(("arch", "aborts"), [("qwen3", False), ("llama", False), ("phi3", True)])
def test_family_of_a_gguf_target(
    good_folder: Path, tmp_path: Path, arch: str, aborts: bool
) -> None:
    path = write_gguf(tmp_path / "t.gguf", None, arch=arch)
    pair = gather_pair(Located(path, "t"), Located(good_folder / "drafter", "drafter"))
    assert pair.target.vocab_size == 260
    assert ("DFL400" in [found.code for found in judge_pair(pair, ["llamacpp"])]) == aborts


def test_the_folder_of_an_export_stands_for_its_files(tmp_path: Path) -> None:
    """As for `launch`: `check --target DIR --drafter DIR` of what `export --format gguf` wrote."""
    drafter = write_gguf(tmp_path / "drafter.gguf", (1, 2, 3))
    (tmp_path / "target.gguf").touch()
    assert locate_drafter(str(tmp_path)) == Located(drafter, str(tmp_path))
    assert locate_target(str(tmp_path)).folder == tmp_path / "target.gguf"
    (tmp_path / "config.json").touch()
    assert locate_drafter(str(tmp_path)).folder == tmp_path
