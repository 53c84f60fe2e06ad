"""Tiny random transformers models of real families, for tests on real caches and masks.

They say nothing sensible; drafters of their size are made elsewhere.
"""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from blockdraft.target.hf import HFTarget

Family = Literal["qwen3", "llama", "qwen2", "mistral", "qwen2_sliding", "gemma2", "gemma3"]

FAMILIES: tuple[Family, ...] = (
    "qwen3",
    "llama",
    "qwen2",
    "mistral",
    "qwen2_sliding",
    "gemma2",
    "gemma3",
)
"""Full attention: the first three. Sliding window: mistral (every layer), qwen2_sliding (the last
two layers), gemma2 and gemma3 (every other layer; soft-caps, embedding scale)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySize:
    """The sizes that tests like to change."""

    vocab_size: int = 96
    hidden_size: int = 32
    num_layers: int = 3
    max_context_len: int = 512
    window: int = 6
    tied: bool = False
    stop_ids: tuple[int, ...] = (2, 3)


def tiny_config(family: Family = "qwen3", size: TinySize | None = None) -> PreTrainedConfig:
    """The configuration of a random model with two key/value heads for four query heads."""
    size = size or TinySize()
    shape: dict[str, object] = {
        "vocab_size": size.vocab_size,
        "hidden_size": size.hidden_size,
        "intermediate_size": 2 * size.hidden_size,
        "num_hidden_layers": size.num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": size.hidden_size // 4,
        "max_position_embeddings": size.max_context_len,
        "tie_word_embeddings": size.tied,
        "bos_token_id": 1,
        "pad_token_id": 0,
        "eos_token_id": list(size.stop_ids),
        # Default initialization gives nearly uniform logits; this gives texts that vary.
        "initializer_range": 0.3,
    }
    model_type = {"qwen2_sliding": "qwen2", "gemma3": "gemma3_text"}.get(family, family)
    if family == "qwen2_sliding":
        shape |= {
            "use_sliding_window": True,
            "sliding_window": size.window,
            "max_window_layers": size.num_layers - 2,
        }
    elif family in ("mistral", "gemma2", "gemma3"):
        shape["sliding_window"] = size.window
    if family in ("gemma2", "gemma3"):
        kinds = ("sliding_attention", "full_attention")
        shape["layer_types"] = [kinds[layer % 2] for layer in range(size.num_layers)]
        shape["query_pre_attn_scalar"] = size.hidden_size // 4
    if family == "gemma2":
        shape |= {"final_logit_softcapping": 8.0, "attn_logit_softcapping": 10.0}
    return AutoConfig.for_model(model_type, **shape)


def tiny_model(
    family: Family = "qwen3",
    *,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    size: TinySize | None = None,
    attn: str | None = None,
) -> PreTrainedModel:
    """A random model, the same for the same arguments; global random numbers are untouched."""
    # Gemma2's soft-capped scores exist in eager attention only.
    attn = attn or ("eager" if family == "gemma2" else "sdpa")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = cast(
            PreTrainedModel,
            AutoModelForCausalLM.from_config(tiny_config(family, size), attn_implementation=attn),
        )
    # The weights only: rotary tables stay float32, as in every model that is loaded from a file.
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model


def tiny_target(
    family: Family = "qwen3",
    *,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    size: TinySize | None = None,
    attn: str | None = None,
) -> HFTarget:
    """`tiny_model` as a target; it has no tokenizer (`text` is None)."""
    model = tiny_model(family, dtype=dtype, seed=seed, size=size, attn=attn)
    return HFTarget(model, name=f"tiny-{family}")
