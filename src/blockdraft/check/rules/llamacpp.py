"""What llama.cpp b11549 makes of a pair, once it is converted to GGUF.

The loader aborts the whole process where it does not know better, so its errors come first here.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict
from blockdraft.check.masks import llamacpp_masks
from blockdraft.check.rules.parts import (
    causality_reading,
    has_biases,
    is_second_version,
    last_layer_tapped,
    window_reading,
)
from blockdraft.check.targets import LLAMACPP, called, family, may_be_among

_IGNORED = "llama.cpp b11549 has one causality flag for all layers (is_causal, else causal)"
_NO_WINDOW = "llama.cpp b11549 applies windows only by use_sliding_window or use_swa"
LAST_LAYER_FAMILIES = ("deepseekv4", "deepseek4", "mimov2", "mimo2", "nemotronh")


def target_aborts(pair: PairFacts) -> Verdict | None:
    if may_be_among(pair.target, LLAMACPP) or pair.target.format not in ("hf", "gguf"):
        return None
    return Verdict(
        f"{called(pair.target)} has no hidden-state taps in llama.cpp b11549: GGML_ASSERT aborts "
        "the whole process with the first prompt.",
        "Use a Llama or Qwen3 target (Qwen2 and Mistral have none), or another engine.",
    )


def last_layer(pair: PairFacts) -> Verdict | None:
    if family(pair.target) in LAST_LAYER_FAMILIES:
        return None
    return last_layer_tapped(
        pair,
        'llama.cpp b11549 aborts the whole process (GGML_ASSERT "layer input tensor is null").',
        "Train without tapping the last layer.",
    )


def biases(pair: PairFacts) -> Verdict | None:
    if not has_biases(pair):
        return None
    return Verdict(
        "The drafter's attention has biases, which the dflash graph of llama.cpp b11549 does not "
        "have: conversion or loading fails.",
        "Train with attention_bias false.",
    )


def speculators_layout(pair: PairFacts) -> Verdict | None:
    if pair.drafter.format != "speculators":
        return None
    return Verdict(
        "The converter of llama.cpp b11549 does not unwrap transformer_layer_config of a plain "
        "DFlash drafter.",
        "Run `blockdraft export --format gguf`, which reads the folder and writes both files.",
    )


def causality(pair: PairFacts) -> Verdict | None:
    return causality_reading(pair, llamacpp_masks, _IGNORED)


def window(pair: PairFacts) -> Verdict | None:
    return window_reading(pair, llamacpp_masks, _NO_WINDOW)


def rope_style(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if shape.neox is not False or shape.rope_neox is False:
        return None
    return Verdict(
        "is_neox_style is false, but the converter of llama.cpp b11549 permutes q and k by "
        "rope_is_neox_style only: no error, no acceptance.",
        "Write rope_is_neox_style false too, or permute q and k to NeoX style.",
    )


def activation(pair: PairFacts) -> Verdict | None:
    if pair.drafter.shape.hidden_act in ("silu", "gelu"):
        return None
    return Verdict(
        f"hidden_act is {pair.drafter.shape.hidden_act}; llama.cpp b11549 knows silu and gelu in a "
        "drafter.",
        "Train with silu.",
    )


def no_tokenizer(pair: PairFacts) -> Verdict | None:
    target = pair.target
    if target.format != "hf" or target.tokenizer is not None or target.tokenizer_problem:
        return None
    return Verdict(
        "Both GGUF files of llama.cpp b11549 need the target's tokenizer, and there is none: "
        "conversion fails, and a drafter without one switches speculation off.",
        "Put tokenizer.json beside the target's weights.",
    )


def needs_gguf(pair: PairFacts) -> Verdict | None:
    drafts = pair.drafter.shape.num_drafts
    if drafts is None or not pair.drafter.is_drafter or is_second_version(pair):
        return None
    convert = "Ask for"
    if pair.drafter.is_folder:
        convert = "Run `blockdraft export --format gguf`, then ask for"
    return Verdict(
        "llama.cpp b11549 reads GGUF only, drafts 3 tokens unless told otherwise, and clamps to "
        "block_size - 1; drafts are greedy, so sampled requests accept less.",
        f"{convert} --spec-draft-n-max {drafts}.",
    )


def second_version(pair: PairFacts) -> Verdict | None:
    if not is_second_version(pair):
        return None
    return Verdict(
        "llama.cpp b11549 runs DFlash 2 drafters (since #27342), greedily and up to block_size - 1 "
        "drafts, but `blockdraft export` does not write them as GGUF.",
        "Convert with llama.cpp's own convert_hf_to_gguf.py and --target-model-dir, and ask for "
        f"--spec-draft-n-max {pair.drafter.shape.num_drafts or 'block_size - 1'}.",
    )


RULES = (
    Rule("DFL400", "error", "llamacpp", "target family without taps aborts the process",
         target_aborts),
    Rule("DFL401", "error", "llamacpp", "the target's last layer is tapped", last_layer),
    Rule("DFL402", "error", "llamacpp", "biases in the attention", biases),
    Rule("DFL403", "error", "llamacpp", "speculators folder", speculators_layout),
    Rule("DFL404", "error", "llamacpp", "causality read otherwise", causality),
    Rule("DFL405", "warning", "llamacpp", "window read otherwise", window),
    Rule("DFL406", "error", "llamacpp", "rotary style under the other key", rope_style),
    Rule("DFL407", "error", "llamacpp", "activation function", activation),
    Rule("DFL408", "error", "llamacpp", "no tokenizer to write into the files", no_tokenizer),
    Rule("DFL409", "note", "llamacpp", "conversion and n_max", needs_gguf),
    Rule("DFL410", "note", "llamacpp", "DFlash 2: conversion and n_max", second_version),
)  # fmt: skip
