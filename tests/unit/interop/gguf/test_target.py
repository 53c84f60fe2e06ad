"""Targets as GGUF, read back by transformers' own loader, which knows nothing of our writer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import gguf
import pytest
import torch
from safetensors.torch import (
    load_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
    save_file,  # pyright: ignore[reportUnknownVariableType]: bare PathLike
)
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from blockdraft.drafter.rope import inverse_frequencies
from blockdraft.errors import CheckpointError
from blockdraft.interop.gguf import write_target
from blockdraft.interop.gguf.file import read_file
from blockdraft.interop.gguf.target import permute_rope
from blockdraft.interop.gguf.target_config import read_shape
from blockdraft.target import load_target

SaveTokenizer = Callable[..., Tokenizer]


class Codec(Protocol):
    """What is used of a transformers tokenizer, which its own package leaves untyped."""

    def encode(self, text: str) -> list[int]: ...
    def get_added_vocab(self) -> dict[str, int]: ...


def tiny_config(family: str, *, tied: bool = False, **more: object) -> PreTrainedConfig:
    """Head sizes that differ from hidden size / heads where transformers' loader can tell."""
    shape: dict[str, object] = {
        "vocab_size": 264,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        # The loader leaves Qwen3's head_dim at its default, 128.
        "head_dim": 128 if family == "qwen3" else 16,
        "max_position_embeddings": 128,
        "rope_theta": 50_000.0,
        "tie_word_embeddings": tied,
        "eos_token_id": 260,
        "initializer_range": 0.2,
        **more,
    }
    kind = Qwen3Config if family == "qwen3" else LlamaConfig
    return cast(PreTrainedConfig, kind(**shape))  # pyright: ignore[reportArgumentType]: a table


def save_model(folder: Path, config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = cast(PreTrainedModel, AutoModelForCausalLM.from_config(config))
        for weight in model.parameters():
            if weight.ndim == 1:  # norms of ones would hide a missing norm
                weight.data = 1 + 0.3 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return model.eval()


def logits(model: PreTrainedModel) -> Tensor:
    ids = torch.tensor([[5, 200, 31, 7, 258, 99, 5, 5]])
    with torch.no_grad():
        return cast(Tensor, model(ids).logits)


def load_gguf(path: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    return cast(PreTrainedModel, model).eval()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_another_loader_computes_the_same_logits(
    tmp_path: Path, save_tokenizer: SaveTokenizer, family: str, tied: bool
) -> None:
    folder, path = tmp_path / "model", tmp_path / "out" / "target.gguf"
    model = save_model(folder, tiny_config(family, tied=tied))
    save_tokenizer(folder)
    write_target(folder, path, dtype="f32")
    assert torch.equal(logits(load_gguf(path)), logits(model))
    assert ("output.weight" in read_file(path).tensors) == (not tied)


@pytest.mark.parametrize(("dtype", "bound"), [("bf16", 0.05), ("f16", 0.01), ("q8_0", 0.1)])
def test_smaller_types_stay_close(
    tmp_path: Path, save_tokenizer: SaveTokenizer, dtype: str, bound: float
) -> None:
    folder, path = tmp_path / "model", tmp_path / "out" / "target.gguf"
    expected = logits(save_model(folder, tiny_config("llama")))
    save_tokenizer(folder)
    write_target(folder, path, dtype=dtype)  # pyright: ignore[reportArgumentType]: parametrized
    kinds = {name: entry.stored.name.lower() for name, entry in read_file(path).tensors.items()}
    assert kinds["blk.0.attn_norm.weight"] == "f32"
    assert kinds["token_embd.weight"] == kinds["blk.1.ffn_down.weight"] == dtype
    found = logits(load_gguf(path))
    difference = cast(Tensor, (found - expected).norm() / expected.norm())
    assert float(difference) < bound


def test_the_tokenizer_survives(tmp_path: Path, save_tokenizer: SaveTokenizer) -> None:
    folder, path = tmp_path / "model", tmp_path / "out" / "target.gguf"
    save_model(folder, tiny_config("llama"))
    original = save_tokenizer(folder, bos=False)
    write_target(folder, path, dtype="f32")
    loaded = cast(Codec, AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name))
    text = "the others 123 th\u00e9 \u4e2d<|end|>"
    expected = original.encode(text).ids
    assert [token for token in loaded.encode(text) if token != 259] == expected


def test_metadata_table(tmp_path: Path, save_tokenizer: SaveTokenizer) -> None:
    folder, path = tmp_path / "model", tmp_path / "target.gguf"
    save_model(folder, tiny_config("qwen3"))
    save_tokenizer(folder)
    write_target(folder, path, dtype="q8_0")
    fields = gguf.GGUFReader(path).fields
    expected = {
        "general.architecture": "qwen3",
        "general.name": "model",
        "general.file_type": 7,
        "qwen3.vocab_size": 264,
        "qwen3.context_length": 128,
        "qwen3.embedding_length": 64,
        "qwen3.block_count": 2,
        "qwen3.feed_forward_length": 96,
        "qwen3.attention.head_count": 4,
        "qwen3.attention.head_count_kv": 2,
        "qwen3.attention.key_length": 128,
        "qwen3.attention.value_length": 128,
        "qwen3.rope.dimension_count": 128,
        "qwen3.rope.freq_base": 50_000.0,
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.add_bos_token": True,
    }
    assert {key: fields[key].contents() for key in expected} == expected


def test_rows_of_a_head_are_interleaved() -> None:
    # One head of 6: rows 0 1 2 | 3 4 5 become the pairs (0 3) (1 4) (2 5).
    rows = torch.arange(12.0)[:, None]
    assert permute_rope(rows, 2).flatten().tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]


