"""The configuration that a `dflash` file describes: from our own record, or from the keys alone.

It refuses other architectures, later versions and settings that are not supported here.
"""

import json
from collections.abc import Mapping
from typing import cast

from blockdraft.checkpoint.format import parse_config
from blockdraft.drafter.config import DrafterConfig, LayerType
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.interop.gguf.file import GgufFile, Metadata, Value
from blockdraft.interop.gguf.metadata import (
    CONFIG_KEY,
    DRAFTER_ARCHITECTURE,
    MASK_KEY,
    drafter_metadata,
)
from blockdraft.interop.gguf.rope import (
    FACTORS_NAME,
    optional_number,
    parse_rope,
    render_rope,
    shortest,
)

_ARCH = DRAFTER_ARCHITECTURE
_OTHERS: Mapping[str, str] = {
    "dflash-draft": "it is of the forks that had DFlash before llama.cpp (buun, beellama), whose"
    " layout differs; convert the original checkpoint again",
    "eagle3": "it is an EAGLE-3 drafter, which drafts token by token",
}
_LATER_KEYS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
_LATER_TENSORS = ("markov_w1", "markov_w2", "conf_proj", "selector_", "attn_sinks")
_TRUE_ONLY_ELSEWHERE = ("sample_from_anchor", "has_confidence_head")
_READ_KEYS = frozenset(
    f"{_ARCH}.{name}"
    for name in (
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.causal",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "block_size",
        "target_layers",
        "embedding_scale",
        "logit_scale",
        "final_logit_softcapping",
        "hidden_activation",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.attn_factor",
        "rope.scaling.original_context_length",
        "vocab_size",
    )
)
_OTHER_NUMBERS = ("attention.value_scale", "attention.scale", "hyper_connection.count")


def check_version(file: GgufFile) -> None:
    """Raise CheckpointError unless the file is a plain DFlash (version 1) drafter."""
    if file.architecture != _ARCH:
        reason = _OTHERS.get(file.architecture, "that is no DFlash drafter")
        raise CheckpointError(
            f"{file.path} is of architecture {file.architecture!r}, expected {_ARCH!r}: {reason}"
        )
    for key in _LATER_KEYS:
        if f"{_ARCH}.{key}" in file.metadata:
            raise _unsupported(file, f"key {_ARCH}.{key}", "DFlash 2")
    for key in _TRUE_ONLY_ELSEWHERE:
        found = file.metadata.get(f"{_ARCH}.{key}")
        if found is not None and found.value is not False:
            raise _unsupported(file, f"key {_ARCH}.{key}", "DSpark")
    for key in _OTHER_NUMBERS:
        if optional_number(file, f"{_ARCH}.{key}", 0.0) != 0:
            raise _unsupported(file, f"key {_ARCH}.{key}", "a model of another family")
    activation = file.metadata.get(f"{_ARCH}.hidden_activation")
    if activation is not None and activation.value != "silu":
        raise _unsupported(file, f"activation {activation.value}", "a model of another family")
    judged = {f"{_ARCH}.{key}" for key in (*_TRUE_ONLY_ELSEWHERE, *_OTHER_NUMBERS)}
    for key, value in file.metadata.items():
        if key.startswith(f"{_ARCH}.") and key not in _READ_KEYS | judged:
            raise CheckpointError(
                f"{file.path}: unknown key {key} = {str(value.value)[:40]}, which may change what"
                " the drafter computes; read the original checkpoint"
            )
    for name in file.tensors:
        if any(part in name for part in _LATER_TENSORS):
            raise _unsupported(file, f"tensor {name}", "DSpark or DFlash 2")


def read_config(file: GgufFile) -> DrafterConfig:
    """The drafter's configuration; CheckpointError when keys are missing or contradict our record.

    Without our record, numbers that GGUF keeps in float32 become the shortest decimal number.
    """
    if CONFIG_KEY in file.metadata:
        return _recorded_config(file)
    if FACTORS_NAME in file.tensors:
        raise CheckpointError(
            f"{file.path} scales its rotary embedding by a table ({FACTORS_NAME}), which does not"
            " say how it was made; read the original checkpoint"
        )
    try:
        return _config_of_keys(file)
    except ConfigError as error:
        raise CheckpointError(f"{file.path}: {error}; fetch it again") from error


