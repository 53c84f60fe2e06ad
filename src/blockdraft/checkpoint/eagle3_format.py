"""The config.json of a published EAGLE-3 drafter, to `Eagle3Config`.

Two layouts: the flat one of SafeAILab's code and most copies on the hub, and that of speculators,
with the layer under `transformer_layer_config`. It opens no files.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from blockdraft.checkpoint.fields import Fields
from blockdraft.checkpoint.rope_dialects import parse_rope
from blockdraft.drafter.config import RopeConfig
from blockdraft.drafter.eagle3_config import DEFAULT_BLOCK_SIZE, Eagle3Config
from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.json_values import as_list, as_object

NUM_TAPS = 3
"""Of a checkpoint that does not name its layers."""

_ANY_TAPS = tuple(range(NUM_TAPS))
_PUBLIC_THETA = 10_000.0
"""What the public code takes where a file gives no base frequency."""

_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "num_hidden_layers": (1,),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "bias": (False,),
    "norm_before_fc": (False,),
    "parallel_drafting": (False,),
    "partial_rotary_factor": (1,),
    "quantization_config": (),
}
"""Keys whose other values need code that does not exist here; null is neutral for all."""


class Eagle3Facts(NamedTuple):
    """What a file says. `taps` None: the public layers, which depend on the target's depth; then
    those of `config` are only as many."""

    config: Eagle3Config
    taps: tuple[int, ...] | None


def is_eagle3(raw: Mapping[str, object]) -> bool:
    """Whether a config.json is one of an EAGLE-3 drafter."""
    if raw.get("speculators_model_type") == "eagle3":
        return True
    return any("eagle3" in str(name).lower() for name in as_list(raw.get("architectures")))


def parse_eagle3(
    raw: Mapping[str, object], where: str, *, taps: Sequence[int] | None = None
) -> Eagle3Facts:
    """Raises CheckpointError for a missing, malformed or unsupported key. Given `taps` win.

    Keys that change nothing here are not looked at: a drafter can't change the text.
    """
    top = Fields(raw, where)
    nested = top.section("transformer_layer_config", fallback=top)
    layer = top if nested.is_empty() else nested
    _refuse_unsupported(top)
    _refuse_unsupported(layer)
    hidden = layer.integer("hidden_size")
    heads = layer.integer("num_attention_heads")
    vocab_size = layer.integer("vocab_size")
    found = _taps(top) if taps is None else tuple(taps)
    try:
        config = Eagle3Config(
            hidden_size=hidden,
            target_hidden_size=top.optional_integer("target_hidden_size") or hidden,
            intermediate_size=layer.integer("intermediate_size"),
            num_heads=heads,
            num_kv_heads=layer.optional_integer("num_key_value_heads") or heads,
            head_dim=layer.optional_integer("head_dim") or hidden // max(heads, 1),
            rms_norm_eps=layer.number("rms_norm_eps"),
            vocab_size=vocab_size,
            draft_vocab_size=top.optional_integer("draft_vocab_size") or vocab_size,
            taps=_ANY_TAPS if found is None else found,
            max_position_embeddings=layer.integer("max_position_embeddings"),
            block_size=_block_size(top),
            rope=_rope(layer),
            norm_before_residual=bool(top.optional_flag("norm_before_residual")),
        )
    except ConfigError as error:
        raise CheckpointError(f"{where}: {error}; correct the file") from error
    return Eagle3Facts(config, found)


def _refuse_unsupported(fields: Fields) -> None:
    for key, value in fields.items():
        if key in _NEUTRAL and value not in _NEUTRAL[key]:
            allowed = " or ".join(repr(item) for item in (*_NEUTRAL[key], None))
            raise CheckpointError(
                f"{fields.where}: key '{fields.prefix}{key}' = {value!r} is not supported for an"
                f" EAGLE-3 drafter, expected {allowed}; use a checkpoint without it"
            )


def _taps(top: Fields) -> tuple[int, ...] | None:
    """The files number a layer by what goes into it: its output is that of the one before."""
    name = "eagle_aux_hidden_state_layer_ids"
    written = top.optional_integers(name)
    if written is None:
        written = top.section("eagle_config").optional_integers(name)
    if not written:
        return None
    if min(written) < 1:
        raise top.wrong(name, list(written), "layers from 1 on (0 would be the embedding)")
    return tuple(layer - 1 for layer in written)


def _block_size(top: Fields) -> int:
    """One more than speculators' `speculative_tokens`; other files say nothing."""
    for method in as_list(top.section("speculators_config").raw("proposal_methods")):
        inner = Fields(as_object(method), top.where, prefix="proposal_methods.")
        tokens = inner.optional_integer("speculative_tokens")
        if tokens is not None:
            return tokens + 1
    return DEFAULT_BLOCK_SIZE


def _rope(layer: Fields) -> RopeConfig:
    names = ("rope_theta", "rope_parameters", "rope_scaling")
    if all(layer.raw(name) is None for name in names):
        return RopeConfig(theta=_PUBLIC_THETA)
    return parse_rope(layer)
