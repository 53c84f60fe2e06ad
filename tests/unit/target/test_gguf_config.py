"""GGUF targets compute what their model's own library computes, or are refused.

The files are written here with the gguf package, from models of transformers.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
import transformers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from blockdraft.errors import CheckpointError
from blockdraft.target import load_target

KINDS: dict[str, Any] = {
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
IDS = torch.tensor([5, 20, 31, 7, 58, 9, 5, 5, 11, 12, 70, 3, 44, 90, 2, 8, 17, 29, 61, 33, 40])
THETA = 123_456.789
SCALED = {"rope_theta": THETA, "factor": 4.3, "original_max_position_embeddings": 16}
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.3,
    "rope.scaling.original_context_length": 16,
}
Values = Mapping[str, str | int | float]


def make_model(kind: str, **more: object) -> PreTrainedModel:
    shape: dict[str, object] = {
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "initializer_range": 0.2,
        "sliding_window": None,
        **({} if kind == "qwen2" else {"head_dim": 8}),
        **more,
    }
    loader: Any = AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: PreTrainedModel = loader.from_config(KINDS[kind](**shape))
        for weight in model.parameters():
            if weight.ndim == 1:  # norms of ones and biases of zeros would hide missing ones
                weight.data = 1 + 0.3 * torch.randn_like(weight)
    return model.eval()


def interleaved(weight: Tensor, num_heads: int) -> Tensor:
    """Rows as llama.cpp's converter orders those of Llama."""
    rows = weight.shape[0] // num_heads // 2
    return weight.reshape(num_heads, 2, rows, -1).transpose(1, 2).reshape(weight.shape)


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    values: Values | None = None,
    tensors: Mapping[str, Tensor] | None = None,
    name: str = "Tiny",
) -> Path:
    """`values` are further keys, or others, below the architecture."""
    config: Any = model.config
    is_llama = config.model_type in ("llama", "mistral")
    arch = "llama" if is_llama else config.model_type
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // 4
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(name)
    all_values: dict[str, str | int | float] = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.dimension_count": head_dim,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "vocab_size": config.vocab_size,
        **(values or {}),
    }
    add: dict[type, Any] = {
        str: writer.add_string,
        int: writer.add_uint32,
        float: writer.add_float32,
    }
    for key, value in all_values.items():
        add[type(value)](f"{arch}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<s>", "</s>", "AB", "CD", *(chr(33 + n) for n in range(92))])
    writer.add_token_types([3, 3, *[1] * 94])
    writer.add_token_merges(["A B", "C D"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_eot_token_id(7)
    for key, weight in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        stem, _, suffix = key.rpartition(".")
        layer, _, rest = stem.removeprefix("model.layers.").partition(".")
        written = NAMES.get(stem) or f"blk.{layer}.{NAMES[rest]}"
        if is_llama and "q_proj" in key:
            weight = interleaved(weight, config.num_attention_heads)
        if is_llama and "k_proj" in key:
            weight = interleaved(weight, config.num_key_value_heads)
        writer.add_tensor(f"{written}.{suffix}", weight.contiguous().numpy())
    for key, weight in (tensors or {}).items():
        writer.add_tensor(key, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def check_same(path: Path, model: PreTrainedModel) -> None:
    target = load_target(path)
    call: Any = model
    with torch.no_grad():
        expected: Tensor = call(IDS[None]).logits[0, -1]
    found = target.open().prefill(IDS).logits[-1]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=3e-6)
    assert target.spec.stop_ids == (1, 7)


@pytest.fixture(autouse=True)
def own_cache(cache_home: Path) -> None:
    """Conversions stay out of the user's cache."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("more", "values"),
    [
        pytest.param({}, {}, id="plain"),
        pytest.param({"tie_word_embeddings": True, "rms_norm_eps": 1e-3}, {}, id="tied"),
        pytest.param(
            {"rope_parameters": {"rope_type": "linear", "rope_theta": THETA, "factor": 2.1}},
            {"rope.scaling.type": "linear", "rope.scaling.factor": 2.1},
            id="linear",
        ),
        pytest.param({"rope_parameters": {"rope_type": "yarn", **SCALED}}, YARN, id="yarn"),
        pytest.param(
            {
                "rope_parameters": {
                    "rope_type": "yarn",
                    **SCALED,
                    "attention_factor": 1.3,
                    "beta_fast": 20.0,
                    "beta_slow": 2.0,
                }
            },
            {
                **YARN,
                "rope.scaling.attn_factor": 1.3 / 1.1458615,
                "rope.scaling.yarn_beta_fast": 20.0,
                "rope.scaling.yarn_beta_slow": 2.0,
            },
            id="yarn settings",
        ),
    ],
)
def test_what_transformers_leaves_out_is_read(
    tmp_path: Path, kind: str, more: dict[str, object], values: Values
) -> None:
    model = make_model(kind, **more)
    check_same(write_gguf(tmp_path / "t.gguf", model, values), model)


@pytest.mark.parametrize("head_dim", [16, 24, 64])
@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen3"])
def test_head_sizes(tmp_path: Path, kind: str, head_dim: int) -> None:
    model = make_model(kind, head_dim=head_dim)
    check_same(write_gguf(tmp_path / "t.gguf", model), model)


@pytest.mark.skipif(
    tuple(int(part) for part in transformers.__version__.split(".")[:2]) < (5, 24),
    reason="its reader knows no tokenizer of a model with that name",
)
def test_a_model_named_mistral(tmp_path: Path) -> None:
    """Which transformers takes for another class, with a sliding window by default."""
    model = make_model("mistral", max_position_embeddings=8192)
    check_same(write_gguf(tmp_path / "t.gguf", model, name="mistral"), model)


@pytest.mark.parametrize(
    ("kind", "more"),
    [("llama", {"attention_bias": True, "mlp_bias": True}), ("qwen3", {"attention_bias": True})],
)
def test_biases_are_read(tmp_path: Path, kind: str, more: dict[str, object]) -> None:
    model = make_model(kind, **more)
    check_same(write_gguf(tmp_path / "t.gguf", model), model)


@pytest.mark.parametrize(("factor", "original"), [(8.0, 32), (32.0, 8192), (3.3, 16)])
def test_frequencies_of_llama_3(tmp_path: Path, factor: float, original: int) -> None:
    """The file has their quotients only."""
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }
    model = make_model("llama", rope_parameters=scaling, max_position_embeddings=16_384)
    plain = 1.0 / 5e5 ** (torch.arange(0, 8, 2) / 8)
    factors = plain / model.get_submodule("model.rotary_emb").get_buffer("inv_freq")
    path = write_gguf(tmp_path / "t.gguf", model, tensors={"rope_freqs.weight": factors})
    check_same(path, model)


@pytest.mark.parametrize(
    ("values", "tensors", "message"),
    [
        ({"attention.key_length": 16}, {}, "value.* different lengths"),
        ({"attention.key_length": 16, "attention.value_length": 16}, {}, "a part of each head"),
        ({"attention.key_length": 6, "attention.value_length": 6}, {}, "other|part of each head"),
        ({"attention.key_length": "8"}, {}, r"key_length is '8', expected a number"),
        ({"attention.key_length": 0}, {}, "whole number of at least 1"),
        ({"rope.scaling.type": "longrope"}, {}, "'longrope' is not one of"),
        ({**YARN, "rope.scaling.yarn_ext_factor": 0.5}, {}, r"yarn_ext_factor 0\.5 is not"),
        ({"attention.sliding_window": 32}, {}, "has a sliding window"),
        ({}, {"blk.0.ffn_gate_exps.weight": torch.ones(2, 3)}, "no place for its tensor blk"),
        ({}, {"rope_freqs.weight": torch.tensor([1.0, 5.0, 2.0, 9.0])}, "not scaled as in Llama"),
        ({}, {"rope_freqs.weight": torch.ones(2, 2)}, "no whole vector of float32"),
        ({}, {"blk.0.attn_q.bias": torch.ones(32)}, "it lacks .* weights, the first is model"),
        (
            {"attention.key_length": 12, "attention.value_length": 12, "rope.dimension_count": 12},
            {},
            "other shapes than its keys say",
        ),
    ],
)
def test_what_would_be_computed_otherwise_is_refused(
    tmp_path: Path, values: Values, tensors: dict[str, Tensor], message: str
) -> None:
    path = write_gguf(tmp_path / "t.gguf", make_model("llama"), values, tensors)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_target(path)
    assert str(caught.value).startswith(f"{path} can't be dequantized: ")
    assert "use the model's own folder" in str(caught.value)
