"""What SGLang 0.5.23 makes of a pair.

Reads the published HF folder only; whatever tensors it does not know are skipped silently.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict
from blockdraft.check.masks import sglang_masks
from blockdraft.check.rules.parts import (
    SECOND_VERSION_KEYS,
    causality_reading,
    extra_head,
    has_own_head,
    has_reduced_vocabulary,
    is_second_version,
    last_layer_tapped,
    needs_published_folder,
    own_head_replaced,
    reduction_left_out,
    window_reading,
)
from blockdraft.check.targets import SGLANG, called, may_be_among
from blockdraft.json_values import as_object

DEFAULT_MASK_TOKEN = "<|MASK|>"
_IGNORED = "SGLang 0.5.23 reads is_causal and layer_types, not dflash_config.causal or use_swa"


def target_unknown(pair: PairFacts) -> Verdict | None:
    if pair.target.format != "hf" or may_be_among(pair.target, SGLANG):
        return None
    return Verdict(
        f"{called(pair.target)} has no set_dflash_layers_to_capture in SGLang 0.5.23: the server "
        "stops while loading.",
        "Use a Qwen3 or Llama target, or another engine.",
    )


def architecture_unknown(pair: PairFacts) -> Verdict | None:
    names = pair.drafter.shape.architectures
    if not pair.drafter.is_folder or (names and names[0].startswith("DFlash")):
        return None
    return Verdict(
        "architectures does not name DFlashDraftModel, by which SGLang 0.5.23 finds the drafter's "
        "class: the server stops, or runs it as an ordinary model.",
        'Write architectures ["DFlashDraftModel"].',
    )


def last_layer(pair: PairFacts) -> Verdict | None:
    return last_layer_tapped(
        pair,
        "SGLang 0.5.23 captures what goes into the next layer, and there is none, so the feature "
        "never comes.",
        "Train without tapping the last layer.",
    )


def other_layout(pair: PairFacts) -> Verdict | None:
    return needs_published_folder(pair, "SGLang 0.5.23")


def own_head_ignored(pair: PairFacts) -> Verdict | None:
    if has_reduced_vocabulary(pair):
        return None
    return own_head_replaced(
        pair, ", which SGLang 0.5.23 skips silently and replaces by the target's:"
    )


def reduced_with_head(pair: PairFacts) -> Verdict | None:
    if not has_own_head(pair) or not has_reduced_vocabulary(pair):
        return None
    return Verdict(
        "The drafter has a reduced vocabulary with its own head: SGLang 0.5.23 ignores both "
        "silently and drafts garbage.",
        "Run `blockdraft export --format hf`, or serve with vLLM from a speculators folder.",
    )


def reduced_ignored(pair: PairFacts) -> Verdict | None:
    return reduction_left_out(
        pair,
        "SGLang 0.5.23 ignores the reduced vocabulary (d2t) and drafts with the target's whole "
        "head, which is right but slower.",
        "Nothing; `blockdraft export --format hf` leaves the map out.",
    )


def other_heads(pair: PairFacts) -> Verdict | None:
    extra = extra_head(pair)
    if extra is None or is_second_version(pair):
        return None
    return Verdict(
        f"{extra[0].upper()}{extra[1:]} belongs to another kind of drafter: as a DFlashDraftModel "
        "SGLang 0.5.23 skips it silently and accepts less than was trained.",
        "Use the architecture that the head belongs to, or a plain DFlash drafter.",
    )


def second_version_incomplete(pair: PairFacts) -> Verdict | None:
    keys = as_object(pair.drafter.raw.get("dflash_config")).keys() | pair.drafter.raw.keys()
    for together in (SECOND_VERSION_KEYS[:2], SECOND_VERSION_KEYS[2:]):
        present = [key for key in together if key in keys]
        if len(present) == 1:
            return Verdict(
                f"dflash_config has {present[0]} without its partner: SGLang 0.5.23 wants "
                f"{' and '.join(together)} together and stops.",
                "Add the missing key from the training configuration, or remove both.",
            )
    return None


def second_version(pair: PairFacts) -> Verdict | None:
    if not is_second_version(pair):
        return None
    return Verdict(
        "SGLang 0.5.23 runs DFlash 2 drafters by their own class; its greedy text is reported to "
        "differ from the target's own when thinking is on (#38009).",
        "Compare greedy answers with those of the target alone before relying on them.",
    )


def mask_token_text(pair: PairFacts) -> Verdict | None:
    shape, tokenizer = pair.drafter.shape, pair.target.tokenizer
    if shape.mask_token_id is None or tokenizer is None:
        return None
    name = shape.mask_token or DEFAULT_MASK_TOKEN
    found = {token: token_id for token_id, token in tokenizer.tokens.items()}.get(name)
    if found in (None, shape.mask_token_id):
        return None
    return Verdict(
        f"The tokenizer has {name} at {found}, mask_token_id is {shape.mask_token_id}: SGLang "
        "0.5.23 compares the two and raises.",
        "Make mask_token_id that of the training, and mask_token its text.",
    )


def per_position_rows(pair: PairFacts) -> Verdict | None:
    row = pair.drafter.mask_row
    if row is None or not row.has_per_position:
        return None
    return Verdict(
        "mask_embedding.pt has rows for each position, which SGLang 0.5.23 rejects.",
        "Train with one learned row.",
    )


def causality(pair: PairFacts) -> Verdict | None:
    return causality_reading(pair, sglang_masks, _IGNORED)


def window(pair: PairFacts) -> Verdict | None:
    return window_reading(pair, sglang_masks, _IGNORED)


def shallow_target(pair: PairFacts) -> Verdict | None:
    depth = pair.target.num_layers
    if depth is None or depth >= 4 or not pair.drafter.is_folder or pair.drafter.shape.taps:
        return None
    return Verdict(
        f"target_layer_ids is missing and the target has {depth} layers: SGLang 0.5.23 can't make "
        "up ids for fewer than 4 and raises.",
        "Write target_layer_ids.",
    )


def counts_the_block(pair: PairFacts) -> Verdict | None:
    block = pair.drafter.shape.block_size
    if block is None or not pair.drafter.is_folder:
        return None
    return Verdict(
        "SGLang 0.5.23 counts the block, anchor included, where vLLM counts drafts; DFLASH runs on "
        "CUDA, NPU and XPU only.",
        f"Ask for --speculative-num-draft-tokens {block}, or leave it out.",
    )


RULES = (
    Rule("DFL200", "error", "sglang", "target family without capture of layers", target_unknown),
    Rule("DFL201", "error", "sglang", "architecture name of the drafter", architecture_unknown),
    Rule("DFL202", "error", "sglang", "the target's last layer is tapped", last_layer),
    Rule("DFL203", "error", "sglang", "speculators folder or GGUF drafter", other_layout),
    Rule("DFL204", "error", "sglang", "LM head of its own is ignored", own_head_ignored),
    Rule("DFL205", "error", "sglang", "reduced vocabulary with its own head", reduced_with_head),
    Rule("DFL206", "note", "sglang", "reduced vocabulary is ignored", reduced_ignored),
    Rule("DFL207", "error", "sglang", "tensors or keys of another kind of head", other_heads),
    Rule("DFL208", "error", "sglang", "DFlash 2 keys without their partner",
         second_version_incomplete),
    Rule("DFL209", "error", "sglang", "mask token text and id disagree", mask_token_text),
    Rule("DFL210", "error", "sglang", "mask rows for each position", per_position_rows),
    Rule("DFL211", "error", "sglang", "causality read otherwise", causality),
    Rule("DFL212", "warning", "sglang", "window read otherwise", window),
    Rule("DFL213", "error", "sglang", "no target_layer_ids and a target of few layers",
         shallow_target),
    Rule("DFL214", "note", "sglang", "number of draft tokens to ask for", counts_the_block),
    Rule("DFL215", "note", "sglang", "DFlash 2", second_version),
)  # fmt: skip
