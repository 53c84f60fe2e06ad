"""GGUF files as the rules see them: metadata translated back to the keys of config.json.

Shapes only; no tensor is dequantized. llama.cpp names a tapped layer by the next one's number.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

from blockdraft.check.facts import TensorFacts
from blockdraft.errors import CheckpointError
from blockdraft.interop.gguf.file import GgufFile, read_file
from blockdraft.interop.gguf.names import drafter_name

_TOKENS = "tokenizer.ggml.tokens"
_LAYER = re.compile(r"blk\.(\d{1,9})\.")
_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "rope_theta": "rope.freq_base",
}

GGUF_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads")
"""What every target's metadata has, by the names in config.json."""


class GgufFacts(NamedTuple):
    """`raw` has the keys of a config.json; `tensors` the published names, where there is one."""

    raw: dict[str, object]
    tensors: dict[str, TensorFacts]
    tau: float | None
    chat_template: str | None


def read_gguf(path: Path, *, drafter: bool) -> GgufFacts:
    """The facts of a file. Raises CheckpointError for what is no GGUF file of the kind expected."""
    file = read_file(path)
    if drafter and file.architecture != "dflash":
        raise CheckpointError(
            f"{path} has architecture {file.architecture}, expected dflash; give a drafter's file"
        )
    raw = _sizes(file)
    if drafter:
        raw |= _drafter_keys(file)
    tau = _value(file, "blockdraft.acceptance_length")
    template = _value(file, "tokenizer.chat_template")
    return GgufFacts(
        raw=raw,
        tensors=_tensors(file),
        tau=float(tau) if isinstance(tau, int | float) else None,
        chat_template=template if isinstance(template, str) else None,
    )


def _value(file: GgufFile, key: str) -> object:
    found = file.metadata.get(key)
    return None if found is None else found.value


def _listed(file: GgufFile, key: str) -> list[object] | None:
    value = _value(file, key)
    return list(cast("list[object]", value)) if isinstance(value, list | tuple) else None


def _sizes(file: GgufFile) -> dict[str, object]:
    raw = {name: _value(file, f"{file.architecture}.{key}") for name, key in _SIZES.items()}
    tokens = _listed(file, _TOKENS)
    raw["vocab_size"] = None if tokens is None else len(tokens)
    raw["model_type"] = file.architecture
    return raw


def _drafter_keys(file: GgufFile) -> dict[str, object]:
    layers = _listed(file, "dflash.target_layers")
    window = _value(file, "dflash.attention.sliding_window")
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "block_size": _value(file, "dflash.block_size"),
        "is_causal": _value(file, "dflash.attention.causal"),
        "use_sliding_window": window is not None,
        "dflash_config": {
            "target_layer_ids": None
            if layers is None
            else [layer - 1 for layer in layers if isinstance(layer, int)],
            "mask_token_id": _value(file, "tokenizer.ggml.mask_token_id"),
        },
    }


def _tensors(file: GgufFile) -> dict[str, TensorFacts]:
    published = _published_names(file)
    return {
        published.get(name, name): TensorFacts(tuple(entry.shape))
        for name, entry in file.tensors.items()
        if name != "token_embd.weight"
    }


def _published_names(file: GgufFile) -> Mapping[str, str]:
    names = ["fc.weight", "hidden_norm.weight", "norm.weight"]
    attention = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
    # Of the layers that are there: block_count may claim any number.
    found_layers = {int(m[1]) for name in file.tensors if (m := _LAYER.match(name)) is not None}
    for layer in sorted(found_layers):
        start = f"layers.{layer}."
        names += [f"{start}self_attn.{part}.weight" for part in attention]
        names += [f"{start}mlp.{part}_proj.weight" for part in ("gate", "up", "down")]
        names += [f"{start}{n}.weight" for n in ("input_layernorm", "post_attention_layernorm")]
    found = {drafter_name(name): name for name in names}
    return {
        **{stored: name for stored, name in found.items() if stored is not None},
        "output.weight": "lm_head.weight",
        "rope_freqs.weight": "layers.rope_freqs",
    }
