"""The published config.json of a DFlash drafter, to and from `DrafterConfig`.

It opens no files: JSON objects in, JSON objects out. The keys are in docs/checkpoint-format.md.
"""

from collections.abc import Mapping, Sequence
from typing import cast, get_args

from blockdraft.checkpoint.fields import Fields
from blockdraft.checkpoint.rope_dialects import parse_rope, render_rope
from blockdraft.checkpoint.unsupported import (
    FIRST_ARCHITECTURE,
    HARMLESS_KEYS,
    JUDGED_KEYS,
    SECOND_ARCHITECTURE,
    refuse_architecture,
    refuse_other_formats,
    refuse_unsupported,
)
from blockdraft.drafter.config import DFlash2Config, DrafterConfig, LayerType, check_taps
from blockdraft.errors import CheckpointError, ConfigError

_DFLASH2_KEYS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")

MOST_LAYERS = 1024
"""More than any drafter has; a file may claim any number."""


def parse_config(
    raw: Mapping[str, object], where: str, *, taps: Sequence[int] | None = None
) -> DrafterConfig:
    """The drafter that `raw` describes; `taps` replaces the file's `target_layer_ids`.

    `where` names the file in errors. Keys of the algorithm are looked up in `dflash_config` first,
    then at the top level. Raises CheckpointError for a missing, malformed, contradictory or unknown
    key, for what is not supported, and for another model than a DFlash drafter.
    """
    refuse_other_formats(raw, where)
    top = Fields(raw, where)
    nested = top.section("dflash_config", fallback=top)
    refuse_unsupported(top)
    refuse_unsupported(nested)
    refuse_architecture(raw, where, is_second=_has_dflash2_keys(nested))
    num_layers = top.integer("num_hidden_layers")
    if num_layers > MOST_LAYERS:  # lists as long as that are made below
        raise top.wrong("num_hidden_layers", num_layers, f"at most {MOST_LAYERS}")
    layers = _Layers(top, nested, num_layers)
    softcap = nested.optional_number("final_logit_softcapping")
    try:
        config = DrafterConfig(
            hidden_size=top.integer("hidden_size"),
            intermediate_size=top.integer("intermediate_size"),
            num_layers=num_layers,
            num_heads=top.integer("num_attention_heads"),
            num_kv_heads=top.integer("num_key_value_heads"),
            head_dim=top.integer("head_dim"),
            rms_norm_eps=top.number("rms_norm_eps"),
            vocab_size=top.integer("vocab_size"),
            block_size=nested.integer("block_size"),
            mask_token_id=nested.integer("mask_token_id"),
            taps=_taps(nested, num_layers, taps),
            num_target_layers=nested.optional_integer("num_target_layers"),
            layer_types=layers.types,
            sliding_window=layers.window,
            is_causal=layers.is_causal,
            rope=parse_rope(top),
            max_position_embeddings=top.integer("max_position_embeddings"),
            attention_bias=bool(top.optional_flag("attention_bias")),
            input_embedding_scale=_or_one(nested.optional_number("input_embedding_scale")),
            output_multiplier=_or_one(nested.optional_number("output_multiplier")),
            # The reference applies the cap only when it is above 0.
            final_logit_softcapping=softcap if softcap != 0 else None,
            draft_vocab_size=nested.optional_integer("draft_vocab_size"),
            dflash2=_dflash2(nested),
        )
    except ConfigError as error:
        raise CheckpointError(f"{where}: {error}; correct the file") from error
    top.refuse_unread(HARMLESS_KEYS | JUDGED_KEYS)
    nested.refuse_unread(JUDGED_KEYS)
    return config


def render_config(config: DrafterConfig, dtype: str) -> dict[str, object]:
    """The config.json of `config`, readable by the reference and by older readers too.

    `parse_config(render_config(config, dtype), ..)` equals `config`.
    """
    dflash: dict[str, object] = {
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(config.taps),
    }
    if config.input_embedding_scale != 1:
        dflash["input_embedding_scale"] = config.input_embedding_scale
    if config.output_multiplier != 1:
        dflash["output_multiplier"] = config.output_multiplier
    if config.final_logit_softcapping is not None:
        dflash["final_logit_softcapping"] = config.final_logit_softcapping
    if config.draft_vocab_size is not None:
        dflash["draft_vocab_size"] = config.draft_vocab_size
    if config.dflash2 is not None:
        dflash |= {key: getattr(config.dflash2, key) for key in _DFLASH2_KEYS}
    second = config.dflash2 is not None
    rendered: dict[str, object] = {
        "architectures": [SECOND_ARCHITECTURE if second else FIRST_ARCHITECTURE],
        "model_type": "qwen3",
        "attention_bias": config.attention_bias,
        "attention_dropout": 0.0,
        "block_size": config.block_size,
        "dflash_config": dflash,
        "dtype": dtype,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "layer_types": list(config.layer_types),
        "max_position_embeddings": config.max_position_embeddings,
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": config.num_layers,
        "num_key_value_heads": config.num_kv_heads,
        "num_target_layers": config.num_target_layers,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": render_rope(config.rope),
        "rope_theta": config.rope.theta,
        "sliding_window": config.sliding_window,
        "tie_word_embeddings": False,
        "use_cache": True,
        "use_sliding_window": "sliding_attention" in config.layer_types,
        "vocab_size": config.vocab_size,
    }
    if config.is_causal is not None:
        rendered["is_causal"] = config.is_causal
    return rendered