def _recorded_config(file: GgufFile) -> DrafterConfig:
    where = f"{file.path}, {CONFIG_KEY}"
    try:
        raw = cast("object", json.loads(str(file.metadata[CONFIG_KEY].value)))
    except ValueError as error:
        raise CheckpointError(f"{where} is no JSON: export it again") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{where} is no JSON object: export it again")
    config = parse_config(cast("dict[str, object]", raw), where)
    written: Metadata = drafter_metadata(config, "f32")
    written |= render_rope(config.rope, config.head_dim, _ARCH, where).metadata
    for key, value in written.items():
        if not key.startswith(f"{_ARCH}."):
            continue
        found = file.metadata.get(key)
        if found is None or _comparable(found) != _comparable(value):
            shown = "missing" if found is None else repr(found.value)
            raise CheckpointError(
                f"{file.path}: key {key} is {shown}, but {CONFIG_KEY} asks for {value.value!r}:"
                " the file was edited; export it again"
            )
    return config


def _comparable(value: Value) -> object:
    if isinstance(value.value, float):
        return shortest(value.value)
    return value.value if isinstance(value.value, bool | int | str) else tuple(value.value)


def _config_of_keys(file: GgufFile) -> DrafterConfig:
    hidden, heads = _integer(file, "embedding_length"), _integer(file, "attention.head_count")
    num_layers = _integer(file, "block_count")
    head_dim = _integer(file, "attention.key_length", hidden // heads)
    if _integer(file, "attention.value_length", head_dim) != head_dim:
        raise _unsupported(file, "value heads of another size", "a model of another family")
    if _integer(file, "rope.dimension_count", head_dim) != head_dim:
        raise _unsupported(file, "a partly rotated head", "a model of another family")
    window = _integer(file, "attention.sliding_window", 0) or None
    softcap = optional_number(file, f"{_ARCH}.final_logit_softcapping", 0.0)
    d2t = file.tensors.get("d2t")
    return DrafterConfig(
        hidden_size=hidden,
        intermediate_size=_integer(file, "feed_forward_length"),
        num_layers=num_layers,
        num_heads=heads,
        num_kv_heads=_integer(file, "attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=shortest(optional_number(file, _key("attention.layer_norm_rms_epsilon"), 0)),
        vocab_size=len(_list(file, "tokenizer.ggml.tokens")),
        block_size=_integer(file, "block_size", 16),
        mask_token_id=_plain(file, MASK_KEY, None),
        taps=tuple(int(layer) - 1 for layer in _list(file, _key("target_layers"))),
        layer_types=_layer_types(file, window, num_layers),
        sliding_window=window,
        is_causal=_is_causal(file, window),
        max_position_embeddings=_integer(file, "context_length"),
        rope=parse_rope(file),
        input_embedding_scale=shortest(optional_number(file, _key("embedding_scale"), 0.0)) or 1.0,
        output_multiplier=shortest(optional_number(file, _key("logit_scale"), 0.0)) or 1.0,
        final_logit_softcapping=shortest(softcap) or None,
        draft_vocab_size=None if d2t is None else d2t.shape[0],
    )


def _layer_types(file: GgufFile, window: int | None, num_layers: int) -> tuple[LayerType, ...]:
    if num_layers > len(file.tensors):  # a list as long as that is made; each layer has tensors
        raise CheckpointError(
            f"{file.path} has {len(file.tensors)} tensors, too few for the {num_layers} layers of "
            f"{_key('block_count')}: fetch it again"
        )
    if window is None:
        return ("full_attention",) * num_layers
    pattern = _list(file, _key("attention.sliding_window_pattern"))
    return tuple("sliding_attention" if sliding else "full_attention" for sliding in pattern)


def _is_causal(file: GgufFile, window: int | None) -> bool | None:
    """llama.cpp's flag holds for every layer and is false when absent; None where it goes without
    saying.
    """
    found = file.metadata.get(_key("attention.causal"))
    if found is not None and found.value is True:
        return True
    return None if window is None else False


def _integer(file: GgufFile, name: str, default: int | None = None) -> int:
    return _plain(file, _key(name), default)


def _plain(file: GgufFile, key: str, default: int | None) -> int:
    found = file.metadata.get(key)
    if found is None and default is not None:
        return default
    value = None if found is None else found.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise CheckpointError(
        f"{file.path}: key {key} is {'missing' if found is None else repr(value)}, expected a whole"
        " number: convert the drafter again"
    )


def _list(file: GgufFile, key: str) -> tuple[bool | int | float | str, ...]:
    found = file.metadata.get(key)
    if found is None or not found.is_list:
        raise CheckpointError(f"{file.path}: the list {key} is missing: convert the drafter again")
    return tuple(cast("tuple[bool | int | float | str, ...]", found.value))


def _key(name: str) -> str:
    return f"{_ARCH}.{name}"


def _unsupported(file: GgufFile, what: str, of: str) -> CheckpointError:
    return CheckpointError(
        f"{file.path} has {what} ({of}); only plain DFlash (version 1) drafters are read"
    )
