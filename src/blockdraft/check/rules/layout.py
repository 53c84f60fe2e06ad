"""Rules on a drafter's own configuration: keys, block, mask token, vocabulary map, layers.

Tapped layers are in `taps.py`; what has to fit the target is in `fit.py`.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict
from blockdraft.check.loose import Loose
from blockdraft.json_values import as_object

_CORRECT = "Correct config.json from the training configuration, or fetch the checkpoint again."


def keys_missing(pair: PairFacts) -> Verdict | None:
    missing = pair.drafter.shape.missing
    if not missing or not pair.drafter.is_drafter:
        return None
    return Verdict(
        f"config.json lacks {', '.join(missing)}: engines refuse it or fall back on defaults of "
        "another model.",
        _CORRECT,
    )


def keys_malformed(pair: PairFacts) -> Verdict | None:
    wrong = pair.drafter.shape.malformed
    if not wrong:
        return None
    return Verdict(
        f"config.json has values of a wrong type under {', '.join(wrong)}: engines stop while "
        "loading.",
        _CORRECT,
    )


def values_impossible(pair: PairFacts) -> Verdict | None:
    said = pair.drafter.shape.impossible
    if not said or not pair.drafter.is_drafter:
        return None
    return Verdict(
        f"The drafter's configuration has {', '.join(said)}: no engine can use that. They refuse "
        "it, run out of memory, or compute nothing but NaN.",
        _CORRECT,
    )


def rotary_is_broken(pair: PairFacts) -> Verdict | None:
    faults = pair.drafter.shape.rope_faults
    if not faults or not pair.drafter.is_drafter:
        return None
    return Verdict(
        f"The rotary embedding can't be computed: {', '.join(faults)}. Engines stop while loading.",
        _CORRECT,
    )


def quantized_in_name_only(pair: PairFacts) -> Verdict | None:
    """Tensors of quantized weights come with scales, whatever the method calls them."""
    drafter = pair.drafter
    levels = (drafter.raw, as_object(drafter.raw.get("transformer_layer_config")))
    keys = Loose(*levels)
    said = keys.raw("quantization_config") or keys.raw("compression_config")
    if said is None or not drafter.is_drafter or drafter.weights_problem is not None:
        return None
    marks = ("scale", "qweight", "packed", "absmax", "quant_state", "qzeros", "blocks")
    if as_object(said) and any(mark in name for name in drafter.tensors for mark in marks):
        return None
    return Verdict(
        "The drafter's configuration says that its weights are quantized, but none are: engines "
        "look for scales that are not there, and stop while loading.",
        "Remove quantization_config from the drafter's config.json.",
    )


def head_dim_differs(pair: PairFacts) -> Verdict | None:
    shape, drafter = pair.drafter.shape, pair.drafter
    if shape.num_heads is None or shape.num_kv_heads is None or shape.head_dim is None:
        return None
    rows = {"q": shape.num_heads * shape.head_dim, "k": shape.num_kv_heads * shape.head_dim}
    rows["v"] = rows["k"]
    for layer in range(shape.num_layers or 0):
        for part, expected in rows.items():
            name = f"layers.{layer}.self_attn.{part}_proj.weight"
            tensor = drafter.tensor(name)
            if tensor is not None and tensor.shape[:1] != (expected,):
                return Verdict(
                    f"{name} has {list(tensor.shape)}, but head_dim {shape.head_dim} and the "
                    f"number of heads give {expected} rows: engines that fuse the keys of all "
                    "layers refuse it or read across heads.",
                    "Correct head_dim and the head counts in config.json.",
                )
    return None


def heads_not_grouped(pair: PairFacts) -> Verdict | None:
    heads, kv_heads = pair.drafter.shape.num_heads, pair.drafter.shape.num_kv_heads
    if not heads or not kv_heads or heads % kv_heads == 0:
        return None
    return Verdict(
        f"{heads} query heads are no multiple of {kv_heads} key/value heads: no engine builds such "
        "attention.",
        _CORRECT,
    )


def block_missing(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if not pair.drafter.is_drafter or "block_size" in shape.malformed:
        return None
    if any(said.startswith("block_size ") for said in shape.impossible):
        return None
    if shape.block_size is not None and shape.block_size >= 2:
        return None
    return Verdict(
        f"block_size is {shape.block_size}: SGLang and llama.cpp then assume 16, whatever the "
        "drafter was trained for, and read untrained slots.",
        "Write the trained block (anchor included) as block_size and dflash_config.block_size.",
    )


def blocks_contradict(pair: PairFacts) -> Verdict | None:
    top, nested = pair.drafter.shape.block_top, pair.drafter.shape.block_nested
    if top is None or nested is None or top == nested:
        return None
    return Verdict(
        f"block_size is {top} at the top level and {nested} in dflash_config: TensorRT-LLM reads "
        "the first, SGLang and llama.cpp the second.",
        "Write the trained block in both places.",
    )


def block_not_recorded(pair: PairFacts) -> Verdict | None:
    block, trained = pair.drafter.shape.block_size, pair.drafter.record.block_size
    if block is None or trained is None or block == trained:
        return None
    hint = ""
    if block == trained - 1:
        hint = " It looks like the number of drafts; block_size counts the anchor too."
    return Verdict(
        f"block_size is {block}, training used blocks of {trained}: drafts are cut short, or come "
        f"from slots that were never trained.{hint}",
        f"Write {trained}, and ask for fewer drafts at launch if you want fewer.",
    )


def proposals_contradict(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if shape.proposed_tokens is None or shape.num_drafts is None:
        return None
    if shape.proposed_tokens == shape.num_drafts:
        return None
    return Verdict(
        f"speculators_config proposes {shape.proposed_tokens} tokens a step, but a block of "
        f"{shape.block_size} has {shape.num_drafts} slots beside its anchor.",
        f"Write speculative_tokens {shape.num_drafts} (block_size - 1).",
    )


def mask_missing(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if not pair.drafter.is_drafter or shape.mask_token_id is not None:
        return None
    if "mask_token_id" in shape.malformed:
        return None
    return Verdict(
        "mask_token_id is missing: vLLM refuses the drafter, TensorRT-LLM takes the vocabulary "
        "size for it, which is no row at all.",
        "Write the mask token of the training as dflash_config.mask_token_id.",
    )


def mask_outside(pair: PairFacts) -> Verdict | None:
    mask = pair.drafter.shape.mask_token_id
    sizes = (pair.target.vocab_size, pair.drafter.shape.vocab_size)
    size = min((size for size in sizes if size is not None), default=None)
    if mask is None or (mask >= 0 and (size is None or mask < size)):
        return None
    return Verdict(
        f"mask_token_id {mask} is outside the target's {size} embedding rows: SGLang refuses it "
        '("does not support resizing target embeddings"), others read out of bounds.',
        "Use an existing row that ordinary text never has, the one of the training.",
    )


def mask_row_of_other_id(pair: PairFacts) -> Verdict | None:
    row, mask = pair.drafter.mask_row, pair.drafter.shape.mask_token_id
    if row is None or row.token_id is None or mask is None or row.token_id == mask:
        return None
    return Verdict(
        f"mask_embedding.pt is the row of token {row.token_id}, but mask_token_id is {mask}: vLLM, "
        "SGLang and the llama.cpp converter raise an error.",
        "Make both the id of the training.",
    )


def mapping_missing(pair: PairFacts) -> Verdict | None:
    drafter = pair.drafter
    drafted, size = drafter.shape.draft_vocab_size, drafter.shape.vocab_size
    if drafted is None or drafted == size or drafter.weights_problem or "d2t" in drafter.tensors:
        return None
    return Verdict(
        f"The vocabulary is reduced to {drafted} ids, but there is no d2t tensor: draft ids are "
        "taken for target ids, and next to nothing is accepted.",
        "Export the drafter again with its d2t map.",
    )


def mapping_wrong(pair: PairFacts) -> Verdict | None:
    ids, size = pair.drafter.draft_ids, pair.drafter.shape.vocab_size
    if ids is None or size is None:
        return None
    if len(set(ids)) == len(ids) and all(0 <= token_id < size for token_id in ids):
        return None
    return Verdict(
        "d2t does not map one to one into the vocabulary (its entries are offsets: target id = i + "
        "d2t[i]; GGUF files alone hold absolute ids): drafted ids are wrong, or out of bounds.",
        "Write offsets; `blockdraft export` converts between the two.",
    )


def window_missing(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    slides = "sliding_attention" in shape.layer_types or shape.use_swa
    if not slides or (shape.sliding_window or 0) > 0:
        return None
    return Verdict(
        "The drafter has sliding layers but no window: vLLM and TensorRT-LLM refuse it.",
        "Write the trained window as sliding_window.",
    )


def layer_types_count(pair: PairFacts) -> Verdict | None:
    shape = pair.drafter.shape
    if not shape.layer_types or len(shape.layer_types) == shape.num_layers or not shape.num_layers:
        return None
    return Verdict(
        f"layer_types has {len(shape.layer_types)} entries for {shape.num_layers} layers: "
        "transformers refuses the configuration, and with it every engine that reads it so.",
        _CORRECT,
    )


def rotary_is_partial(pair: PairFacts) -> Verdict | None:
    share = pair.drafter.shape.partial_rotary
    if share == 1:
        return None
    return Verdict(
        f"Only {share:g} of each head is rotated: trainers and engines have forgotten the factor "
        "in turn (good losses, no acceptance), and Blockdraft and OpenVINO do not know it.",
        "Train the drafter with plain rotary embedding, whatever its target does.",
    )


def rotary_has_image_axes(pair: PairFacts) -> Verdict | None:
    if not pair.drafter.shape.has_image_axes:
        return None
    return Verdict(
        "The rotary embedding has mrope_section, the image axes of its target: a drafter is "
        "rotated plainly, and engines that obey the key turn its positions wrongly.",
        "Remove mrope_section from the drafter's configuration (not from the target's).",
    )


RULES = (
    Rule("DFL020", "error", "all", "keys missing in the drafter's config.json", keys_missing),
    Rule("DFL021", "error", "all", "keys of a wrong type", keys_malformed),
    Rule("DFL029", "error", "all", "head_dim differs from what the weights have",
         head_dim_differs),
    Rule("DFL030", "error", "all", "query heads no multiple of key/value heads",
         heads_not_grouped),
    Rule("DFL031", "error", "all", "block_size missing or too small", block_missing),
    Rule("DFL032", "error", "all", "two different block sizes", blocks_contradict),
    Rule("DFL033", "error", "all", "another block than in training (k against k + 1)",
         block_not_recorded),
    Rule("DFL034", "error", "all", "speculative_tokens is not block_size - 1",
         proposals_contradict),
    Rule("DFL035", "error", "all", "mask_token_id missing", mask_missing),
    Rule("DFL036", "error", "all", "mask_token_id outside the vocabulary", mask_outside),
    Rule("DFL037", "error", "all", "mask_embedding.pt belongs to another id",
         mask_row_of_other_id),
    Rule("DFL038", "error", "all", "reduced vocabulary without d2t", mapping_missing),
    Rule("DFL039", "error", "all", "d2t is no map into the vocabulary", mapping_wrong),
    Rule("DFL040", "error", "all", "sliding layers without a window", window_missing),
    Rule("DFL041", "error", "all", "layer_types of another length", layer_types_count),
    Rule("DFL042", "warning", "all", "partial rotary embedding", rotary_is_partial),
    Rule("DFL043", "warning", "all", "rotary embedding with image axes", rotary_has_image_axes),
    Rule("DFL044", "error", "all", "values that no engine can use", values_impossible),
    Rule("DFL045", "error", "all", "rotary embedding that can't be computed", rotary_is_broken),
    Rule("DFL046", "error", "all", "quantized by its configuration only", quantized_in_name_only),
)  # fmt: skip
