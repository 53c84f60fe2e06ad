"""What vLLM 0.32 makes of a pair (model runner V2 with Triton, V1 on CPUs).

Reads both the published HF folder and the speculators folder.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict
from blockdraft.check.masks import vllm_masks
from blockdraft.check.rules.parts import (
    causality_reading,
    extra_head,
    has_own_head,
    has_reduced_vocabulary,
    is_second_version,
    last_layer_tapped,
    uneven_keys,
)
from blockdraft.check.targets import VLLM, called, may_be_among

CPU_HEAD_DIMS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


def target_unknown(pair: PairFacts) -> Verdict | None:
    if pair.target.format != "hf" or may_be_among(pair.target, VLLM):
        return None
    return Verdict(
        f"{called(pair.target)} is not among the models known to implement SupportsEagle3 in vLLM "
        '0.32; without it: RuntimeError "Model does not support EAGLE3 interface".',
        "Use another target, or a vLLM whose model class implements SupportsEagle3.",
    )


def architecture_unknown(pair: PairFacts) -> Verdict | None:
    names = pair.drafter.shape.architectures
    if not pair.drafter.is_folder or (names and names[0].startswith("DFlash")):
        return None
    shown = names[0] if names else "none"
    return Verdict(
        f"The drafter's architecture is {shown}: vLLM 0.32 looks for DFlash{shown}, which no "
        "registry has.",
        'Write architectures ["DFlashDraftModel"].',
    )


def model_type_refused(pair: PairFacts) -> Verdict | None:
    model_type = pair.drafter.shape.model_type
    if not pair.drafter.is_folder or model_type in (None, "qwen3"):
        return None
    return Verdict(
        f"The drafter's model_type is {model_type}: vLLM 0.32 refuses some types as drafts "
        "(qwen3_5_text), and transformers 5 fills in other defaults for each.",
        "Write model_type qwen3, which describes the layers of every DFlash drafter.",
    )


def is_gguf(pair: PairFacts) -> Verdict | None:
    if pair.drafter.format != "gguf":
        return None
    return Verdict(
        "vLLM 0.32 does not read a DFlash drafter from GGUF.",
        "Run `blockdraft export --format hf` or `--format speculators` and serve that folder.",
    )


def speculators_all_causal(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if pair.drafter.format != "speculators" or shape.window_non_causal or shape.is_causal is False:
        return None
    if not any(name != "sliding_attention" for name in shape.layer_types or ("full_attention",)):
        return None
    return Verdict(
        "sliding_window_non_causal is false, which vLLM 0.32 turns into causal attention in all "
        "layers, the full ones too (PR #56692): acceptance collapses.",
        "Write sliding_window_non_causal true, or is_causal false in transformer_layer_config; "
        "`blockdraft export --format speculators` does.",
    )


def causality(pair: PairFacts) -> Verdict | None:
    if pair.drafter.format == "speculators":
        return None
    return causality_reading(
        pair, vllm_masks, "vLLM 0.32 takes use_swa layers to be causal unless is_causal says so"
    )


def mixed_layers(pair: PairFacts) -> Verdict | None:
    if pair.drafter.shape.use_swa or len(set(pair.drafter.shape.layer_types)) < 2:
        return None
    return Verdict(
        "The drafter mixes sliding and full layers: model runner V1 of vLLM 0.32, the only one on "
        "CPUs, raises NotImplementedError.",
        "On CPUs use a drafter with one kind of layer; GPUs run it with model runner V2.",
    )


def head_dim_on_cpu(pair: PairFacts) -> Verdict | None:
    head_dim = pair.drafter.shape.head_dim
    if head_dim is None or head_dim in CPU_HEAD_DIMS:
        return None
    return Verdict(
        f"head_dim {head_dim} is not among the sizes of vLLM 0.32's CPU_ATTN "
        f"({', '.join(str(size) for size in CPU_HEAD_DIMS)}): on CPUs the drafter does not load.",
        "Train with head_dim 64 or 128, or serve on a GPU.",
    )


def uneven_layers(pair: PairFacts) -> Verdict | None:
    name = uneven_keys(pair)
    if name is None:
        return None
    return Verdict(
        f"{name} has another shape than in the first layer: vLLM 0.32 computes keys and values of "
        "all layers in one product and asserts that they agree.",
        "Train a drafter whose layers have the same heads.",
    )


def mask_hidden(pair: PairFacts) -> Verdict | None:
    name = pair.drafter.has("mask_hidden")
    if name is None:
        return None
    return Verdict(
        f"The drafter has a {name} tensor, on which vLLM 0.32 asserts while loading; SGLang and "
        "others skip it silently.",
        "Use a drafter without it: its blocks start from the mask token's embedding.",
    )


def from_anchor(pair: PairFacts) -> Verdict | None:
    if not pair.drafter.shape.sample_from_anchor:
        return None
    return Verdict(
        "sample_from_anchor is true, which vLLM 0.32 rejects for DFlash.",
        "Use a drafter whose block predicts the slots after its anchor.",
    )


def other_kind(pair: PairFacts) -> Verdict | None:
    extra = extra_head(pair)
    if extra is None:
        return None
    if is_second_version(pair):
        return Verdict(
            "The drafter is a DFlash 2: model runner V1 of vLLM 0.32 (CPUs) refuses it; V2 (GPUs) "
            "runs it, where a crash after some 11,000 sampled steps is reported (#55279).",
            "Serve it on a GPU with model runner V2, or use a plain DFlash drafter.",
        )
    return Verdict(
        f"The drafter is no plain DFlash ({extra}): model runner V1 of vLLM 0.32 (CPUs) refuses "
        "DFlash 2, LiLiCorr and DSpark heads.",
        "Serve it on a GPU with model runner V2 and its own method, or use a plain DFlash drafter.",
    )


def reduced_without_head(pair: PairFacts) -> Verdict | None:
    if not has_reduced_vocabulary(pair) or has_own_head(pair) or pair.drafter.weights_problem:
        return None
    if not pair.drafter.is_folder:
        return None
    return Verdict(
        "The drafter has a reduced vocabulary (d2t) and no LM head of its own: vLLM 0.32 takes the "
        "target's whole head, which the map does not fit, and stops or drafts wrong ids.",
        "Run `blockdraft export --format speculators` (own head and map) or `--format hf` (whole "
        "vocabulary).",
    )


def rope_style(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if shape.rope_neox is not False or shape.neox is False:
        return None
    return Verdict(
        "rope_is_neox_style is false, but vLLM 0.32 reads is_neox_style only and rotates in NeoX "
        "style: no error, no acceptance.",
        "Write is_neox_style false too, or permute q and k to NeoX style.",
    )


def last_layer(pair: PairFacts) -> Verdict | None:
    return last_layer_tapped(
        pair,
        "vLLM 0.32 captures it, releases before did not, and the speculators converter drops it.",
        "Train without the last layer if other engines are to run the drafter.",
    )


def number_of_drafts(pair: PairFacts) -> Verdict | None:
    drafts = pair.drafter.shape.num_drafts
    if drafts is None or drafts < 1 or not pair.drafter.is_folder:
        return None
    needed = "must be given" if pair.drafter.format == "hf" else "is taken from the folder"
    return Verdict(
        f"vLLM 0.32 counts drafts, not the block: num_speculative_tokens {needed}, and nothing "
        "checks it against block_size.",
        f"Ask for num_speculative_tokens {drafts} (block_size - 1), or fewer.",
    )


def first_key_norm_on_cpu(pair: PairFacts) -> Verdict | None:
    """vLLM PR 46761 stacks the weights; its kernel for CPUs takes the first layer's for all."""
    never_runs = any(judge(pair) for judge in (mixed_layers, head_dim_on_cpu, other_kind))
    if never_runs or not pair.drafter.is_folder or len(set(pair.drafter.key_norms)) < 2:
        return None
    return Verdict(
        "The drafter's layers have different k_norm weights: the CPU build of vLLM 0.32 norms the "
        "context keys of all layers with the first layer's (rms_norm over stacked weights, PR "
        "#46761; XPU had the same slip, mended in PR #56431). The text stays right, fewer drafts "
        "are accepted: about 2% less was measured with Blockdraft's built-in pair.",
        "On GPUs do nothing; on CPUs expect a little less acceptance, or use a build whose CPU "
        "rms_norm reads stacked weights.",
    )


