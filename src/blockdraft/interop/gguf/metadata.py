"""A drafter's configuration as GGUF keys of architecture `dflash`, and what those can't say.

It opens no files and holds no tensors. Keys: llama.cpp's src/models/dflash.cpp.
"""

import json
from collections.abc import Mapping

from blockdraft.checkpoint.format import render_config
from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import ConfigError
from blockdraft.interop.gguf.dtypes import QUANTIZATION_VERSION, GgufType, file_type
from blockdraft.interop.gguf.file import Kind, Metadata, Value, f32, flag, text, u32

DRAFTER_ARCHITECTURE = "dflash"
CONFIG_KEY = "blockdraft.drafter_config"
"""Our own record: config.json of the drafter, since float32 keys round and some facts have none."""
PROVENANCE_KEY = "blockdraft.provenance"
TAU_KEY = "blockdraft.acceptance_length"
TARGET_HEAD_KEY = "blockdraft.head_is_targets"
MASK_KEY = "tokenizer.ggml.mask_token_id"


def drafter_metadata(config: DrafterConfig, dtype: GgufType) -> Metadata:
    """Every key about the drafter itself but those of its rotary embedding and its tokenizer.

    Raises ConfigError for a drafter that llama.cpp would read otherwise; see `check_readable`.
    """
    check_readable(config)
    arch = DRAFTER_ARCHITECTURE
    metadata: Metadata = {
        "general.type": text("model"),
        "general.file_type": u32(file_type(dtype)),
        "general.quantization_version": u32(QUANTIZATION_VERSION),
        f"{arch}.context_length": u32(config.max_position_embeddings),
        f"{arch}.embedding_length": u32(config.hidden_size),
        f"{arch}.block_count": u32(config.num_layers),
        f"{arch}.feed_forward_length": u32(config.intermediate_size),
        f"{arch}.attention.head_count": u32(config.num_heads),
        f"{arch}.attention.head_count_kv": u32(config.num_kv_heads),
        f"{arch}.attention.key_length": u32(config.head_dim),
        f"{arch}.attention.value_length": u32(config.head_dim),
        f"{arch}.attention.layer_norm_rms_epsilon": f32(config.rms_norm_eps),
        f"{arch}.attention.causal": flag(global_causality(config)),
        f"{arch}.block_size": u32(config.block_size),
        # The input of layer i + 1 is the output of layer i.
        f"{arch}.target_layers": Value(Kind.INT32, [tap + 1 for tap in config.taps]),
    }
    metadata |= _window(config) | _scales(config)
    rendered = render_config(config, "float32" if dtype in ("f32", "q8_0") else dtype)
    del rendered["dtype"]  # the tensors have it
    metadata[CONFIG_KEY] = text(json.dumps(rendered, sort_keys=True, allow_nan=False))
    return metadata


def provenance_metadata(provenance: Mapping[str, object], tau: float | None) -> Metadata:
    """The drafter's record of its making, and the acceptance length measured (float64)."""
    metadata: Metadata = {}
    if provenance:
        rendered = json.dumps(dict(provenance), sort_keys=True, allow_nan=False)
        metadata[PROVENANCE_KEY] = text(rendered)
    if tau is not None:
        metadata[TAU_KEY] = Value(Kind.FLOAT64, tau)
    return metadata


def check_readable(config: DrafterConfig) -> None:
    """Raise ConfigError, with the reason, for a drafter that llama.cpp can't run or would run
    with another meaning.
    """
    if config.attention_bias:
        raise _refusal("its attention has biases, for which architecture dflash has no tensors")
    global_causality(config)
    window = config.sliding_window if "sliding_attention" in config.layer_types else None
    # llama.cpp's window looks back only: what lies ahead in the block is always seen.
    if window is not None and config.block_size > window and not global_causality(config):
        raise _refusal(
            f"its window of {window} also limits what a row sees ahead in the block of"
            f" {config.block_size}, and llama.cpp's windows limit what lies behind only"
        )
    if config.output_multiplier <= 0:
        raise _refusal(
            f"its output_multiplier {config.output_multiplier} changes which token is best, and"
            " llama.cpp does not apply it to a drafter"
        )
    if config.input_embedding_scale == 0:
        raise _refusal("an input_embedding_scale of 0 means 'not given' there")


def global_causality(config: DrafterConfig) -> bool:
    """Whether every layer is causal; ConfigError when only some are, as llama.cpp has one flag."""
    rules = {config.mask_rule(layer).causal for layer in range(config.num_layers)}
    if len(rules) > 1:
        raise _refusal(
            "its sliding layers are causal and its full layers are not, and llama.cpp has one flag"
            " for all layers"
        )
    return rules.pop()


def _window(config: DrafterConfig) -> Metadata:
    if "sliding_attention" not in config.layer_types:
        return {}
    assert config.sliding_window is not None  # DrafterConfig has checked it
    arch = f"{DRAFTER_ARCHITECTURE}.attention"
    pattern = [kind == "sliding_attention" for kind in config.layer_types]
    return {
        f"{arch}.sliding_window": u32(config.sliding_window),
        f"{arch}.sliding_window_pattern": Value(Kind.BOOL, pattern),
    }


def _scales(config: DrafterConfig) -> Metadata:
    arch = DRAFTER_ARCHITECTURE
    metadata: Metadata = {}
    if config.input_embedding_scale != 1:
        metadata[f"{arch}.embedding_scale"] = f32(config.input_embedding_scale)
    if config.output_multiplier != 1:
        metadata[f"{arch}.logit_scale"] = f32(config.output_multiplier)
    if config.final_logit_softcapping is not None:
        metadata[f"{arch}.final_logit_softcapping"] = f32(config.final_logit_softcapping)
    return metadata


def _refusal(reason: str) -> ConfigError:
    return ConfigError(
        f"the drafter can't be written as GGUF: {reason}; use --format hf with another engine"
    )
