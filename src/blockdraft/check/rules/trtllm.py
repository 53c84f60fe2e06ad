"""What TensorRT-LLM 1.3.0rc (PyTorch backend) makes of a pair.

Reads the published HF folder only; embedding and head always are the target's.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict
from blockdraft.check.masks import trtllm_masks
from blockdraft.check.rules.parts import (
    causality_reading,
    last_layer_tapped,
    needs_published_folder,
    other_head_unknown,
    own_head_replaced,
    reduction_left_out,
    uneven_keys,
)
from blockdraft.check.targets import TRTLLM, called, may_be_among

_IGNORED = "TensorRT-LLM 1.3.0rc goes by layer_types (or use_swa) and reads no causality key"


def target_untested(pair: PairFacts) -> Verdict | None:
    if pair.target.format != "hf" or may_be_among(pair.target, TRTLLM):
        return None
    return Verdict(
        f"{called(pair.target)} is not among the targets that TensorRT-LLM 1.3.0rc was tried with "
        "(Llama, Qwen3, Qwen3.5, gpt-oss, Laguna, Kimi K2).",
        "Try it, or use one of those.",
    )


def taps_sorted(pair: PairFacts) -> Verdict | None:
    taps = pair.drafter.shape.taps or ()
    if list(taps) == sorted(taps):
        return None
    return Verdict(
        f"TensorRT-LLM 1.3.0rc sorts target_layer_ids {list(taps)}, so the columns of fc.weight "
        "meet the wrong layers: no error, no acceptance.",
        "Sort the ids and permute the column blocks of fc.weight in the same way.",
    )


def block_nested_only(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if pair.drafter.format != "hf" or shape.block_top is not None or shape.block_nested is None:
        return None
    return Verdict(
        "block_size stands in dflash_config only, and TensorRT-LLM 1.3.0rc reads the top level.",
        "Write it in both places; `blockdraft export --format hf` does.",
    )


def mask_top_only(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if pair.drafter.format != "hf" or shape.mask_token_id is None or shape.mask_nested:
        return None
    return Verdict(
        "mask_token_id does not stand in dflash_config, so TensorRT-LLM 1.3.0rc takes the "
        "vocabulary size for it, which is no row of the embedding.",
        "Write dflash_config.mask_token_id, or mask_token_id in the YAML.",
    )


def uneven_layers(pair: PairFacts) -> Verdict | None:
    name = uneven_keys(pair)
    if name is None:
        return None
    return Verdict(
        f"{name} has another shape than in the first layer, which TensorRT-LLM 1.3.0rc refuses.",
        "Train a drafter whose layers have the same heads.",
    )


def own_head_ignored(pair: PairFacts) -> Verdict | None:
    return own_head_replaced(pair, "; TensorRT-LLM 1.3.0rc always takes the target's, so")


def reduced_ignored(pair: PairFacts) -> Verdict | None:
    return reduction_left_out(
        pair,
        "TensorRT-LLM 1.3.0rc ignores the reduced vocabulary (d2t) and drafts with the target's "
        "whole head, which is right but slower.",
        "Nothing; `blockdraft export --format hf` leaves the map out.",
    )


def other_heads(pair: PairFacts) -> Verdict | None:
    return other_head_unknown(
        pair, "TensorRT-LLM 1.3.0rc", ": it loads the known tensors only and accepts less"
    )


def other_layout(pair: PairFacts) -> Verdict | None:
    return needs_published_folder(pair, "TensorRT-LLM 1.3.0rc")


def causality(pair: PairFacts) -> Verdict | None:
    return causality_reading(pair, trtllm_masks, _IGNORED)


def last_layer(pair: PairFacts) -> Verdict | None:
    return last_layer_tapped(
        pair,
        "it is not documented what TensorRT-LLM 1.3.0rc delivers for it, its output or that of the "
        "final norm.",
        "Compare acceptance before relying on it, or train without the last layer.",
    )


def counts_drafts(pair: PairFacts) -> Verdict | None:
    drafts = pair.drafter.shape.num_drafts
    if drafts is None or not pair.drafter.is_folder:
        return None
    return Verdict(
        "TensorRT-LLM 1.3.0rc counts drafts, not the block; the stable release 1.2.1 has no "
        "DFlash.",
        f"Write max_draft_len: {drafts} (block_size - 1) in speculative_config.",
    )


RULES = (
    Rule("DFL300", "warning", "trtllm", "target family that nobody reports", target_untested),
    Rule("DFL301", "error", "trtllm", "tapped layers are sorted", taps_sorted),
    Rule("DFL302", "error", "trtllm", "block_size in dflash_config only", block_nested_only),
    Rule("DFL303", "error", "trtllm", "mask_token_id at the top level only", mask_top_only),
    Rule("DFL304", "error", "trtllm", "layers with different key/value heads", uneven_layers),
    Rule("DFL305", "error", "trtllm", "LM head of its own is ignored", own_head_ignored),
    Rule("DFL306", "note", "trtllm", "reduced vocabulary is ignored", reduced_ignored),
    Rule("DFL307", "error", "trtllm", "tensors or keys of another kind of head", other_heads),
    Rule("DFL308", "error", "trtllm", "speculators folder or GGUF drafter", other_layout),
    Rule("DFL309", "error", "trtllm", "causality read otherwise", causality),
    Rule("DFL310", "warning", "trtllm", "the target's last layer is tapped", last_layer),
    Rule("DFL311", "note", "trtllm", "max_draft_len to write", counts_drafts),
)  # fmt: skip
