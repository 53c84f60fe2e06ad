"""Rules on the files of a pair: what can't be read, and what was given as what.

What is inside of them is judged elsewhere.
"""

from blockdraft.check.facts import PairFacts
from blockdraft.check.findings import Rule, Verdict
from blockdraft.check.targets import is_known_family

_FETCH_AGAIN = "Fetch the files again, or export the drafter again."


def drafter_config_unreadable(pair: PairFacts) -> Verdict | None:
    problem = pair.drafter.config_problem
    if problem is None:
        return None
    return Verdict(f"The drafter does not load: {problem}.", _FETCH_AGAIN)


def drafter_weights_unreadable(pair: PairFacts) -> Verdict | None:
    problem = pair.drafter.weights_problem
    if problem is None or pair.drafter.format == "target":
        return None
    return Verdict(f"The drafter's weights do not load: {problem}.", _FETCH_AGAIN)


def target_config_unreadable(pair: PairFacts) -> Verdict | None:
    problem = pair.target.config_problem
    if problem is None:
        return None
    return Verdict(f"The target does not load: {problem}.", "Fetch the target again.")


def target_values_broken(pair: PairFacts) -> Verdict | None:
    target = pair.target
    if not target.faults or target.format not in ("hf", "gguf") or target.config_problem:
        return None
    return Verdict(
        f"The target's configuration is broken: {', '.join(target.faults)}. Engines refuse it, or "
        "run out of memory.",
        "Fetch the target again, or correct the file.",
    )


def target_refused(pair: PairFacts) -> Verdict | None:
    """A type that transformers lacks may still be known to an engine, or come with code."""
    target = pair.target
    if target.unread is None or target.faults or target.format != "hf":
        return None
    if not target.is_known_type and (target.has_own_code or is_known_family(target)):
        return None
    return Verdict(
        f"The target's configuration is not readable: {target.unread}.",
        "Fetch the target again, or correct config.json.",
    )


def target_weights_unreadable(pair: PairFacts) -> Verdict | None:
    problem = pair.target.weights_problem
    if problem is None:
        return None
    return Verdict(f"The target does not load: {problem}.", "Fetch the target again.")


def tokenizer_unreadable(pair: PairFacts) -> Verdict | None:
    problem = pair.target.tokenizer_problem
    if problem is None:
        return None
    return Verdict(
        f"The target's tokenizer does not load: {problem}.", "Fetch the tokenizer's files again."
    )


def tokenizer_missing(pair: PairFacts) -> Verdict | None:
    target = pair.target
    if target.format != "hf" or target.tokenizer is not None or target.tokenizer_problem:
        return None
    return Verdict(
        "The target's folder has no tokenizer.json: engines serve token ids only or refuse, and "
        "nothing about the vocabulary could be checked.",
        "Put the tokenizer's files beside the target's weights.",
    )


def record_unreadable(pair: PairFacts) -> Verdict | None:
    problem = pair.drafter.record_problem
    if problem is None:
        return None
    return Verdict(
        f"What the drafter was trained on and measured at is not known: {problem}.",
        "Fetch provenance.json again, or remove it.",
    )


def mask_row_unreadable(pair: PairFacts) -> Verdict | None:
    problem = pair.drafter.mask_row_problem
    if problem is None:
        return None
    return Verdict(
        f"The learned mask row does not load: {problem}. Engines stop, or draft with the plain row "
        "and accept little.",
        "Fetch mask_embedding.pt again.",
    )


def target_given_as_drafter(pair: PairFacts) -> Verdict | None:
    if pair.drafter.format != "target":
        return None
    return Verdict(
        f"{pair.drafter.source} is a whole language model, not a DFlash drafter: it has no fusion "
        "layer and no tapped layers.",
        "Give it as --target, and a DFlashDraftModel checkpoint as --drafter.",
    )


def drafter_given_as_target(pair: PairFacts) -> Verdict | None:
    if pair.target.format != "drafter":
        return None
    return Verdict(
        f"{pair.target.source} is a DFlash drafter. It calls itself {pair.target.model_type}, so "
        "generic loaders take it for a model, and drop tensors or miss the embedding.",
        "Give it as --drafter, and the model it was trained for as --target.",
    )