def _has_dflash2_keys(nested: Fields) -> bool:
    return any(nested.raw(key) is not None for key in _DFLASH2_KEYS)


def _dflash2(nested: Fields) -> DFlash2Config | None:
    """What the four keys of DFlash 2 say: all of them are needed, or none is there."""
    if not _has_dflash2_keys(nested):
        return None
    return DFlash2Config(**{key: nested.integer(key) for key in _DFLASH2_KEYS})


def guessed_taps(num_target_layers: int, num_taps: int) -> tuple[int, ...]:
    """What early code used when a checkpoint named no layers.

    Shown in an error only: it is wrong for most published checkpoints.
    """
    if num_taps == 1:
        return (num_target_layers // 2,)
    span = num_target_layers - 4
    return tuple(round(1 + i * span / (num_taps - 1)) for i in range(num_taps))


class _Layers:
    """The layer types, the window and the causality override that the file's keys amount to."""

    def __init__(self, top: Fields, nested: Fields, num_layers: int) -> None:
        window = top.optional_integer("sliding_window")
        use_window = top.optional_flag("use_sliding_window")
        full_below = top.optional_integer("max_window_layers")
        names = top.optional_texts("layer_types")
        every_layer = nested.optional_flag("use_swa")
        swa_window = nested.optional_integer("swa_window_size")
        is_causal = nested.optional_flag("is_causal")
        fallback = nested.optional_flag("causal")
        self.is_causal = fallback if is_causal is None else is_causal
        self.window = window
        if every_layer:
            self.types: tuple[LayerType, ...] = ("sliding_attention",) * num_layers
            if swa_window is not None or window is None:
                self.window = nested.integer("swa_window_size")
            self.is_causal = bool(self.is_causal)
        elif names is not None:
            self.types = tuple(_layer_type(top, name) for name in names)
            if "sliding_attention" in self.types and use_window is False:
                raise top.wrong(
                    "use_sliding_window", False, "true, since layer_types has sliding layers"
                )
        else:
            first = num_layers if not (use_window and window) else (full_below or 0)
            self.types = tuple(
                "sliding_attention" if layer_idx >= first else "full_attention"
                for layer_idx in range(num_layers)
            )


def _layer_type(top: Fields, name: str) -> LayerType:
    if name not in get_args(LayerType):
        raise top.wrong("layer_types", name, f"only {' and '.join(get_args(LayerType))}")
    return cast("LayerType", name)


def _taps(nested: Fields, num_layers: int, override: Sequence[int] | None) -> tuple[int, ...]:
    written = nested.optional_integers("target_layer_ids")
    if override is not None:
        return _given_taps(tuple(override), nested)
    if written is not None:
        return written
    depth = nested.optional_integer("num_target_layers")
    guess = "can't even be computed, as 'num_target_layers' is missing too"
    if depth is not None:
        ids = ",".join(str(tap) for tap in guessed_taps(depth, num_layers))
        guess = f"would give {ids}, which is wrong for most published checkpoints"
    raise CheckpointError(
        f"{nested.where}: key 'target_layer_ids' is missing, so the tapped target layers are not"
        f" known; the old formula {guess}; find the layers used in training and pass them as --taps"
    )


def taps_option(taps: Sequence[int]) -> str:
    """Given taps as errors show them: the option that a user would correct."""
    return f"--taps {','.join(str(tap) for tap in taps) or '(empty)'}"


def _given_taps(taps: tuple[int, ...], nested: Fields) -> tuple[int, ...]:
    """`taps` as given by the user, whom errors then blame instead of the file."""
    depth = nested.optional_integer("num_target_layers")
    try:
        check_taps(taps, depth)
    except ConfigError as error:
        raise CheckpointError(
            f"{taps_option(taps)} does not fit {nested.where}: {error}; correct the given taps or"
            " leave them out"
        ) from error
    return taps


def _or_one(value: float | None) -> float:
    return 1.0 if value is None else value
