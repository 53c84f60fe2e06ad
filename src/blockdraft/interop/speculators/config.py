"""The config.json of a speculators folder, to and from `DrafterConfig`.

It opens no files. Keys: integration notes, 2.2; how vLLM 0.32 reads them: its
`transformers_utils/configs/speculators/algos.py` and `models/qwen3_dflash.py`.
"""

from collections.abc import Mapping
from typing import cast

from blockdraft.checkpoint.fields import Fields
from blockdraft.checkpoint.format import parse_config, render_config
from blockdraft.checkpoint.unsupported import HARMLESS_KEYS
from blockdraft.drafter.config import DrafterConfig
from blockdraft.errors import CheckpointError
from blockdraft.interop.target_facts import TargetFacts

SPECULATORS_VERSION = "0.9.0"
"""The version of the format that is written."""

_LAYER_KEYS = (
    "attention_bias",
    "attention_dropout",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_target_layers",
    "rms_norm_eps",
    "rope_parameters",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "use_cache",
    "use_sliding_window",
    "vocab_size",
)

_QWEN3_DEFAULTS: Mapping[str, object] = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "head_dim": 128,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "max_window_layers": 28,
}
"""What transformers' Qwen3 configuration holds where a file, which may be a difference to it, is
silent."""

_QWEN3_WINDOW = 4096
"""The same for `sliding_window`, which counts only together with `use_sliding_window`."""

_OWN_HARMLESS_KEYS = frozenset(
    {
        # of the format, without a meaning for a drafter that is read
        "speculators_version", "max_anchors", "has_no_defaults_at_init", "target_hidden_size",
        # training only, or the Domino head's, which `projector_type` would name
        "auf", "emb_dim", "gru_hidden_dim", "lambda_base_decay_ratio", "lambda_base_start",
        "pure_draft_prefix_len",
    }
)  # fmt: skip


def refuse_unrepresentable(config: DrafterConfig, where: str) -> None:
    """Raise CheckpointError for what vLLM's reader of this format has no key for."""
    rules = {config.mask_rule(layer).causal for layer in range(config.num_layers)}
    if len(rules) > 1:
        raise CheckpointError(
            f"{where}: some layers are causal and some are not; vLLM reads one causality for all"
            " layers of a speculators folder (PR 56692), so drafts would silently be wrong: use"
            " --format hf, where it goes by layer_types"
        )
    factors = {
        "input_embedding_scale": config.input_embedding_scale != 1,
        "output_multiplier": config.output_multiplier != 1,
        "final_logit_softcapping": config.final_logit_softcapping is not None,
    }
    for name, used in factors.items():
        if used:
            raise CheckpointError(
                f"{where}: {name} has no place in the speculators format and would be ignored, so"
                " other tokens would be drafted; use --format hf"
            )


def render_speculators(
    config: DrafterConfig, dtype: str, target: TargetFacts, verifier: str
) -> dict[str, object]:
    """The config.json of `config` for `target`, which vLLM loads from `verifier`."""
    published = render_config(config, dtype)
    layer = {key: published[key] for key in _LAYER_KEYS}
    layer["vocab_size"] = target.vocab_size  # the rows of the embedding inside
    if config.is_causal is not None:
        layer["is_causal"] = config.is_causal
    causal = config.mask_rule(0).causal
    drafts = config.block_size - 1
    drafted = config.draft_vocab_size
    return {
        "architectures": ["DFlashDraftModel"],
        "aux_hidden_state_layer_ids": [tap + 1 for tap in config.taps],
        "block_size": config.block_size,
        "draft_vocab_size": target.vocab_size if drafted is None else drafted,
        "dtype": dtype,
        "mask_token_id": config.mask_token_id,
        "sample_from_anchor": False,
        # vLLM takes the opposite of this for the causality of all layers, full ones too.
        "sliding_window_non_causal": not causal,
        "speculators_config": {
            "algorithm": "dflash",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "accept_tolerance": 0.0,
                    "proposal_type": "greedy",
                    "speculative_tokens": drafts,
                    "verifier_accept_k": 1,
                }
            ],
            "verifier": {"name_or_path": verifier, "architectures": list(target.architectures)},
        },
        "speculators_model_type": "dflash",
        "speculators_version": SPECULATORS_VERSION,
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": layer,
    }