def tensors_missing(pair: PairFacts) -> Verdict | None:
    drafter = pair.drafter
    layers = drafter.shape.num_layers
    if not drafter.is_drafter or drafter.weights_problem or layers is None:
        return None
    names = ["fc.weight", "hidden_norm.weight", "norm.weight"]
    parts = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
    for layer in range(layers):
        names += [f"layers.{layer}.self_attn.{part}.weight" for part in parts]
        names += [f"layers.{layer}.mlp.{part}_proj.weight" for part in ("gate", "up", "down")]
        norms = ("input_layernorm", "post_attention_layernorm")
        names += [f"layers.{layer}.{norm}.weight" for norm in norms]
    missing = [name for name in names if drafter.tensor(name) is None]
    if not missing:
        return None
    return Verdict(
        f"{len(missing)} tensors are missing, the first is {missing[0]}: engines refuse the "
        "drafter or run it with values that nobody trained.",
        "Fetch the checkpoint again, or correct num_hidden_layers.",
    )


_KNOWN = (
    "fc.weight", "hidden_norm.", "norm.", "layers.", "lm_head.weight", "embed_tokens.weight",
    "d2t", "t2d", "markov", "mask_hidden", "candidate_selector", "confidence", "gru",
    "verifier_norm.", "verifier_lm_head.", "gate_proj", "joint_proj",
)  # fmt: skip


def tensors_unknown(pair: PairFacts) -> Verdict | None:
    names = [n for n in pair.drafter.tensors if not n.removeprefix("model.").startswith(_KNOWN)]
    if not names or not pair.drafter.is_drafter:
        return None
    return Verdict(
        f"The tensor {names[0]} belongs to no known part of a drafter: most engines skip it "
        "silently, and a part that is not applied costs acceptance.",
        "Find out what it is for; remove it if it changes nothing.",
    )


def weights_not_finite(pair: PairFacts) -> Verdict | None:
    wrong = [name for name, tensor in pair.drafter.tensors.items() if not tensor.is_finite]
    if not wrong:
        return None
    return Verdict(
        f"{wrong[0]} has values that are not finite: draft logits are NaN and nothing is accepted, "
        "without an error in most engines.",
        "Fetch the weights again; if they are right, the training diverged.",
    )


RULES = (
    Rule("DFL001", "error", "all", "the drafter's config.json or GGUF metadata can't be read",
         drafter_config_unreadable),
    Rule("DFL002", "error", "all", "the drafter's weights can't be read",
         drafter_weights_unreadable),
    Rule("DFL003", "error", "all", "the target's config.json or GGUF metadata can't be read",
         target_config_unreadable),
    Rule("DFL004", "error", "all", "the target's weight files are incomplete or damaged",
         target_weights_unreadable),
    Rule("DFL005", "error", "all", "the target's tokenizer can't be read", tokenizer_unreadable),
    Rule("DFL006", "warning", "all", "the target has no tokenizer", tokenizer_missing),
    Rule("DFL007", "warning", "all", "provenance.json can't be read", record_unreadable),
    Rule("DFL008", "error", "all", "mask_embedding.pt can't be read", mask_row_unreadable),
    Rule("DFL009", "error", "all", "a target was given as the drafter", target_given_as_drafter),
    Rule("DFL010", "error", "all", "a drafter was given as the target", drafter_given_as_target),
    Rule("DFL011", "error", "all", "tensors of the drafter are missing", tensors_missing),
    Rule("DFL012", "warning", "all", "a tensor that no part of a drafter uses", tensors_unknown),
    Rule("DFL013", "error", "all", "weights that are not finite", weights_not_finite),
    Rule("DFL014", "error", "all", "values in the target's configuration that no engine can read",
         target_values_broken),
    Rule("DFL015", "error", "all", "the target's configuration is refused", target_refused),
)  # fmt: skip
