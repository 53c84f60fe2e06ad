"""What OpenVINO GenAI 2026.4.1 (models exported by optimum-intel 2.2.0) makes of a pair.

Reads the published HF folder only; the target's embedding and head are grafted onto the drafter.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict
from blockdraft.check.masks import openvino_masks
from blockdraft.check.rules.parts import (
    causality_reading,
    is_second_version,
    last_layer_tapped,
    needs_published_folder,
    other_head_unknown,
    own_head_replaced,
    reduction_left_out,
    window_reading,
)

_IGNORED = "OpenVINO GenAI 2026.4.1 gets every layer non-causal from the exporter"
_WINDOWS = "the exporter for OpenVINO GenAI 2026.4.1 takes windows from layer_types alone"


def architecture_unknown(pair: PairFacts) -> Verdict | None:
    names = pair.drafter.shape.architectures
    if pair.drafter.format != "hf" or names[:1] == ("DFlashDraftModel",):
        return None
    if is_second_version(pair):  # another name would not help: see `other_heads`
        return None
    return Verdict(
        f"The exporter for OpenVINO GenAI 2026.4.1 recognizes a drafter by architectures[0] "
        f"DFlashDraftModel; here it is {names[0] if names else 'missing'}.",
        'Write architectures ["DFlashDraftModel"].',
    )


def model_type_refused(pair: PairFacts) -> Verdict | None:
    model_type = pair.drafter.shape.model_type
    if pair.drafter.format != "hf" or model_type == "qwen3":
        return None
    return Verdict(
        f"The exporter for OpenVINO GenAI 2026.4.1 takes drafters of model_type qwen3 only; here "
        f"it is {model_type or 'missing'}.",
        "Write model_type qwen3.",
    )


def own_head_ignored(pair: PairFacts) -> Verdict | None:
    return own_head_replaced(pair, "; OpenVINO GenAI 2026.4.1 grafts the target's onto it, so")


def reduced_ignored(pair: PairFacts) -> Verdict | None:
    return reduction_left_out(
        pair,
        "OpenVINO GenAI 2026.4.1 drafts with the target's whole head: the reduced vocabulary (d2t) "
        "is left out, which is right but slower.",
        "Run `blockdraft export --format hf`, which leaves the map out.",
    )


def other_heads(pair: PairFacts) -> Verdict | None:
    return other_head_unknown(pair, "OpenVINO GenAI 2026.4.1")


def other_layout(pair: PairFacts) -> Verdict | None:
    return needs_published_folder(pair, "The exporter for OpenVINO GenAI 2026.4.1")


def causality(pair: PairFacts) -> Verdict | None:
    return causality_reading(pair, openvino_masks, _IGNORED)


def window(pair: PairFacts) -> Verdict | None:
    return window_reading(pair, openvino_masks, _WINDOWS)


def samples(pair: PairFacts) -> Verdict | None:
    if not pair.target.samples_by_default:
        return None
    return Verdict(
        "The target's generation_config.json samples by default, and OpenVINO GenAI 2026.4.1 "
        "drafts for greedy requests only.",
        "Set do_sample false for every request, or use another engine for sampling.",
    )


def last_layer(pair: PairFacts) -> Verdict | None:
    return last_layer_tapped(
        pair,
        "what the annotated hidden states of OpenVINO GenAI 2026.4.1 hold for it is not "
        "documented.",
        "Compare acceptance before relying on it, or train without the last layer.",
    )


def limits(pair: PairFacts) -> Verdict | None:
    drafts = pair.drafter.shape.num_drafts
    if drafts is None or not pair.drafter.is_folder:
        return None
    return Verdict(
        "OpenVINO GenAI 2026.4.1 drafts for one request at a time and without prefix caching.",
        f"Set num_assistant_tokens {drafts}, enable_prefix_caching False and "
        f"max_num_batched_tokens of at least {drafts + 1}.",
    )


RULES = (
    Rule("DFL500", "error", "openvino", "architecture name of the drafter", architecture_unknown),
    Rule("DFL501", "error", "openvino", "model_type of the drafter", model_type_refused),
    Rule("DFL502", "error", "openvino", "LM head of its own is ignored", own_head_ignored),
    Rule("DFL503", "note", "openvino", "reduced vocabulary is ignored", reduced_ignored),
    Rule("DFL504", "error", "openvino", "tensors or keys of another kind of head", other_heads),
    Rule("DFL505", "error", "openvino", "speculators folder or GGUF drafter", other_layout),
    Rule("DFL506", "error", "openvino", "causality read otherwise", causality),
    Rule("DFL507", "warning", "openvino", "window read otherwise", window),
    Rule("DFL508", "warning", "openvino", "sampling by default", samples),
    Rule("DFL509", "warning", "openvino", "the target's last layer is tapped", last_layer),
    Rule("DFL510", "note", "openvino", "num_assistant_tokens and limits", limits),
)  # fmt: skip
