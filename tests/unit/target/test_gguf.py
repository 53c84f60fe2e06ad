"""GGUF files: dequantized once into a safetensors folder, then loaded from there."""

import os
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.torch
import torch

from blockdraft.errors import CheckpointError
from blockdraft.target import load_target

HIDDEN, FFN, VOCAB = 32, 64, 96


def write_gguf(path: Path, merge: str = "A B") -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """A one-layer Llama with Q4_1 feed-forward weights; returns the values that the file holds."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(8)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCAB)
    writer.add_tokenizer_model("gpt2")
    tokens = ["<s>", "</s>", "AB", "CD", *(chr(33 + letter) for letter in range(VOCAB - 4))]
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, *[1] * (VOCAB - 2)])
    writer.add_token_merges([merge, "C D"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ messages[0].content }}")
    random = np.random.default_rng(0)
    shapes = {
        "token_embd.weight": (VOCAB, HIDDEN),
        "output.weight": (VOCAB, HIDDEN),
        "output_norm.weight": (HIDDEN,),
        "blk.0.attn_norm.weight": (HIDDEN,),
        "blk.0.ffn_norm.weight": (HIDDEN,),
        "blk.0.attn_q.weight": (HIDDEN, HIDDEN),
        "blk.0.attn_k.weight": (HIDDEN // 2, HIDDEN),
        "blk.0.attn_v.weight": (HIDDEN // 2, HIDDEN),
        "blk.0.attn_output.weight": (HIDDEN, HIDDEN),
        "blk.0.ffn_gate.weight": (FFN, HIDDEN),
        "blk.0.ffn_up.weight": (FFN, HIDDEN),
        "blk.0.ffn_down.weight": (HIDDEN, FFN),
    }
    values: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = {}
    for name, shape in shapes.items():
        weight = random.standard_normal(shape).astype(np.float32)
        if "ffn_" in name and len(shape) == 2:
            packed = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q4_1)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
            weight = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q4_1)
        else:
            writer.add_tensor(name, weight)
        values[name] = weight
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def test_a_gguf_file_loads_once_and_then_from_the_cache(
    tmp_path: Path, cache_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.Q4_1.gguf"
    values = write_gguf(path)
    said: list[str] = []
    target = load_target(path, report=said.append)
    assert len(said) == 1 and said[0].startswith("Dequantizing tiny.Q4_1.gguf into ")
    (folder,) = [p for p in (cache_home / "blockdraft" / "gguf").iterdir() if p.is_dir()]
    stored = safetensors.torch.load((folder / "model.safetensors").read_bytes())
    up_proj = stored["model.layers.0.mlp.up_proj.weight"]
    assert torch.equal(up_proj, torch.from_numpy(values["blk.0.ffn_up.weight"]))
    assert not torch.equal(up_proj, up_proj.bfloat16().float()), "so bfloat16 would lose something"
    assert target.spec.stop_ids == (1,)
    assert target.spec.max_context_len == 64
    assert target.text is not None and target.text.has_chat_template

    again = load_target(path, report=said.append)
    assert len(said) == 1, "the second load reads the copy"
    ids = torch.arange(1, 9)
    assert torch.equal(again.open().prefill(ids).logits, target.open().prefill(ids).logits)
    assert capfd.readouterr() == ("", "")

    os.utime(path, ns=(1, 1))
    load_target(path, report=said.append)
    assert len(said) == 2, "a file that was changed is converted again"


@pytest.mark.parametrize("damage", ["no gguf", "bad tokenizer", "truncated"])
def test_a_damaged_file_leaves_nothing_behind(
    tmp_path: Path, cache_home: Path, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")
    if damage != "no gguf":
        write_gguf(path, merge="A nowhere")
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"broken\.gguf can't be dequantized"):
        load_target(path)
    assert capfd.readouterr() == ("", "")
    left = [p for p in (cache_home / "blockdraft" / "gguf").iterdir() if p.suffix != ".lock"]
    assert left == []