RULES = (
    Rule("DFL100", "warning", "vllm", "target family not known to give hidden states",
         target_unknown),
    Rule("DFL101", "error", "vllm", "architecture name of the drafter", architecture_unknown),
    Rule("DFL102", "warning", "vllm", "model_type of the drafter", model_type_refused),
    Rule("DFL103", "error", "vllm", "GGUF drafter", is_gguf),
    Rule("DFL104", "error", "vllm", "speculators folder read as causal in all layers",
         speculators_all_causal),
    Rule("DFL105", "error", "vllm", "causality read otherwise", causality),
    Rule("DFL106", "warning", "vllm", "mixed layers on CPUs (model runner V1)", mixed_layers),
    Rule("DFL107", "warning", "vllm", "head_dim without a CPU kernel", head_dim_on_cpu),
    Rule("DFL108", "error", "vllm", "layers with different key/value heads", uneven_layers),
    Rule("DFL109", "error", "vllm", "mask_hidden tensor", mask_hidden),
    Rule("DFL110", "error", "vllm", "sample_from_anchor", from_anchor),
    Rule("DFL111", "warning", "vllm", "DFlash 2, DSpark or another head on CPUs", other_kind),
    Rule("DFL112", "error", "vllm", "reduced vocabulary without a head of its own",
         reduced_without_head),
    Rule("DFL113", "error", "vllm", "rotary style under the other key", rope_style),
    Rule("DFL114", "note", "vllm", "the target's last layer is tapped", last_layer),
    Rule("DFL115", "note", "vllm", "num_speculative_tokens to ask for", number_of_drafts),
    Rule("DFL116", "warning", "vllm", "k_norm weights that differ by layer, on CPUs",
         first_key_norm_on_cpu),
)  # fmt: skip