def parse_speculators(
    raw: Mapping[str, object], where: str, *, num_target_layers: int | None = None
) -> DrafterConfig:
    """The drafter that `raw` describes; `num_target_layers` is used where the file has none.

    Raises CheckpointError for another algorithm, an anchor that predicts, a tap on the target's
    last layer, and whatever the published layout refuses.
    """
    top = Fields(raw, where)
    _refuse_algorithm(top)
    layer = dict(_QWEN3_DEFAULTS)
    written = top.section("transformer_layer_config")
    layer |= dict(written.items())
    for spelling in ("rope_parameters", "rope_scaling"):
        if written.raw(spelling) is not None and written.raw("rope_theta") is None:
            _take_theta(layer, written.raw(spelling))
    if written.optional_flag("use_sliding_window"):
        layer.setdefault("sliding_window", _QWEN3_WINDOW)
    non_causal = top.optional_flag("sliding_window_non_causal")
    types = written.optional_texts("layer_types")
    if non_causal and types is not None and "sliding_attention" in types:
        layer.setdefault("is_causal", False)
    layer.setdefault("num_target_layers", num_target_layers)
    vocab = layer["vocab_size"]
    drafted = top.optional_integer("draft_vocab_size")
    layer |= {
        "architectures": ["DFlashDraftModel"],
        "block_size": top.integer("block_size"),
        "dflash_config": {
            "mask_token_id": top.integer("mask_token_id"),
            "target_layer_ids": [layer_id - 1 for layer_id in _layer_ids(top)],
            "draft_vocab_size": None if drafted == vocab else drafted,
        },
    }
    top.refuse_unread(HARMLESS_KEYS | _OWN_HARMLESS_KEYS)
    return parse_config(layer, f"{where} (transformer_layer_config)")


def _refuse_algorithm(top: Fields) -> None:
    section = top.section("speculators_config")
    named = {
        "speculators_model_type": top.optional_text("speculators_model_type"),
        "speculators_config.algorithm": section.optional_text("algorithm"),
        "projector_type": top.optional_text("projector_type"),
    }
    for key, name in named.items():
        if name not in (None, "dflash"):
            raise CheckpointError(
                f"{top.where}: {key} is {name!r}, which is another kind of drafter; only plain"
                " DFlash (version 1) speculators can be read"
            )
    for key in ("sample_from_anchor", "shift_label"):
        if top.optional_flag(key):
            raise CheckpointError(
                f"{top.where}: {key} is true: slot 0 predicts and every slot predicts the token"
                " after its own, while a DFlash drafter's masks predict the token at their own"
                " place; the weights mean something else and can't be converted"
            )


def _layer_ids(top: Fields) -> tuple[int, ...]:
    ids = top.optional_integers("aux_hidden_state_layer_ids")
    if not ids:
        raise CheckpointError(
            f"{top.where}: key 'aux_hidden_state_layer_ids' is missing, so the tapped layers are"
            " not known; add it (target_layer_ids of the training configuration, each plus 1)"
        )
    if min(ids) < 1:
        raise CheckpointError(
            f"{top.where}: aux_hidden_state_layer_ids {list(ids)} has ids below 1: id 1 is the"
            " output of the target's first layer, and the embedding (0) can't be tapped"
        )
    return ids


def _take_theta(layer: dict[str, object], section: object) -> None:
    """No default base frequency beside one that the rotary section names."""
    if isinstance(section, dict) and "rope_theta" in cast("dict[str, object]", section):
        layer.pop("rope_theta", None)
