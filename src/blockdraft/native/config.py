"""`NativeConfig`: the shape of a dense Llama-like decoder, and which models have that shape.

It reads configurations only; weights are in `weights.py`, the trial against the original in
`target.py`.
"""

from dataclasses import dataclass
from typing import cast

from blockdraft.json_values import as_object

FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
"""Model types whose layers are RMS norm, rotary grouped-query attention and a gated MLP.

Llama 2 and 3, SmolLM and SmolLM2, Qwen2 and 2.5, Qwen3 (dense), Mistral.
"""

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary scalings whose frequencies do not change while a request grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeConfig:
    """Sizes of the decoder. `windows[i]` is layer i's sliding window, None = full attention."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    windows: tuple[int | None, ...]

    @property
    def num_groups(self) -> int:
        """Query heads that share a key/value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def num_key_values(self) -> int:
        """Numbers kept for each token: keys and values of all layers."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim


def why_not_native(config: object) -> str | None:
    """Why a transformers configuration has another shape; None when it fits."""
    model_type = _text(config, "model_type")
    if model_type not in FAMILIES:
        return f"model type {model_type} is not one of {', '.join(FAMILIES)}"
    activation = _text(config, "hidden_act")
    if activation != "silu":
        return f"its activation is {activation}, not silu"
    settings = as_object(_get(config, "rope_parameters"))
    rope_type = settings.get("rope_type", "default")
    if rope_type not in ROPE_TYPES:
        return f"its rotary scaling {rope_type} is not one of {', '.join(ROPE_TYPES)}"
    partial = settings.get("partial_rotary_factor", _get(config, "partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        return f"only a part ({partial}) of each head is rotated"
    tensor_parallel = _get(config, "pretraining_tp")
    if tensor_parallel not in (None, 1):
        return f"its matrix products are split in {tensor_parallel} (pretraining_tp)"
    return None


def read_native_config(config: object) -> NativeConfig:
    """The shape that a fitting transformers configuration describes."""
    num_layers = _whole(config, "num_hidden_layers")
    num_heads = _whole(config, "num_attention_heads")
    head_dim = _get(config, "head_dim") or _whole(config, "hidden_size") // num_heads
    assert isinstance(head_dim, int)
    eps = _get(config, "rms_norm_eps")
    assert isinstance(eps, float | int)
    return NativeConfig(
        num_layers=num_layers,
        hidden_size=_whole(config, "hidden_size"),
        intermediate_size=_whole(config, "intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=_whole(config, "num_key_value_heads"),
        head_dim=head_dim,
        vocab_size=_whole(config, "vocab_size"),
        rms_norm_eps=float(eps),
        windows=_windows(config, num_layers),
    )


def _windows(config: object, num_layers: int) -> tuple[int | None, ...]:
    window = _get(config, "sliding_window")
    if not isinstance(window, int):
        return (None,) * num_layers
    layer_types = _get(config, "layer_types")
    if isinstance(layer_types, list | tuple):
        kinds = cast(list[str], layer_types)
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    # Mistral has one window for all layers; the Qwen families have none without layer types.
    return (window if _text(config, "model_type") == "mistral" else None,) * num_layers


def _get(config: object, name: str) -> object:
    return cast(object, getattr(config, name, None))


def _text(config: object, name: str) -> str:
    return str(_get(config, name))


def _whole(config: object, name: str) -> int:
    value = _get(config, name)
    assert isinstance(value, int), f"{name} is {value!r}"
    return value