def test_shards_give_the_same_file(tmp_path: Path, save_tokenizer: SaveTokenizer) -> None:
    whole, sharded = tmp_path / "one" / "model", tmp_path / "two" / "model"
    model = save_model(whole, tiny_config("llama"))
    model.save_pretrained(sharded, max_shard_size="100KB")
    assert (sharded / "model.safetensors.index.json").exists()
    for folder in (whole, sharded):
        save_tokenizer(folder)
        write_target(folder, folder.parent / "t.gguf", dtype="bf16")
    assert (tmp_path / "one/t.gguf").read_bytes() == (tmp_path / "two/t.gguf").read_bytes()


def test_llama3_frequencies_are_written_as_a_table(
    tmp_path: Path, save_tokenizer: SaveTokenizer
) -> None:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 50_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    folder, path = tmp_path / "model", tmp_path / "target.gguf"
    model = save_model(folder, tiny_config("llama", rope_parameters=scaling))
    save_tokenizer(folder)
    write_target(folder, path, dtype="f32")
    entry = read_file(path).tensors["rope_freqs.weight"]
    factors = torch.from_numpy(entry.data.view("float32").copy())
    plain = 1.0 / 50_000.0 ** (torch.arange(0, 16, 2) / 16)
    rotary = model.get_submodule("model.rotary_emb").get_buffer("inv_freq")
    torch.testing.assert_close(plain / factors, rotary)
    torch.testing.assert_close(inverse_frequencies(read_shape(folder).rope, 16).inverse, rotary)
    qwen = tmp_path / "qwen"
    save_model(qwen, tiny_config("qwen3", rope_parameters=scaling))
    save_tokenizer(qwen)
    with pytest.raises(CheckpointError, match="for Llama models only, this is a qwen3"):
        write_target(qwen, tmp_path / "q.gguf", dtype="f32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "qwen2"}, "a target of type qwen2 is not written as GGUF"),
        ({"attention_bias": True}, "attention_bias can't be written as GGUF"),
        ({"mlp_bias": True}, "mlp_bias can't be written"),
        ({"hidden_act": "gelu"}, "activation gelu can't be written"),
        ({"use_sliding_window": True}, "use_sliding_window can't be written"),
        ({"partial_rotary_factor": 0.5}, r"partial_rotary_factor 0\.5 can't be written"),
        ({"num_hidden_layers": 1}, r"has a tensor model\.layers\.1\..* no place"),
        ({"num_hidden_layers": 3}, r"tensor model\.layers\.2\..* is missing"),
        ({"intermediate_size": 95}, r"is \[96, 64\], expected \[95, 64\]"),
        ({"vocab_size": 261}, "has a token 261, but the model has 261 rows"),
    ],
)
def test_refusals(
    tmp_path: Path, save_tokenizer: SaveTokenizer, change: dict[str, object], message: str
) -> None:
    folder = tmp_path / "model"
    save_model(folder, tiny_config("llama"))
    save_tokenizer(folder)
    config = cast(dict[str, object], json.loads((folder / "config.json").read_text("utf-8")))
    (folder / "config.json").write_text(json.dumps({**config, **change}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        write_target(folder, tmp_path / "t.gguf", dtype="f32")
    assert not (tmp_path / "t.gguf").exists()


def test_a_tied_head_may_go_by_either_name(tmp_path: Path, save_tokenizer: SaveTokenizer) -> None:
    folder = tmp_path / "model"
    save_model(folder, tiny_config("llama", tied=True))
    save_tokenizer(folder)
    write_target(folder, tmp_path / "a.gguf", dtype="f32")
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights.pop("model.embed_tokens.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    write_target(folder, tmp_path / "b.gguf", dtype="f32")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


LLAMA3: dict[str, object] = {
    "rope_type": "llama3",
    "rope_theta": 50_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN: dict[str, object] = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "attention_factor": 1.3,
}


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("qwen3", {"head_dim": 16}),
        ("qwen3", {"head_dim": 24}),
        ("qwen3", {"head_dim": 64, "rms_norm_eps": 1e-5}),
        ("qwen3", {"head_dim": 16, "rope_parameters": YARN}),
        ("llama", {"rope_parameters": LLAMA3, "head_dim": 24}),
        ("llama", {"rope_parameters": YARN, "eos_token_id": [260, 7, 9]}),
    ],
)
def test_what_we_write_loads_here_as_the_folder_does(
    tmp_path: Path,
    save_tokenizer: SaveTokenizer,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    more: dict[str, object],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, path = tmp_path / "model", tmp_path / "out" / "target.gguf"
    save_model(folder, tiny_config(family, tied=False, **more))
    save_tokenizer(folder)
    named = json.dumps({"bos_token": "<|start|>", "eos_token": "<|end|>"})
    (folder / "tokenizer_config.json").write_text(named, encoding="utf-8")
    write_target(folder, path, dtype="f32")
    expected, found = load_target(folder), load_target(path)
    ids = torch.arange(1, 100)
    assert torch.equal(found.open().prefill(ids).logits, expected.open().prefill(ids).logits)
    assert found.spec.stop_ids == expected.spec.stop_ids
