"""From a row of the registry to the configuration that its checkpoint has, without the checkpoint.

The row becomes a config.json, which is read as any other; nothing is fetched.
"""

from dataclasses import dataclass

from blockdraft.builtin.published_entry import PublishedDrafter
from blockdraft.checkpoint.format import parse_config
from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import ConfigError

STAND_INS: dict[str, object] = {
    "block_size": 16,
    "mask_token_id": 0,
    "max_positions": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "selector_top_k": 16,
    "sliding_layers": 0,
    "sliding_window": 4096,
    "vocab_size": 300_000,
}
"""Used where a value is not known; none of them changes the shape of a tensor."""


@dataclass(frozen=True, slots=True)
class PublishedConfig:
    """A configuration with the published shapes; `assumed` names the fields that are stand-ins.

    With nothing assumed it is the checkpoint's own. Otherwise it is good for shapes and sizes, not
    for drafting.
    """

    config: DrafterConfig
    assumed: tuple[str, ...]


def published_config(entry: PublishedDrafter) -> PublishedConfig:
    """The drafter that `entry` describes, in its own layout's rules.

    Raises ConfigError naming what is missing where the shapes are not known, and the errors of
    `parse_config`.
    """
    if entry.format == "other":
        raise ConfigError(f"{entry.id}: its layout is not read, so it has no configuration here")
    if entry.missing_shape:
        raise ConfigError(
            f"{entry.id}: not known are {', '.join(entry.missing_shape)}; its config.json has them"
        )
    raw = config_json(entry)
    return PublishedConfig(parse_config(raw, f"{entry.id}/config.json"), entry.unknown)


def differences(entry: PublishedDrafter, config: DrafterConfig) -> list[str]:
    """How a loaded checkpoint differs from what is known of it, like "num_layers 6, not 5".

    Files are replaced in place on the hub, so this is how one notices.
    """
    sliding = sum(kind == "sliding_attention" for kind in config.layer_types)
    found: dict[str, object] = {
        "block_size": config.block_size,
        "taps": config.taps,
        "mask_token_id": config.mask_token_id,
        "num_layers": config.num_layers,
        "sliding_layers": sliding,
        "sliding_window": config.sliding_window if sliding else None,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
    }
    known: dict[str, object] = {name: getattr(entry, name) for name in found}
    return [
        f"{name} {value}, not {known[name]}"
        for name, value in found.items()
        if None not in (known[name], value) and value != known[name]
    ]


def config_json(entry: PublishedDrafter) -> dict[str, object]:
    """The published config.json as far as it is known, stand-ins where a value must be."""

    def value(name: str) -> object:
        known: object = getattr(entry, name)
        return STAND_INS[name] if known is None else known

    assert entry.num_layers is not None and not entry.missing_shape
    sliding = entry.sliding_layers or 0
    kinds = ["sliding_attention"] * sliding
    kinds += ["full_attention"] * (entry.num_layers - sliding)
    raw: dict[str, object] = {
        "architectures": ["DFlash2DraftModel" if entry.format == "v2" else "DFlashDraftModel"],
        "model_type": "qwen3",
        "dflash_config": _dflash_config(entry) | {"block_size": value("block_size")},
        "num_target_layers": entry.num_target_layers,
        "num_hidden_layers": entry.num_layers,
        "hidden_size": entry.hidden_size,
        "intermediate_size": entry.intermediate_size,
        "num_attention_heads": entry.num_heads,
        "num_key_value_heads": entry.num_kv_heads,
        "head_dim": entry.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": value("rms_norm_eps"),
        "attention_bias": False,
        "layer_types": kinds,
        "sliding_window": value("sliding_window") if sliding else None,
        "use_sliding_window": sliding > 0,
        "rope_parameters": _rope_parameters(entry) | {"rope_theta": value("rope_theta")},
        "max_position_embeddings": value("max_positions"),
        "vocab_size": value("vocab_size"),
        "tie_word_embeddings": False,
    }
    if entry.is_causal is not None:
        raw["is_causal"] = entry.is_causal
    return raw


def _dflash_config(entry: PublishedDrafter) -> dict[str, object]:
    taps = range(entry.tap_count or 0) if entry.taps is None else entry.taps
    mask = STAND_INS["mask_token_id"] if entry.mask_token_id is None else entry.mask_token_id
    section: dict[str, object] = {"mask_token_id": mask, "target_layer_ids": list(taps)}
    optional = ("output_multiplier", "final_logit_softcapping", "input_embedding_scale")
    optional += ("draft_vocab_size", "conv_kernel_size", "conv_group_size")
    optional += ("selector_rank", "selector_top_k")
    if entry.format == "v2":
        section["selector_top_k"] = STAND_INS["selector_top_k"]
    for name in optional:
        known: object = getattr(entry, name)
        if known is not None:
            section[name] = known
    return section


def _rope_parameters(entry: PublishedDrafter) -> dict[str, object]:
    """Without YaRN's figures, the plain rotation stands in for it."""
    if entry.rope_type != "yarn" or entry.rope_factor is None:
        return {"rope_type": "default"}
    named: dict[str, object] = {
        "rope_type": "yarn",
        "factor": entry.rope_factor,
        "original_max_position_embeddings": entry.rope_original_positions,
        "mscale": entry.rope_mscale,
        "mscale_all_dim": entry.rope_mscale_all_dim,
    }
    return {key: figure for key, figure in named.items() if figure is not None}
