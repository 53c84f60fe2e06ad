"""Rules on whether a drafter and a target belong together, and are used as they were trained.

Engine-specific readings are in the modules of the engines.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict

MOST_PADDING = 512
LARGEST_FLOAT16 = 65504.0
_OTHER_TARGET = "Use the target that the drafter was trained for."


def hidden_size_differs(pair: PairFacts) -> Verdict | None:
    drafter, target = pair.drafter.shape.hidden_size, pair.target.hidden_size
    if drafter is None or target is None or drafter == target:
        return None
    return Verdict(
        f"The drafter's hidden size is {drafter}, the target's {target}: features, embedding and "
        "head do not fit, and every engine stops while loading.",
        _OTHER_TARGET,
    )


def depth_differs(pair: PairFacts) -> Verdict | None:
    drafter, target = pair.drafter.shape.num_target_layers, pair.target.num_layers
    if drafter is None or target is None or drafter == target:
        return None
    return Verdict(
        f"The drafter was made for a target of {drafter} layers, this one has {target}: it may "
        "load and accept nothing.",
        _OTHER_TARGET,
    )


def vocabulary_differs(pair: PairFacts) -> Verdict | None:
    sizes = _vocab_sizes(pair)
    if sizes is None or _is_padding(*sizes):
        return None
    return Verdict(
        f"The drafter's vocabulary has {sizes[0]} ids, the target's {sizes[1]}, more than padding "
        "explains: ids of one mean other tokens in the other.",
        _OTHER_TARGET,
    )


def vocabulary_padded(pair: PairFacts) -> Verdict | None:
    sizes = _vocab_sizes(pair)
    if sizes is None or sizes[0] == sizes[1] or not _is_padding(*sizes):
        return None
    return Verdict(
        f"The vocabularies have {sizes[0]} and {sizes[1]} rows; that is padding, which no engine "
        "minds.",
        "Nothing.",
    )


def tokenizer_differs(pair: PairFacts) -> Verdict | None:
    recorded, tokenizer = pair.drafter.record.tokenizer_sha256, pair.target.tokenizer
    if recorded is None or tokenizer is None or recorded == tokenizer.vocabulary_sha256:
        return None
    return Verdict(
        "The drafter was trained with another tokenizer, whatever the sizes say: it drafts ids "
        "that mean other tokens, and acceptance is near zero.",
        _OTHER_TARGET,
    )


def special_token_differs(pair: PairFacts) -> Verdict | None:
    recorded, tokenizer = pair.drafter.record.special_tokens, pair.target.tokenizer
    if recorded is None or tokenizer is None:
        return None
    if pair.drafter.record.tokenizer_sha256 not in (None, tokenizer.vocabulary_sha256):
        return None
    pairs = recorded.items() ^ tokenizer.special.items()
    if not pairs:
        return None
    names = ", ".join(sorted({name for name, _ in pairs})[:3])
    return Verdict(
        f"Special tokens differ from those of the training ({names}): llama.cpp may switch "
        "speculation off, other engines accept less around turns.",
        "Use the tokenizer of the training, or try whether acceptance holds (live check).",
    )


def mask_is_ordinary(pair: PairFacts) -> Verdict | None:
    mask, tokenizer = pair.drafter.shape.mask_token_id, pair.target.tokenizer
    if mask is None or tokenizer is None or mask not in tokenizer.tokens:
        return None
    if mask in tokenizer.special.values():
        return None
    return Verdict(
        f"The mask token {mask} is {tokenizer.tokens[mask]!r}, which ordinary text contains: where "
        "it does, slots to be filled and text look alike to the drafter.",
        "Train with a reserved or padding row as the mask token.",
    )


def mask_ends_texts(pair: PairFacts) -> Verdict | None:
    mask = pair.drafter.shape.mask_token_id
    names = [name for name, ids in pair.target.special_ids.items() if mask in ids]
    if mask is None or not names:
        return None
    return Verdict(
        f"The mask token {mask} is also the target's {names[0]}: engines that stop, pad or begin "
        "at that id cut or garble blocks.",
        "Train with a reserved or padding row as the mask token.",
    )


def overflows_float16(pair: PairFacts) -> Verdict | None:
    name = _too_large(pair)
    if name is None or pair.target.dtype == "float16":
        return None
    return Verdict(
        f"{name} has values above {LARGEST_FLOAT16:g}, which float16 can't hold: with --dtype "
        "float16 the draft logits are NaN and nothing is accepted, without an error.",
        "Serve the pair in bfloat16 or float32.",
    )


def overflows_in_use(pair: PairFacts) -> Verdict | None:
    name = _too_large(pair)
    if name is None or pair.target.dtype != "float16":
        return None
    return Verdict(
        f"The target is float16, so engines cast the drafter to it, but {name} has values above "
        f"{LARGEST_FLOAT16:g}: draft logits are NaN and nothing is accepted, without an error.",
        "Serve the pair in bfloat16 (--dtype bfloat16).",
    )


def cast_to_float16(pair: PairFacts) -> Verdict | None:
    dtype = pair.drafter.shape.dtype
    if pair.target.dtype != "float16" or dtype in (None, "float16") or _too_large(pair):
        return None
    return Verdict(
        f"The drafter was made in {dtype} and is cast to the target's float16: activations may "
        "overflow, which shows as an acceptance of exactly 0 %.",
        "Watch acceptance, or serve the pair in bfloat16.",
    )


def positions_are_fewer(pair: PairFacts) -> Verdict | None:
    drafter, target = pair.drafter.shape.position_limit, pair.target.position_limit
    if drafter is None or target is None or drafter >= target:
        return None
    return Verdict(
        f"The drafter's positions end at {drafter}, the target's at {target}: requests beyond "
        "crash or lose acceptance in vLLM and SGLang; Blockdraft goes on without drafts.",
        f"Limit the context to {drafter} (vLLM: --max-model-len, SGLang: --context-length, "
        "llama.cpp: -c), or train longer.",
    )


def template_differs(pair: PairFacts) -> Verdict | None:
    recorded, found = pair.drafter.record.template_sha256, pair.target.template_digest
    if recorded is None or found is None or recorded == found:
        return None
    return Verdict(
        "The target's chat template renders conversations otherwise than in training: acceptance "
        "falls, most of all in the first tokens of an answer.",
        "Serve with the chat template of the training (vLLM and SGLang: --chat-template).",
    )


def template_is_gone(pair: PairFacts) -> Verdict | None:
    record, target = pair.drafter.record, pair.target
    if record.template_sha256 is None or target.tokenizer is None or target.chat_template:
        return None
    return Verdict(
        "The drafter was trained on chats, but the target's tokenizer has no chat template: "
        "engines refuse chats or render them in a form that training never had.",
        "Put the template of the training beside the target (chat_template.jinja).",
    )


def mode_differs(pair: PairFacts) -> Verdict | None:
    trained = pair.drafter.record.template_args
    template = pair.target.chat_template
    if trained is None or template is None or pair.drafter.record.is_raw:
        return None
    names = sorted(trained.keys() | pair.template_args.keys())
    for name in names:
        if name in template and trained.get(name) != pair.template_args.get(name):
            used = pair.template_args.get(name, "the template's default")
            return Verdict(
                f"Training set {name} to {trained.get(name, 'its default')}, requests will have "
                f"{used}: a drafter of one thinking mode accepts little in the other.",
                f"Send chat_template_kwargs {{{name!r}: {trained.get(name)!r}}} with every request "
                f"(and check with --template-arg {name}=...).",
            )
    return None


def mode_is_unknown(pair: PairFacts) -> Verdict | None:
    template = pair.target.chat_template
    if pair.drafter.record.template_args is not None or template is None:
        return None
    if "enable_thinking" not in template and "reasoning_effort" not in template:
        return None
    return Verdict(
        "The chat template has a thinking mode, and nothing tells which one the drafter was "
        "trained in; in the other one most of the acceptance is lost.",
        "Ask its makers, or measure both (`blockdraft eval --template-arg enable_thinking=false`).",
    )


def target_is_quantized(pair: PairFacts) -> Verdict | None:
    method = pair.target.quantization
    if method is None or pair.drafter.record.is_target_quantized:
        return None
    return Verdict(
        f"The target is quantized ({method}) and the drafter was not trained for that: acceptance "
        "falls, in reports from a few per cent to nearly everything.",
        "Measure it (live check), or train on answers of the quantized target.",
    )


def target_is_gguf(pair: PairFacts) -> Verdict | None:
    if pair.target.format != "gguf":
        return None
    return Verdict(
        "The target is a GGUF file: only llama.cpp and Blockdraft take it; its metadata was "
        "checked, its tokenizer was not.",
        "Check against the folder that the file was made from.",
    )


def drafter_is_gguf(pair: PairFacts) -> Verdict | None:
    if pair.drafter.format != "gguf":
        return None
    return Verdict(
        "The drafter is a GGUF file: its metadata and shapes were checked, not the values in it.",
        "Check the folder that it was made from too.",
    )


def nothing_recorded(pair: PairFacts) -> Verdict | None:
    drafter = pair.drafter
    if not drafter.is_drafter or drafter.record_problem or drafter.record.tau is not None:
        return None
    return Verdict(
        "The drafter records no acceptance length, so that a live check has nothing to compare "
        "with and an engine's alarm nothing to go by.",
        "Measure it with `blockdraft eval` and write acceptance_length into provenance.json.",
    )


def head_dim_of_target(pair: PairFacts) -> Verdict | None:
    drafter, target = pair.drafter.shape.head_dim, pair.target.head_dim
    if drafter is None or target is None or drafter == target:
        return None
    return Verdict(
        f"Heads have {drafter} numbers in the drafter and {target} in the target: allowed, but "
        "attention backends and cache pages must suit both.",
        "If an engine complains about page sizes, choose the draft's attention backend by itself.",
    )


def _vocab_sizes(pair: PairFacts) -> tuple[int, int] | None:
    drafter, target = pair.drafter.shape.vocab_size, pair.target.vocab_size
    return None if drafter is None or target is None else (drafter, target)


def _is_padding(drafter: int, target: int) -> bool:
    return abs(drafter - target) <= min(MOST_PADDING, min(drafter, target) // 100)


def _too_large(pair: PairFacts) -> str | None:
    for name, tensor in pair.drafter.tensors.items():
        if tensor.max_abs is not None and tensor.max_abs > LARGEST_FLOAT16:
            return name
    return None


RULES = (
    Rule("DFL050", "error", "all", "hidden sizes differ", hidden_size_differs),
    Rule("DFL051", "error", "all", "made for a target of another depth", depth_differs),
    Rule("DFL052", "error", "all", "vocabulary sizes differ", vocabulary_differs),
    Rule("DFL053", "note", "all", "vocabularies differ by padding", vocabulary_padded),
    Rule("DFL054", "error", "all", "another tokenizer than in training", tokenizer_differs),
    Rule("DFL055", "warning", "all", "special tokens differ from those of the training",
         special_token_differs),
    Rule("DFL056", "warning", "all", "the mask token occurs in ordinary text", mask_is_ordinary),
    Rule("DFL057", "warning", "all", "the mask token is the target's stop, padding or begin token",
         mask_ends_texts),
    Rule("DFL058", "warning", "all", "weights that float16 can't hold", overflows_float16),
    Rule("DFL059", "error", "all", "weights that the target's float16 can't hold",
         overflows_in_use),
    Rule("DFL060", "warning", "all", "the drafter is cast to float16", cast_to_float16),
    Rule("DFL061", "warning", "all", "the drafter's position limit is shorter than the target's",
         positions_are_fewer),
    Rule("DFL062", "warning", "all", "another chat template than in training", template_differs),
    Rule("DFL063", "warning", "all", "trained on chats, but there is no chat template",
         template_is_gone),
    Rule("DFL064", "warning", "all", "another thinking mode than in training", mode_differs),
    Rule("DFL065", "note", "all", "thinking mode of the training not recorded", mode_is_unknown),
    Rule("DFL066", "warning", "all", "the target is quantized, in training it was not",
         target_is_quantized),
    Rule("DFL067", "note", "all", "the target is a GGUF file", target_is_gguf),
    Rule("DFL068", "note", "all", "the drafter is a GGUF file", drafter_is_gguf),
    Rule("DFL069", "note", "all", "no acceptance length recorded", nothing_recorded),
    Rule("DFL070", "note", "all", "heads of another size than the target's", head_dim_of_target),
)  # fmt: skip
