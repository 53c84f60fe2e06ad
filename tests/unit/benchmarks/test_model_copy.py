"""Tests of the model copy for peers: the usual tensor name, one dtype, the same values."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_model
from transformers import AutoModelForCausalLM

from blockdraft.testing.tiny import TinySize, tiny_model
from model_copy import copy_model


def test_copy_holds_the_embedding_and_the_same_values(tmp_path: Path) -> None:
    source = tmp_path / "source"
    copy = tmp_path / "copy"
    source.mkdir()
    copy.mkdir()
    model = tiny_model("llama", dtype=torch.float32, size=TinySize(tied=True))
    model.config.save_pretrained(source)
    save_model(model, str(source / "model.safetensors"), metadata={"format": "pt"})
    (source / "tokenizer.json").write_text("{}", encoding="ascii")
    copy_model(source, copy, torch.bfloat16)
    header = (copy / "model.safetensors").read_bytes()
    length = int.from_bytes(header[:8], "little")
    names = json.loads(header[8 : 8 + length])
    assert "model.embed_tokens.weight" in names
    assert "lm_head.weight" not in names
    assert (copy / "tokenizer.json").read_text(encoding="ascii") == "{}"
    loaded = AutoModelForCausalLM.from_pretrained(copy)
    assert loaded.dtype == torch.bfloat16
    expected = dict(model.named_parameters())
    for name, weight in loaded.named_parameters():
        assert torch.equal(weight, expected[name].to(torch.bfloat16)), name
