"""What a config.json may hold besides the drafter's shape: harmless keys, and keys refused by name.

It reads no values into a configuration; `format.py` does.
"""

from collections.abc import Mapping
from typing import cast

from blockdraft.checkpoint.fields import Fields
from blockdraft.errors import CheckpointError

HARMLESS_KEYS = frozenset(
    {
        # identity, provenance, and how another library would load the file
        "_name_or_path", "architectures", "auto_map", "dtype", "model_type", "name_or_path",
        "torch_dtype", "transformers_version", "unsloth_version", "_attn_implementation",
        "_attn_implementation_autoset", "attn_implementation",
        # token ids and tokenizer of the target, which the target itself brings
        "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
        "tokenizer_class",
        # training only
        "attention_dropout", "initializer_range", "pretraining_tp", "problem_type",
        # the embedding and the head are the target's
        "tie_word_embeddings",
        # generic fields of transformers configurations that a decoder does not use
        "add_cross_attention", "chunk_size_feed_forward", "cross_attention_hidden_size",
        "finetuning_task", "id2label", "is_decoder", "is_encoder_decoder", "label2id",
        "output_attentions", "output_hidden_states", "prefix", "pruned_heads", "return_dict",
        "task_specific_params", "tf_legacy_loss", "tie_encoder_decoder", "torchscript",
        "use_bfloat16", "use_cache", "use_return_dict",
    }
)  # fmt: skip
"""Keys that never change what the drafter computes."""

FIRST_ARCHITECTURE = "DFlashDraftModel"
SECOND_ARCHITECTURE = "DFlash2DraftModel"

_TARGET_SUFFIXES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")

SPECULATORS_KEYS = (
    "speculators_model_type",
    "speculators_config",
    "transformer_layer_config",
    "aux_hidden_state_layer_ids",
)
"""Any of these makes a config.json one of the speculators layout."""

_NEUTRAL_VALUES: Mapping[str, tuple[object, ...]] = {
    "attention_sink_bias": (False,),
    "attention_value_scale": (1,),
    "sample_from_anchor": (False,),
    "partial_rotary_factor": (1,),
    "hidden_act": ("silu",),
    "mlp_bias": (False,),
    "quantization_config": (),
    "compression_config": (),
    "mrope_section": (),
    "projector_type": (),
}
"""Keys whose other values need code that does not exist here; null is neutral for all."""

_REFUSED_PREFIXES = {
    "markov": "a Markov head (DSpark)",
    "confidence": "a confidence head (DSpark)",
    "gru_": "a GRU head (Domino)",
}

JUDGED_KEYS = frozenset(_NEUTRAL_VALUES)
"""Keys that `refuse_unsupported` has judged, so that nothing else need read them."""


def refuse_other_formats(raw: Mapping[str, object], where: str) -> None:
    """Raise CheckpointError when `raw` describes a target model or a drafter of another layout."""
    for key in SPECULATORS_KEYS:
        if raw.get(key) is not None:
            raise CheckpointError(
                f"{where}: key '{key}' belongs to the speculators layout, which is not read"
                " directly (its layer ids are one higher); convert it with `blockdraft export"
                f" --format hf --target TARGET --drafter {_folder_of(where)} --out NEW_FOLDER"
                " --keep-draft-vocabulary`"
            )
    names = _architectures(raw)
    if any(name.endswith(_TARGET_SUFFIXES) for name in names) or not _has_dflash_keys(raw):
        shown = ", ".join(names) if names else "not given"
        raise CheckpointError(
            f"{where}: this looks like a target model (architectures: {shown}), not a DFlash"
            " drafter; pass it as the target and a DFlashDraftModel checkpoint as the drafter"
        )


def refuse_unsupported(fields: Fields) -> None:
    """Raise CheckpointError for a key whose value asks for something that is not implemented."""
    for key, value in fields.items():
        for start, feature in _REFUSED_PREFIXES.items():
            if key.startswith(start):
                raise CheckpointError(
                    f"{fields.where}: key '{fields.prefix}{key}' needs {feature}, which is not"
                    " supported; use a plain DFlash or a DFlash 2 checkpoint"
                )
        if key in _NEUTRAL_VALUES and value not in _NEUTRAL_VALUES[key]:
            allowed = " or ".join(repr(item) for item in (*_NEUTRAL_VALUES[key], None))
            raise CheckpointError(
                f"{fields.where}: key '{fields.prefix}{key}' = {value!r} is not supported, expected"
                f" {allowed}; use a checkpoint without it"
            )


def refuse_architecture(raw: Mapping[str, object], where: str, *, is_second: bool) -> None:
    """Raise CheckpointError for a named architecture other than that of the drafter's keys."""
    expected = SECOND_ARCHITECTURE if is_second else FIRST_ARCHITECTURE
    for name in _architectures(raw):
        if name == expected:
            continue
        if name in (FIRST_ARCHITECTURE, SECOND_ARCHITECTURE):
            has = "has the keys" if is_second else "lacks the keys"
            raise CheckpointError(
                f"{where}: architecture {name}, but the file {has} of DFlash 2 (conv_kernel_size,"
                " conv_group_size, selector_rank, selector_top_k); correct one of them, or fetch"
                " the checkpoint again"
            )
        raise CheckpointError(
            f"{where}: architecture {name} is not supported, expected {FIRST_ARCHITECTURE} or"
            f" {SECOND_ARCHITECTURE}; use a plain DFlash or a DFlash 2 checkpoint"
        )


def _folder_of(where: str) -> str:
    """What a user would give as the drafter: the place without the file's name."""
    return where.removesuffix("/config.json")


def _architectures(raw: Mapping[str, object]) -> tuple[str, ...]:
    names = raw.get("architectures")
    if not isinstance(names, list):
        return ()
    return tuple(str(name) for name in cast("list[object]", names))


def _has_dflash_keys(raw: Mapping[str, object]) -> bool:
    own = ("dflash_config", "block_size", "mask_token_id", "target_layer_ids")
    named = {FIRST_ARCHITECTURE, SECOND_ARCHITECTURE}.intersection(_architectures(raw))
    return bool(named) or any(raw.get(key) is not None for key in own)
